"""From the account of a run to a case for diagnosis: its busiest lane, item by item."""

from __future__ import annotations

import statistics

import pyarrow as pa
import pyarrow.compute as pc

from lstmprof.breakdown import TABLES, Breakdown
from lstmprof.breakdown.mean_step import MeanStep, mean_steps
from lstmprof.diagnose.contributors import items
from lstmprof.diagnose.step_profile import Case, Item, mean_of
from lstmprof.errors import RunError
from lstmprof.events.annotate.steps import Window, is_kind, of_rank
from lstmprof.events.threads import STATES, state_codes

#: The tables of a breakdown from which findings take their evidence.
_EVIDENCE = ("kernels", "ops", "launches", "casts", "copies", "ranges")
#: A step longer than so many median ones was disturbed.
LONG = 1.5


def case_of(account: Breakdown) -> Case:
    """The case of ``account``: the busiest device of its first rank, or that rank's host.

    Raises:
        RunError: the run's profile has no events; one of its files is missing or damaged.
    """
    if not account.windows:
        raise RunError(f"{account.run.name}: no event of its profile has a length")
    lanes = mean_steps(account.ledger)
    rank = account.windows[0].rank
    lane = max((one for one in lanes if one.rank == rank), key=lambda one: one.busy_share)
    found = [window for window in account.windows if window.rank == rank]
    windows = typical(found)
    events = account.run.events()
    timed, mine = account.timings, _of_lane(events, windows, lane)
    bounds = None if timed is None else (timed.median_low_ns, timed.median_high_ns)
    return Case(
        name=account.run.name,
        facts=account.run.metadata,
        median_ns=None if timed is None else round(timed.median_ns),
        interval_ns=None if bounds is None or None in bounds else bounds,  # type: ignore[arg-type]
        steps=len(windows),
        marked=windows[0].step is not None,
        rank=rank,
        device=lane.device,
        items=_mean_items(items(events, windows, rank, lane.device), len(windows)),
        sync_calls=_sync_calls(mine, len(windows)),
        tables=_tables(mine, windows, account),
        warnings=() if timed is None else timed.warnings,
        notes=(*_other_lanes(lane, lanes), *_left_out(found, windows)),
    )


def _mean_items(table: pa.Table, steps: int) -> tuple[Item, ...]:
    rows = table.to_pylist()
    means = mean_of([row["ns"] for row in rows], steps)
    return tuple(
        Item(**{**row, "ns": ns, "count": row["count"] / steps})
        for row, ns in zip(rows, means, strict=True)
    )


def _of_lane(events: pa.Table, windows: list[Window], lane: MeanStep) -> pa.Table:
    """The rows of the lane's rank in its windows, without those of other devices."""
    mine = events.take(pa.array(of_rank(events, lane.rank)))
    if windows[0].step is not None:
        steps = pa.array([window.step for window in windows], pa.int64())
        mine = mine.filter(pc.is_in(mine.column("step"), steps, skip_nulls=True))
    if lane.device is None:
        return mine
    device = mine.column("device")
    return mine.filter(pc.or_kleene(pc.is_null(device), pc.equal(device, lane.device)))


def _sync_calls(events: pa.Table, steps: int) -> float | None:
    """Blocking runtime calls a step; None where the profile has no runtime calls."""
    calls = is_kind(events, "runtime")
    blocking = calls & (state_codes(events) == STATES.index("sync"))
    return int(blocking.sum()) / steps if calls.any() else None


def _tables(events: pa.Table, windows: list[Window], account: Breakdown) -> dict[str, pa.Table]:
    facts = account.run.metadata
    return {name: TABLES[name].of(events, windows, facts) for name in _EVIDENCE}


def _other_lanes(lane: MeanStep, lanes: list[MeanStep]) -> tuple[str, ...]:
    """Which lanes of several this is about."""
    if len(lanes) == 1:
        return ()
    of = f"device {lane.device}" if lane.device is not None else "the host"
    rank = "" if lane.rank is None else f" of rank {lane.rank}"
    return (f"this is about {of}{rank}; of devices and ranks the profile has {len(lanes)}",)


def typical(windows: list[Window]) -> list[Window]:
    """``windows`` without the few steps that something disturbed.

    Left out are those longer than ``LONG`` times the median one, where they are at most a third.
    """
    lengths = [window.end_ns - window.start_ns for window in windows]
    longest = LONG * statistics.median(lengths)
    kept = [w for w, length in zip(windows, lengths, strict=True) if length <= longest]
    return kept if 3 * (len(windows) - len(kept)) <= len(windows) else windows


def _left_out(found: list[Window], kept: list[Window]) -> tuple[str, ...]:
    out = [window for window in found if window not in kept]
    if not out:
        return ()
    numbers = ", ".join(str(window.step) for window in out)
    took = max(window.end_ns - window.start_ns for window in out) / 1e6
    usual = statistics.median(window.end_ns - window.start_ns for window in kept) / 1e6
    return (f"step {numbers} was disturbed ({took:,.1f} against {usual:,.1f} ms) and is left out",)
