"""Wheels for a machine without a network: pinned by the lock, and laid where they are missing."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import pytest

from benchmarks.gpu import wheels
from lstmprof.base.errors import CaptureError


def wheel(folder: Path, name: str, module: str, tags: str = "py3-none-any") -> None:
    with zipfile.ZipFile(folder / f"{name}-1.0-{tags}.whl", "w") as archive:
        archive.writestr(f"{module}.py", "answer = 42\n")
        archive.writestr(f"{name}-1.0.dist-info/METADATA", f"Name: {name}\nVersion: 1.0\n")


def test_every_wheel_is_pinned_by_the_lock() -> None:
    pinned = wheels.pinned()
    assert len(pinned) == len(wheels.CARRIED)
    assert all(line.count("==") == 1 for line in pinned)


def test_only_what_is_missing_is_unpacked(tmp_path: Path) -> None:
    wheel(tmp_path, "numpy", "numpy")
    wheel(tmp_path, "no_such_project", "no_such_module")
    place = tmp_path / "site"
    assert wheels.unpacked(tmp_path, place) == ["no_such_project"]
    assert (place / "no_such_module.py").is_file()
    assert not (place / "numpy.py").exists()


def test_a_wheel_for_another_python_is_left(tmp_path: Path) -> None:
    own = "cp{}{}".format(*sys.version_info[:2])
    wheel(tmp_path, "no_such_other", "other", "cp27-cp27mu-manylinux1_x86_64")
    wheel(tmp_path, "no_such_own", "own", f"{own}-{own}-manylinux_2_17_x86_64")
    wheel(tmp_path, "no_such_stable", "stable", "cp310-abi3-manylinux2014_x86_64")
    assert wheels.unpacked(tmp_path, tmp_path / "site") == ["no_such_own", "no_such_stable"]


def test_a_damaged_wheel_is_named(tmp_path: Path) -> None:
    (tmp_path / "no_such_project-1.0-py3-none-any.whl").write_bytes(b"PK")
    with pytest.raises(CaptureError, match=r"no_such_project.*download it again"):
        wheels.unpacked(tmp_path, tmp_path / "site")
