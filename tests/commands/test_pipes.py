"""What is no plain file is refused before it is opened, in every command that takes a path."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from lstmprof.cli import run as lstmprof


@pytest.fixture(autouse=True)
def _no_wait() -> Iterator[None]:
    """To open a pipe waits until somebody opens its other end, and nobody does."""

    def fail(number: int, frame: object) -> None:
        pytest.fail("it waits")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(600)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize(
    "command",
    [
        ["breakdown", "{pipe}"],
        ["diagnose", "{pipe}"],
        ["report", "{pipe}", "-o", "{folder}/page.html"],
        ["query", "SELECT 1", "{pipe}"],
        ["query", "SELECT 1", "file://{pipe}"],
        ["ingest", "{pipe}", "--out", "{folder}/out"],
        ["ingest", "file://{pipe}", "--out", "{folder}/out"],
        ["recommend", "--like", "{pipe}"],
        ["recommend", "--hidden", "8", "--impl", "{pipe}:build"],
        ["capture", "--impl", "{pipe}:build", "--workload", "1x320-ce-short"],
        ["capture", "--impl", "torch-nn-lstm", "--workload", "ptb-large", "--data", "{pipe}"],
        ["run", "{pipe}"],
    ],
    ids=" ".join,
)
def test_a_pipe_is_refused_before_it_is_opened(
    command: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pipe = tmp_path / "pipe.py"
    os.mkfifo(pipe)
    monkeypatch.chdir(tmp_path)
    code = lstmprof([part.format(pipe=pipe, folder=tmp_path) for part in command])
    said = capsys.readouterr().err
    assert code in (1, 2)
    assert "not a regular file" in said
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize("kind", ["socket", "device", "link to itself"])
def test_what_is_no_file_is_refused(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's path may have 107 bytes
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
    (tmp_path / "link to itself").symlink_to("link to itself")
    (tmp_path / "device").symlink_to("/dev/zero")
    assert lstmprof(["breakdown", kind]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"lstmprof: error: {kind}: ")
    assert len(said.splitlines()) == 1


def test_a_folder_within_itself_is_looked_through_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "again").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "a" / "pipe.json")
    (tmp_path / "a" / "zero.json").symlink_to("/dev/zero")
    assert lstmprof(["breakdown", str(tmp_path)]) == 1
    assert "has no run and no profile in it" in capsys.readouterr().err
