"""Secrets in command lines and URLs are not written into run.json."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import fsspec
import pytest
from kineto_documents import document, op

from lstmprof.base.errors import LstmprofError, command_line, without_secrets, without_url_secrets
from lstmprof.cli import run as lstmprof


@pytest.mark.parametrize(
    ("word", "masked"),
    [
        ("--api-key=abc", "--api-key=***"),
        ("WANDB_API_KEY=abc", "WANDB_API_KEY=***"),
        ("AWS_SECRET_ACCESS_KEY=abc", "AWS_SECRET_ACCESS_KEY=***"),
        ("--hf-token=abc=d", "--hf-token=***"),
        ("password:abc", "password:***"),
        ("https://me:pass@host/a.json", "https://***@host/a.json"),
        ("https://host/a.json?X-Amz-Signature=abc&b=c", "https://host/a.json?***"),
        ("s3://bucket/key@2x.json", "s3://bucket/key@2x.json"),
        ("hf_abcdefghij", "***"),
        ("data/sk-learn.csv", "data/sk-learn.csv"),
        ("--tokenizer=bert", "--tokenizer=bert"),
        ("--max-tokens=128", "--max-tokens=128"),
        ("--token-file=a", "--token-file=a"),
        ("a?b", "a?b"),
    ],
)
def test_a_secret_is_masked_and_nothing_else(word: str, masked: str) -> None:
    assert without_secrets(word) == masked


def test_a_secret_behind_its_option_is_masked() -> None:
    words = ["lstmprof", "run", "my train.py", "--", "--token", "abc", "--lr", "1", "--password"]
    expected = "lstmprof run 'my train.py' -- --token '***' --lr 1 --password"
    assert command_line(words) == expected
    assert command_line(["--token", "--lr", "token", "abc"]) == "--token --lr token abc"


def cpu_s(mask: Callable[[str], str], text: str) -> float:
    """Return the least CPU time of three calls; four times the text takes 4 times as long."""
    times = []
    for _ in range(3):
        begin = time.process_time()
        mask(text)
        times.append(time.process_time() - begin)
    return min(times)


@pytest.mark.parametrize("part", ["a", "-", "token", "://", "://a@", "?", "hf_", "secret_", "= "])
def test_the_time_for_a_word_grows_with_its_length_only(part: str) -> None:
    assert cpu_s(without_secrets, part * 20_000) < 8 * cpu_s(without_secrets, part * 5_000) + 0.1


#: The URL of a file, with a key in its query.
SIGNED = "memory://bucket/a.json?X-Amz-Signature=SECRET/1&b=2"


@pytest.mark.parametrize(
    ("said", "masked"),
    [
        (f"{SIGNED}: not found", "memory://bucket/a.json?***: not found"),
        (f"cannot reach ({SIGNED}), or '{SIGNED}'.", None),
        ("https://me:SECRET@host/a: denied", "https://***@host/a: denied"),
        ("is this https://host/a? no", "is this https://host/a? no"),
    ],
)
def test_a_message_does_not_show_the_key_of_a_url(said: str, masked: str | None) -> None:
    error = LstmprofError(said, f"check {SIGNED}")
    assert "SECRET" not in str(error)
    assert masked is None or error.fault == masked


@pytest.mark.parametrize("part", ["://", "://a?", "://a@", "a?b", "://?"])
def test_the_time_for_a_message_grows_with_its_length_only(part: str) -> None:
    short, long = (cpu_s(without_url_secrets, part * count) for count in (5_000, 20_000))
    assert long < 8 * short + 0.1


def test_the_command_in_run_json_shows_no_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.json").write_bytes(document(op(1)))
    words = ["ingest", str(tmp_path / "a.json"), "--out", str(tmp_path / "out")]
    monkeypatch.setattr(sys, "argv", ["lstmprof", *words, "--token", "SECRET"])
    assert lstmprof(words) == 0
    text = (tmp_path / "out/a/run.json").read_text()
    assert "SECRET" not in text
    assert json.loads(text)["command"].endswith(" --token '***'")


def test_the_key_of_a_url_is_nowhere_in_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fsspec.filesystem("memory").pipe(SIGNED, document(op(1)))
    assert lstmprof(["ingest", SIGNED, "--out", str(tmp_path)]) == 0
    assert lstmprof(["ingest", SIGNED.replace("a.json", "none.json")]) == 1
    assert "SECRET" not in "".join(capsys.readouterr())
    (run,) = tmp_path.iterdir()
    assert run.name == "a"
    assert "SECRET" not in (run / "run.json").read_text()
