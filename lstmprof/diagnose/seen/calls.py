"""What Python calls one by one: JAX's compiled programs, TensorFlow's operators and functions.

``PjitFunction(name)`` is a call of a program of JAX, of its own operators too (``add``, ``scan``):
jaxlib's pjit.cc; one inside another, or beneath tracing, is no call of its own.
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
#: Of these the functions.
FUNCTION = re.compile(r"EagerLocalExecute: __")
#: How the call of a tf.function is called that traced it for the first time (``op_name``).
_FIRST_TRACE = re.compile(r"traced-\w+ #1")
#: So many functions of one name are one that is made anew; a program has some of a name, too.
_NEW = 3
#: Operators that feed a step and belong into no function.
_FEEDS = re.compile(r"EagerLocalExecute: (?:\w*Dataset\w*|\w*Iterator\w*|_EagerConst)")


def compiled(lane: Lane) -> tuple[tuple[Fact, ...], int]:
    """(tracing and compiling, the steps or the separate times with some).

    ``within`` is the op that it was done for: a program of JAX, a function of TensorFlow.
    """
    marks = _compiling(lane)
    rows = _outermost(lane, marks, marks)
    steps = len(np.unique(lane.step[rows])) if lane.marked else min(len(rows), 1)
    return lane.by_name(rows, lane.around(rows), lane.events.dur_ns), steps


def programs(lane: Lane) -> tuple[Fact, ...]:
    """Programs of JAX that Python calls, with all the time that their calls take."""
    calls = lane.here & lane.events.is_kind("op") & lane.events.where_name(PROGRAM.fullmatch)
    rows = _outermost(lane, calls, calls | _compiling(lane))
    return lane.by_name(rows, _nothing(rows), lane.events.dur_ns)


def eager(lane: Lane) -> tuple[Fact, ...]:
    """What TensorFlow executes at Python's call: operators one by one, and functions."""
    calls = lane.here & lane.events.is_kind("op") & lane.events.where_name(EAGER.fullmatch)
    rows = np.flatnonzero(calls & ~lane.events.where_name(_FEEDS.fullmatch))
    return lane.by_name(rows, _nothing(rows), lane.events.dur_ns)


def called(lane: Lane) -> tuple[Fact, ...]:
    """``programs`` and ``eager`` with the Python before each, but for work.

    Of what Python runs between two calls the usual is counted, at most ``UNUSUAL`` median ones.
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
    """The tf.function that is traced for its first time again and again: a new one each time."""
    calls = lane.here & lane.events.is_kind("op")
    rows = np.flatnonzero(calls & lane.events.where("op_name", _FIRST_TRACE.fullmatch))
    for members in Groups(lane.names[rows]).members():
        steps = len(np.unique(lane.step[rows[members]])) if lane.marked else 1
        if steps > 1 or len(members) >= _NEW:
            return lane.text(int(rows[members[0]]))
    return None


def _at(rows: Ints, values: Ints, length: int) -> Ints:
    """``values`` at ``rows``, else 0."""
    placed = np.zeros(length, dtype=np.int64)
    placed[rows] = values
    return placed


def _compiling(lane: Lane) -> Flags:
    marks = lane.here & lane.events.is_kind("op", "range", "python", "runtime")
    marks = marks & (lane.events.dur_ns > 0)  # those of the clean step
    return np.asarray(marks & lane.events.where_name(compiles), np.bool_)


def _outermost(lane: Lane, chosen: Flags, around: Flags) -> Ints:
    """The rows of ``chosen`` that are inside no row of ``around``."""
    numbers = np.where(around, np.arange(len(lane.events)), NONE)
    inside = inherited(lane.parent, numbers)
    above = np.where(lane.parent != NONE, inside[lane.parent], NONE)
    return np.flatnonzero(chosen & (above == NONE))


def _nothing(rows: Ints) -> Ints:
    return np.full(len(rows), NONE, dtype=np.int64)
