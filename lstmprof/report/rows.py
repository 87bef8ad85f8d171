"""The rows of each chart and table: those of ``breakdown`` and ``diagnose``, run by run."""

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

from lstmprof.breakdown import CLEAN, PROFILED
from lstmprof.breakdown.mean_step import lane_words
from lstmprof.breakdown.tables.ranks import in_common
from lstmprof.breakdown.versions import by_version
from lstmprof.diagnose.diagnosis import Diagnosis
from lstmprof.diagnose.findings import lengths, waterfall
from lstmprof.diagnose.roofline import roofline_of
from lstmprof.diagnose.step_profile import StepProfile
from lstmprof.events.annotate.calls import is_copy
from lstmprof.implementations import version_numbers
from lstmprof.report.model import LEAST_SHARE, Group, Pair, Row
from lstmprof.report.runs import RunReport

#: Rows per run on the page; JSON and CSV have all.
MOST_KERNELS, MOST_GAPS, MOST_CASTS, MOST_LAYERS = 40, 60, 20, 20
#: The critical paths of runs with more events are not on the page: ``breakdown`` takes seconds.
MOST_ON_PATH = 100_000
#: Conditions that may differ between the runs of a sweep; those that do are in its labels.
_CONDITIONS = ("precision", "mode", "device_name", "threads", "label")
#: Cells of the timing series of all runs together, and at least of one run.
ALL_CELLS, LEAST_CELLS = 6_000, 50
#: A group with more pairs of runs has only those with the baseline.
MOST_PAIRS = 800


def _of(run: RunReport, table: pa.Table, most: int) -> Iterator[Row]:
    """Return the first ``most`` rows of a table of ``run``."""
    return map(run.row, table.slice(0, most).to_pylist())


def times(runs: Sequence[RunReport], diagnoses: Sequence[Diagnosis]) -> list[Row]:
    """Return the step of each run that is compared with another, as its verdict has it.

    ``low_ns`` and ``high_ns`` are the 95 % interval, None without a clean step. ``times`` and
    ``differs`` are of the verdict against the baseline; the baseline has "" and False.
    """
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
    """Return ``state``, ``part`` and ``total_ns``, the sum over ``steps``, of the diagnosed lane.

    ``of`` says whether the steps are clean ones.
    """
    return [
        run.row(
            {
                **{"lane": run.facts.lane, "state": state, "part": part},
                **{"total_ns": total_ns, "steps": lane.steps},
                "of": CLEAN if lane.clean else PROFILED,
            }
        )
        for run in runs
        for lane in run.breakdown.steps()
        if (lane.rank, lane.device) == run.profile.place
        for state, part, total_ns in lane.parts
    ]


def kernels(runs: Iterable[RunReport]) -> list[Row]:
    """Return the columns of ``breakdown --table kernels``, the longest of each run."""
    rows = (row for run in runs for row in _of(run, run.breakdown.kernels, MOST_KERNELS))
    return [row for row in rows if row["share"] is None or row["share"] >= LEAST_SHARE]


def launch_gaps(runs: Iterable[RunReport]) -> list[Row]:
    """Return the kernels of each run on a device, with the gaps before them."""
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
    """Return the columns of ``breakdown --table casts``; ``share`` of the run's profiled steps."""
    rows: list[Row] = []
    for run in runs:
        whole = sum(w.end_ns - w.start_ns for w in run.breakdown.windows)
        for row in _of(run, run.breakdown.table("casts"), MOST_CASTS):
            rows.append({**row, "share": row["total_ns"] / whole if whole else None})
    return rows


def layers(runs: Iterable[RunReport]) -> list[Row]:
    """Return the columns of ``breakdown --table layers``, the first of each run."""
    return [row for run in runs for row in _of(run, run.breakdown.table("layers"), MOST_LAYERS)]


def critical_path(runs: Sequence[RunReport], pairs: Sequence[Pair]) -> list[Row]:
    """Return the columns of ``breakdown --table critical_path`` of the diagnosed rank, the longest
    part first: of the first pair of runs that is compared, or of the first run.
    """
    names = {pairs[0].fast.name, pairs[0].slow.name} if pairs else {runs[0].facts.run}
    rows = [
        row
        for run in runs
        if run.facts.run in names and run.breakdown.run.event_count <= MOST_ON_PATH
        for row in _of(run, run.breakdown.table("critical_path"), MOST_KERNELS)
        if row["rank"] == run.profile.place[0] and row["path_share"] >= LEAST_SHARE
    ]
    return sorted(rows, key=lambda row: (row["run"], -row["path_ns"], row["part"]))


