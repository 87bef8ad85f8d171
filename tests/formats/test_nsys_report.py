"""Nsight Systems' own reports, through a stand-in for nsys that copies a real export."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import pytest

from lstmprof import formats
from lstmprof.base.errors import ForeignFileError, ProfileError
from lstmprof.cli import run as lstmprof

EXPORT = Path(__file__).parents[1] / "profiles" / "nsys-2025.sqlite"
_NSYS = f"""#!{sys.executable}
import pathlib, shutil, sys
verb, kind, force, output, report = sys.argv[1:]
assert (verb, kind, force) == ("export", "--type=sqlite", "--force-overwrite=true")
assert report.endswith(".nsys-rep")
if pathlib.Path(report).read_bytes() != b"\\x00a report":
    sys.exit("Importer error: the report is of a newer \\x1b[31mversion")
shutil.copy({str(EXPORT)!r}, output.removeprefix("--output="))
"""


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that is the PATH."""
    folder = tmp_path / "tools"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def report(folder: Path, name: str, content: bytes = b"\x00a report") -> Path:
    path = folder / name
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return path


def install(tools: Path) -> None:
    (tools / "nsys").write_text(_NSYS)
    (tools / "nsys").chmod(0o755)


@pytest.mark.parametrize("name", ["a.nsys-rep", "a.qdrep", "a b.nsys-rep.gz"])
def test_a_report_is_read_as_its_export(name: str, tmp_path: Path, tools: Path) -> None:
    install(tools)
    profile, exported = formats.read(report(tmp_path, name)), formats.read(EXPORT)
    assert profile.format == "nsys"
    assert profile.events.equals(exported.events)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([name, "tools"])


def test_without_nsys_it_is_said_how_to_export_it(
    tmp_path: Path, tools: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = report(tmp_path, "a.nsys-rep")
    with pytest.raises(
        ForeignFileError,
        match=r"only nsys can export, and nsys is not on the PATH.*nsys export --type sqlite",
    ):
        formats.read(path)
    assert lstmprof(["breakdown", str(path)]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_report_that_nsys_refuses_is_one_line_with_its_words(tmp_path: Path, tools: Path) -> None:
    install(tools)
    with pytest.raises(
        ProfileError, match=r"nsys could not export the report .Importer error"
    ) as refused:
        formats.read(report(tmp_path, "a.nsys-rep", b"\x00another"))
    assert "\x1b" not in str(refused.value)
    assert "with the nsys that recorded the report" in str(refused.value)
