"""Raw profiles stay on disk: in place where they are plain, unpacked to a file where gzipped."""

from __future__ import annotations

import gc
import gzip
import random
import tempfile
from pathlib import Path

import pytest
from formats.databases import write

from lstmprof.base.errors import ProfileError
from lstmprof.formats import raw_file, read
from lstmprof.formats.raw_file import OpenFile, RawFile
from lstmprof.formats.xplane import schema

TEXT = b"0123456789" * 1000


@pytest.fixture
def unpackable() -> bytes:
    """More than a megabyte that gzip does not pack."""
    return random.Random(5).randbytes(2 * 2**20)


@pytest.mark.parametrize("content", [TEXT, gzip.compress(TEXT)], ids=["plain", "gzipped"])
def test_a_part_is_the_slice_of_the_whole(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "profile"
    file.write_bytes(content)
    for raw in (raw_file.load(file), raw_file.raw_of_bytes("member", content)):
        assert (raw.length, raw.content) == (len(TEXT), TEXT)
        assert raw.part(5, 25) == TEXT[5:25]
        assert raw.part(len(TEXT) - 3, len(TEXT) + 3) == TEXT[-3:]
        assert raw.part(len(TEXT) + 3, len(TEXT) + 5) == b""
        assert raw.head.content == TEXT[: raw.head.length]


def test_a_plain_file_is_read_where_it_lies(tmp_path: Path) -> None:
    file = tmp_path / "profile"
    file.write_bytes(TEXT)
    with raw_file.load(file).on_disk() as path:
        assert path == file


def test_what_is_in_memory_lies_on_disk_for_as_long_as_it_is_asked(tmp_path: Path) -> None:
    with raw_file.raw_of_bytes("member", TEXT).on_disk() as path:
        assert path.read_bytes() == TEXT
    assert not path.exists()


def test_a_gzipped_file_is_unpacked_to_a_file_that_goes_with_it(
    tmp_path: Path, unpackable: bytes
) -> None:
    file = tmp_path / "profile"
    file.write_bytes(gzip.compress(unpackable))
    raw = raw_file.load(file)
    assert isinstance(raw.data, OpenFile)
    unpacked = raw.data.path
    assert raw.part(0, raw.length) == unpackable
    del raw
    gc.collect()
    assert not unpacked.exists()


def test_a_damaged_gzip_leaves_no_file(
    tmp_path: Path, unpackable: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    packed = gzip.compress(unpackable)
    with pytest.raises(ProfileError, match="truncated"):
        raw_file.raw_of_bytes("member", packed[:-12])
    assert not list(tmp_path.iterdir())


def test_blanks_are_an_empty_file_however_many(tmp_path: Path) -> None:
    file = tmp_path / "profile"
    file.write_bytes(b" " * (2 * 2**20) + b"\n")
    with pytest.raises(ProfileError, match="is empty"):
        raw_file.load(file)


@pytest.fixture
def in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes reading the whole of an open file an error."""

    def in_memory(raw: RawFile) -> bytes:
        assert isinstance(raw.data, bytes), "the whole file was read"
        return raw.data

    monkeypatch.setattr(RawFile, "content", property(in_memory))


@pytest.mark.usefixtures("in_place")
def test_a_database_is_not_read_into_memory(tmp_path: Path) -> None:
    nvtx = {"start": 1, "end": 5, "eventType": 59, "text": "step", "globalTid": 7 << 24 | 7}
    file = write(tmp_path / "profile.sqlite", NVTX_EVENTS=[nvtx])
    assert read(file).events.column("kind").to_pylist() == ["step"]


@pytest.mark.usefixtures("in_place")
def test_an_xplane_is_not_read_into_memory(tmp_path: Path) -> None:
    space = schema.xspace()()
    plane = space.planes.add(name=b"/host:CPU")
    plane.event_metadata.add(key=1, value={"name": b"step"})
    plane.lines.add(name=b"python").events.add(metadata_id=1, duration_ps=5000)
    file = tmp_path / "x.xplane.pb"
    file.write_bytes(space.SerializeToString())
    assert read(file).events.column("name").to_pylist() == ["step"]


@pytest.mark.parametrize("element", ["{}", "[]", '{"a":1}', "[[]]", '"x"'])
def test_objects_without_end_are_refused_before_they_are_made(
    element: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of half a megabyte unpacked to ``{},`` without end, and took 3.2 GB of memory."""
    monkeypatch.setattr(raw_file, "FREE_OBJECT_BYTES", 2**20)
    text = f'{{"traceEvents":[{",".join([element] * 200_000)}]}}'
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(text.encode()))
    with pytest.raises(ProfileError, match=r"bytes of JSON need \d+ MiB of memory"):
        assert raw_file.load(tmp_path / "a.json.gz").json


def test_numbers_that_need_too_much_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raw_file, "FREE_OBJECT_BYTES", 2**20)
    floats = gzip.compress(b'{"a": [' + b"1.0," * 100_000 + b"1.0]}")
    with pytest.raises(ProfileError, match=r"bytes of JSON need 6 MiB of memory"):
        _ = raw_file.raw_of_bytes("floats.json.gz", floats).json
