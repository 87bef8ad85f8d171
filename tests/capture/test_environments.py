"""Environments for workers: made once, whole or not at all."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from lstmprof.capture.environments import STAMP, environment
from lstmprof.errors import CaptureError


def wheel(folder: Path, version: str) -> str:
    """A requirement for a small package that is built here, so that no index is asked for it."""
    source = folder / f"tiny-{version}"
    source.mkdir()
    (source / "tiny.py").write_text(f"version = {version!r}\n")
    (source / "pyproject.toml").write_text(
        "[build-system]\nrequires = []\nbuild-backend = 'backend'\nbackend-path = ['.']\n"
    )
    (source / "backend.py").write_text(BACKEND.replace("VERSION", version))
    return f"tiny @ {source.as_uri()}"


BACKEND = """
import zipfile, os
def build_wheel(folder, config_settings=None, metadata_directory=None):
    name = "tiny-VERSION-py3-none-any.whl"
    info = "tiny-VERSION.dist-info/"
    with zipfile.ZipFile(os.path.join(folder, name), "w") as z:
        z.write("tiny.py")
        z.writestr(info + "METADATA", "Metadata-Version: 2.1\\nName: tiny\\nVersion: VERSION\\n")
        z.writestr(info + "WHEEL", "Wheel-Version: 1.0\\nGenerator: x\\nRoot-Is-Purelib: true\\n"
                   "Tag: py3-none-any\\n")
        z.writestr(info + "RECORD", "")
    return name
"""


def imported(interpreter: Path) -> str:
    code = "import tiny, numpy; print(tiny.version)"
    return subprocess.check_output([interpreter, "-c", code], text=True).strip()


def test_two_versions_live_beside_each_other_and_are_made_once(tmp_path: Path) -> None:
    said: list[str] = []
    old, new = (wheel(tmp_path, v) for v in ("1.0", "2.0"))
    cache = tmp_path / "cache"
    first = environment([old], cache, said.append)
    second = environment([new], cache, said.append)
    assert (imported(first), imported(second)) == ("1.0", "2.0")
    assert environment([old], cache, said.append) == first
    assert len(said) == 2
    (first.parent.parent / STAMP).unlink()  # its making was cut short
    assert imported(environment([old], cache, said.append)) == "1.0"
    assert len(said) == 3


def test_what_cannot_be_installed_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="cannot be installed") as raised:
        environment(["./no-such-folder-here"], tmp_path / "cache")
    assert len(str(raised.value).splitlines()) == 1
    assert list((tmp_path / "cache").iterdir()) == []
