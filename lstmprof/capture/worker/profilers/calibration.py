"""Measure the cost of recording one event: time trivial calls with and without the profiler.

The times are CPU times of the calling thread, because other processes do not lengthen CPU times.
"""

from __future__ import annotations

import contextlib
import dataclasses
import mmap
import statistics
import time
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from lstmprof.capture.worker.machine.usage import SELF, difference, usage
from lstmprof.capture.worker.profiling import Ranges

#: Number of repeats (lstmprof uses their median), calls per repeat, and ranges per repeat. All
#: repeats together take 20 ms with torch.profiler.
REPEATS, CALLS, RANGES = 9, 100, 30
#: Name of the timed ranges; the name ``step`` would add steps to the profile.
RANGE = "input"
#: Bytes of memory to touch: 1,000 page faults, which take less than a millisecond.
FRESH_BYTES = 4 << 20

Call = Callable[[], Any]


@dataclasses.dataclass(frozen=True)
class LoopTimes:
    """CPU time per call and per range, in each repeat of the measurement."""

    call_ns: List[float]
    range_ns: List[float]


@dataclasses.dataclass(frozen=True)
class EventParts:
    """Parts of an event, such as ``aten::item``, that contains another event."""

    before_ns: float  # in the outer event, before the inner event
    inside_ns: float
    after_ns: float  # in the outer event, after the inner event
    range_ns: float  # of an empty range


def readings(call: Call, ranges: Ranges) -> LoopTimes:
    return LoopTimes(_each_ns(call, CALLS), _each_ns(range_call(ranges), RANGES))


def _each_ns(call: Call, calls: int) -> List[float]:
    lengths = []
    for _ in range(REPEATS):
        began_ns = time.thread_time_ns()
        for _ in range(calls):
            call()
        lengths.append((time.thread_time_ns() - began_ns) / calls)
    return lengths


def range_call(ranges: Ranges) -> Call:
    def call() -> None:
        with ranges(RANGE):
            pass

    return call


def facts(
    profiled: LoopTimes, plain: LoopTimes, events: int, cost_parts: Optional[EventParts] = None
) -> Dict[str, Any]:
    """Return what recording costs, as fields of run.json."""
    event_ns, event_error_ns = _difference(profiled.call_ns, plain.call_ns, events)
    range_ns, range_error_ns = _difference(profiled.range_ns, plain.range_ns, 1)
    before_ns, inside_ns, range_inside_ns = _divided(event_ns, range_ns, cost_parts)
    return {
        "event_ns": event_ns,
        "event_error_ns": event_error_ns,
        "event_before_ns": before_ns,
        "event_inside_ns": inside_ns,
        "range_ns": range_ns,
        "range_error_ns": range_error_ns,
        "range_inside_ns": range_inside_ns,
        "page_fault_ns": page_fault_ns(),
    }


def _difference(
    profiled: Sequence[float], plain: Sequence[float], events: int
) -> Tuple[Optional[float], Optional[float]]:
    """Return (cost per event, error: half the sum of both interquartile ranges)."""
    over = (statistics.median(profiled) - statistics.median(plain)) / events
    if over <= 0:
        return None, None
    return over, (_middle_half(profiled) + _middle_half(plain)) / 2 / events


def _middle_half(lengths: Sequence[float]) -> float:
    ordered = sorted(lengths)
    quarter = len(ordered) // 4
    return ordered[-1 - quarter] - ordered[quarter]


def _divided(
    event_ns: Optional[float], range_ns: Optional[float], cost_parts: Optional[EventParts]
) -> Tuple[Optional[float], Optional[float], Optional[float]]:
    """Return (cost before an event, inside an event, inside an empty range) in ns."""
    if cost_parts is None or event_ns is None:
        return None, None, None
    whole = cost_parts.before_ns + cost_parts.inside_ns + cost_parts.after_ns
    if whole <= 0:
        return None, None, None
    inside = None if range_ns is None else min(cost_parts.range_ns, range_ns)
    return event_ns * cost_parts.before_ns / whole, event_ns * cost_parts.inside_ns / whole, inside


def page_fault_ns() -> Optional[float]:
    """Return the CPU time of one page fault, by touching fresh memory."""
    page = mmap.PAGESIZE
    with mmap.mmap(-1, FRESH_BYTES) as memory:
        small = getattr(mmap, "MADV_NOHUGEPAGE", None)
        if small is not None and hasattr(memory, "madvise"):
            with contextlib.suppress(OSError):  # a kernel without huge pages
                memory.madvise(small)
        before, began_ns = usage(SELF), time.thread_time_ns()
        for place in range(0, FRESH_BYTES, page):
            memory[place] = 1
        took_ns = time.thread_time_ns() - began_ns
        faults = difference(before, usage(SELF)).minor_faults
        began_ns = time.thread_time_ns()
        for place in range(0, FRESH_BYTES, page):
            memory[place] = 1
        again_ns = time.thread_time_ns() - began_ns
    if not faults or took_ns <= again_ns:
        return None
    return (took_ns - again_ns) / faults
