"""Which profiled steps something else disturbed: no account is of them.

A step of one thread that lost its CPU for ``LOST_SHARE`` of its time and more was disturbed, by its
own counters; where every step gave its CPU up to wait, for more than the quietest of all steps.
Of the others those are left out that are longer than ``LONG`` times the median one, where they are
at most a third. Where fewer than a third are left, it is the third that was disturbed least.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from lstmprof.breakdown.off_cpu import lost_of_steps
from lstmprof.events.annotate import OWN_CODE
from lstmprof.events.annotate.steps import Window
from lstmprof.numbers import listed, milliseconds, percent
from lstmprof.runs.metadata import RunInfo

#: A step longer than so many median ones is left out.
LONG = 1.5
#: A step that lost its CPU for so much of its time was; what is less, clocks and interrupts do too.
LOST_SHARE = 0.05


@dataclass(frozen=True)
class Kept:
    """The steps that the account is of, and in words why others are left out.

    ``places`` are those of ``windows`` among all steps.
    """

    windows: tuple[Window, ...]
    places: tuple[int, ...]
    notes: tuple[str, ...] = ()


def kept_steps(windows: Sequence[Window], info: RunInfo, timings: pa.Table | None = None) -> Kept:
    """Of the steps ``windows`` of one rank, in order, those that nothing disturbed.

    ``timings`` are the rows of timings.parquet, None where nothing was timed.
    """
    lost = _lost_shares(len(windows), info, timings)
    quiet = [place for place in range(len(windows)) if lost.get(place, 0.0) < LOST_SHARE]
    least = -(-len(windows) // 3)
    if len(quiet) < least:
        return _least_disturbed(windows, lost, least, len(windows) - len(quiet))
    usual = typical([windows[place] for place in quiet])
    longest_ns = max(map(_length_ns, usual))
    places = tuple(place for place in quiet if _length_ns(windows[place]) <= longest_ns)
    notes = [
        f"step {windows[place].step} was disturbed: it had its CPU for {percent(1 - lost[place])}"
        f" of its {milliseconds(_length_ns(windows[place]))} ms, and is left out"
        for place in range(len(windows))
        if lost.get(place, 0.0) >= LOST_SHARE
    ]
    notes += _long_ones([windows[p] for p in quiet if _length_ns(windows[p]) > longest_ns], usual)
    return Kept(tuple(usual), places, tuple(notes))


def _least_disturbed(
    windows: Sequence[Window], lost: Mapping[int, float], number: int, disturbed: int
) -> Kept:
    """So many steps, those that lost least, where nearly all were disturbed."""
    places = sorted(sorted(lost, key=lambda place: lost[place])[:number])
    of_all = "all" if disturbed == len(windows) else f"{disturbed} of"
    steps = listed([str(windows[place].step) for place in places])
    noun = "step" if len(places) == 1 else "steps"
    share = percent(1 - max(lost[place] for place in places))
    note = (
        f"{of_all} {len(windows)} profiled steps were disturbed: the account is of {noun} {steps},"
        f" which had the CPU for {share} of the time or more, the others for less"
    )
    return Kept(tuple(windows[place] for place in places), tuple(places), (note,))


def typical(windows: Sequence[Window]) -> list[Window]:
    """``windows`` without the few that are longer than ``LONG`` times the median one."""
    longest = LONG * statistics.median(map(_length_ns, windows))
    kept = [window for window in windows if _length_ns(window) <= longest]
    return kept if 3 * (len(windows) - len(kept)) <= len(windows) else list(windows)


def _long_ones(out: Sequence[Window], kept: Sequence[Window]) -> list[str]:
    """What is said of steps that are left out because they are long.

    Why they are is not known: the last of a profile also lasts until its device has done its work.
    """
    if not out:
        return []
    numbers = listed([str(window.step) for window in out])
    took, usual = max(map(_length_ns, out)), statistics.median(map(_length_ns, kept))
    one = len(out) == 1
    whose = (
        f"step {numbers} is left out: it took" if one else f"steps {numbers} are left out: up to"
    )
    return [f"{whose} {milliseconds(took)} ms, the median of the others {milliseconds(usual)}"]


def one_thread(info: RunInfo) -> bool:
    """Whether CPU time over wall time says how much of its CPU the run had.

    Of own code it does not: a step may wait for its data, and threads of its own may work.
    """
    alone = info.threads == 1 and len(info.affinity or (0,)) == 1
    return info.device == "cpu" and alone and info.source != OWN_CODE


def _lost_shares(steps: int, info: RunInfo, timings: pa.Table | None) -> Mapping[int, float]:
    """Place of a step → the share of its time without its CPU; of those that are known.

    Of own code what is known to lie where is not in it: that is cut out.
    """
    walls, cpus = info.profiled_wall_ns, info.profiled_cpu_ns
    of_steps = lost_of_steps(info, timings)
    if of_steps is not None and walls and len(of_steps) == steps:
        rests = [lost.rest_ns + lost.unsure_ns for lost in of_steps]
        return dict(enumerate(map(_of_whole, rests, walls)))
    if not one_thread(info) or not walls or not cpus or {len(walls), len(cpus)} != {steps}:
        return {}
    shares = {n: _share(*pair) for n, pair in enumerate(zip(walls, cpus, strict=True))}
    if 0 in (info.profiled_voluntary_switches or ()):
        return shares
    columns = ([], []) if timings is None else _columns(timings)
    others = [_share(w, c) for w, c in zip(*columns, strict=True) if w and c is not None]
    least = min([*shares.values(), *others])
    return {place: share - least for place, share in shares.items()}


def _columns(timings: pa.Table) -> tuple[list[int], list[int | None]]:
    return timings.column("wall_ns").to_pylist(), timings.column("cpu_ns").to_pylist()


def _of_whole(part_ns: int, whole_ns: int) -> float:
    return part_ns / whole_ns if whole_ns else 0.0


def _share(wall_ns: int, cpu_ns: int) -> float:
    return max(1 - cpu_ns / wall_ns, 0.0) if wall_ns else 0.0


def _length_ns(window: Window) -> int:
    return window.end_ns - window.start_ns
