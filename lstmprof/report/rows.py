"""Make the rows of each chart and table of a report.

All rows have the columns ``run``, ``label`` and ``group``. The column ``lane`` names a rank and
device, such as ``rank 1``.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lstmprof.base.package import version_numbers
from lstmprof.breakdown import CLEAN, PROFILED
from lstmprof.breakdown.mean_step import lane_words
from lstmprof.breakdown.tables.collectives import RankDevice, in_common
from lstmprof.breakdown.versions import by_version
from lstmprof.diagnose.diagnosis import Diagnosis
from lstmprof.diagnose.findings import waterfall
from lstmprof.diagnose.roofline import roofline_of
from lstmprof.events.annotate.calls import is_copy
from lstmprof.report.model import LEAST_SHARE, Group, Pair, Row
from lstmprof.report.runs import RunReport

#: Largest numbers of rows per run in tables of the page; JSON and CSV have all rows.
MOST_KERNELS, MOST_GAPS, MOST_CASTS, MOST_LAYERS = 40, 60, 20, 20
#: Largest number of events for which a run's critical path is computed (this takes seconds).
MOST_ON_PATH = 100_000
#: Conditions that the chart of sizes shows if the runs differ in these conditions.
_CONDITIONS = ("precision", "mode", "device_name", "threads", "label")
#: Approximate number of cells in the chart of stability. Lowest limit of cells per run.
ALL_CELLS, LEAST_CELLS = 6_000, 50
#: Largest number of pairs in a group that are all shown. With more pairs, the page shows only
#: pairs with the baseline.
MOST_PAIRS = 800


def _first_rows(run: RunReport, table: pa.Table, most: int) -> Iterator[Row]:
    """Return a table's first rows with the columns ``run``, ``label``, ``group``."""
    return map(run.row, table.slice(0, most).to_pylist())


def times(runs: Sequence[RunReport], diagnoses: Sequence[Diagnosis]) -> list[Row]:
    """Return the step time of each compared run, and its ratio to the baseline."""
    verdicts = {d.slow.name: d for d in diagnoses if d.fast is not None}
    compared = {name for d in verdicts.values() for name in (d.slow.name, d.fast and d.fast.name)}
    rows: list[Row] = []
    for run in runs:
        if run.facts.run not in compared:
            continue
        verdict, span = verdicts.get(run.facts.run), run.profile.span
        columns = {
            "step_ns": run.facts.step_ns,
            "low_ns": None if span is None else span.low_ns,
            "high_ns": None if span is None else span.high_ns,
            "times": "" if verdict is None else verdict.verdict.times,
            "differs": verdict is not None and verdict.outcome.differs,
            "iterations": run.facts.iterations,
        }
        rows.append(run.row(columns))
    return rows


def ledger(runs: Iterable[RunReport]) -> list[Row]:
    """Return the time of each part of the breakdown, on the diagnosed device."""
    return [
        run.row(
            {
                **{"lane": run.facts.lane, "state": state, "part": part},
                **{"total_ns": total_ns, "steps": lane.steps},  # sum of all steps
                "of": CLEAN if lane.clean else PROFILED,
            }
        )
        for run in runs
        for lane in run.breakdown.steps()
        if (lane.rank, lane.device) == run.profile.rank_device
        for state, part, total_ns in lane.parts
    ]


def kernels(runs: Iterable[RunReport]) -> list[Row]:
    """Return the kernels of each run that take the most time."""
    rows = (row for run in runs for row in _first_rows(run, run.breakdown.kernels, MOST_KERNELS))
    return [row for row in rows if row["share"] is None or row["share"] >= LEAST_SHARE]


def launch_gaps(runs: Iterable[RunReport]) -> list[Row]:
    """Return durations of kernels and of gaps before kernels, for runs on a device."""
    rows: list[Row] = []
    for run in runs:
        if run.profile.device is not None:
            table = run.breakdown.table("launch_gaps")
            is_kernel = [not is_copy(name) for name in table["name"].to_pylist()]
            kernels = table.filter(pa.array(is_kernel, pa.bool_()))
            rows += _first_rows(run, kernels, MOST_GAPS)
    return rows


def casts(runs: Iterable[RunReport]) -> list[Row]:
    """Return the casts with their ``share`` of the time of all profiled steps."""
    rows: list[Row] = []
    for run in runs:
        whole = sum(w.length_ns for w in run.breakdown.windows)
        for row in _first_rows(run, run.breakdown.table("casts"), MOST_CASTS):
            rows.append({**row, "share": row["total_ns"] / whole if whole else None})
    return rows


