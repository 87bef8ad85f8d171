"""The tables of a report: the rows of ``breakdown``, run by run, as the charts need them."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lstmprof.breakdown import account_rows
from lstmprof.breakdown.mean_step import MeanStep, mean_steps
from lstmprof.breakdown.tables import launch_gaps
from lstmprof.diagnose.roofline import (
    roofline_of,
)
from lstmprof.report import model
from lstmprof.report.model import RunFacts
from lstmprof.report.runs import RunReport

#: Rows of a run's table that the page holds; the others are in JSON and CSV.
MOST_KERNELS, MOST_GAPS, MOST_CASTS = 40, 60, 20
#: What else may differ between the runs of a sweep, and is told where it does.
_CONDITIONS = ("precision", "mode", "device_name", "threads", "label")
#: Cells of timing series on a page of all runs, and at least of one run.
ALL_CELLS, LEAST_CELLS = 6_000, 50


def _with_facts(
    known: Sequence[RunReport], facts: Sequence[RunFacts]
) -> Iterator[tuple[RunReport, RunFacts]]:
    by_run = {one.run: one for one in facts}
    yield from ((one, by_run[one.run]) for one in known if one.run in by_run)


def times(known: Sequence[RunReport], facts: Sequence[RunFacts]) -> tuple[model.TimeRow, ...]:
    """The statistics of the timed runs."""
    found = iter(account_rows.rows([one.breakdown for one in known], "timings"))
    made = {one.run: next(found) for one in known if one.breakdown.timings is not None}
    fields = ("median_ns", "median_low_ns", "median_high_ns", "p95_ns", "compile_ns", "slowdown")
    return tuple(
        model.TimeRow(
            run=one.run,
            label=fact.label,
            group=fact.group,
            iterations=made[one.run]["iterations"],
            **{name: made[one.run][name] for name in fields},
        )
        for one, fact in _with_facts(known, facts)
        if one.run in made
    )


def ledger(known: Sequence[RunReport], facts: Sequence[RunFacts]) -> tuple[model.LedgerRow, ...]:
    """Every part of every lane, summed over the steps."""
    return tuple(
        model.LedgerRow(
            one.run, fact.label, fact.group, _lane(lane), state, part, total_ns, lane.steps
        )
        for one, fact in _with_facts(known, facts)
        for lane in mean_steps(one.breakdown.ledger)
        for state, part, total_ns in lane.parts
    )


def _lane(lane: MeanStep) -> str:
    where = "CPU" if lane.device is None else f"device {lane.device}"
    return where if lane.rank is None else f"{where} of rank {lane.rank}"


def kernels(known: Sequence[RunReport]) -> tuple[model.KernelRow, ...]:
    """The kernels of each run that took most."""
    fields = ("device", "name", "category", "count", "total_ns", "p50_ns", "share")
    return tuple(
        model.KernelRow(run=one.run, **{name: row[name] for name in fields})
        for one in known
        for row in one.breakdown.kernels.slice(0, MOST_KERNELS).to_pylist()
    )


def gaps(known: Sequence[RunReport]) -> tuple[model.GapRow, ...]:
    """The kernels of each run on a device, beside the gaps before them."""
    found = []
    for one in known:
        if one.profile is None or one.profile.device is None:
            continue
        table = launch_gaps.launch_gaps(one.breakdown.run.events(), one.breakdown.windows)
        found += [
            model.GapRow(
                *(one.run, row["name"], row["category"], row["count"]),
                *(row["dur_p50_ns"], row["gap_p50_ns"]),
            )
            for row in table.slice(0, MOST_GAPS).to_pylist()
        ]
    return tuple(found)


def casts(known: Sequence[RunReport], facts: Sequence[RunFacts]) -> tuple[model.CastRow, ...]:
    """Who changed the element type of what, the costliest of each run."""
    fields = ("op", "within", "from_dtype", "to_dtype", "count", "per_step", "total_ns")
    found = []
    for one, fact in _with_facts(known, facts):
        whole = sum(w.end_ns - w.start_ns for w in one.breakdown.windows)
        for row in one.breakdown.table("casts").slice(0, MOST_CASTS).to_pylist():
            told: dict[str, Any] = {name: row[name] for name in fields}
            share = row["total_ns"] / whole if whole else None
            found.append(model.CastRow(run=one.run, label=fact.label, share=share, **told))
    return tuple(found)


def sweep(known: Sequence[RunReport]) -> tuple[model.SweepRow, ...]:
    """The medians by size; none where all runs have one size."""
    found = []
    told = [name for name in _CONDITIONS if len({str(one.facts.get(name)) for one in known}) > 1]
    for one in known:
        w, timed = one.facts.get("workload") or {}, one.breakdown.timings
        if timed is None or not w:
            continue
        sizes: dict[str, Any] = {name: w.get(name) for name in ("hidden", "batch", "time_steps")}
        if None in sizes.values():
            continue
        conditions = [one.facts.get(name) for name in told]
        found.append(
            model.SweepRow(
                run=one.run,
                implementation=str(one.facts.get("implementation")),
                conditions=", ".join(str(c) for c in conditions if c),
                median_ns=timed.median_ns,
                **sizes,
            )
        )
    varies = len({(r.hidden, r.batch, r.time_steps) for r in found}) > 1
    return tuple(found) if varies else ()


def roofline(
    known: Sequence[RunReport], facts: Sequence[RunFacts]
) -> tuple[model.RooflineRow, ...]:
    """How near each timed run came to the least time of its step."""
    profiles = [one.profile for one in known if one.profile]
    found = []
    for one, fact in _with_facts(known, facts):
        if one.profile is None or one.breakdown.timings is None:
            continue
        made = roofline_of(one.profile, profiles, None)
        if made is not None and made.share is not None:
            found.append(
                model.RooflineRow(
                    *(one.run, fact.label, fact.group, made.step_ns, made.median_ns),
                    *(made.share, made.gemm_flops_per_s),
                )
            )
    return tuple(found)


def series(known: Sequence[RunReport], facts: Sequence[RunFacts]) -> tuple[model.SeriesRow, ...]:
    """The counted iterations against their run's median, several in a cell where there are many."""
    most = max(ALL_CELLS // max(len(known), 1), LEAST_CELLS)
    found: list[model.SeriesRow] = []
    for one, fact in _with_facts(known, facts):
        table = one.breakdown.run.timings()
        counted = [] if table is None else _counted(table)
        median = statistics.median(wall for _, wall in counted) if counted else 0
        size = -(-len(counted) // most)
        for first in range(0, len(counted) if median else 0, size or 1):
            cell = counted[first : first + size]
            wall = statistics.median(wall for _, wall in cell)
            found.append(
                model.SeriesRow(
                    *(one.run, fact.label, fact.group, cell[0][0], len(cell)),
                    wall_ns=wall,
                    off_share=wall / median - 1,
                )
            )
    return tuple(found)


def _counted(table: pa.Table) -> list[tuple[int, int]]:
    """(number, ns) of the iterations after warm-up."""
    kept = table.filter(pc.invert(table.column("warmup")))
    numbers, walls = (kept.column(name).to_pylist() for name in ("iteration", "wall_ns"))
    return list(zip(numbers, walls, strict=True))
