"""When steps of a user's own code had no CPU, and the profile without these times.

A step of own code may wait for its data, and other threads may work for it: CPU time over wall time
does not say what it lost. Its kernel does (run.json, timings.parquet): for how long the thread that
runs the steps, the others of the process and the processes that load data were ready and had no
CPU. While no two threads have work at once, what any of them waits the step waits; else it is what
its own thread waited, and up to what the others did nobody can say.

When a thread was taken off its CPU is known as well, where the system tells (``switches``): such
stretches are cut out of the profile, before anything is told by how long it took. Of a host that
waits while a device works nobody knows what the device lost by it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lstmprof.breakdown import yardsticks
from lstmprof.capture.worker.switches import merged
from lstmprof.events.annotate import OWN_CODE
from lstmprof.events.annotate.steps import Window
from lstmprof.events.intervals import Flags, Ints
from lstmprof.events.table import EventTable
from lstmprof.runs.metadata import RunInfo
from lstmprof.runs.records import OffCpu

#: CPU time and waiting of all threads, over the step's time, above which two had work at once.
AT_ONCE = 1.02
#: A yardstick that had its CPU for so much of the time had it for itself: of one beside another
#: process on its CPU, whose turns are of 4 ms, it is a half or less.
ALONE_SHARE = 0.9


#: Other threads with less of the process's CPU time had no part in the work.
WORKED = 0.05
#: What comes back to a CPU finds its caches as others left them. An assumption, not measured: that
#: a megabyte is read again, in some 100 µs, wherever the step goes on.
COLD_NS = 100_000
#: A thread that nobody disturbs waits for no more: interrupts, and clocks read one after another.
NO_SHARE = 0.02


@dataclass(frozen=True)
class Lost:
    """What one profiled step lost: ``ns``, of which it is known when (``taken``, from its begin).

    ``unsure_ns`` is what others waited for a CPU, of which nobody knows whether it waited for them.
    """

    ns: int
    unsure_ns: int = 0
    taken: tuple[tuple[int, int], ...] = ()

    @property
    def doubtful_ns(self) -> int:
        """Of which nobody knows in what of the step it was, caches that were cold then too."""
        return self.rest_ns + self.unsure_ns + COLD_NS * len(self.taken)

    @property
    def rest_ns(self) -> int:
        """Of which nobody knows when."""
        return max(self.ns - sum(end - begin for begin, end in self.taken), 0)


@dataclass(frozen=True)
class _Counts:
    """Of steps, an entry each; the fields are columns of timings.parquet."""

    wall_ns: Ints
    cpu_ns: Ints
    thread_cpu_ns: Ints
    waited_ns: Ints
    others_waited_ns: Ints
    children_waited_ns: Ints

    @property
    def in_turn(self) -> Flags:
        """Where no two threads had work at once, and this one slept while others waited."""
        all_ns = self.cpu_ns + self.waited_ns + self.others_waited_ns
        return np.asarray(all_ns <= AT_ONCE * self.wall_ns)

    @property
    def asleep_ns(self) -> Ints:
        """Time that the step's thread did not ask for a CPU: it may have waited for others."""
        return np.asarray(np.maximum(self.wall_ns - self.thread_cpu_ns - self.waited_ns, 0))

    @property
    def own_ns(self) -> Ints:
        """What its own thread waited; it may have waited right before and after the step too."""
        return np.asarray(
            np.minimum(self.waited_ns, np.maximum(self.wall_ns - self.thread_cpu_ns, 0))
        )

    @property
    def lost_ns(self) -> Ints:
        """For how long the step had no CPU, as far as that is sure."""
        others_ns = np.minimum(self.others_waited_ns, self.asleep_ns)
        return np.asarray(self.own_ns + np.where(self.in_turn, others_ns, 0))

    @property
    def unsure_ns(self) -> Ints:
        """For how much longer others waited for whom it may have waited, asleep or spinning."""
        worked = self.cpu_ns - self.thread_cpu_ns > WORKED * self.cpu_ns
        for_others_ns = self.asleep_ns + np.where(worked, self.thread_cpu_ns, 0)
        others_ns = self.others_waited_ns + self.children_waited_ns
        sure_ns = self.lost_ns - self.own_ns
        return np.asarray(np.maximum(np.minimum(others_ns, for_others_ns) - sure_ns, 0))


def lost_of_iterations(counted: pa.Table, info: RunInfo) -> tuple[Ints, Ints] | None:
    """(lost, unsure) of each iteration of own code; None where that is unknown."""
    counts = _of_iterations(counted, info)
    if counts is None:
        return None
    usual_ns = np.rint(_usual_share(counts, info) * counts.wall_ns).astype(np.int64)
    return np.maximum(counts.lost_ns - usual_ns, 0), counts.unsure_ns


