"""What Python calls one by one: JAX's compiled programs, TensorFlow's operators and functions.

``PjitFunction(name)`` is a call of a JAX program, including its own operators (``add``, ``scan``):
jaxlib's pjit.cc. A call inside another call, or inside tracing, does not count.
``EagerLocalExecute: Type`` is an operator that TensorFlow runs outside of a function, or a function
(``__inference_step_12``): tensorflow/core/common_runtime/eager/execute.cc.
"""

from __future__ import annotations

import re

import numpy as np

from lstmprof.diagnose.seen.contexts import compiles
from lstmprof.diagnose.seen.lane import Fact, Lane, median
from lstmprof.diagnose.seen.waits import UNUSUAL
from lstmprof.events.groups import Groups, inherited
from lstmprof.events.intervals import Flags, Ints
from lstmprof.events.table import NONE
from lstmprof.events.threads import thread_ids

PROGRAM = re.compile(r"PjitFunction\((?P<name>.+)\)")
EAGER = re.compile(r"EagerLocalExecute: (?P<name>\w\S*)")
#: Events that are calls of functions.
FUNCTION = re.compile(r"EagerLocalExecute: __")
#: ``op_name`` of the call of a tf.function that was traced for the first time.
_FIRST_TRACE = re.compile(r"traced-\w+ #1")
#: This many functions of one name mean that it is created repeatedly; a program has a few anyway.
_NEW = 3
#: Operators that feed a step and belong into no function.
_FEEDS = re.compile(r"EagerLocalExecute: (?:\w*Dataset\w*|\w*Iterator\w*|_EagerConst)")


def compiled(lane: Lane) -> tuple[tuple[Fact, ...], int]:
    """Return (tracing and compiling, the steps or the separate times with some).

    ``within`` is the op that was compiled: a JAX program, or a TensorFlow function.
    """
    marks = _compiling(lane)
    rows = _outermost(lane, marks, marks)
    steps = len(np.unique(lane.step[rows])) if lane.marked else min(len(rows), 1)
    return lane.by_name(rows, lane.around(rows), lane.events.dur_ns), steps


def programs(lane: Lane) -> tuple[Fact, ...]:
    """Return the JAX programs that Python calls, with the total time of the calls."""
    calls = lane.here & lane.events.is_kind("op") & lane.events.where_name(PROGRAM.fullmatch)
    rows = _outermost(lane, calls, calls | _compiling(lane))
    return lane.by_name(rows, _nothing(rows), lane.events.dur_ns)


def eager(lane: Lane) -> tuple[Fact, ...]:
    """Return what TensorFlow executes when Python calls it: operators one by one, and functions."""
    calls = lane.here & lane.events.is_kind("op") & lane.events.where_name(EAGER.fullmatch)
    rows = np.flatnonzero(calls & ~lane.events.where_name(_FEEDS.fullmatch))
    return lane.by_name(rows, _nothing(rows), lane.events.dur_ns)


def called(lane: Lane) -> tuple[Fact, ...]:
    """Return ``programs`` and ``eager`` with the Python before each, without their work.

    Python between two calls counts up to ``UNUSUAL`` times its median.
    """
    events = lane.events
    named = events.where_name(lambda name: bool(PROGRAM.fullmatch(name) or EAGER.fullmatch(name)))
    calls = lane.here & events.is_kind("op") & named & ~events.where_name(_FEEDS.fullmatch)
    rows = _outermost(lane, calls, calls | _compiling(lane))
    if not len(rows):
        return ()
    thread = thread_ids(events)
    rows = rows[np.lexsort((events.start_ns[rows], thread[rows]))]
    start, end = events.start_ns[rows], events.end_ns[rows]
    between_ns = start[1:] - end[:-1]
    follows = (thread[rows[1:]] == thread[rows[:-1]]) & (
        lane.step[rows[1:]] == lane.step[rows[:-1]]
    )
    follows &= between_ns >= 0
    if follows.any():
        follows &= between_ns <= UNUSUAL * median(between_ns[follows])
    since = np.append(start[:1], np.where(follows, end[:-1], start[1:]))
    held = lane.idle_within(("dispatch", "python"), since, end)
    return lane.by_name(rows, _nothing(rows), _at(rows, held, len(events)))


def made_anew(lane: Lane) -> str | None:
    """Return the tf.function that is repeatedly traced for the first time: it is created again."""
    calls = lane.here & lane.events.is_kind("op")
    rows = np.flatnonzero(calls & lane.events.where("op_name", _FIRST_TRACE.fullmatch))
    for members in Groups(lane.names[rows]).members():
        steps = len(np.unique(lane.step[rows[members]])) if lane.marked else 1
        if steps > 1 or len(members) >= _NEW:
            return lane.text(int(rows[members[0]]))
    return None


def _at(rows: Ints, values: Ints, length: int) -> Ints:
    """Return an array of ``length`` with ``values`` at ``rows``, else 0."""
    placed = np.zeros(length, dtype=np.int64)
    placed[rows] = values
    return placed


def _compiling(lane: Lane) -> Flags:
    marks = lane.here & lane.events.is_kind("op", "range", "python", "runtime")
    marks = marks & (lane.events.dur_ns > 0)  # those of the clean step
    return np.asarray(marks & lane.events.where_name(compiles), np.bool_)


def _outermost(lane: Lane, chosen: Flags, around: Flags) -> Ints:
    """Return the rows of ``chosen`` that are inside no row of ``around``."""
    numbers = np.where(around, np.arange(len(lane.events)), NONE)
    inside = inherited(lane.parent, numbers)
    above = np.where(lane.parent != NONE, inside[lane.parent], NONE)
    return np.flatnonzero(chosen & (above == NONE))


def _nothing(rows: Ints) -> Ints:
    return np.full(len(rows), NONE, dtype=np.int64)
