"""What was done: copies, fills, shapes that change."""

from __future__ import annotations

import re

import numpy as np

from lstmprof.diagnose.seen.lane import Fact, Lane
from lstmprof.events.groups import Groups
from lstmprof.events.intervals import Flags
from lstmprof.events.schema import ACTIVITY_KINDS
from lstmprof.events.table import NONE

_EMPTY_OP = re.compile(r"aten::(?:new_)?empty(?:_like|_strided)?$")
#: Ops of torch that copy by calling each other.
_ARRANGING = ("aten::copy_", "aten::clone", "aten::contiguous", "aten::reshape", "aten::flatten")
_WORK = ("rnn", "gemm", "conv", "attention", "embedding")


def moved(lane: Lane) -> tuple[Fact, ...]:
    """What moves elements, by kernel or op; ``within`` the outermost op that only arranges it."""
    rows = np.flatnonzero(lane.copies)
    within = lane.around(rows)
    arranges = lane.events.is_one_of("name", *_ARRANGING)
    for _ in _ARRANGING:
        outer = np.where(within != NONE, lane.around(within), NONE)
        within = np.where((outer != NONE) & arranges[outer], outer, within)
    return lane.by_name(rows, within, lane.busy)


def filled(lane: Lane) -> tuple[Fact, ...]:
    """Memory that was filled as it was allocated."""
    return _beneath(lane, lane.events.is_one_of("name", "aten::fill_"), _EMPTY_OP)


def _beneath(lane: Lane, which: Flags, pattern: re.Pattern[str]) -> tuple[Fact, ...]:
    """Rows of ``which`` that an op of this ``pattern`` issued, or a call in it."""
    rows = np.flatnonzero(which & lane.here)
    within = lane.around(rows)
    fits = lane.events.is_kind("op") & lane.events.where_name(pattern.match)
    chosen = (within != NONE) & fits[within]
    spent = lane.busy if lane.events.is_kind(*ACTIVITY_KINDS)[rows].all() else lane.held
    return lane.by_name(rows[chosen], within[chosen], spent)


def shapes(lane: Lane) -> tuple[str, tuple[str, ...]] | None:
    """The first product or layer that all steps call as often, with other shapes in some."""
    if not lane.marked:
        return None
    events = lane.events
    codes, texts = events.texts("shapes")
    works = lane.here & events.is_kind("op") & events.is_one_of("category", *_WORK)
    rows = np.flatnonzero(works & (codes != NONE) & (lane.step >= 0))
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
    for members in sorted(Groups(lane.names[rows]).members(), key=lambda places: places[0]):
        of_name = rows[members]
        steps = [sorted(codes[of_name[m]].tolist()) for m in Groups(lane.step[of_name]).members()]
        alike = set(steps[0]).intersection(*steps)
        if len(steps) == lane.steps and len({len(step) for step in steps}) == 1:
            others = [c for c in dict.fromkeys(codes[of_name].tolist()) if c not in alike]
            if others and any(step != steps[0] for step in steps):
                return str(lane.text(int(of_name[0]))), tuple(texts[code] for code in others)
    return None
