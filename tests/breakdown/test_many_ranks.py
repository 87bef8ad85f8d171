"""What is asked of each rank of a job is worked out of all events once, however many ranks it has.

::

    host of each rank     [mm----)[L1)
    its device                     [k1--)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from breakdown.test_check import HOST, STREAM, made
from events.rows import Row, row, table

from lstmprof.breakdown import break_down
from lstmprof.breakdown.attribution.ledger import ledger, packed_ledger
from lstmprof.breakdown.attribution.waits import all_waits
from lstmprof.breakdown.check import checked
from lstmprof.breakdown.tables import TABLES, Source
from lstmprof.events.annotate import annotated
from lstmprof.events.annotate.steps import Window, windows
from lstmprof.events.narrow import Packed, packed
from lstmprof.events.table import EventTable

Look = tuple[type, str]


def of_rank(rank: int) -> list[Row]:
    host, stream = {**HOST, "rank": rank}, {**STREAM, "rank": rank, "correlation_id": rank}
    return [
        row("step", "ProfilerStep#1", 0, 50_000, **host),
        row("op", "aten::mm", 1000, 9000, **host),
        row("range", "aten::mm", 1000, 9000, **host),
        row("runtime", "cudaLaunchKernel", 7000, 8000, **host, correlation_id=rank),
        row("kernel", "sgemm", 20_000, 30_000 + rank, **stream),
    ]


def job(ranks: int) -> EventTable:
    return annotated(
        table([event for rank in range(ranks) for event in of_rank(rank)]), captured=False
    )


#: What goes through all events of a table.
LOOKS = ((EventTable, "mapped"), (Packed, "is_kind"), (Packed, "codes"))


def looks(
    of_all: Callable[[EventTable], object], ranks: int, of_all_events: Sequence[Look] = LOOKS
) -> int:
    """How often ``of_all`` goes through all events of a job of so many ranks."""
    events, looked = job(ranks), 0

    def counted(function: Callable[..., object]) -> Callable[..., object]:
        def counting(*given: object, **named: object) -> object:
            nonlocal looked
            looked += 1
            return function(*given, **named)

        return counting

    with pytest.MonkeyPatch.context() as patched:
        for of, name in of_all_events:
            patched.setattr(of, name, counted(getattr(of, name)))
        of_all(events)
    return looked


def in_batches(events: EventTable) -> object:
    held, of_ranks = packed(events.arrow), windows(events, captured=False)
    return packed_ledger(held, of_ranks, len(events) - 1)


@pytest.mark.parametrize(
    "of_all",
    [
        lambda events: ledger(events, windows(events, captured=False)),
        in_batches,
        lambda events: all_waits(packed(events.arrow), events.ranks()),
    ],
    ids=["ledger", "ledger of batches", "waits"],
)
def test_more_ranks_take_no_more_looks_at_all_events(
    of_all: Callable[[EventTable], object],
) -> None:
    assert looks(of_all, 3) == looks(of_all, 9)


def test_a_job_is_checked_in_one_look_at_its_events(tmp_path: Path) -> None:
    def check(ranks: int) -> int:
        rows = [event for rank in range(ranks) for event in of_rank(rank)]
        breakdown = break_down(made(tmp_path / str(ranks), rows), tables=())
        return looks(lambda _: checked(breakdown), ranks, (*LOOKS, (EventTable, "column")))

    assert check(3) == check(9)


def test_the_ledger_of_ranks_in_batches_is_that_of_all_events() -> None:
    events = job(5)
    assert in_batches(events) == ledger(events, windows(events, captured=False))


def test_a_rank_without_a_device_has_no_waits() -> None:
    events = annotated(
        table([*of_rank(0), row("op", "aten::mm", 0, 9, **{**HOST, "rank": 1})]), captured=False
    )
    waits = all_waits(packed(events.arrow), [0, 1])
    assert ([*waits[0]], waits[1]) == ([0], {})


@pytest.mark.parametrize("name", [name for name, kind in TABLES.items() if not kind.needs_files])
def test_packed_events_give_the_same_table(name: str) -> None:
    events = job(3)
    steps = windows(events, captured=False)
    of_packed = Source(packed(events.arrow), steps).table(name)
    assert of_packed.equals(Source(events, steps).table(name))


def test_a_table_is_computed_from_the_packed_events_of_one_rank_at_a_time() -> None:
    events, parts = job(3), []

    def make(part: EventTable, steps: Sequence[Window]) -> pa.Table:
        parts.append(([step.rank for step in steps], max(Counter(part.ints("rank", -1)).values())))
        return part.arrow.select(["rank", "name"])

    steps = windows(events, captured=False)
    made = Source(packed(events.arrow), steps).for_each_rank(make, ["rank", "kind", "name"])
    assert Counter(made["rank"].to_pylist()) == dict.fromkeys(range(3), len(of_rank(0)))
    assert parts == [([rank], len(of_rank(rank))) for rank in range(3)]
