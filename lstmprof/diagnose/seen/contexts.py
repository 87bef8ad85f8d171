"""The purpose of a time interval: preparing the input, compiling, or reading values in a loop.

Compiling includes a compiler's Python code, ops and trial kernels, and the capture of a graph. An
example of a loop that reads values is ``[loss.item() for loss in losses]``: between two reads, only
ops that pick or reduce values run.
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
#: Pattern of compilers' functions that trace, lower, generate code, or try the code out.
_FUNCTIONS = (
    # functions of Inductor, Triton's autotuner and torch.utils.cpp_extension
    r"_?compile_?fx\w*|(fx_)?codegen_and_compile|_?compile_to_\w+|precompile|fw_compiler_base"
    r"|bw_compiler|benchmark_all_configs|do_bench|_jit_compile"
    # tracing in TensorFlow, tracing and compiling in JAX, compiling in Numba and CuPy
    r"|func_graph_from_py_func|trace_to_jaxpr\w*|lower_sharding_computation|_?cached_lowering\w*"
    r"|lower_jaxpr_to_\w+|backend_compile(_\w+)?|compile_or_get_cached|_compile_and_write_cache"
    r"|_compile_for_args|compile_using_nvrtc|_?compile_(module_)?with_cache\w*"
)
#: Pattern of a Python frame: ``torch/_compile.py(41): inner`` in Kineto's profiles, ``$api.py:3165
#: jit`` in JAX's.
_FRAME = re.compile(r"\$?.*\.py(?:\(\d+\): |:\d+ )\S+")
_FRAMES = re.compile(
    rf".* (?:{_FUNCTIONS})"
    # Dynamo's compilation of a frame, and Triton's compiler
    r"|(?:.*/)?_dynamo/convert_frame\.py.*|.*\btriton\b.* (?:compile|_do_compile)"
)
_OTHERS = re.compile(
    rf"\b(?:{_FUNCTIONS})\b|\(dynamo_timed\)|triton.*\b(_do_)?compile\b"
    r"|tf\.function-graph_building|(?i:xlacompile|jit_compile|backend_?compile(?!d|r))"
    # functions called Compile, nvFuser, and the compilers of NVIDIA and AMD
    r"|::[cC]ompile(?![dr])\w*|(?i:compileandrun|nvrtc|hiprtc|amd_comgr|nvptxcompiler)"
    r"|(?i:miopen).*(?i:compile|buildprogram)|\bcuLink(Create|Add|Complete)"
)


def compiles(name: str) -> bool:
    """Return whether an event of this name is a compiler's: ``backend_compile``."""
    # match known functions only: a user may have a ``step_compile``; compile_fx.py also runs code
    match = _FRAMES.fullmatch(name) if _FRAME.fullmatch(name) else _OTHERS.search(name)
    return match is not None


@dataclass(frozen=True)
class Attributed:
    """Time intervals of a device or host, with the event that explains each interval."""

    intervals: Intervals
    row: Ints  # the event that explains each interval
    device: int | None
    idle: Flags
    transfers: Flags

    def unrecorded(self) -> Flags:
        """Mark intervals in which a device is idle and no recorded host event explains why."""
        return np.asarray((self.row == NONE) & self.idle & (self.device is not None), np.bool_)

    def inside(self, times: Covered) -> Flags:
        # intervals were cut at the borders of ``times``, so any overlap means inside
        return times.within(self.intervals.start_ns, self.intervals.end_ns) > 0


class _StepThreads:
    def __init__(self, events: EventTable, windows: list[Window]) -> None:
        self._thread = thread_ids(events)
        self._threads = np.array([NONE if w.thread is None else w.thread for w in windows])

    def run(self, attributed: Attributed) -> Flags:
        """Mark intervals on the step's thread, and intervals that no event explains."""
        own = _at(self._thread, attributed.row) == self._threads[attributed.intervals.window]
        return np.asarray((attributed.row == NONE) | own, dtype=np.bool_)


class Preparing:
    """The times in which the program prepares its next input."""

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
        times = (self._in_line, self._next, self._launching)
        return np.concatenate([border for some in times for border in some.bounds])

    def holds(self, attributed: Attributed) -> Flags:
        """Mark the intervals that prepare the input."""
        inside = attributed.inside(self._in_line)
        if attributed.device is None:
            # also mark idle time while TensorFlow fetches an input (NEXT_OP) on any thread
            waited = attributed.idle & attributed.inside(self._next)
            return np.asarray((inside & self._steps.run(attributed)) | waited, np.bool_)
        # on a device, mark waits during which the host prepares or copies the input
        beneath = (attributed.row != NONE) & (_at(self._around, attributed.row) != NONE)
        waited = attributed.unrecorded() & attributed.inside(self._launching)
        can_wait = attributed.idle | attributed.transfers
        return np.asarray(((inside | beneath) & can_wait) | waited, np.bool_)


