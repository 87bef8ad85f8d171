"""What a command says of a word that holds nothing to read."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from attack.seeds import kineto

from lstmprof.base.errors import CacheWarning, LstmprofError, ProfileError, RunError
from lstmprof.cli import run as lstmprof
from lstmprof.runs import directory
from lstmprof.runs.cache import open_runs
from lstmprof.runs.directory import cache_folder

#: A process that is killed once its run is in place, and its own folder is not yet removed.
LEAVES = """
import os, pathlib, signal, sys
from lstmprof.runs.directory import staging
with staging(pathlib.Path(sys.argv[1])):
    os.kill(os.getpid(), signal.SIGKILL)
"""


def refusal(folder: Path, cache: Path) -> LstmprofError:
    with pytest.raises(LstmprofError) as told:
        open_runs([folder], cache)
    return told.value


def test_the_only_profile_there_says_itself_why_it_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "cut.json").write_text('{"traceEvents": [{"ph": "X"')
    told = refusal(tmp_path / "cut.json", tmp_path / "cache")
    assert isinstance(told, ProfileError)
    assert str(told).startswith(str(tmp_path / "cut.json"))


def test_of_several_that_are_not_read_the_folder_is_told_with_the_first_reason(
    tmp_path: Path,
) -> None:
    job = tmp_path / "job"
    job.mkdir()
    for name in ("a.json", "b.json"):
        (job / name).write_text('{"traceEvents": [{"ph": "X"')
    told = refusal(job, tmp_path / "cache")
    assert isinstance(told, RunError)
    assert str(told).startswith(f"{job}: no readable run or profile; ")
    assert "a.json" in str(told)


def test_what_a_killed_process_left_beside_a_run_in_the_cache_is_swept(tmp_path: Path) -> None:
    file, cache = tmp_path / "a.json", tmp_path / "cache"
    file.write_bytes(kineto()[0])
    (run,) = open_runs([file], cache)
    ended = subprocess.run([sys.executable, "-c", LEAVES, run.path.parent], stdout=subprocess.PIPE)
    assert ended.returncode == -signal.SIGKILL
    assert [path.name for path in run.path.parent.glob(".*")] != []
    assert [again.path for again in open_runs([file], cache)] == [run.path]
    assert [path.name for path in run.path.parent.glob(".*")] == []


@pytest.fixture
def no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache folder that nobody can make, root neither, and a TMPDIR of its own."""
    (tmp_path / "file").touch()
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    monkeypatch.setenv("LSTMPROF_CACHE", str(tmp_path / "file" / "cache"))
    directory.instead_of.cache_clear()
    yield tmp_path / "file" / "cache"
    directory.instead_of.cache_clear()


def profiles(folder: Path) -> list[Path]:
    files = [folder / name for name in ("a.json", "b.json")]
    for file in files:
        file.write_bytes(kineto()[0].replace(b"aten::mm", file.stem.encode()))
    return files


def test_where_the_cache_cannot_be_written_a_temporary_folder_is_with_one_warning(
    no_cache: Path, tmp_path: Path
) -> None:
    files = profiles(tmp_path)
    with pytest.warns(CacheWarning) as told:
        runs = open_runs(files)
    (again,) = open_runs(files[:1])  # a second warning would fail the test
    assert [run.name for run in runs] == ["a", "b"]
    assert len(told) == 1
    said = str(told[0].message)
    assert said.startswith(f"{no_cache}: lstmprof does not use this cache folder (Not a directory)")
    assert all(run.path.is_relative_to(tmp_path / "tmp") for run in runs)
    assert again.path == runs[0].path


def test_a_command_without_a_cache_tells_so_in_a_line_and_leaves_nothing(
    no_cache: Path, tmp_path: Path
) -> None:
    own = {**os.environ, "LSTMPROF_CACHE": str(no_cache), "TMPDIR": str(tmp_path / "tmp")}
    command = [sys.executable, "-m", "lstmprof", "breakdown", *map(str, profiles(tmp_path))]
    ended = subprocess.run(command, capture_output=True, text=True, env=own, check=False)
    assert (ended.returncode, len(ended.stderr.splitlines())) == (0, 1), ended.stderr
    assert ended.stderr.startswith(f"lstmprof: warning: {no_cache}: lstmprof does not use")
    assert [*(tmp_path / "tmp").iterdir()] == []


def test_a_cache_that_becomes_full_is_left_for_a_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, put = tmp_path / "cache", directory.put

    def full(content: Path, place: Path, replaced: Path, *, force: bool) -> None:
        if place.is_relative_to(cache):
            fault = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            raise RunError(f"{place}: {fault.strerror}") from fault
        put(content, place, replaced, force=force)

    monkeypatch.setattr(directory, "put", full)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.warns(CacheWarning, match="No space left on device"):
        (run,) = open_runs(profiles(tmp_path)[:1], cache)
    assert run.path.name == "a"
    assert not run.path.is_relative_to(cache)
    assert len(run.events()) > 0


def test_what_is_in_a_cache_that_cannot_be_written_is_read_from_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (file, _), cache = profiles(tmp_path), tmp_path / "cache"
    (first,) = open_runs([file], cache)
    monkeypatch.setattr(directory, "unwritable", lambda folder: "Read-only file system")
    (again,) = open_runs([file], cache)
    assert again.path == first.path


def test_a_user_without_a_home_has_no_cache_and_no_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("LSTMPROF_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    assert cache_folder() == Path("/nonexistent/.cache/lstmprof")


def test_a_page_that_is_opened_lies_elsewhere_without_a_cache(
    no_cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    (file, _) = profiles(tmp_path)
    pages: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda url: pages.append(url) or True)
    assert lstmprof(["ingest", str(file), "--out", str(tmp_path / "out")]) == 0
    assert lstmprof(["breakdown", str(tmp_path / "out" / "a"), "--open"]) == 0
    (page,) = tmp_path.glob("tmp/lstmprof-report-*/*.html")
    assert pages == [page.as_uri()]
    shutil.rmtree(page.parent)
