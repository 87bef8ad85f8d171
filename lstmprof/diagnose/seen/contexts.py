"""The purpose of a time interval: preparing the input, compiling, or reading values in a loop.

Input is prepared in the range ``input`` of lstmprof's own captures, while PyTorch's DataLoader
returns a batch, in the ops with which TensorFlow takes the next element of a dataset, and in ranges
and functions whose names say so. Everything inside a compiler's event is compiling: Python, ops, an
autotuner's kernels. The capture of a stream into a graph is compiling, too. A loop of the host
reads values one by one if only ops that pick values out of a tensor run between two reads.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from lstmprof.breakdown.attribution import Intervals
from lstmprof.diagnose.seen.waits import captures
from lstmprof.events.annotate.calls import NEXT_OP, prepares
from lstmprof.events.annotate.steps import Window
from lstmprof.events.groups import inherited
from lstmprof.events.intervals import Covered, Flags, Ints, Segments, foremost
from lstmprof.events.table import NONE, EventTable
from lstmprof.events.threads import VALUE_READS, thread_ids

INPUT = "input"
#: Functions in which compilers trace, lower, generate code, and try the code out.
_FUNCTIONS = (
    # Inductor's, Triton's autotuner, torch.utils.cpp_extension
    r"_?compile_?fx\w*|(fx_)?codegen_and_compile|_?compile_to_\w+|precompile|fw_compiler_base"
    r"|bw_compiler|benchmark_all_configs|do_bench|_jit_compile"
    # TensorFlow traces a function; JAX traces, lowers, compiles; Numba; CuPy
    r"|func_graph_from_py_func|trace_to_jaxpr\w*|lower_sharding_computation|_?cached_lowering\w*"
    r"|lower_jaxpr_to_\w+|backend_compile(_\w+)?|compile_or_get_cached|_compile_and_write_cache"
    r"|_compile_for_args|compile_using_nvrtc|_?compile_(module_)?with_cache\w*"
)
#: A function of Python: ``torch/_compile.py(41): inner`` by Kineto, ``$api.py:3165 jit`` by JAX.
_FRAME = re.compile(r"\$?.*\.py(?:\(\d+\): |:\d+ )\S+")
_FRAMES = re.compile(
    rf".* (?:{_FUNCTIONS})"
    # functions that Dynamo calls if it has no code for a frame, and Triton's compiler
    r"|(?:.*/)?_dynamo/convert_frame\.py.*|.*\btriton\b.* (?:compile|_do_compile)"
)
_OTHERS = re.compile(
    rf"\b(?:{_FUNCTIONS})\b|\(dynamo_timed\)|triton.*\b(_do_)?compile\b"
    r"|tf\.function-graph_building|(?i:xlacompile|jit_compile|backend_?compile(?!d|r))"
    # functions called Compile, nvFuser, and the drivers' own compilers
    r"|::[cC]ompile(?![dr])\w*|(?i:compileandrun|nvrtc|hiprtc|amd_comgr|nvptxcompiler)"
    r"|(?i:miopen).*(?i:compile|buildprogram)|\bcuLink(Create|Add|Complete)"
)


def compiles(name: str) -> bool:
    """Return whether an event of this name is a compiler's: it traces, lowers, makes or tries code.

    Such events count even if every step has them, because a lookup in the compiler's cache would
    take almost no time. The name of a Python function decides, not its file: ``run`` of
    ``compile_fx.py`` and ``inner`` of ``_compile.py`` also run compiled code. Only known names of
    compilers count, because a user's function or range ``step_compile`` may do anything.
    """
    match = _FRAMES.fullmatch(name) if _FRAME.fullmatch(name) else _OTHERS.search(name)
    return match is not None


@dataclass(frozen=True)
class Attributed:
    """The intervals of a lane (device or host); ``row`` has the event that explains an interval.

    ``idle`` is a mask of the intervals in which the device idles. ``transfers`` is a mask of the
    intervals in which the device copies.
    """

    intervals: Intervals
    row: Ints
    device: int | None
    idle: Flags
    transfers: Flags

    def unrecorded(self) -> Flags:
        """Return a mask of intervals in which the device idled and no host event was recorded."""
        return np.asarray((self.row == NONE) & self.idle & (self.device is not None), np.bool_)

    def inside(self, times: Covered) -> Flags:
        """Return a mask of the intervals inside ``times``; none may cross a border of ``times``."""
        return times.within(self.intervals.start_ns, self.intervals.end_ns) > 0


class _StepThreads:
    """The threads that run the steps ``windows``."""

    def __init__(self, events: EventTable, windows: list[Window]) -> None:
        self._thread = thread_ids(events)
        self._threads = np.array([NONE if w.thread is None else w.thread for w in windows])

    def run(self, attributed: Attributed) -> Flags:
        """Return a mask of intervals that have no event, or an event on the step's thread."""
        own = _at(self._thread, attributed.row) == self._threads[attributed.intervals.window]
        return np.asarray((attributed.row == NONE) | own, dtype=np.bool_)


