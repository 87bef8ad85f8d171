"""Secrets in command lines and URLs are not written into run.json."""

from __future__ import annotations

import time

import pytest

from lstmprof.errors import command_line, without_secrets


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


@pytest.mark.parametrize("part", ["a", "-", "token", "://", "://a@", "?", "hf_", "secret_", "= "])
def test_no_word_takes_long(part: str) -> None:
    begin = time.process_time()
    without_secrets(part * 50_000)
    assert time.process_time() - begin < 1
