"""Many profiles at once: in order, each for itself, and not twice."""

from __future__ import annotations

import ctypes
import functools
import json
import os
import pickle
import re
import signal
import subprocess
import sys
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from ingested import ingest_profile

from lstmprof import __version__
from lstmprof.base.errors import ForeignFileError
from lstmprof.base.pool import KilledError
from lstmprof.cli import run as lstmprof
from lstmprof.runs import jobs as ingest_jobs
from lstmprof.runs.ingest import Ingested, Task, tasks
from lstmprof.runs.jobs import ingest_all
from lstmprof.runs.run import open_run, runs_in


def write(folder: Path, name: str, dur: int = 5, events: int = 1) -> Path:
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1}
    file = folder / name
    all_events = [{**event, "dur": dur}] * events
    file.write_text(json.dumps({"schemaVersion": 1, "traceEvents": all_events}))
    return file


def names(results: list[Ingested]) -> list[list[str]]:
    return [[run.name for run in one.runs] for one in results]


@pytest.mark.parametrize("jobs", [1, 2])
def test_results_come_in_order_and_a_bad_file_stops_no_other(tmp_path: Path, jobs: int) -> None:
    words = [write(tmp_path, "a.json"), tmp_path / "bad.json", write(tmp_path, "c.json")]
    words[1].write_text('{"traceEvents": [')
    said: list[str] = []
    done = list(ingest_all(words, tmp_path / "out", jobs=jobs, progress=said.append))
    assert names(done) == [["a"], [], ["c"]]
    assert "bad.json: is truncated" in str(done[1].errors[0])
    assert said[0] == "read 1 of 3 profiles"
    assert re.fullmatch("read 2 of 3 profiles, about \\d+ s left", said[1])


def test_processes_write_the_same_runs_as_one(tmp_path: Path) -> None:
    words = [write(tmp_path, "a.json", 7), write(tmp_path, "b.json", 9)]
    runs = [one.runs[0] for one in ingest_all(words, tmp_path / "out", jobs=2)]
    plain = [ingest_profile(word, tmp_path / "plain") for word in words]
    assert [run.events().arrow for run in runs] == [run.events().arrow for run in plain]


def test_of_several_what_is_done_is_left_and_what_changed_is_told(tmp_path: Path) -> None:
    words = [write(tmp_path, "a.json"), write(tmp_path, "b.json")]
    out = tmp_path / "out"
    list(ingest_all(words[:1], out))
    assert [(len(one.runs), len(one.made_before)) for one in ingest_all(words, out)] == [
        (0, 1),
        (1, 0),
    ]
    write(tmp_path, "b.json", 77)
    again = list(ingest_all(words, out))
    assert [len(one.made_before) for one in again] == [1, 0]
    assert "--force" in str(again[1].errors[0])
    forced = ingest_all(words, out, force=True)
    assert names(list(forced)) == [["a"], ["b"]]


def test_one_alone_that_is_done_is_told_to_be_in_the_way(tmp_path: Path) -> None:
    word = write(tmp_path, "a.json")
    assert names([*ingest_all([word], tmp_path / "out")]) == [["a"]]
    (again,) = ingest_all([word], tmp_path / "out")
    assert (again.runs, again.made_before) == ([], [])
    assert "already exists" in str(again.errors[0])


def test_the_command_says_what_it_left(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    given = [str(write(tmp_path, "a.json")), str(write(tmp_path, "b.json"))]
    arguments = ["ingest", *given, "--out", str(tmp_path / "out"), "--jobs", "1"]
    assert lstmprof(arguments) == 0
    assert "read 1 of 2 profiles" in capfd.readouterr().err
    assert lstmprof(arguments) == 0
    assert f"skipped {tmp_path}/out/a" in capfd.readouterr().err


def test_two_files_of_one_name_do_not_replace_each_other(tmp_path: Path) -> None:
    folders = [tmp_path / "x", tmp_path / "y"]
    for folder in folders:
        folder.mkdir()
    words = [write(folder, "a.json") for folder in folders]
    done = list(ingest_all(words, tmp_path / "out", jobs=2))
    assert names(done) == [["a"], []]
    assert "already exists" in str(done[1].errors[0])


def killed_at_b(task: Task) -> Ingested:
    if task.name == "b":
        os.kill(os.getpid(), signal.SIGKILL)
    return task.done()


def test_a_killed_process_costs_its_own_profile_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest_jobs, "_done", killed_at_b)
    words = [write(tmp_path, name) for name in ("a.json", "b.json", "c.json")]
    done = list(ingest_all(words, tmp_path / "out", jobs=2))
    assert [bool(one.errors) for one in done] == [False, True, False]
    assert "b.json: the system killed the process that read it" in str(done[1].errors[0])


def test_results_that_came_before_a_process_was_killed_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest_jobs, "_done", killed_at_b)
    given = ["a", "c", "d", "b", "e", "f", "g"]
    words = [write(tmp_path, f"{name}.json") for name in given]
    done = list(ingest_all(words, tmp_path / "out", jobs=2))
    assert names(done) == [[] if name == "b" else [name] for name in given]