class Preparing:
    """The events that prepared the input, and the times in which these events ran."""

    def __init__(self, events: EventTable, windows: list[Window], rank: int | None) -> None:
        preparing = prepares(events)
        self._steps = _StepThreads(events, windows)
        thread = thread_ids(events)
        self._around = enclosing(events, preparing)
        times = [_times_of(events, preparing & (thread == w.thread), w) for w in windows]
        self._in_line = _union(times)
        takes_next = preparing & events.where_name(NEXT_OP.fullmatch)
        self._next = _union([_times_of(events, takes_next, w) for w in windows])
        launch = events.rows_named("launch_id")[events.rows_of_rank(rank)]
        launching = np.isin(thread, thread[launch[launch != NONE]]) & preparing
        launching |= takes_next
        self._launching = _union([_times_of(events, launching, w) for w in windows])

    @property
    def borders_ns(self) -> Ints:
        """Return the times at which a preparation begins or ends, unsorted."""
        times = (self._in_line, self._next, self._launching)
        return np.concatenate([border for some in times for border in some.bounds])

    def holds(self, attributed: Attributed) -> Flags:
        """Return a mask of the intervals that count as preparing the input.

        On a host: intervals in which the thread of the step prepares the input; also intervals
        without a computing op in which TensorFlow's op ``NEXT_OP`` runs on any thread.

        On a device: idle intervals and copies while the thread of the step prepares the input; also
        idle intervals for which a preparing event is responsible, and copies that it launched; also
        idle intervals without a host event while a launching thread prepares the input, or while
        ``NEXT_OP`` runs on any thread.
        """
        inside = attributed.inside(self._in_line)
        if attributed.device is None:
            waited = attributed.idle & attributed.inside(self._next)
            return np.asarray((inside & self._steps.run(attributed)) | waited, np.bool_)
        beneath = (attributed.row != NONE) & (_at(self._around, attributed.row) != NONE)
        waited = attributed.unrecorded() & attributed.inside(self._launching)
        can_wait = attributed.idle | attributed.transfers
        return np.asarray(((inside | beneath) & can_wait) | waited, np.bool_)


