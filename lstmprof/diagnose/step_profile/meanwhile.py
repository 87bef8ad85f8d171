"""Find what a late rank did while the other ranks waited: ``runs aten::mm in 'forward'``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lstmprof.base.numbers import cropped, percent
from lstmprof.breakdown.attribution import TAIL, Intervals
from lstmprof.breakdown.mean_step import WAITS_FOR_HOST
from lstmprof.diagnose.seen.contexts import enclosing
from lstmprof.events.intervals import Covered
from lstmprof.events.table import NONE, EventTable

#: Smallest share of the waits for a late rank at which lstmprof names the late rank's activity.
#: Chosen by hand.
_LEAST_NAMED_SHARE = 0.5


@dataclass(frozen=True)
class Meanwhile:
    """The main activity of a late rank while the other ranks waited."""

    name: str | None  # op, kernel or call
    within: str | None  # range around the op, kernel or call
    ns: int
    whole_ns: int
    host: bool = False  # without names: the device waits for its host, else computes

    @property
    def words(self) -> str:
        """Return a clause such as ``runs aten::mm in 'forward' (93 % of the wait)``."""
        inside = None if self.within is None else f"'{cropped(self.within)}'"
        runs = None if self.name in (None, self.within) else f"runs {cropped(str(self.name))}"
        what = f"{runs} in {inside}" if runs and inside else runs or f"is in {inside}"
        if self.name is None and self.within is None:
            what = "waits for its host" if self.host else "computes"
        return f"{what} ({percent(self.ns / self.whole_ns)} of the wait)"


def waits_of(calls: Iterable[Mapping[str, Any]], late: tuple[int | None, int | None]) -> Covered:
    """Return when other ranks waited for ``late``, in times of the late rank's clock."""
    longest: Counter[int] = Counter()
    arrived: dict[int, int] = {}
    for call in calls:
        if (call["last_rank"], call["last_device"]) != late:
            continue
        number = call["collective"]
        longest[number] = max(longest[number], call["waits_ns"])
        if (call["rank"], call["device"]) == late:
            arrived[number] = call["start_ns"]
    # subtract the longest wait from the arrival, because the clocks of two ranks differ
    end = np.array(list(arrived.values()), dtype=np.int64)
    return Covered(end - np.array([longest[n] for n in arrived], dtype=np.int64), end)


def meanwhile_of(events: EventTable, intervals: Intervals, waits: Covered) -> Meanwhile | None:
    """Return what the late rank did for at least half of the time of ``waits``."""
    intervals = intervals.cut_at(np.concatenate(waits.bounds))
    inside = np.flatnonzero(waits.within(intervals.start_ns, intervals.end_ns) > 0)
    length_ns = (intervals.end_ns - intervals.start_ns)[inside]
    if not len(inside):
        return None
    around = enclosing(events, events.is_kind("range"))
    codes, texts = events.texts("name")
    row = intervals.row[inside]
    is_named = (row != NONE) & ~events.is_kind("step")[row]
    names = np.where(is_named, codes[row], NONE)
    ranges = np.where((row != NONE) & (around[row] != NONE), codes[around[row]], NONE)
    whole_ns = int(length_ns.sum())
    for keys in (np.stack([names, ranges]), np.stack([np.full(len(row), NONE), ranges])):
        pairs, of = np.unique(keys, axis=1, return_inverse=True)
        spent = np.bincount(of.reshape(-1), weights=length_ns)
        most = int(spent.argmax())
        name, within = (None if code == NONE else texts[code] for code in pairs[:, most].tolist())
        if spent[most] >= _LEAST_NAMED_SHARE * whole_ns and (name or within):
            return Meanwhile(name, within, int(spent[most]), whole_ns)
    for host in (True, False):
        labels = [
            part.removeprefix(TAIL) in WAITS_FOR_HOST if host else state == "busy"
            for state, part in intervals.labels
        ]
        ns = int(length_ns[np.array(labels)[intervals.label[inside]]].sum())
        if ns >= _LEAST_NAMED_SHARE * whole_ns:
            return Meanwhile(None, None, ns, whole_ns, host)
    return None
