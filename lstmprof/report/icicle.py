"""Make pictures of call stacks (icicle charts) of single runs and of pairs of runs.

Callers are above callees. In the picture of a pair, a box is as wide as the longer of its two
times.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from lstmprof.base.names import STACKS
from lstmprof.base.numbers import milliseconds, number_of, quantity, shown_name
from lstmprof.diagnose.step_profile import labels
from lstmprof.events.intervals import Ints
from lstmprof.events.table import EventTable
from lstmprof.export.call_stacks import (
    ROOT,
    Stacks,
    StepStacks,
    Tree,
    over_one_tree,
    recorded,
    stacks,
    step_stacks,
)
from lstmprof.report.model import Icicle, Pair
from lstmprof.report.palette import PARTS
from lstmprof.report.runs import RunReport
from lstmprof.report.timeline import part_codes

#: Smallest share of the total time for which a callee gets its own box. All smaller callees share
#: a box, such as "5 smaller callees".
LEAST_SHARE = 0.01
#: Largest depth of nested boxes. Largest number of events for which a run gets a picture.
MOST_DEPTH, MOST_EVENTS = 64, 3_000_000
#: Largest number of pictures on a page. Largest number of pairs of runs that get a picture.
MOST_ICICLES, MOST_PAIRS = 40, 12
#: Code for "no part of the breakdown" in the column ``part`` of boxes.
_NO_PART = -1
_NAME = 160


def icicles(runs: Sequence[RunReport], pairs: Sequence[Pair]) -> tuple[Icicle, ...]:
    drawn = [*_pair_icicles(runs, pairs[:MOST_PAIRS])]
    drawn += [picture for run in runs for picture in _run_icicle(run)]
    return tuple(drawn[:MOST_ICICLES])


def _pair_icicles(runs: Sequence[RunReport], pairs: Sequence[Pair]) -> Iterator[Icicle]:
    """Yield one picture per pair, with the stacks of ops in one step of each run."""
    run_of = {run.facts.run: run for run in runs if _events(run)[1] <= MOST_EVENTS}
    names = dict.fromkeys(p.name for pair in pairs for p in (pair.fast, pair.slow))
    steps = {
        name: step_stacks(run_of[name].breakdown, *run_of[name].profile.rank_device, STACKS[-1])
        for name in names
        if name in run_of
    }
    for pair in pairs:
        if pair.fast.name in steps and pair.slow.name in steps:
            fast, slow = over_one_tree([steps[pair.fast.name], steps[pair.slow.name]])
            fast_label, slow_label = labels(pair.fast, pair.slow)
            columns = {"fast_ns": fast.ns, "slow_ns": slow.ns}
            columns = {"total_ns": np.maximum(fast.ns, slow.ns)} | columns
            sums = {name: _summed(fast.tree, own) for name, own in columns.items()}
            part = np.full(len(fast.ns), _NO_PART, dtype=np.int64)
            run = f"{slow_label} beside {fast_label}"
            if picture := _icicle(run, "one step", fast.tree, sums, part):
                sentence = f"One step: {_ms(slow)} in {slow_label}, {_ms(fast)} in {fast_label}."
                yield replace(picture, sentence=sentence, fast=fast_label, slow=slow_label)


def _ms(step: StepStacks) -> str:
    return f"{milliseconds(int(step.ns.sum()), 3)} ms"


def _events(run: RunReport) -> tuple[int, int]:
    """Return the number of Python frames, and of all events."""
    every = run.breakdown.recorded
    frames = sum(has.python_frames for has in every)
    return frames, frames + sum(has.ops + has.runtime_calls + has.activities for has in every)


def _run_icicle(run: RunReport) -> Iterator[Icicle]:
    frames, count = _events(run)
    if not frames or count > MOST_EVENTS:
        return
    events = run.breakdown.events_of_rank(run.profile.rank)
    rows = events.rows_of_rank(run.profile.rank)
    rank_words = "" if len(run.breakdown.ranks) == 1 else f" of rank {run.profile.rank}"
    for by in recorded(events)[:-1]:
        for where, of in zip(("host", "device"), stacks(events, rows, by), strict=True):
            what = f"{where} time{rank_words} by {_BY[by]}"
            own = of.spent_ns()
            sums = {"total_ns": _summed(of.tree, own), "self_ns": own}
            if picture := _icicle(run.facts.run, what, of.tree, sums, _parts(events, of)):
                yield picture


_BY = {"modules": "module", "python": "Python frame"}


def _summed(tree: Tree, own: Ints) -> Ints:
    """Return the total time of each call stack, including its callees."""
    total = own.copy()
    for node in range(len(total) - 1, ROOT, -1):
        total[tree.above[node]] += total[node]
    return total


def _icicle(run: str, what: str, tree: Tree, sums: Mapping[str, Ints], part: Ints) -> Icicle | None:
    """Draw a tree of call stacks, the longest callee first."""
    total = sums["total_ns"]
    if not total[ROOT]:
        return None
    inside: dict[int, list[int]] = {}
    for node in range(ROOT + 1, len(tree.above)):
        if total[node]:
            inside.setdefault(tree.above[node], []).append(node)
    columns: dict[str, list[int]] = {name: [] for name in ("above", "name", *sums, "part")}
    places: dict[str, int] = {}

    def add(box: int, text: str, nodes: list[int], of_part: int) -> None:
        columns["above"].append(box)
        columns["name"].append(places.setdefault(text, len(places)))
        columns["part"].append(of_part)
        for name in sums:
            alone = name if len(nodes) == 1 or name != "self_ns" else "total_ns"
            columns[name].append(int(sums[alone][nodes].sum()))

    least = LEAST_SHARE * total[ROOT]
    level = [(ROOT, _NO_PART)]
    for _ in range(MOST_DEPTH):
        below = []
        for node, box in level:
            members = sorted(inside.get(node, ()), key=lambda member: -total[member])
            large = [member for member in members if total[member] >= least]
            for member in large:
                below.append((member, len(columns["above"])))
                add(box, shown_name(tree.names[member], _NAME), [member], int(part[member]))
            small = members[len(large) :]
            if small and total[small].sum() >= least:
                text = number_of(len(small), "smaller callee", "smaller callees")
                add(box, text, small, _NO_PART)
        level = below
    sentence = f"{run}: {quantity(int(total[ROOT]), 'ns')} of {what}, in the whole profile."
    return Icicle(run, what, sentence, int(total[ROOT]), tuple(places), tuple(PARTS), columns)


def _parts(events: EventTable, of: Stacks) -> Ints:
    """Return the part of the breakdown in which each call stack spends most time."""
    rows = np.flatnonzero(
        ~events.is_kind("python", "range", "step", "runtime", "overhead")[of.rows]
    )
    code = part_codes(events)[of.rows[rows]]
    in_part = rows[code >= 0]
    spent = np.zeros((len(of.tree.above), len(PARTS)), dtype=np.int64)
    np.add.at(spent, (of.node[in_part], code[code >= 0]), np.maximum(of.ns[in_part], 1))
    part = np.where(spent.any(axis=1), spent.argmax(axis=1), _NO_PART)
    return np.asarray(part, dtype=np.int64)