def lost_of_steps(info: RunInfo, timings: pa.Table | None) -> tuple[Lost, ...] | None:
    """What each profiled step of own code lost; None where that is unknown."""
    counts = _of_steps(info)
    if counts is None:
        return None
    counted = timings and _of_iterations(timings.filter(pc.invert(timings.column("warmup"))), info)
    usual = _usual_share(counted, info) if counted else 0.0
    usual = usual if usual > NO_SHARE else 0.0
    lost_ns = np.maximum(counts.lost_ns - np.rint(usual * counts.wall_ns).astype(np.int64), 0)
    off_cpu = info.profiled_off_cpu or ()
    known = not usual and len(off_cpu) == len(lost_ns)
    return tuple(
        Lost(lost, unsure, _taken(off_cpu[place], lost > waited) if known else ())
        for place, (lost, unsure, waited) in enumerate(
            zip(lost_ns.tolist(), counts.unsure_ns.tolist(), counts.own_ns.tolist(), strict=True)
        )
    )


def _taken(off_cpu: OffCpu, others_too: bool) -> tuple[tuple[int, int], ...]:
    """When a step had no CPU: its thread, and where they took turns any other."""
    return tuple(merged([*off_cpu.own_ns, *(off_cpu.others_ns if others_too else ())]))


def without(
    events: EventTable, windows: Sequence[Window], lost: Sequence[Lost]
) -> tuple[EventTable, list[Window]]:
    """``events`` and all profiled steps as if nobody had taken the CPU when somebody did."""
    borders_ns = list(_borders(windows, lost))
    if not borders_ns:
        return events, list(windows)
    zero_ns = windows[0].start_ns
    begin_ns, end_ns = (
        np.array(side, dtype=np.int64) - zero_ns for side in zip(*borders_ns, strict=True)
    )
    before_ns = np.append(0, np.cumsum(end_ns - begin_ns))

    def moved(instants_ns: Ints) -> Ints:
        """Instants of the profile by a clock that stands still while the CPU is taken."""
        at = instants_ns - zero_ns
        place = np.searchsorted(begin_ns, at, side="right")
        last = np.maximum(place - 1, 0)
        within_ns = np.where(place > 0, np.maximum(end_ns[last] - at, 0), 0)
        return np.asarray(instants_ns - before_ns[place] + within_ns)

    starts, ends = moved(events.start_ns), moved(events.end_ns)
    columns = {"start_ns": starts, "dur_ns": ends - starts}
    sides = [moved(np.array([getattr(w, side) for w in windows])) for side in _SIDES]
    moved_windows = [
        replace(window, start_ns=start, end_ns=end)
        for window, start, end in zip(windows, *(side.tolist() for side in sides), strict=True)
    ]
    return events.with_columns(columns), moved_windows


_SIDES = ("start_ns", "end_ns")


def _of_steps(info: RunInfo) -> _Counts | None:
    columns = [getattr(info, f"profiled_{field.name}") for field in fields(_Counts)]
    if info.source != OWN_CODE or any(column is None for column in columns):
        return None
    if len({len(column) for column in columns}) > 1:
        return None
    return _Counts(*(np.array(column, dtype=np.int64) for column in columns))


def _of_iterations(counted: pa.Table, info: RunInfo) -> _Counts | None:
    names = [field.name for field in fields(_Counts)]
    known = set(names) <= set(counted.column_names)
    if info.source != OWN_CODE or not known or not len(counted):
        return None
    if any(counted.column(name).null_count for name in names):
        return None
    return _Counts(*(counted.column(name).to_numpy().astype(np.int64) for name in names))


def _usual_share(counts: _Counts, info: RunInfo) -> float:
    """The share of a step that it waits for its own threads' CPUs, where nobody else takes them."""
    if (yardsticks.cpu_share(info) or 0.0) < ALONE_SHARE:
        return 0.0
    return float(np.percentile(counts.lost_ns / np.maximum(counts.wall_ns, 1), 25))


def _borders(windows: Sequence[Window], lost: Sequence[Lost]) -> Iterator[tuple[int, int]]:
    """Begin and end of each stretch in which the CPU was taken, in order."""
    for window, of_step in zip(windows, lost, strict=True):
        for begin, end in of_step.taken:
            first = max(window.start_ns + begin, window.start_ns)
            last = min(window.start_ns + end, window.end_ns)
            if last > first:
                yield first, last