def layers(runs: Iterable[RunReport]) -> list[Row]:
    """Return the recurrent layers of each run."""
    return [
        row for run in runs for row in _first_rows(run, run.breakdown.table("layers"), MOST_LAYERS)
    ]


def critical_path(runs: Sequence[RunReport], pairs: Sequence[Pair]) -> list[Row]:
    """Return work and waits on the critical paths of the first pair or run."""
    names = {pairs[0].fast.name, pairs[0].slow.name} if pairs else {runs[0].facts.run}
    rows = [
        row
        for run in runs
        if run.facts.run in names and run.breakdown.run.event_count <= MOST_ON_PATH
        for row in _first_rows(run, run.breakdown.table("critical_path"), MOST_KERNELS)
        if row["rank"] == run.profile.rank_device[0] and row["path_share"] >= LEAST_SHARE
    ]
    return sorted(rows, key=lambda row: (row["run"], -row["path_ns"], row["part"]))


def versions(runs: Sequence[RunReport]) -> list[Row]:
    """Return step times of implementations that ran with several versions."""
    run_of = {id(run.breakdown): run for run in runs}
    version_rows = [row for group in by_version([run.breakdown for run in runs]) for row in group]
    order = sorted(
        {row.version for row in version_rows},
        key=lambda v: (v.partition(" ")[0], version_numbers(v), v),
    )
    rows = []
    for row in version_rows:
        timings = row.breakdown.timings
        assert timings is not None
        columns = {
            "implementation": row.implementation,
            "version": row.version,
            "place": order.index(row.version),  # position in the chart
            "of_first": row.of_first,  # ratio to the oldest version
            "step_ns": timings.step_ns,
            "low_ns": timings.step_low_ns,
            "high_ns": timings.step_high_ns,
        }
        rows.append(run_of[id(row.breakdown)].row(columns))
    return rows


def sweep(runs: Sequence[RunReport]) -> list[Row]:
    """Return the step times of networks of different sizes."""
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
            "step_ns": run.facts.step_ns,
        }
        rows.append(run.row({**columns, **size}))
        sizes.setdefault(_ran(rows[-1]), set()).add(tuple(size.values()))
    # keep only implementations that ran with several sizes, if there are any
    several = [row for row in rows if len(sizes[_ran(row)]) > 1]
    return several or (rows if len(set().union(*sizes.values())) > 1 else [])


def _ran(row: Row) -> tuple[str, str]:
    return row["implementation"], row["conditions"]


