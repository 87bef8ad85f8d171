"""Call stacks as a picture, from the top down, for runs with recorded modules or Python frames.

Boxes of less than ``LEAST_SHARE`` of the time are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from lstmprof.events.intervals import Ints
from lstmprof.events.table import EventTable
from lstmprof.export.call_stacks import ROOT, Stacks, recorded, stacks
from lstmprof.numbers import number_of, shown_name
from lstmprof.report.model import Icicle
from lstmprof.report.palette import PARTS
from lstmprof.report.runs import RunReport
from lstmprof.report.timeline import part_codes

#: Boxes with a smaller share of all time in a picture are folded.
LEAST_SHARE = 0.01
#: Most nested boxes in a picture, and most events of a run with call stacks.
MOST_DEPTH, MOST_EVENTS = 64, 3_000_000
#: Pictures of a page.
MOST_ICICLES = 40
#: What has a box of its own beside that of what is around it.
_NO_PART = -1
_NAME = 160


def icicles(runs: Sequence[RunReport]) -> tuple[Icicle, ...]:
    """Return the pictures of the runs: by modules, by Python frames; host, then device."""
    drawn = [picture for run in runs for picture in _of_run(run)]
    return tuple(drawn[:MOST_ICICLES])


def _of_run(run: RunReport) -> Iterator[Icicle]:
    counts = [
        (has.python_frames, has.python_frames + has.ops + has.runtime_calls + has.activities)
        for has in run.breakdown.recorded
    ]
    frames, count = (sum(column) for column in zip((0, 0), *counts, strict=True))
    if not frames or count > MOST_EVENTS:
        return
    events = run.breakdown.of_rank(run.profile.rank)
    rows = events.of_rank(run.profile.rank)
    of_rank = "" if len(run.breakdown.ranks) == 1 else f" of rank {run.profile.rank}"
    for by in recorded(events)[:-1]:
        for where, of in zip(("host", "device"), stacks(events, rows, by), strict=True):
            what = f"{where} time{of_rank} by {_BY[by]}"
            if picture := icicle(run.facts.run, what, events, of):
                yield picture


_BY = {"modules": "module", "python": "Python frame"}


def icicle(run: str, what: str, events: EventTable, of: Stacks) -> Icicle | None:
    """Return the picture of stacks; None if they take no time.

    Boxes stand behind that of what is around them, the longest first.
    """
    own = of.spent_ns()
    total = own.copy()
    above, names = of.tree.above, of.tree.names
    for node in range(len(above) - 1, ROOT, -1):
        total[above[node]] += total[node]
    if not total[ROOT]:
        return None
    inside: dict[int, list[int]] = {}
    for node in range(ROOT + 1, len(above)):
        if total[node]:
            inside.setdefault(above[node], []).append(node)
    part = _parts(events, of)
    boxes: list[tuple[int, str, int, int, int]] = []
    _add(boxes, inside, total, names, own, part)
    columns = [list(column) for column in zip(*boxes, strict=True)]
    around, texts, totals, selfs, parts = columns
    distinct = list(dict.fromkeys(texts))
    place = {text: number for number, text in enumerate(distinct)}
    return Icicle(
        run=run,
        what=what,
        total_ns=int(total[ROOT]),
        names=tuple(distinct),
        parts=tuple(PARTS),
        columns={
            "above": around,
            "name": [place[text] for text in texts],
            "total_ns": totals,
            "self_ns": selfs,
            "part": parts,
        },
    )


def _add(
    boxes: list[tuple[int, str, int, int, int]],
    inside: dict[int, list[int]],
    total: Ints,
    names: Sequence[str],
    own: Ints,
    part: Ints,
) -> None:
    """Return the boxes that are large enough, by depth; small callees of one box are one box."""
    least = LEAST_SHARE * total[ROOT]
    level = [(ROOT, _NO_PART)]
    for _ in range(MOST_DEPTH):
        below = []
        for node, box in level:
            members = sorted(inside.get(node, ()), key=lambda member: -total[member])
            large = [member for member in members if total[member] >= least]
            for member in large:
                below.append((member, len(boxes)))
                text = shown_name(names[member], _NAME)
                boxes.append((box, text, int(total[member]), int(own[member]), int(part[member])))
            rest = int(total[members[len(large) :]].sum()) if members else 0
            if rest >= least:
                text = number_of(len(members) - len(large), "smaller callee", "smaller callees")
                boxes.append((box, text, rest, rest, _NO_PART))
        level = below


def _parts(events: EventTable, of: Stacks) -> Ints:
    """Return the index in ``PARTS`` of most of each node's time; frames have none."""
    rows = np.flatnonzero(
        ~events.is_kind("python", "range", "step", "runtime", "overhead")[of.rows]
    )
    code = part_codes(events)[of.rows[rows]]
    known = rows[code >= 0]
    spent = np.zeros((len(of.tree.above), len(PARTS)), dtype=np.int64)
    np.add.at(spent, (of.node[known], code[code >= 0]), np.maximum(of.ns[known], 1))
    part = np.where(spent.any(axis=1), spent.argmax(axis=1), _NO_PART)
    return np.asarray(part, dtype=np.int64)