class Compiling:
    """When and in which events a compiler ran, or a stream was captured into a graph, by thread.

    An event counts while a compiler's event runs on the same thread, even if it is not a child of
    the compiler's event: a Python generator may begin inside the compiler's event and end after it.
    """

    def __init__(self, events: EventTable, rank: int | None) -> None:
        self._events, self._thread = events, thread_ids(events)
        self._launch = events.rows_named("launch_id")
        chosen = events.where_name(compiles) & (self._thread >= 0)
        chosen &= events.is_kind("range", "op", "python", "runtime")
        begins, captured_ns = captures(events)
        rows = np.concatenate([np.flatnonzero(chosen), begins])
        ends_ns = np.concatenate([events.end_ns[chosen], captured_ns])
        mine = np.isin(rows, events.rows_of_rank(rank))
        rows, ends_ns = rows[mine], ends_ns[mine]
        self._times = Covered(events.start_ns[rows], ends_ns)
        self._of_thread: dict[int, Segments] = {}  # thread → latest event at each time
        for number in np.unique(self._thread[rows]).tolist():
            here = self._thread[rows] == number
            start_ns, end_ns = events.start_ns[rows[here]], ends_ns[here]
            latest = foremost(start_ns, end_ns, np.lexsort((-end_ns, start_ns))[::-1])
            owner = rows[here][latest.owner]
            self._of_thread[number] = Segments(latest.start_ns, latest.end_ns, owner)

    @property
    def borders_ns(self) -> Ints:
        """Return the times at which a compilation or capture begins or ends, unsorted."""
        own = [(s.start_ns, s.end_ns) for s in self._of_thread.values()]
        return np.concatenate([side for sides in [self._times.bounds, *own] for side in sides])

    def holds(self, attributed: Attributed) -> tuple[Flags, Ints]:
        """Return for each interval (whether it is compiling, the event to which it is attributed).

        Waits of a device are attributed to the compiler's event, work of a device to the work
        itself. If a device idles while no host event was recorded, it waits for a compiler on any
        thread.
        """
        around = np.full(len(attributed.row), NONE, dtype=np.int64)
        places = np.flatnonzero(attributed.row != NONE)
        if self._of_thread and len(places):
            row = attributed.row[places]
            row = np.where(self._launch[row] != NONE, self._launch[row], row)
            start, end = self._events.start_ns[row], self._events.end_ns[row]
            at_ns = np.clip(
                attributed.intervals.start_ns[places], start, np.maximum(end - 1, start)
            )
            for number, times in self._of_thread.items():
                here = self._thread[row] == number
                last = np.searchsorted(times.start_ns, at_ns[here], "right") - 1
                inside = (last >= 0) & (at_ns[here] < times.end_ns[last])
                around[places[here]] = np.where(inside, times.owner[last], NONE)
        beneath = around != NONE
        other = attributed.unrecorded() & attributed.inside(self._times)
        own_work = (attributed.device is not None) & ~attributed.idle
        return beneath | other, np.where(beneath & ~own_work, around, attributed.row)


#: Ops that pick a value out of a tensor before the host reads it: views, reductions, and
#: comparisons of a few elements.
_VIEWS = re.compile(r"^aten::(?:select|slice|narrow|view|squeeze|unsqueeze|detach|alias|unbind|t)$")
_REDUCES = re.compile(
    r"^aten::(?:argmax|argmin|max|min|sum|mean|any|all|eq|ne|lt|le|gt|ge|logical_not|index)$"
)
#: A loop computes, and does not only read, if its reductions take longer than this (median, ns).
#: argmax over 12 classes takes 5 µs (torch.profiler of torch 2.13 on an EPYC).
_REDUCED_NS = 20_000
#: A loop does more than read values if the Python between two ops takes longer than ``_BETWEEN_NS``
#: (median, ns). A single gap above ``_PAUSE_NS`` ends the loop, because the operating system
#: usually takes the CPU away for a shorter time.
_BETWEEN_NS, _PAUSE_NS = 100_000, 20_000_000
#: Reads of values form a loop if at least this many reads are consecutive.
_LEAST_READ = 8


class Reading:
    """The times in which a loop of the host read values one by one."""

    def __init__(self, events: EventTable, windows: list[Window]) -> None:
        self._steps = _StepThreads(events, windows)
        thread, nothing = thread_ids(events), np.zeros(0, dtype=np.int64)
        threads = sorted({w.thread for w in windows if w.thread is not None})
        times = [_reading_times(events, thread == number) for number in threads]
        self._times = _union([(nothing, nothing), *times])

    @property
    def borders_ns(self) -> Ints:
        """Return the times at which a loop begins or ends, unsorted."""
        return np.concatenate(self._times.bounds)

    def holds(self, attributed: Attributed) -> Flags:
        """Return a mask of the intervals in reading loops; for a device, the mask is empty."""
        if attributed.device is not None:
            return np.zeros(len(attributed.row), dtype=np.bool_)
        return attributed.inside(self._times) & self._steps.run(attributed)