def roofline(runs: Sequence[RunReport]) -> list[Row]:
    """Return least (at peak rates) and clean step times of runs, if both are known."""
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
    """Return the median time of each group of successive iterations."""
    most = max(ALL_CELLS // max(len(runs), 1), LEAST_CELLS)
    rows = []
    for run in runs:
        table, timings = run.breakdown.run.timings(), run.breakdown.timings
        usual = 0.0 if timings is None else timings.median_ns
        counted: list[Row] = []
        if table is not None and usual:
            counted = table.filter(pc.invert(table.column("warmup"))).to_pylist()
        size = -(-len(counted) // most)
        for part, iterations in itertools.groupby(counted, key=_round_words):
            left = list(iterations)
            for cell in (left[first : first + size] for first in range(0, len(left), size)):
                wall = statistics.median(row["wall_ns"] for row in cell)
                columns = {"iteration": cell[0]["iteration"], "iterations": len(cell)}
                # ``place`` is a text such as ``round 2, after its profile``
                columns |= {"place": part, "wall_ns": wall, "off_share": wall / usual - 1}
                rows.append(run.row(columns))
    return rows


def _round_words(iteration: Row) -> str:
    profiled = ", after its profile" if iteration["after_profile"] else ""
    return f"round {iteration['round'] + 1}{profiled}"


def pairs(runs: Sequence[RunReport], groups: Sequence[Group]) -> list[Pair]:
    """Return pairs by difference within each group, pairs with the baseline first."""
    ordered = []
    for group in groups:
        members = [run.profile for run in runs if run.facts.group == group.number]
        every = math.comb(len(members), 2) <= MOST_PAIRS
        two = itertools.combinations(members, 2)
        chosen = (p for p in two if every or group.baseline in (p[0].name, p[1].name))
        sorted_pairs = (sorted(p, key=lambda profile: profile.length_ns) for p in chosen)
        group_pairs = [
            Pair(fast, slow, [dataclasses.asdict(part) for part in waterfall(fast, slow)])
            for fast, slow in sorted_pairs
        ]
        ordered += sorted(
            group_pairs,
            key=lambda pair: (
                group.baseline not in (pair.fast.name, pair.slow.name),
                -sum(row["slow_ns"] - row["fast_ns"] for row in pair.rows),
            ),
        )
    return ordered


#: Largest number of devices or ranks drawn. Largest number of columns in a heat map.
MOST_LANES, MOST_COLUMNS = 64, 160


def several(runs: Iterable[RunReport]) -> list[RunReport]:
    """Return the runs that have several ranks or devices."""
    return [run for run in runs if len(_rank_devices(run)) > 1]


def _rank_devices(run: RunReport) -> list[RankDevice]:
    lanes = run.breakdown.steps(profiled=True)
    return sorted(
        ((lane.rank, lane.device) for lane in lanes),
        key=lambda rank_device: tuple(-1 if n is None else n for n in rank_device),
    )


def _drawn(run: RunReport) -> dict[RankDevice, str]:
    """Return the ranks and devices to draw, with their names, such as ``rank 1``."""
    return {
        rank_device: lane_words(*rank_device) for rank_device in _rank_devices(run)[:MOST_LANES]
    }


def ranks(runs: Iterable[RunReport]) -> list[Row]:
    """Return the table of ranks, for runs on several devices."""
    return [
        run.row(row)
        for run in several(runs)
        for row in run.breakdown.table("ranks").slice(0, MOST_LANES).to_pylist()
    ]


def rank_parts(runs: Iterable[RunReport]) -> list[Row]:
    """Return the time per profiled step of each part of the breakdown, by rank and device."""
    return [
        run.row(
            {"lane": lanes[rank_device], "state": state, "part": part, "ns": total_ns / of.steps}
        )
        for run in several(runs)
        for lanes in [_drawn(run)]
        for of in run.breakdown.steps(profiled=True)
        if (rank_device := (of.rank, of.device)) in lanes
        for state, part, total_ns in of.parts
    ]


def arrivals(runs: Iterable[RunReport]) -> list[Row]:
    """Return how late each rank arrives at the collectives that all ranks ran."""
    rows = []
    for run in several(runs):
        lanes = _drawn(run)
        calls = in_common(run.breakdown.table("collectives").to_pylist())
        longest: dict[int, int] = defaultdict(int)
        for call in calls:
            longest[call["collective"]] = max(longest[call["collective"]], call["waits_ns"])
        cells: dict[tuple[str, int], list[Row]] = defaultdict(list)
        size = _size(max(longest, default=0) + 1)
        for call in calls:
            if (rank_device := (call["rank"], call["device"])) in lanes:
                cells[lanes[rank_device], call["collective"] // size].append(call)
        for (lane, cell), members in cells.items():
            late = sum(longest[call["collective"]] - call["waits_ns"] for call in members)
            first = min(members, key=lambda call: call["collective"])
            columns = {"lane": lane, "collective": cell * size + 1, "collectives": len(members)}
            last_in = sum(
                (c["last_rank"], c["last_device"]) == (c["rank"], c["device"]) for c in members
            )
            # ``late_ns``: mean time after the first rank, over consecutive collectives
            columns |= {"late_ns": late / len(members), "last_in": last_in}
            rows.append(run.row({**columns, "step": first["step"], "name": first["name"]}))
    return rows


def _size(count: int) -> int:
    """Return how many steps or collectives share a column of a heat map."""
    return max(-(-count // MOST_COLUMNS), 1)


def rank_work(runs: Iterable[RunReport]) -> list[Row]:
    """Return each rank's mean busy time per group of successive steps, without collectives."""
    rows = []
    for run in several(runs):
        lanes = _drawn(run)
        work = _work_of_steps(run, lanes)
        steps = sorted({step for _, step in work})
        size = _size(len(steps))
        for members in (steps[at : at + size] for at in range(0, len(steps), size)):
            own = {
                lane: [work[lane, step] for step in members if (lane, step) in work]
                for lane in lanes.values()
            }
            means = {lane: statistics.fmean(ns) for lane, ns in own.items() if ns}
            mean_ns = sum(means.values()) / len(means)
            for lane, ns in means.items():
                columns = {"lane": lane, "step": members[0], "steps": len(members), "work_ns": ns}
                if mean_ns:
                    # ``off_share`` is the deviation from the mean of all ranks
                    rows.append(run.row({**columns, "off_share": ns / mean_ns - 1}))
    return rows


def _work_of_steps(run: RunReport, lanes: Mapping[RankDevice, str]) -> Counter[tuple[str, int]]:
    """Return the busy time without collectives, by device and step."""
    work: Counter[tuple[str, int]] = Counter()
    for row in run.breakdown.ledger.to_pylist():
        rank_device = row["rank"], row["device"]
        if row["step"] is not None and rank_device in lanes:
            busy = row["state"] == "busy" and row["part"] != "collective"
            work[lanes[rank_device], row["step"]] += row["ns"] if busy else 0
    return work
