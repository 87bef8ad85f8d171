"""Pieces read in other processes say what the plain reader says, and leave nothing behind."""

from __future__ import annotations

import gzip
import io
import json
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kineto_documents import as_a_whole, document, facts, op
from shared_traces import FOLDER, needed

from lstmprof import formats
from lstmprof.base import pool
from lstmprof.base.errors import LstmprofError, ProfileError
from lstmprof.events.stored import StoredEvents
from lstmprof.formats.kineto import stream
from lstmprof.formats.kineto.pieces import Piece

PIECE_BYTES = 2**16


@pytest.fixture(autouse=True)
def temporary(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Two workers, small pieces, and the folder of temporary files."""
    for name in ("SPOOLED_BYTES", "SHARED_BYTES"):
        monkeypatch.setattr(stream, name, 0)
    monkeypatch.setattr(stream, "PIECE_BYTES", PIECE_BYTES)
    monkeypatch.setattr(stream, "_worker_count", lambda: 2)
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[subprocess.Popen[bytes]]]:
    """The workers that were started."""
    found: list[subprocess.Popen[bytes]] = []
    start = pool.Pool._start

    def kept(self: pool.Pool) -> subprocess.Popen[bytes]:
        found.append(start(self))
        return found[-1]

    monkeypatch.setattr(pool.Pool, "_start", kept)
    yield found
    assert [worker.returncode is None for worker in found] == [False] * len(found)


def mixed_events(count: int) -> list[dict[str, Any]]:
    """Ops; now and then one of odd writing, and one whose name looks like a border."""
    events = [op(n, args={"External id": n, "Input Dims": [[n % 5]]}) for n in range(count)]
    for n in range(0, count, 97):
        events[n] |= {"ts": -1.5 - n, "name": "odd", "pid": "7"}
    for n in range(13, count, 41):
        events[n] |= {"name": '}, {"ph": "X"', "args": {"x": [{"a": 1}, {"b": [{}, {}]}]}}
    return events


@needed
@pytest.mark.parametrize("name", ["hm-amp-a100-bs128.json.gz", "hta-sampled-rank0.json.gz"])
def test_a_real_profile(name: str, started: list[subprocess.Popen[bytes]]) -> None:
    path = FOLDER / "kineto" / name
    found = formats.read(path)
    assert isinstance(found.events, StoredEvents)
    assert len(started) == 2
    assert facts(found) == as_a_whole(path.read_bytes())


@pytest.mark.parametrize(("piece_bytes", "end_bytes"), [(700, 9999), (20_000, 9999), (700, 40)])
def test_a_file_of_odd_events_and_false_borders(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, piece_bytes: int, end_bytes: int
) -> None:
    monkeypatch.setattr(stream, "PIECE_BYTES", piece_bytes)
    monkeypatch.setattr(stream, "_END_BYTES", end_bytes)
    content = document(*mixed_events(500), distributedInfo={"rank": 3})
    path = tmp_path / "trace.json"
    path.write_bytes(content)
    expected = as_a_whole(content)
    for found in (
        stream.profile_of_file(path),
        stream.profile("trace.json", io.BytesIO(content)),
        stream.profile("trace.json", io.BytesIO(gzip.compress(content))),
    ):
        assert found is not None
        assert facts(found) == expected


def test_a_plain_file_is_cut_as_its_text_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(stream, "PIECE_BYTES", 1000)
    content = document(*mixed_events(200))
    path = tmp_path / "trace.json"
    path.write_bytes(content)
    expected = stream._Texts(io.BytesIO(content[10:]), b"")
    pieces, rest = list(map(stream._content, expected)), expected.rest
    assert len(pieces) > 10
    for end_bytes in (30, 500, 5000):
        monkeypatch.setattr(stream, "_END_BYTES", end_bytes)
        with path.open("rb") as file:
            texts = stream._TextsOfPlainFile(file, b"", path, 10)
            assert list(map(stream._content, texts)) == pieces
            assert texts.rest == rest


def test_nothing_is_left_once_the_profile_is_let_go(temporary: Path, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(document(*mixed_events(300)))
    found = stream.profile_of_file(path)
    assert len(list(temporary.iterdir())) == 1
    del found
    assert list(temporary.iterdir()) == []


def test_what_the_workers_have_no_hands_for_is_read_here(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Unanswered(Future[Piece | None]):
        def result(self, timeout: float | None = None) -> Piece | None:
            waiting.remove(self)
            return self.call()

    class Slow(Executor):
        """Does nothing before it is waited for."""

        def __init__(self, count: int) -> None: ...

        def submit(self, call: Callable[..., Piece | None], /, *args: Any) -> Any:
            answer = Unanswered()
            answer.call = partial(call, *args)
            waiting.append(answer)
            asked.append(answer)
            most.append(len(waiting))
            return answer

    waiting: list[Unanswered] = []
    asked: list[Unanswered] = []
    most: list[int] = []
    monkeypatch.setattr(stream, "Pool", Slow)
    monkeypatch.setattr(stream, "PIECE_BYTES", 1000)
    path = tmp_path / "trace.json"
    content = document(*mixed_events(300))
    path.write_bytes(content)
    found = stream.profile_of_file(path)
    assert found is not None
    assert facts(found) == as_a_whole(content)
    texts = len(content) // 1000
    assert max(most) <= 2 * stream._AHEAD
    assert texts / 4 < len(asked) < texts * 3 / 4


@pytest.mark.parametrize("damage", ['{"ph": "X", "cat": "cpu_op"', "] x", '{"ph" "X"},'])
def test_a_damaged_file_is_left_to_the_plain_reader(
    temporary: Path, started: list[subprocess.Popen[bytes]], damage: str
) -> None:
    text = ",".join(json.dumps(event) for event in mixed_events(900))
    half = text.index("}},", len(text) // 2) + 3
    content = f'{{"schemaVersion": 1, "traceEvents": [{text[:half]}{damage}{text[half:]}]}}'
    assert stream.profile("trace.json", io.BytesIO(content.encode())) is None
    assert len(started) == 2
    assert list(temporary.iterdir()) == []


def test_a_killed_worker_is_one_line(
    monkeypatch: pytest.MonkeyPatch,
    temporary: Path,
    tmp_path: Path,
    started: list[subprocess.Popen[bytes]],
) -> None:
    dies = "import os, sys; sys.stdin.buffer.read(8); os.kill(os.getpid(), 9)"
    monkeypatch.setattr(pool, "_SERVE", dies)
    path = tmp_path / "trace.json"
    path.write_bytes(document(*mixed_events(900)))
    with pytest.raises(
        ProfileError, match=r"trace.json: the system killed a process that read the file"
    ) as one:
        formats.read(path)
    assert "\n" not in str(one.value)
    assert len(started) >= 2
    assert list(temporary.iterdir()) == []


def test_a_worker_finds_no_room(
    monkeypatch: pytest.MonkeyPatch, temporary: Path, tmp_path: Path
) -> None:
    def removed(*_: object, **__: object) -> int:
        for folder in temporary.iterdir():
            folder.rename(folder.with_name("moved"))
        return 2

    path = tmp_path / "trace.json"
    path.write_bytes(document(*mixed_events(900)))
    monkeypatch.setattr(stream, "_worker_count", removed)
    with pytest.raises(LstmprofError, match=r"cannot hold temporary files .*TMPDIR"):
        formats.read(path)
