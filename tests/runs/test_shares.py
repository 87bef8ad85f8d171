"""The files of one job, read by several processes: the same run, and a file lost is one rank."""

from __future__ import annotations

import json
import os
import pickle
import signal
import tempfile
from pathlib import Path
from typing import Any

import pytest

from lstmprof import formats
from lstmprof.events import Profile
from lstmprof.events.spool import on_disk
from lstmprof.events.stored import Folder, StoredEvents
from lstmprof.formats.kineto import stream
from lstmprof.runs import jobs, joined_profiles
from lstmprof.runs.ingest import Ingested, Task, tasks
from lstmprof.runs.jobs import Share, ingest_all, is_large
from lstmprof.runs.joined_profiles import in_files
from lstmprof.runs.run import Run, open_run


def trace(rank: int) -> str:
    """A rank's profile: it begins a little later than that of the rank before, as in a job."""

    def event(cat: str, name: str, ts: int, dur: int, **args: Any) -> dict[str, Any]:
        return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur,
                "args": args}  # fmt: skip

    memory = {"Total Allocated": 512 + rank, "Device Type": 1, "Device Id": rank, "Bytes": 512}
    return json.dumps(
        {
            "schemaVersion": 1,
            "baseTimeNanoseconds": 1_700_000_000_000_000_000 + 1000 * rank,
            "distributedInfo": {"rank": rank, "world_size": 4},
            "traceEvents": [
                event("user_annotation", "ProfilerStep#7", 0, 10),
                event("cpu_op", "aten::mm", 1, 5),
                event("cpu_op", f"aten::of_{rank}", 2, 1),
                {"ph": "i", "name": "[memory]", "pid": 1, "tid": 1, "ts": 3, "args": memory},
                event("cpu_op", "aten::mm", 2, 1),
            ],
        }
    )


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Four ranks of one job; temporary files lie in a folder of the test."""
    (tmp_path / "job").mkdir()
    (tmp_path / "tmp").mkdir()
    for rank in range(4):
        (tmp_path / "job" / f"rank{rank}.json").write_text(trace(rank))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path / "job"


def the_run(done: list[Ingested]) -> Run:
    (run,) = (run for one in done for run in one.runs)
    return open_run(run.path) if isinstance(run, Run) else pytest.fail("at a URL")


def contents(run: Run) -> dict[str, Any]:
    told = json.loads((run.path / "run.json").read_text())
    tables = {name: (run.path / f"{name}.parquet").read_bytes() for name in ("events", "counters")}
    return {**told, **tables, "created": None}


def test_several_processes_make_the_run_that_one_makes(job: Path, tmp_path: Path) -> None:
    said: list[str] = []
    shared = the_run(list(ingest_all([job], tmp_path / "out", jobs=2, progress=said.append)))
    alone = the_run(list(ingest_all([job], tmp_path / "alone", jobs=1)))
    assert said[0] == "read 1 of 4 profiles"
    assert shared.events().column("rank").to_pylist()[:4] == [0, 1, 0, 2]
    assert contents(shared) == contents(alone)
    assert not list((tmp_path / "tmp").iterdir())
    assert not list((tmp_path / "out").glob(".*"))


def test_a_job_that_was_read_before_is_left(job: Path, tmp_path: Path) -> None:
    run = the_run(list(ingest_all([job], tmp_path / "out", jobs=2)))
    other = tmp_path / "other.json"
    other.write_text(trace(0))
    again = list(ingest_all([job, other], tmp_path / "out", jobs=2))
    assert [[r.name for r in one.made_before] for one in again] == [[run.name], []]


def killed_at_rank_1(task: Task) -> Ingested:
    if str(task.label).endswith("rank1.json"):
        os.kill(os.getpid(), signal.SIGKILL)
    return task.done()


def test_a_killed_process_costs_its_own_rank_and_the_run_says_so(
    job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "_done", killed_at_rank_1)
    done = list(ingest_all([job], tmp_path / "out", jobs=2))
    (error,) = done[0].errors
    assert str(error).startswith(f"{job}/rank1.json: the system killed the process that read it")
    run = the_run(done)
    assert run.events().column("rank").unique().to_pylist() == [0, 2, 3]
    assert run.info.notes[0] == (
        "1 of the 4 files of this job could not be read, so their ranks are missing: rank1.json"
    )
    assert not list((tmp_path / "tmp").iterdir())
    monkeypatch.undo()
    assert len(the_run(list(ingest_all([job], tmp_path / "new", jobs=1))).info.notes) == 0


@pytest.mark.parametrize("processes", [1, 2])
def test_ranks_that_cannot_be_read_are_named_in_the_run(
    job: Path, tmp_path: Path, processes: int
) -> None:
    for rank in (4, *range(10, 20)):
        (job / f"rank{rank}.json").write_text(trace(rank)[:-30])
    done = list(ingest_all([job], tmp_path / "out", jobs=processes))
    assert len(done[0].errors) == 11
    assert the_run(done).info.notes[0] == (
        "11 of the 15 files of this job could not be read, so their ranks are missing: "
        "rank10.json, rank11.json, rank12.json, rank13.json, rank14.json, rank15.json, "
        "rank16.json, rank17.json, 3 more"
    )


def test_what_is_given_up_leaves_nothing(job: Path, tmp_path: Path) -> None:
    later = tmp_path / "later.json"
    later.write_text(trace(0))
    results = ingest_all([job, later], tmp_path / "out", jobs=2)
    assert next(results).runs
    results.close()
    assert not list((tmp_path / "tmp").iterdir())
    assert not list((tmp_path / "out").glob(".*"))


def test_a_file_of_the_name_of_a_job_does_not_replace_its_run(job: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = tmp_path / "other" / "job.json"
    other.write_text(trace(0))
    done = list(ingest_all([job, other], tmp_path / "out", jobs=2))
    assert [[run.name for run in one.runs] for one in done] == [["job"], []]
    assert "job: already exists" in str(done[1].errors[0])


def test_a_job_is_shared_where_it_is_more_than_the_share_of_one(job: Path, tmp_path: Path) -> None:
    small = tmp_path / "small.json"
    small.write_text(trace(0))
    todo = [
        task
        for word in (job, small)
        for task in tasks(word, tmp_path / "out", name=None, force=False, step_range=None)
    ]
    assert [[is_large(task, todo, n) for task in todo] for n in (1, 2, 9)] == [
        [False, False],
        [True, False],
        [True, False],
    ]
    of_jobs = [todo[0]] * 3
    assert [is_large(todo[0], of_jobs, workers) for workers in (2, 3, 4)] == [False, False, True]


@pytest.fixture
def profile(job: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Profile:
    """Of a rank; in files, where asked for."""
    if request.param:
        monkeypatch.setattr(stream, "SPOOLED_BYTES", 0)
    read = formats.read(job / "rank2.json")
    assert isinstance(read.events, StoredEvents) == request.param
    return read


@pytest.mark.parametrize("profile", [False, True], indirect=True)
def test_a_profile_in_files_is_itself_in_another_process(profile: Profile, tmp_path: Path) -> None:
    whole, counters = profile.events.arrow, profile.counters.table()
    sent = pickle.loads(pickle.dumps(in_files(profile, tmp_path / "tmp")))
    assert isinstance(sent.events, StoredEvents)
    assert sent.events.arrow.equals(whole)
    assert sent.counters.table().equals(counters)
    assert len(counters) == 2
    assert sent.events.folder.new("batch").exists() is False
    assert sent.metadata == profile.metadata


def test_a_profile_for_which_there_is_no_room_is_not_kept(
    job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is where its files would go."""
    monkeypatch.setattr(joined_profiles, "SPOOLED_ROWS", 4)
    (task,) = tasks(job, tmp_path / "out", name=None, force=False, step_range=None)
    monkeypatch.setattr(joined_profiles, "Folder", lambda: Folder(tmp_path / "nowhere"))
    done = task.done()
    assert ["cannot hold temporary files" in str(error) for error in done.errors] == [True] * 3
    assert [run.name for run in done.runs] == ["job"]


def test_events_in_files_stay_there(job: Path) -> None:
    events = on_disk(
        formats.read(job / "rank0.json").events, ["name", "start_ns", "dur_ns"], Folder()
    )
    assert on_disk(events, ["name"], Folder()) is events


def test_a_share_makes_no_run(job: Path, tmp_path: Path) -> None:
    (task,) = tasks(job, tmp_path / "out", name=None, force=False, step_range=None)
    (tmp_path / "base").mkdir()
    share = Share(task.group[:1], "job", tmp_path / "out", False, None, base=tmp_path / "base")
    assert (share.made_before(), share.done().runs) == (None, [])
    assert not (tmp_path / "out").exists()
