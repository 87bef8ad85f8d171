"""Interpret the names of calls, copies and input events (CUPTI, ROCTracer, Nsight Systems, XLA)."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from lstmprof.events.intervals import Flags, Ints
from lstmprof.events.schema import ACTIVITY_KINDS
from lstmprof.events.table import NONE, EventTable

DIRECTIONS = ("HtoD", "DtoH", "DtoD", "PtoP", "HtoH")
MEMORIES = ("pinned", "pageable", "managed")

#: Pattern of runtime calls that start work on a device: cudaLaunchKernel, hipMemsetAsync …
_ENQUEUES = re.compile(r"Launch|Memcpy|Memset")
_LETTERS = re.compile(r"([HDPA])(?:to|2)([HDPA])(?![a-z])")
_WORDS = re.compile(r"(Host|Device|Peer|Array)[- ]?(?:To|to|->)[- ]?(Host|Device|Peer|Array)")
#: Pattern of copies and memsets in profiles by CUPTI, ROCTracer, Nsight Systems and XLA.
_COPY = re.compile(r"(?i)^\W*(?:CUDA |HIP )?(?:mem(?:cpy|set)|Copy(?:Host|Device|Peer))")
#: Pattern of page migrations of managed memory, which the driver starts without a launch.
MIGRATION = re.compile(r"Memcpy UVM \w+")
_MEMORY = re.compile(r"(?i)\b(pinned|pageable|managed)\b")


def is_launch(name: str) -> bool:
    """Return whether a runtime call enqueues work for a device."""
    return _ENQUEUES.search(name) is not None


def is_kernel_launch(name: str) -> bool:
    """Return whether a runtime call launches a kernel or a graph of kernels."""
    return "Launch" in name and "HostFunc" not in name


def launch_calls(events: EventTable) -> Ints:
    """Return the rows of the runtime calls that launch device activities."""
    runtime, launch = events.is_kind("runtime"), events.where_name(is_launch)
    parent = events.rows_named("parent_id")
    # ignore a driver call inside another runtime call, which counts already
    launch = launch & ~(runtime[parent] & (parent != NONE))
    enqueued_by = events.rows_named("launch_id")
    launch[enqueued_by[enqueued_by != NONE]] = True
    return np.flatnonzero(runtime & launch)


def direction(name: str) -> str | None:
    """Find a copy's direction in its name: ``Memcpy HtoD (Pinned -> Device)`` -> ``HtoD``."""
    match = _LETTERS.search(name) or _WORDS.search(name)
    if match is None:
        return None
    ends = [end[0].replace("A", "D") for end in match.groups()]
    way = "PtoP" if "P" in ends else "to".join(ends)
    return way if way in DIRECTIONS else None


def is_copy(activity: str) -> bool:
    """Return whether an activity is a copy or memset, not a kernel."""
    return _COPY.search(activity) is not None


def host_memory(name: str) -> str | None:
    """Return the kind of host memory in a copy's name: pinned, pageable or managed."""
    match = _MEMORY.search(name)
    return match.group(1).lower() if match else None


@dataclass(frozen=True)
class Coverage:
    """How many activities of a profile are linked to their launches and ops."""

    activities: int
    launched: int  # activities with a known launch
    issued: int  # activities with a known op
    kernel_launches: int
    unanswered: int  # kernel launches without an activity


class ActivityCounts:
    """Tells how many activities each event launched: none, one or several."""

    def __init__(self, rows: int) -> None:
        self._count = np.zeros(rows, dtype=np.uint8)

    @classmethod
    def of(cls, events: EventTable) -> ActivityCounts:
        activity_counts = cls(len(events))
        for part in events.parts(("event_id", "launch_id")):
            activity_counts.add(part.rows_named("launch_id"))
        return activity_counts

    def add(self, launches: Ints) -> None:
        """Add activities by the rows of their launches."""
        launches = np.sort(launches[launches != NONE])
        several = np.append(False, launches[1:] == launches[:-1])[: len(launches)]
        several |= self._count[launches] > 0
        self._count[launches[~several]] = 1
        self._count[launches[several]] = 2

    def any(self, rows: Ints) -> Flags:
        """Return whether each of ``rows`` launched an activity."""
        return np.asarray(self._count[rows] > 0, dtype=np.bool_)

    def several(self, rows: Ints) -> Flags:
        """Return whether each of ``rows`` launched several activities."""
        return np.asarray((rows != NONE) & (self._count[rows] > 1), dtype=np.bool_)


def coverage(events: EventTable) -> Coverage:
    activity_counts = ActivityCounts.of(events)
    parts = [
        _covered(part, activity_counts)
        for part in events.parts(("event_id", "kind", "name", "launch_id", "op_id", "op_name"))
    ]
    return Coverage(*(sum(counts) for counts in zip(*parts, strict=True)))


def _covered(events: EventTable, activity_counts: ActivityCounts) -> tuple[int, int, int, int, int]:
    """Return the fields of ``Coverage`` for one part of the table."""
    activity = events.is_kind(*ACTIVITY_KINDS)
    launch, op = events.ints("launch_id", -1), events.ints("op_id", -1)
    named = events.texts("op_name")[0] != NONE
    calls = np.flatnonzero(events.is_kind("runtime") & events.where_name(is_kernel_launch))
    return (
        int(activity.sum()),
        int((activity & (launch >= 0)).sum()),
        int((activity & ((op >= 0) | named)).sum()),
        len(calls),
        int((~activity_counts.any(calls + events.first_row)).sum()),
    )


#: Pattern of TensorFlow's op that takes the next batch, on a separate thread.
NEXT_OP = re.compile(r"IteratorGetNext\w*Op::DoCompute")
_PREPARES = re.compile(
    rf"input|enumerate\(DataLoader\)#.*__next__|.*torch/utils/data/dataloader\.py\(\d+\): __next__"
    rf"|{NEXT_OP.pattern}"
    r"|(.*[:/ ])?IteratorGetNext\w*|(.*[].])?\w*dataloader_next"  # dataloader_next: Lightning
    r"|(?i:(.*: )?\W*((get|next|fetch|load|prepare)_?(next_?)?(batch|data|inputs?)"
    r"|(data|batch)[_ -]?load(er|ing)?|input_?pipeline)\W*)"
)


def prepares(events: EventTable) -> Flags:
    """Return whether each event prepares or fetches the input of a step."""
    named = events.where_name(_PREPARES.fullmatch)
    return np.asarray(named & events.is_kind("range", "op", "python"), dtype=np.bool_)
