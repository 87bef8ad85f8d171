"""What stands between a run and its place: what killed processes left, and a rename that fails."""

from __future__ import annotations

import errno
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lstmprof.base.errors import RunError
from lstmprof.runs import directory
from lstmprof.runs.directory import PARTIAL, cache_folder, new_run, staging, sweep

#: Begins a run in the folder given, tells so, and ends when its input does.
BEGUN = """
import os, signal, sys
from pathlib import Path
from lstmprof.runs.directory import staging

signal.signal(signal.SIGHUP, signal.SIG_DFL)
with staging(Path(sys.argv[1])) as folder:
    print(folder.name, flush=True)
    sys.stdin.read()
"""


def begun(out: Path) -> tuple[subprocess.Popen[str], Path]:
    """A process that has begun a run in ``out``, and where it writes it."""
    command = [sys.executable, "-c", BEGUN, str(out)]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
    assert process.stdout is not None
    return process, out / process.stdout.readline().strip()


def killed(out: Path) -> Path:
    """What a process left in ``out`` that was killed."""
    process, folder = begun(out)
    process.kill()
    process.communicate()
    assert folder.name.startswith(PARTIAL)
    return folder


def run(out: Path, name: str, file: str, *, force: bool = False) -> None:
    with new_run(out, name, force=force) as content:
        (content / file).touch()


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_runs_that_were_being_replaced_when_their_process_was_killed_are_put_back(
    tmp_path: Path,
) -> None:
    partial = killed(tmp_path)
    for name in ("a", "b"):
        (partial / "replaced" / name).mkdir(parents=True)
        (partial / "replaced" / name / "old").touch()
    run(tmp_path, "c", "new")
    assert files(tmp_path) == ["a", "b", "c"]
    assert files(tmp_path / "a") == files(tmp_path / "b") == ["old"]


def test_a_run_that_was_written_again_is_not_put_back(tmp_path: Path) -> None:
    run(tmp_path, "there", "new")
    partial = killed(tmp_path)
    (partial / "replaced" / "there").mkdir(parents=True)
    sweep(tmp_path)
    assert files(tmp_path / "there") == ["new"]
    assert files(tmp_path) == ["there"]


def test_a_leftover_that_is_no_folder_keeps_nothing_from_being_written(tmp_path: Path) -> None:
    partial = killed(tmp_path)
    partial.rmdir()
    partial.touch()
    run(tmp_path, "a", "mine")
    assert files(tmp_path / "a") == ["mine"]


def test_looking_whether_a_process_lives_does_not_disturb_it(tmp_path: Path) -> None:
    process, folder = begun(tmp_path)
    sweep(tmp_path)
    assert folder.exists()
    process.communicate("")
    assert process.returncode == 0


def test_a_signal_while_the_work_is_removed_keeps_none_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed, done = shutil.rmtree, []

    def interrupted(folder: Path, **how: bool) -> None:
        done.append(folder)
        if len(done) == 1:
            raise KeyboardInterrupt
        removed(folder, **how)

    monkeypatch.setattr(shutil, "rmtree", interrupted)
    with pytest.raises(KeyboardInterrupt), staging(tmp_path) as partial:
        (partial / "half").write_text("")
    assert len(done) == 2
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("force", [True, False])
def test_a_run_that_another_puts_at_the_last_moment_is_exchanged_or_left(
    force: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = Path.rename

    def after_another(path: Path, target: Path) -> Path:
        monkeypatch.undo()
        (tmp_path / "a").mkdir()
        (tmp_path / "a" / "run.json").write_text("another's")
        return rename(path, target)

    def write() -> None:
        with new_run(tmp_path, "a", force=force) as folder:
            (folder / "run.json").write_text("ours")
            monkeypatch.setattr(Path, "rename", after_another)

    if force:
        write()
    else:
        with pytest.raises(RunError, match="check whether another command writes the same run"):
            write()
    assert (tmp_path / "a" / "run.json").read_text() == ("ours" if force else "another's")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_the_old_run_is_put_back_where_the_new_one_cannot_take_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path, "a", "run.json")
    rename = Path.rename

    def refused(self: Path, target: Any) -> Path:
        if (self / "new").exists():
            raise OSError(errno.ENOTEMPTY, "Directory not empty")
        return rename(self, target)

    monkeypatch.setattr(directory, "_exchanged", lambda *_: False)  # as on a network's disk
    monkeypatch.setattr(Path, "rename", refused)
    with pytest.raises(RunError, match="a: Directory not empty"):
        run(tmp_path, "a", "new", force=True)
    assert files(tmp_path / "a") == ["run.json"]


@pytest.mark.parametrize(
    ("variables", "folder"),
    [
        ({"LSTMPROF_CACHE": "/a", "XDG_CACHE_HOME": "/b"}, Path("/a")),
        ({"XDG_CACHE_HOME": "/b"}, Path("/b/lstmprof")),
        ({"HOME": "/home/me"}, Path("/home/me/.cache/lstmprof")),
    ],
)
def test_the_cache_is_where_the_user_says(
    variables: dict[str, str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LSTMPROF_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert cache_folder() == folder