def test_what_was_done_when_a_process_was_killed_is_not_done_again(tmp_path: Path) -> None:
    begun: Counter[str] = Counter()

    def done(task: Task) -> Ingested:
        begun[task.name] += 1
        if task.name == "b":
            raise KilledError
        return Ingested([], [], [])

    words = [write(tmp_path, f"{name}.json") for name in "abcd"]
    todo = [
        task
        for word in words
        for task in tasks(word, tmp_path / "out", name=None, force=True, step_range=None)
    ]
    threads = functools.partial(ThreadPoolExecutor, 2)
    where = ingest_jobs._Workers(threads, threads, done, KilledError, "was killed", lambda: None)
    assert [len(one.errors) for one in ingest_jobs._results(todo, where)] == [0, 1, 0, 0]
    assert begun == {"a": 1, "b": 2, "c": 1, "d": 1}


def test_a_run_at_a_url_is_left_or_replaced_as_in_a_folder(tmp_path: Path) -> None:
    url = f"memory://{uuid.uuid4()}/runs"
    words = [write(tmp_path, "a.json"), write(tmp_path, "b.json")]
    assert names(list(ingest_all(words, url))) == [["a"], ["b"]]
    assert [len(one.made_before) for one in ingest_all(words, url)] == [1, 1]
    write(tmp_path, "b.json", 77)
    again = list(ingest_all(words, url))
    assert f"{url}/b: already exists; add --force" in str(again[1].errors[0])
    assert names(list(ingest_all(words, url, force=True))) == [["a"], ["b"]]


def test_a_file_url_is_the_folder(tmp_path: Path) -> None:
    done = list(ingest_all([write(tmp_path, "a.json")], f"file://{tmp_path}/out"))
    assert done[0].runs == [open_run(tmp_path / "out" / "a")]


def test_progress_in_a_pipe_is_a_line_now_and_then_and_what_was_left_is_counted(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    given = [str(write(tmp_path, f"{name}.json")) for name in "abcdefghij"]
    arguments = ["ingest", *given, "--out", str(tmp_path / "out"), "--jobs", "1"]
    assert lstmprof(arguments) == 0
    assert capfd.readouterr().err.count(" of 10 profiles") == 1
    assert lstmprof(arguments) == 0
    assert "skipped 10 runs" in capfd.readouterr().err


def interrupted(folder: Path, number: int, *, whole_group: bool) -> subprocess.Popen[bytes]:
    """``lstmprof ingest`` of files in ``folder``, told to end when its first run is there."""
    arguments = ["-m", "lstmprof", "ingest", str(folder), "--out", str(folder / "out")]
    process = subprocess.Popen(
        [sys.executable, *arguments, "--jobs", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    (os.killpg if whole_group else os.kill)(process.pid, number)
    return process


@pytest.mark.measured  # it is to be met at work
@pytest.mark.parametrize(
    ("number", "whole_group", "code"),
    [(signal.SIGINT, True, 130), (signal.SIGTERM, False, 143), (signal.SIGKILL, False, -9)],
)
def test_an_interrupted_ingest_leaves_whole_runs_and_no_processes(
    tmp_path: Path, number: int, whole_group: bool, code: int
) -> None:
    for name in range(200):
        write(tmp_path, f"{name}.json", events=200)
    process = interrupted(tmp_path, number, whole_group=whole_group)
    said = process.communicate(timeout=300)[1].decode()  # returns when no process writes any more
    assert process.returncode == code
    if code > 0:
        assert said.endswith("error: interrupted; no partial output was left\n")
        assert "Traceback" not in said
        assert not list((tmp_path / "out").glob(".*"))
    runs = runs_in(tmp_path / "out")
    assert 0 < len(runs) < 200
    assert all(run.events().num_rows == 200 for run in runs)


def test_what_is_given_up_is_swept_once_nobody_works_at_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [write(tmp_path, f"{name}.json") for name in "abc"]
    order: list[str] = []
    shutdown = ingest_jobs.Pool.shutdown

    def ended(self: ingest_jobs.Pool, **how: bool) -> None:
        shutdown(self, **how)
        order.append("ended")

    monkeypatch.setattr(ingest_jobs.Pool, "shutdown", ended)
    monkeypatch.setattr(ingest_jobs, "sweep", lambda out: order.append("swept"))
    results = ingest_all(words, tmp_path / "out", jobs=2)
    next(results)
    results.close()
    assert order == ["ended", "swept"]


def test_an_error_is_the_same_in_another_process() -> None:
    error = ForeignFileError("a.json", "is no profile", "give one")
    sent = pickle.loads(pickle.dumps(error))
    assert (type(sent), str(sent), sent.next_step) == (ForeignFileError, str(error), "give one")


def test_a_worker_keeps_freed_memory_while_it_reads_and_gives_it_back_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[object] = []

    class Libc:
        mallopt = staticmethod(lambda number, size: told.append((number, size)))
        malloc_trim = staticmethod(lambda kept: told.append("given back"))

    monkeypatch.setattr(ctypes, "CDLL", lambda name: Libc)
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "65536")  # as dask sets it
    monkeypatch.delenv("MALLOC_MMAP_THRESHOLD_", raising=False)
    (task,) = tasks(write(tmp_path, "a.json"), tmp_path, name=None, force=False, step_range=None)

    def done(task: Task) -> Ingested:
        told.append("read")
        return Ingested([], [], [])

    ingest_jobs._done_there(done, __version__, None, task)
    assert told == [(-1, 2**26), (-3, 2**25), "read", (-1, 65536), (-3, 2**17), "given back"]