def _reading_times(events: EventTable, on_thread: Flags) -> tuple[Ints, Ints]:
    """Return (starts, ends) of the reading loops on a thread, from their first to their last read.

    If the loop's tensor is split before the first read (``aten::unbind``), the loop starts at this
    op, unless the Python after the op takes longer than the op itself.
    """
    rows = _outermost_ops(events, on_thread)
    asks = events.is_one_of("name", *VALUE_READS)[rows]
    reduces = events.where_name(_REDUCES.search)[rows]
    picks = events.where_name(_VIEWS.search)[rows] | reduces
    unbinds = events.is_one_of("name", "aten::unbind")[rows]
    start, end = events.start_ns[rows], events.end_ns[rows]
    between_ns = np.append(0, start[1:] - end[:-1])[: len(rows)]
    breaks = np.cumsum((between_ns > _PAUSE_NS) | (~asks & ~picks))
    places = np.flatnonzero(asks)
    loops = []
    for reads in np.split(places, np.flatnonzero(np.diff(breaks[places])) + 1):
        if len(reads) < _LEAST_READ:
            continue
        inside = slice(reads[0], reads[-1] + 1)
        reduced_ns = (end - start)[inside][reduces[inside]]
        short = not len(reduced_ns) or np.median(reduced_ns) <= _REDUCED_NS
        if short and np.median(between_ns[inside][1:]) <= _BETWEEN_NS:
            before = slice(np.searchsorted(breaks, breaks[reads[0]]), reads[0])
            taken_apart = unbinds[before] & (between_ns[1:][before] <= (end - start)[before])
            first = before.start + np.argmax(taken_apart) if taken_apart.any() else reads[0]
            loops.append((start[first], end[reads[-1]]))
    first, last = zip(*loops, strict=True) if loops else ((), ())
    return np.array(first, dtype=np.int64), np.array(last, dtype=np.int64)


def _outermost_ops(events: EventTable, on_thread: Flags) -> Ints:
    """Return the rows of ops on this thread that are inside no other op, ordered by start."""
    is_op = events.is_kind("op")
    parent = events.rows_named("parent_id")
    nearest = inherited(parent, np.where(is_op, np.arange(len(is_op)), NONE))
    inside = (parent != NONE) & (_at(nearest, parent) != NONE)
    rows = np.flatnonzero(is_op & on_thread & ~inside)
    return rows[np.argsort(events.start_ns[rows], kind="stable")]


def enclosing(events: EventTable, chosen: Flags) -> Ints:
    """Return for each event the ``chosen`` event that contains it, or that contains its launch.

    A chosen event contains itself. The value is ``NONE`` if there is no such event.
    """
    own = np.where(chosen, np.arange(len(events)), NONE)
    if not chosen.any():
        return own
    around = inherited(events.rows_named("parent_id"), own)
    launch = events.rows_named("launch_id")
    return np.where(launch == NONE, around, around[launch])


def _at(values: Ints, row: Ints) -> Ints:
    """Return ``values[row]``; if ``values`` is empty, return ``NONE`` for each row."""
    return values[row] if len(values) else np.full(len(row), NONE, dtype=np.int64)


def _times_of(events: EventTable, rows: Flags, window: Window) -> tuple[Ints, Ints]:
    """Return (starts, ends) of the events ``rows`` (a mask), cut at the borders of ``window``."""
    start = np.maximum(events.start_ns[rows], window.start_ns)
    end = np.minimum(events.end_ns[rows], window.end_ns)
    return start[end > start], end[end > start]


def _union(times: list[tuple[Ints, Ints]]) -> Covered:
    return Covered(*(np.concatenate(column) for column in zip(*times, strict=True)))
