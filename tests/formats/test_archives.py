"""Tar archives that are cut, tampered with, or hold what is no plain file."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from lstmprof.base.errors import ForeignFileError, ProfileError
from lstmprof.formats import raw_file, sources

SIZE, CHECKSUM = slice(124, 136), slice(148, 156)


def packed(**members: bytes) -> bytearray:
    """An archive of ``members``; each header and each content of these tests is one block."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for name, content in members.items():
            facts = tarfile.TarInfo(name if "." in name else f"{name}.json")
            facts.size = len(content)
            tar.addfile(facts, io.BytesIO(content))
    return bytearray(file.getvalue())


def with_size(archive: bytearray, member: int, size: int, type_: bytes = b"0") -> bytes:
    """``archive`` of which the header of ``member`` says this ``size``, in base 256."""
    at = member * 1024
    header = archive[at : at + 512]
    first = b"\x80" if size >= 0 else b"\xff"
    header[SIZE] = first + size.to_bytes(11, "big", signed=True)
    header[156:157] = type_
    header[CHECKSUM] = b" " * 8
    header[CHECKSUM] = b"%06o\0 " % sum(header)
    archive[at : at + 512] = header
    return bytes(archive)


def read(content: bytes) -> tuple[list[str], str]:
    """The names of the members that can be read, and the faults."""
    listed = raw_file.members(raw_file.raw_of_bytes("a.tar", content))
    faults = [m.fault for m in listed.files if m.fault] + [listed.fault] * (
        listed.fault is not None
    )
    return [m.name for m in listed.files if not m.fault], "; ".join(map(str, faults))


def test_a_whole_archive_has_no_fault() -> None:
    assert read(bytes(packed(a=b"{}", b=b"{}"))) == (["a.json", "b.json"], "")


def test_an_archive_of_more_files_than_are_read_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raw_file, "MOST_FILES", 2)
    assert read(bytes(packed(a=b"{}", b=b"{}"))) == (["a.json", "b.json"], "")
    names, fault = read(bytes(packed(a=b"{}", b=b"{}", c=b"{}")))
    assert names == ["a.json", "b.json"]
    assert fault == ("a.tar: has more than 2 entries; only the first were read; unpack it (tar xf)")


def test_a_size_beyond_any_file_costs_that_member_alone() -> None:
    names, fault = read(with_size(packed(a=b"{}", b=b"{}"), 1, 2**80))
    assert names == ["a.json"]
    assert f"a.tar/b.json: is truncated: the archive has 8704 of its {2**80} bytes" in fault


@pytest.mark.parametrize("type_", [b"0", b"x", b"L", b"S", b"Z"])
@pytest.mark.parametrize("size", [2**80, -512, -1024, -(2**70)])
def test_impossible_sizes_of_any_kind_of_header_end_the_archive(size: int, type_: bytes) -> None:
    # -1024 leads back to the header before: read as it stands, it would be read again without end
    names, fault = read(with_size(packed(a=b"{}", b=b"{}"), 1, size, type_))
    assert names == ["a.json"]
    assert fault.startswith("a.tar")


def test_a_header_that_is_overwritten_hides_the_rest_and_that_is_told() -> None:
    archive = packed(a=b"{}", b=b"{}", c=b"{}")
    archive[1024:1100] = b"#" * 76
    names, fault = read(bytes(archive))
    assert names == ["a.json"]
    assert (
        fault == "a.tar: the tar archive is damaged (no header at byte 1024); copy or create "
        "the archive again"
    )


def test_a_last_member_that_is_cut_costs_no_other() -> None:
    names, fault = read(bytes(packed(a=b"{}", b=b"x" * 512)[:1700]))
    assert names == ["a.json"]
    assert "b.json: is truncated: the archive has 164 of its 512 bytes" in fault


def test_headers_nested_without_end_end_the_archive() -> None:
    name = tarfile.TarInfo("n")
    name.type, name.size = tarfile.GNUTYPE_LONGNAME, 0
    nested = name.tobuf(tarfile.GNU_FORMAT) * 5000
    names, fault = read(bytes(packed(a=b"{}")[:1024]) + nested)
    assert names == ["a.json"]
    assert "the tar archive is damaged" in fault


def test_the_good_members_of_a_damaged_archive_are_read(tmp_path: Path) -> None:
    archive = tmp_path / "a.tar"
    archive.write_bytes(with_size(packed(a=b"{}", b=b"[]"), 1, 2**80))
    (good,), (bad,) = sources.groups(archive)
    assert good.load().content == b"{}"
    with pytest.raises(ProfileError, match=r"a.tar/b.json: is truncated"):
        bad.load()


def test_a_damaged_archive_in_a_folder_costs_no_other_file(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{}")
    (tmp_path / "b.tar").write_bytes(packed(a=b"{}")[:300])
    (tmp_path / "c.tar").write_bytes(packed(**{"notes.txt": b"x"}))
    loads = {source.name: source.load for (source,) in sources.groups(tmp_path)}
    assert loads["a.json"]().content == b"{}"
    with pytest.raises(ProfileError, match=r"b.tar: the tar archive is damaged"):
        loads["b.tar"]()
    with pytest.raises(ForeignFileError, match=r"c.tar: is a tar archive without a profile"):
        loads["c.tar"]()
