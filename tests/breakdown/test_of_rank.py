"""The events of one rank of a job, by themselves."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from lstmprof.breakdown import Breakdown, break_down
from lstmprof.events.narrow import Packed
from lstmprof.events.schema import SCHEMA
from lstmprof.events.threads import thread_ids
from lstmprof.runs import run
from lstmprof.runs.ingest import ingest_profiles
from lstmprof.runs.run import open_run


def trace(rank: int) -> str:
    events = [
        {"ph": "X", "cat": "cpu_op", "name": f"aten::op{n}", "pid": 7, "tid": n % 2, "ts": 9 * n}
        for n in range(6)
    ]
    timed = [{**event, "dur": 5 + rank} for event in events]
    job = {"rank": rank, "world_size": 3}
    return json.dumps({"schemaVersion": 1, "distributedInfo": job, "traceEvents": timed})


@pytest.fixture
def job(tmp_path: Path) -> Breakdown:
    (tmp_path / "job").mkdir()
    for rank in range(3):
        (tmp_path / "job" / f"rank{rank}.json").write_text(trace(rank))
    (made,) = ingest_profiles(tmp_path / "job", tmp_path / "out").runs
    return break_down(open_run(tmp_path / "out" / made.name))


def test_the_events_of_a_rank_are_those_and_one_of_each_sort_of_the_others(job: Breakdown) -> None:
    events = job.events_of_rank(1)
    rows = events.rows_of_rank(1)
    whole = job.events()
    own = whole.rows_of_rank(1)
    assert events.take(rows).to_pylist() == whole.take(own).to_pylist()
    assert len(events) == 6 + 2 * 2  # of each other rank one on each of two threads
    assert np.array_equal(thread_ids(events)[rows], thread_ids(whole)[own])


def test_the_events_of_some_ranks_are_read_a_column_at_a_time(
    job: Breakdown, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "FEW_ROWS", 0)  # each is read when it is asked for
    read: list[Packed] = []
    column = Packed._column

    def watched(events: Packed, name: str) -> object:
        read.append(events)
        return column(events, name)

    monkeypatch.setattr(Packed, "_column", watched)
    held = job.events_of_ranks([0, 2])
    assert (len(held), held.names) == (6 + 2 + 6, tuple(SCHEMA.names))
    assert not {"op_name", "shapes", "category"} & read[0]._columns.keys()
    for rank in (0, 2):
        assert job.events_of_rank(rank, held).arrow == job.events_of_rank(rank).arrow


def test_the_table_of_ranks_is_made_of_the_ledger(
    job: Breakdown, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.table("collectives")
    monkeypatch.setattr(type(job.run), "narrow_events", None)  # no event is read again
    assert job.table("ranks").column("rank").to_pylist() == [0, 1, 2]


def test_tables_that_are_made_of_others_are_so_when_asked_for_first(job: Breakdown) -> None:
    alone = break_down(job.run, tables=("ranks",))
    assert alone.table("ranks").equals(job.table("ranks"))


def test_the_critical_path_of_a_rank_is_that_of_its_profile_alone(tmp_path: Path) -> None:
    job, rows = tmp_path / "job", []
    job.mkdir()
    for rank in range(2):
        document = json.loads(trace(rank))
        step = {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 7, "tid": 1}
        document["traceEvents"].append({**step, "ts": 0, "dur": 70})
        (job / f"rank{rank}.json").write_text(json.dumps(document))
        alone = tmp_path / f"alone{rank}.json"
        del document["distributedInfo"]
        alone.write_text(json.dumps(document))
        rows += [(rank, row) for row in critical_path(alone, tmp_path / f"of{rank}")]
    found = critical_path(job, tmp_path / "of-both")
    assert [(row["rank"], {**row, "rank": None}) for row in found] == rows
    assert {row["part"] for row in found} >= {"python", "other"}


def critical_path(profile: Path, out: Path) -> list[dict[str, object]]:
    (made,) = ingest_profiles(profile, out).runs
    return break_down(open_run(out / made.name)).table("critical_path").to_pylist()
