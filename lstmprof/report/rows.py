"""The rows of each chart: those of ``breakdown`` and ``diagnose``, run by run."""

from __future__ import annotations

import dataclasses
import itertools
import math
import statistics
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lstmprof.breakdown import CLEAN, PROFILED
from lstmprof.breakdown.mean_step import lane_words
from lstmprof.breakdown.timings import slowdowns
from lstmprof.breakdown.versions import by_version
from lstmprof.diagnose.findings import lengths, waterfall
from lstmprof.diagnose.pairs import against_fastest
from lstmprof.diagnose.roofline import roofline_of
from lstmprof.diagnose.step_profile import StepProfile
from lstmprof.events.annotate.calls import is_copy
from lstmprof.implementations import version_numbers
from lstmprof.report.model import Group, Pair, Row
from lstmprof.report.runs import RunReport

#: Rows of a run's table that the page holds; the others are in JSON and CSV.
MOST_KERNELS, MOST_GAPS, MOST_CASTS, MOST_LAYERS = 40, 60, 20, 20
#: What else may differ between the runs of a sweep, and is told where it does.
_CONDITIONS = ("precision", "mode", "device_name", "threads", "label")
_STEP = ("step_ns", "step_low_ns", "step_high_ns")
#: Cells of timing series on a page of all runs, and at least of one run.
ALL_CELLS, LEAST_CELLS = 6_000, 50
#: Of a group with more pairs only those with the run that the others are held against are drawn.
MOST_PAIRS = 800


def _of(run: RunReport, table: pa.Table, most: int) -> Iterator[Row]:
    """The first ``most`` rows of a table of ``run``."""
    return map(run.row, table.slice(0, most).to_pylist())


def times(runs: Sequence[RunReport], groups: Sequence[Group]) -> list[Row]:
    """The columns of ``breakdown --table timings``; ``slowdown`` in the run's group."""
    rows: list[Row] = []
    for group in groups:
        of_group = [run for run in runs if run.facts.group == group.number]
        timed = [(run, t) for run in of_group if (t := run.breakdown.timings)]
        steps = {place: t.step_ns for place, (_, t) in enumerate(timed)}
        slowdown = slowdowns(steps) if len(timed) > 1 else {}
        for place, (run, t) in enumerate(timed):
            rows.append(run.row({**dataclasses.asdict(t), "slowdown": slowdown.get(place)}))
    return rows


def ledger(runs: Iterable[RunReport]) -> list[Row]:
    """``lane``, ``state``, ``part``; ``total_ns`` is the sum over ``steps`` of them.

    ``of`` says whether they are the clean step's.
    """
    return [
        run.row(
            {
                **{"lane": lane_words(lane.rank, lane.device), "state": state, "part": part},
                **{"total_ns": total_ns, "steps": lane.steps},
                "of": CLEAN if lane.clean else PROFILED,
            }
        )
        for run in runs
        for lane in run.breakdown.steps()
        for state, part, total_ns in lane.parts
    ]


def kernels(runs: Iterable[RunReport]) -> list[Row]:
    """The columns of ``breakdown --table kernels``, the longest of each run."""
    return [row for run in runs for row in _of(run, run.breakdown.kernels, MOST_KERNELS)]


def launch_gaps(runs: Iterable[RunReport]) -> list[Row]:
    """The kernels of each run on a device, beside the gaps before them."""
    return [
        row
        for run in runs
        if run.profile.device is not None
        for row in _of(run, _without_copies(run.breakdown.table("launch_gaps")), MOST_GAPS)
    ]


def _without_copies(table: pa.Table) -> pa.Table:
    kept = [not is_copy(name) for name in table["name"].to_pylist()]
    return table.filter(pa.array(kept, pa.bool_()))


def casts(runs: Iterable[RunReport]) -> list[Row]:
    """The columns of ``breakdown --table casts``; ``share`` of the run's profiled steps."""
    rows: list[Row] = []
    for run in runs:
        whole = sum(w.end_ns - w.start_ns for w in run.breakdown.windows)
        for row in _of(run, run.breakdown.table("casts"), MOST_CASTS):
            rows.append({**row, "share": row["total_ns"] / whole if whole else None})
    return rows


def layers(runs: Iterable[RunReport]) -> list[Row]:
    """The columns of ``breakdown --table layers``, the first of each run."""
    return [row for run in runs for row in _of(run, run.breakdown.table("layers"), MOST_LAYERS)]


def versions(runs: Sequence[RunReport]) -> list[Row]:
    """The steps of implementations that ran in several versions; ``place`` orders the versions."""
    of_run = {id(run.breakdown): run for run in runs}
    told = [row for group in by_version([run.breakdown for run in runs]) for row in group]
    order = sorted({row.version for row in told}, key=_by_package)
    rows = []
    for row in told:
        timings = row.breakdown.timings
        columns = {
            "implementation": row.implementation,
            "version": row.version,
            "place": order.index(row.version),
            "of_first": row.of_first,
            **{name: getattr(timings, name) for name in _STEP},
        }
        rows.append(of_run[id(row.breakdown)].row(columns))
    return rows


