"""What the name of a call, copy or input event means (CUPTI, ROCTracer, Nsight Systems, XLA).

Only this file decides which calls enqueue work, which way a copy goes, what memory it reads and
which events prepare the input of a step.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from lstmprof.events.intervals import Flags, Ints
from lstmprof.events.schema import ACTIVITY_KINDS
from lstmprof.events.table import NONE, EventTable

DIRECTIONS = ("HtoD", "DtoH", "DtoD", "PtoP", "HtoH")
MEMORIES = ("pinned", "pageable", "managed")

#: cudaLaunchKernel, hipExtModuleLaunchKernel, cudaGraphLaunch, cudaMemcpyAsync, hipMemsetAsync …
_ENQUEUES = re.compile(r"Launch|Memcpy|Memset")
_LETTERS = re.compile(r"([HDPA])(?:to|2)([HDPA])(?![a-z])")
_WORDS = re.compile(r"(Host|Device|Peer|Array)[- ]?(?:To|to|->)[- ]?(Host|Device|Peer|Array)")
#: Activities as CUPTI, ROCTracer, Nsight Systems and XLA name them.
_COPY = re.compile(r"(?i)^\W*(?:CUDA |HIP )?(?:mem(?:cpy|set)|Copy(?:Host|Device|Peer))")
_MEMORY = re.compile(r"(?i)\b(pinned|pageable|managed)\b")


def is_launch(name: str) -> bool:
    """Whether a runtime call of this name enqueues work for a device."""
    return _ENQUEUES.search(name) is not None


def is_kernel_launch(name: str) -> bool:
    """Whether a runtime call of this name launches a kernel or a graph of them."""
    return "Launch" in name and "HostFunc" not in name


def launch_calls(events: EventTable) -> Ints:
    """Rows of the launches in linked ``events``.

    A launch is a runtime call that enqueued an activity of the profile, or whose name says that it
    enqueues one; a driver call inside a runtime call is part of that.
    """
    runtime, launch = events.is_kind("runtime"), events.where_name(is_launch)
    parent = events.rows_named("parent_id")
    launch = launch & ~(runtime[parent] & (parent != NONE))
    enqueued_by = events.rows_named("launch_id")
    launch[enqueued_by[enqueued_by != NONE]] = True
    return np.flatnonzero(runtime & launch)


def direction(name: str) -> str | None:
    """Which way a copy of this name goes, one of DIRECTIONS; None where it does not say.

    An array is memory of a device.
    """
    match = _LETTERS.search(name) or _WORDS.search(name)
    if match is None:
        return None
    ends = [end[0].replace("A", "D") for end in match.groups()]
    way = "PtoP" if "P" in ends else "to".join(ends)
    return way if way in DIRECTIONS else None


def is_copy(activity: str) -> bool:
    """Whether an activity of this name copies or sets memory and is no kernel."""
    return _COPY.search(activity) is not None


def host_memory(name: str) -> str | None:
    """``pinned``, ``pageable`` or ``managed``; None where the name of a copy does not say."""
    match = _MEMORY.search(name)
    return match.group(1).lower() if match else None


@dataclass(frozen=True)
class Coverage:
    """How much of what ran on the devices is linked to what caused it: counts of one profile.

    ``activities``; of these ``launched`` have a launch in the profile, ``issued`` an op that caused
    them, or the name of one. ``kernel_launches`` are the calls that launch kernels or graphs; of
    these ``unanswered`` have no activity. Activities without a launch are normal where a profile
    has no host, was trimmed or lost events; so are launches without one (an empty copy, a kernel
    not recorded).
    """

    activities: int
    launched: int
    issued: int
    kernel_launches: int
    unanswered: int


class Answers:
    """How many activities each of ``rows`` rows launched: none, one, or several."""

    def __init__(self, rows: int) -> None:
        self._count = np.zeros(rows, dtype=np.uint8)

    @classmethod
    def of(cls, events: EventTable) -> Answers:
        """Those of linked ``events``."""
        answers = cls(len(events))
        for part in events.parts(("event_id", "launch_id")):
            answers.add(part.rows_named("launch_id"))
        return answers

    def add(self, launches: Ints) -> None:
        """Add activities with these launches, ``NONE`` for none."""
        launches = np.sort(launches[launches != NONE])
        several = np.append(False, launches[1:] == launches[:-1])[: len(launches)]
        several |= self._count[launches] > 0
        self._count[launches[~several]] = 1
        self._count[launches[several]] = 2

    def any(self, rows: Ints) -> Flags:
        """Which of ``rows`` launched an activity."""
        return np.asarray(self._count[rows] > 0, dtype=np.bool_)

    def several(self, rows: Ints) -> Flags:
        """Which of ``rows`` launched more than one; ``NONE`` did not."""
        return np.asarray((rows != NONE) & (self._count[rows] > 1), dtype=np.bool_)


def coverage(events: EventTable) -> Coverage:
    """The counts of ``events``."""
    answers = Answers.of(events)
    parts = [
        _covered(part, answers)
        for part in events.parts(("event_id", "kind", "name", "launch_id", "op_id", "op_name"))
    ]
    return Coverage(*(sum(counts) for counts in zip(*parts, strict=True)))


def _covered(events: EventTable, answers: Answers) -> tuple[int, int, int, int, int]:
    """Count a part, in the order of ``Coverage``."""
    activity = events.is_kind(*ACTIVITY_KINDS)
    launch, op = events.ints("launch_id", -1), events.ints("op_id", -1)
    named = events.texts("op_name")[0] != NONE
    calls = np.flatnonzero(events.is_kind("runtime") & events.where_name(is_kernel_launch))
    return (
        int(activity.sum()),
        int((activity & (launch >= 0)).sum()),
        int((activity & ((op >= 0) | named)).sum()),
        len(calls),
        int((~answers.any(calls + events.first_row)).sum()),
    )


#: What TensorFlow calls the op in which a step takes the next element, on a thread of its own that
#: launches nothing (``tf_data_iterator_get_next``): ``IteratorGetNextOp::DoCompute``.
NEXT_OP = re.compile(r"IteratorGetNext\w*Op::DoCompute")
_PREPARES = re.compile(
    rf"input|enumerate\(DataLoader\)#.*__next__|.*torch/utils/data/dataloader\.py\(\d+\): __next__"
    rf"|{NEXT_OP.pattern}"
    r"|(.*[:/ ])?IteratorGetNext\w*|(.*[].])?\w*dataloader_next"  # the last is Lightning's
    r"|(?i:(.*: )?\W*((get|next|fetch|load|prepare)_?(next_?)?(batch|data|inputs?)"
    r"|(data|batch)[_ -]?load(er|ing)?|input_?pipeline)\W*)"
)


def prepares(events: EventTable) -> Flags:
    """Return whether each event prepares the input of a step, or takes it."""
    named = events.where_name(_PREPARES.fullmatch)
    return np.asarray(named & events.is_kind("range", "op", "python"), dtype=np.bool_)