class Compiling:
    """The times in which a compiler ran, or a CUDA graph was captured."""

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
        # search by time, because a generator may outlast the event around
        self._of_thread: dict[int, Segments] = {}  # thread → latest event at each time
        for number in np.unique(self._thread[rows]).tolist():
            here = self._thread[rows] == number
            start_ns, end_ns = events.start_ns[rows[here]], ends_ns[here]
            latest = foremost(start_ns, end_ns, np.lexsort((-end_ns, start_ns))[::-1])
            owner = rows[here][latest.owner]
            self._of_thread[number] = Segments(latest.start_ns, latest.end_ns, owner)

    @property
    def borders_ns(self) -> Ints:
        own = [(s.start_ns, s.end_ns) for s in self._of_thread.values()]
        return np.concatenate([side for sides in [self._times.bounds, *own] for side in sides])

    def holds(self, attributed: Attributed) -> tuple[Flags, Ints]:
        """Mark the intervals of compiling, and return the event that explains each one."""
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
        # a device that idles without a recorded reason waits for a compiler on some thread
        other = attributed.unrecorded() & attributed.inside(self._times)
        own_work = (attributed.device is not None) & ~attributed.idle
        return beneath | other, np.where(beneath & ~own_work, around, attributed.row)


#: Pattern of ops that pick a value out of a tensor before the host reads the value.
_VIEWS = re.compile(r"^aten::(?:select|slice|narrow|view|squeeze|unsqueeze|detach|alias|unbind|t)$")
_REDUCES = re.compile(
    r"^aten::(?:argmax|argmin|max|min|sum|mean|any|all|eq|ne|lt|le|gt|ge|logical_not|index)$"
)
#: Largest median time (ns) of reductions in a loop that only reads values. An argmax over 12
#: classes takes 5 µs (torch 2.13).
_REDUCED_NS = 20_000
#: Largest median time (ns) between ops in a loop that reads values, and largest single time.
_BETWEEN_NS, _PAUSE_NS = 100_000, 20_000_000
#: Smallest number of consecutive reads at which lstmprof assumes a loop.
_LEAST_READ = 8


class Reading:
    """The times in which a loop reads values one by one, such as ``loss.item()``."""

    def __init__(self, events: EventTable, windows: list[Window]) -> None:
        self._steps = _StepThreads(events, windows)
        thread, nothing = thread_ids(events), np.zeros(0, dtype=np.int64)
        threads = sorted({w.thread for w in windows if w.thread is not None})
        times = [_reading_times(events, thread == number) for number in threads]
        self._times = _union([(nothing, nothing), *times])

    @property
    def borders_ns(self) -> Ints:
        return np.concatenate(self._times.bounds)

    def holds(self, attributed: Attributed) -> Flags:
        """Mark the intervals inside loops that read values one by one."""
        if attributed.device is not None:
            return np.zeros(len(attributed.row), dtype=np.bool_)
        return attributed.inside(self._times) & self._steps.run(attributed)


def _reading_times(events: EventTable, on_thread: Flags) -> tuple[Ints, Ints]:
    """Return the starts and ends of loops that read values one by one."""
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
            # include the ``unbind`` that splits the tensor before the loop
            taken_apart = unbinds[before] & (between_ns[1:][before] <= (end - start)[before])
            first = before.start + np.argmax(taken_apart) if taken_apart.any() else reads[0]
            loops.append((start[first], end[reads[-1]]))
    first, last = zip(*loops, strict=True) if loops else ((), ())
    return np.array(first, dtype=np.int64), np.array(last, dtype=np.int64)


def _outermost_ops(events: EventTable, on_thread: Flags) -> Ints:
    """Return the ops on a thread that are inside no other op, ordered by start."""
    is_op = events.is_kind("op")
    parent = events.rows_named("parent_id")
    nearest = inherited(parent, np.where(is_op, np.arange(len(is_op)), NONE))
    inside = (parent != NONE) & (_at(nearest, parent) != NONE)
    rows = np.flatnonzero(is_op & on_thread & ~inside)
    return rows[np.argsort(events.start_ns[rows], kind="stable")]


def enclosing(events: EventTable, chosen: Flags) -> Ints:
    """Return the ``chosen`` event around each event, or around its launch."""
    own = np.where(chosen, np.arange(len(events)), NONE)
    if not chosen.any():
        return own
    around = inherited(events.rows_named("parent_id"), own)
    launch = events.rows_named("launch_id")
    return np.where(launch == NONE, around, around[launch])


def _at(values: Ints, row: Ints) -> Ints:
    return values[row] if len(values) else np.full(len(row), NONE, dtype=np.int64)


def _times_of(events: EventTable, rows: Flags, window: Window) -> tuple[Ints, Ints]:
    """Return the starts and ends of events, cut at the borders of a step."""
    start = np.maximum(events.start_ns[rows], window.start_ns)
    end = np.minimum(events.end_ns[rows], window.end_ns)
    return start[end > start], end[end > start]


def _union(times: list[tuple[Ints, Ints]]) -> Covered:
    return Covered(*(np.concatenate(column) for column in zip(*times, strict=True)))
