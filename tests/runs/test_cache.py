"""What a command says of a word that holds nothing to read."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from attack.seeds import kineto

from lstmprof.errors import LstmprofError, ProfileError, RunError
from lstmprof.runs.cache import open_runs

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
    assert str(told).startswith(f"{job}: holds no run and no profile that can be read; ")
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
