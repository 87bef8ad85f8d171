"""A Perfetto trace that lstmprof wrote, read again: the same run."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from lstmprof.breakdown import Breakdown, break_down
from lstmprof.events.counters import Series, levels
from lstmprof.runs.cache import open_runs
from lstmprof.runs.run import Run

LINKS = ("parent_id", "launch_id", "op_id", "forward_id")
OF_PROFILE = ("profile_format", "base_ns", "profile_metadata", "device_names", "device_facts",
              "accelerators", "gpu_complaint", "notes", "recorded", "links")  # fmt: skip


def told(breakdown: Breakdown) -> Counter[Any]:
    """Every event with all that is known of it; links by what they lead to, not by number."""
    events = breakdown.events().to_pylist()
    by_id = {event["event_id"]: event for event in events}
    place = ("kind", "name", "start_ns", "dur_ns", "rank", "pid", "tid", "device", "stream")
    linked = [
        tuple(tuple(by_id[e[link]][c] for c in place) if e[link] is not None else None
              for link in LINKS)
        for e in events
    ]  # fmt: skip
    own = [tuple(v for k, v in e.items() if k not in (*LINKS, "event_id")) for e in events]
    return Counter(zip(own, linked, strict=True))


def counted(run: Run) -> dict[Series, list[tuple[int, float]]]:
    """What each counter stood at from when on."""
    values: dict[Series, list[tuple[int, float]]] = defaultdict(list)
    for series, at_ns, of_series in levels(run.counters):
        values[series] += zip(at_ns.tolist(), of_series.tolist(), strict=True)
    return values


def check_read_back(before: Breakdown, out: Path) -> None:
    """Hold what is read of the trace ``out`` to ``before``, of which it was written."""
    (run,) = open_runs([out])
    after = break_down(run, None, ("ledger",))
    assert told(after) == told(before)
    assert after.ledger.equals(before.ledger)
    assert after.windows == before.windows
    assert counted(after.run) == counted(before.run)
    for name in OF_PROFILE:
        assert getattr(after.run.info, name) == getattr(before.run.info, name), name
