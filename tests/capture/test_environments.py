"""Environments for workers: made once, whole or not at all."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path

import pytest

from lstmprof.base.errors import CaptureError
from lstmprof.capture.interpreters import environments
from lstmprof.capture.interpreters.environments import STAMP, Environment, environment

#: name in the wheel → what it holds
METADATA = {
    "METADATA": "Metadata-Version: 2.1\nName: {}\nVersion: {}\n",
    "WHEEL": "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "RECORD": "",
}


def wheel(folder: Path, version: str, package: str = "tiny") -> str:
    """A requirement for a small package that is made here, so that no index is asked for it."""
    path = folder / f"{package}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(f"{package}.py", f"version = {version!r}\n")
        for name, text in METADATA.items():
            file.writestr(f"{package}-{version}.dist-info/{name}", text.format(package, version))
    return f"{package} @ {path.as_uri()}"


def printed(interpreter: Path, code: str) -> str:
    return subprocess.check_output([interpreter, "-c", code], text=True).strip()


def test_two_versions_live_beside_each_other_and_are_made_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    old, new = (wheel(tmp_path, v) for v in ("1.0", "2.0"))
    cache = tmp_path / "cache"
    assert environments.ALWAYS == ("numpy",)  # which takes long to install
    monkeypatch.setattr(environments, "ALWAYS", (wheel(tmp_path, "1.0", "always"),))
    first = environment([old], cache).made(said.append)
    monkeypatch.setattr(environments, "ALWAYS", ())
    second = environment([new], cache).made(said.append)
    assert printed(first, "import tiny, always; print(tiny.version)") == "1.0"
    assert printed(second, "import tiny; print(tiny.version)") == "2.0"
    assert environment([new], cache).made(said.append) == second
    assert len(said) == 2


def test_one_whose_making_was_cut_short_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Path] = []

    def build(wanted: Environment) -> None:
        assert not wanted.folder.exists()
        wanted.interpreter.parent.mkdir(parents=True)
        wanted.interpreter.touch()
        made.append(wanted.interpreter)

    monkeypatch.setattr(environments, "_build", build)
    interpreter = environment(["tiny"], tmp_path).made()
    (interpreter.parent.parent / STAMP).unlink()
    assert environment(["tiny"], tmp_path).made() == interpreter
    assert environment(["tiny"], tmp_path).made() == interpreter
    assert made == [interpreter] * 2


def test_what_cannot_be_installed_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="could not install") as raised:
        environment(["./no-such-folder-here"], tmp_path / "cache").made()
    assert len(str(raised.value).splitlines()) == 1
    assert [p for p in (tmp_path / "cache").iterdir() if p.is_dir()] == []