def _by_package(version: str) -> tuple[str, tuple[int, ...], str]:
    """Where ``torch 1.8.1`` stands among versions of several packages."""
    return version.partition(" ")[0], version_numbers(version), version


def sweep(runs: Sequence[RunReport]) -> list[Row]:
    """The steps by size of what ran in several sizes, of all where nothing did; none of one size.

    ``conditions`` are those that differ between the runs, besides the sizes; may be empty.
    """
    infos = [run.breakdown.run.info for run in runs]
    differing = [name for name in _CONDITIONS if len({getattr(info, name) for info in infos}) > 1]
    rows, sizes = [], dict[tuple[str, str], set[tuple[Any, ...]]]()
    for run, of_run in zip(runs, infos, strict=True):
        size = {name: getattr(of_run.workload, name) for name in ("hidden", "batch", "time_steps")}
        if run.breakdown.timings is None or None in size.values():
            continue
        columns = {
            "implementation": str(of_run.implementation),
            "conditions": ", ".join(str(v) for n in differing if (v := getattr(of_run, n))),
            "step_ns": run.breakdown.timings.step_ns,
        }
        rows.append(run.row({**columns, **size}))
        sizes.setdefault(_ran(rows[-1]), set()).add(tuple(size.values()))
    several = [row for row in rows if len(sizes[_ran(row)]) > 1]
    return several or (rows if len(set().union(*sizes.values())) > 1 else [])


def _ran(row: Row) -> tuple[str, str]:
    """What ran, in whichever size."""
    return row["implementation"], row["conditions"]


def roofline(runs: Sequence[RunReport]) -> list[Row]:
    """``least_ns`` of a step by its device's peaks, ``step_ns``, and ``share`` of both."""
    profiles = [run.profile for run in runs]
    timed = [run for run in runs if run.breakdown.timings is not None]
    limits = [(run, roofline_of(run.profile, profiles, None)) for run in timed]
    return [
        run.row(
            {
                **{"least_ns": limit.step_ns, "step_ns": limit.clean_ns},
                **{"share": limit.share, "gemm_flops_per_s": limit.gemm_flops_per_s},
            }
        )
        for run, limit in limits
        if limit is not None and limit.share is not None
    ]


def stability(runs: Sequence[RunReport]) -> list[Row]:
    """Cells of ``iterations`` counted ones from ``iteration`` on, of a long series more than one.

    ``wall_ns`` is the median of their times, ``off_share`` that over the median iteration of the
    run, less 1; ``place`` the round and whether it was profiled before: no cell is of two places.
    """
    most = max(ALL_CELLS // max(len(runs), 1), LEAST_CELLS)
    rows = []
    for run in runs:
        table, timings = run.breakdown.run.timings(), run.breakdown.timings
        usual = 0.0 if timings is None else timings.median_ns
        counted = [] if table is None or not usual else _counted(table)
        size = -(-len(counted) // most)
        for place, of_place in itertools.groupby(counted, key=_place):
            left = list(of_place)
            for cell in (left[first : first + size] for first in range(0, len(left), size)):
                wall = statistics.median(row["wall_ns"] for row in cell)
                columns = {"iteration": cell[0]["iteration"], "iterations": len(cell)}
                columns |= {"place": place, "wall_ns": wall, "off_share": wall / usual - 1}
                rows.append(run.row(columns))
    return rows


def _counted(table: pa.Table) -> list[Row]:
    """The iterations after warm-up."""
    rows: list[Row] = table.filter(pc.invert(table.column("warmup"))).to_pylist()
    return rows


def _place(iteration: Row) -> str:
    profiled = ", after its profile" if iteration["after_profile"] else ""
    return f"round {iteration['round'] + 1}{profiled}"


def pairs(runs: Sequence[RunReport], groups: Sequence[Group]) -> list[Pair]:
    """Every two runs of a group, ``MOST_PAIRS`` allowing, in the order of ``_order``."""
    ordered = []
    for group in groups:
        members = [run.profile for run in runs if run.facts.group == group.number]
        held = against_fastest(members)
        every = math.comb(len(members), 2) <= MOST_PAIRS
        of_verdicts = {frozenset((fast.name, slow.name)) for fast, slow in held}
        two = itertools.combinations(members, 2) if every else held
        of_group = [_pair(first, second) for first, second in two]
        ordered += sorted(of_group, key=lambda pair: _order(pair, of_verdicts))
    return ordered


def _order(pair: Pair, of_verdicts: Collection[frozenset[str]]) -> tuple[bool, int]:
    """Where ``pair`` stands: those of which a verdict is first, the largest difference first."""
    names = frozenset((pair.fast.name, pair.slow.name))
    return names not in of_verdicts, -sum(_deltas(pair))


def _pair(first: StepProfile, second: StepProfile) -> Pair:
    ends = lengths(first, second)
    fast, slow = (first, second) if ends[0] <= ends[1] else (second, first)
    return Pair(fast, slow, [dataclasses.asdict(part) for part in waterfall(fast, slow)])


def _deltas(pair: Pair) -> Iterator[int]:
    return (row["slow_ns"] - row["fast_ns"] for row in pair.rows)