def versions(runs: Sequence[RunReport]) -> list[Row]:
    """Return the steps of implementations that ran in several versions, ordered by ``place``."""
    of_run = {id(run.breakdown): run for run in runs}
    told = [row for group in by_version([run.breakdown for run in runs]) for row in group]
    order = sorted({row.version for row in told}, key=_by_package)
    rows = []
    for row in told:
        timings = row.breakdown.timings
        assert timings is not None
        columns = {
            "implementation": row.implementation,
            "version": row.version,
            "place": order.index(row.version),
            "of_first": row.of_first,
            "step_ns": timings.step_ns,
            "low_ns": timings.step_low_ns,
            "high_ns": timings.step_high_ns,
        }
        rows.append(of_run[id(row.breakdown)].row(columns))
    return rows


def _by_package(version: str) -> tuple[str, tuple[int, ...], str]:
    """Return a sort key: by package, then by version number."""
    return version.partition(" ")[0], version_numbers(version), version


def sweep(runs: Sequence[RunReport]) -> list[Row]:
    """Return the steps by size of what ran in several sizes.

    If each implementation ran in one size and the sizes differ, return all. ``conditions`` are
    those that differ between the runs, besides the sizes; may be empty.
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
            "step_ns": run.facts.step_ns,
        }
        rows.append(run.row({**columns, **size}))
        sizes.setdefault(_ran(rows[-1]), set()).add(tuple(size.values()))
    several = [row for row in rows if len(sizes[_ran(row)]) > 1]
    return several or (rows if len(set().union(*sizes.values())) > 1 else [])


def _ran(row: Row) -> tuple[str, str]:
    """Return what ran, without its size."""
    return row["implementation"], row["conditions"]


def roofline(runs: Sequence[RunReport]) -> list[Row]:
    """Return ``least_ns`` of a step by its device's peaks, ``step_ns``, and their ``share``."""
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
    """Return cells of ``iterations`` in a row from ``iteration`` on; warm-up is left out.

    ``wall_ns`` is their median, ``off_share`` its relative distance from the run's median
    iteration. ``place`` is the round, and whether that was profiled before; no cell has two places.
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
    """Return the iterations after warm-up."""
    rows: list[Row] = table.filter(pc.invert(table.column("warmup"))).to_pylist()
    return rows


def _place(iteration: Row) -> str:
    profiled = ", after its profile" if iteration["after_profile"] else ""
    return f"round {iteration['round'] + 1}{profiled}"


def pairs(runs: Sequence[RunReport], groups: Sequence[Group]) -> list[Pair]:
    """Return every two runs of a group, those with the baseline first, then by difference.

    A group with more than ``MOST_PAIRS`` has only those with the baseline.
    """
    ordered = []
    for group in groups:
        members = [run.profile for run in runs if run.facts.group == group.number]
        every = math.comb(len(members), 2) <= MOST_PAIRS
        two = itertools.combinations(members, 2)
        of_group = [_pair(*p) for p in two if every or group.baseline in (p[0].name, p[1].name)]
        ordered += sorted(
            of_group,
            key=lambda pair: (
                group.baseline not in (pair.fast.name, pair.slow.name),
                -sum(row["slow_ns"] - row["fast_ns"] for row in pair.rows),
            ),
        )
    return ordered


def _pair(first: StepProfile, second: StepProfile) -> Pair:
    ends = lengths(first, second)
    fast, slow = (first, second) if ends[0] <= ends[1] else (second, first)
    return Pair(fast, slow, [dataclasses.asdict(part) for part in waterfall(fast, slow)])


#: Ranks and devices of a run that are drawn, and columns of a picture of them.
MOST_LANES, MOST_COLUMNS = 64, 160

_Place = tuple[int | None, int | None]


def several(runs: Iterable[RunReport]) -> list[RunReport]:
    """Return those of ``runs`` that ran on several ranks or devices."""
    return [run for run in runs if len(_places(run)) > 1]


def _places(run: RunReport) -> list[_Place]:
    lanes = run.breakdown.steps(profiled=True)
    return sorted(((lane.rank, lane.device) for lane in lanes), key=_order)


def _order(place: _Place) -> tuple[int, ...]:
    return tuple(-1 if number is None else number for number in place)


def _drawn(run: RunReport) -> dict[_Place, str]:
    """Return the names of the ranks and devices that are drawn, in their order."""
    return {place: lane_words(*place) for place in _places(run)[:MOST_LANES]}


def ranks(runs: Iterable[RunReport]) -> list[Row]:
    """Return the columns of ``breakdown --table ranks``, the first of each run."""
    return [
        run.row(row)
        for run in several(runs)
        for row in run.breakdown.table("ranks").slice(0, MOST_LANES).to_pylist()
    ]


def rank_parts(runs: Iterable[RunReport]) -> list[Row]:
    """Return ``lane``, ``state``, ``part``, and ``ns`` per mean step."""
    return [
        run.row({"lane": lanes[place], "state": state, "part": part, "ns": total_ns / of.steps})
        for run in several(runs)
        for lanes in [_drawn(run)]
        for of in run.breakdown.steps(profiled=True)
        if (place := (of.rank, of.device)) in lanes
        for state, part, total_ns in of.parts
    ]


def arrivals(runs: Iterable[RunReport]) -> list[Row]:
    """Return cells of ``collectives`` in a row, from ``collective`` (counted from 1), by ``lane``.

    ``late_ns`` is the mean of how long after the first rank it came, ``last_in`` in how many it was
    the last. ``step`` and ``name`` are those of the first of them. A run whose collectives are not
    known to be one another's has none.
    """
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
            if (place := (call["rank"], call["device"])) in lanes:
                cells[lanes[place], call["collective"] // size].append(call)
        for (lane, cell), members in cells.items():
            late = sum(longest[call["collective"]] - call["waits_ns"] for call in members)
            first = min(members, key=lambda call: call["collective"])
            columns = {"lane": lane, "collective": cell * size + 1, "collectives": len(members)}
            columns |= {"late_ns": late / len(members), "last_in": sum(map(_is_last, members))}
            rows.append(run.row({**columns, "step": first["step"], "name": first["name"]}))
    return rows


def _is_last(call: Row) -> bool:
    return (call["last_rank"], call["last_device"]) == (call["rank"], call["device"])


def _size(count: int) -> int:
    """Return how many share a cell, so that ``count`` fit into a picture."""
    return max(-(-count // MOST_COLUMNS), 1)


def rank_work(runs: Iterable[RunReport]) -> list[Row]:
    """Return cells of ``steps`` in a row from ``step`` on, by ``lane``.

    ``work_ns`` is the mean of what a step was busy with anything but a collective, ``off_share``
    that over the mean of all ranks and devices that have these steps, less 1. A profile without
    step markers has none, nor have steps in which nobody works.
    """
    rows = []
    for run in several(runs):
        lanes = _drawn(run)
        work = _work_of_steps(run, lanes)
        steps = sorted({step for _, step in work})
        size = _size(len(steps))
        for members in (steps[at : at + size] for at in range(0, len(steps), size)):
            mean = {lane: _mean(work, lane, members) for lane in lanes.values()}
            known = {lane: ns for lane, ns in mean.items() if ns is not None}
            of_all = sum(known.values()) / len(known)
            for lane, ns in known.items():
                columns = {"lane": lane, "step": members[0], "steps": len(members), "work_ns": ns}
                if of_all:
                    rows.append(run.row({**columns, "off_share": ns / of_all - 1}))
    return rows


def _work_of_steps(run: RunReport, lanes: Mapping[_Place, str]) -> Counter[tuple[str, int]]:
    """Return how long each lane was busy in each marked step, without collectives."""
    work: Counter[tuple[str, int]] = Counter()
    for row in _marked(run):
        if (place := (row["rank"], row["device"])) in lanes:
            busy = row["state"] == "busy" and row["part"] != "collective"
            work[lanes[place], row["step"]] += row["ns"] if busy else 0
    return work


def _marked(run: RunReport) -> Iterator[Row]:
    return (row for row in run.breakdown.ledger.to_pylist() if row["step"] is not None)


def _mean(work: Mapping[tuple[str, int], int], lane: str, steps: Sequence[int]) -> float | None:
    """Return the mean work of ``lane`` in those of ``steps`` that it has; None if it has none."""
    own = [work[lane, step] for step in steps if (lane, step) in work]
    return sum(own) / len(own) if own else None
