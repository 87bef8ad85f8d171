"""Time each step with the host clock, without a profiler.

A step ends with a synchronisation. Workers may take turns on one CPU, so that changes of the CPU's
speed affect all workers alike. A worker reads one byte from stdin to wait for its turn. The parent
process writes this byte when all other workers wait, too.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import math
import os
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

from lstmprof.base.errors import CaptureError
from lstmprof.capture.request import TURN, CaptureRequest
from lstmprof.capture.worker.machine.usage import (
    SELF,
    Counts,
    Usage,
    Waiting,
    difference,
    usage,
    waiting_between,
    waits,
)

Clock = Callable[[], int]
Turn = Callable[[], None]

#: Time in ns after which a turn begins no further iteration.
TURN_NS = 20_000_000
#: Shortest time in ns between progress lines, because printing takes time on the measured machine.
REPORT_EVERY_NS = 1_000_000_000

#: Smallest number of iterations to time, even if the time limit has passed.
LEAST_ITERATIONS = 3
#: Shortest warm-up in ns, so that a GPU has time to raise its clocks. Chosen by hand.
GPU_WARM_UP_NS = 500_000_000
MOST_WARM_UP = 1000
#: Largest number of iterations in a turn.
MOST_OF_TURN = 100


class Iteration(NamedTuple):
    """One row of timings.parquet."""

    # use a tuple, because a frozen dataclass takes five times as long to create
    iteration: int
    warmup: bool
    after_profile: bool
    wall_ns: int
    device_ns: Optional[int]
    counts: Counts
    loss: Optional[float]
    turn: Optional[int] = None
    waiting: Waiting = Waiting()  # recorded only for the user's own code


@dataclasses.dataclass(frozen=True)
class Loop:
    """The step to time, and functions that read the step's loss and device time."""

    step: Callable[[], Any]
    loss: Callable[[Any], float]
    device_ns: Callable[[], Optional[int]]
    usage: Callable[[int], Usage] = usage
    users: bool = False  # the step is the user's own code


@dataclasses.dataclass(frozen=True)
class Quota:
    """How many iterations to run."""

    iterations: int
    most_ns: Optional[int] = None  # stop after this time, if ``least`` have run
    least: int = LEAST_ITERATIONS

    def halves(self) -> Tuple[Quota, Quota]:
        """Split the quota into the parts before and after the profile."""
        half_ns = None if self.most_ns is None else self.most_ns // 2
        return (
            Quota(-(-self.iterations // 2), half_ns, -(-self.least // 2)),
            Quota(self.iterations // 2, half_ns, self.least // 2),
        )


def timed(
    loop: Loop,
    warmup: int,
    iterations: int,
    report: Callable[[str], None],
    clock: Clock,
    *,
    most_ns: Optional[int] = None,
    least: int = LEAST_ITERATIONS,
) -> List[Iteration]:
    """Run and time steps; stop after ``most_ns``, but not before ``least`` steps."""
    rows: List[Iteration] = []
    began_ns = reported_ns = clock()
    step, usage = loop.step, loop.usage
    for number in range(warmup + iterations):
        waiting = waits() if loop.users else None
        before = usage(SELF)
        start_ns = clock()
        outcome = step()
        end_ns = clock()
        counts = difference(before, usage(SELF))
        waited = waiting_between(waiting, waits(ends=True) if loop.users else None)
        device_ns, loss = loop.device_ns(), loop.loss(outcome)
        took_ns, is_warmup = end_ns - start_ns, number < warmup
        row = Iteration(number, is_warmup, False, took_ns, device_ns, counts, loss, None, waited)
        rows.append(row)
        refuse_unless_finite(loss, number)
        if end_ns - reported_ns >= REPORT_EVERY_NS:
            reported_ns = end_ns
            report("timed {} of {} iterations".format(number + 1, warmup + iterations))
        enough = number + 1 >= warmup + least
        if most_ns is not None and enough and end_ns - began_ns >= most_ns:
            break
    return rows


def warmed(
    loop: Loop, count: int, least_ns: int, report: Callable[[str], None], clock: Clock
) -> List[Iteration]:
    """Run ``count`` warm-up steps, and more steps until ``least_ns`` have passed."""
    rows = timed(loop, count, 0, report, clock)
    left_ns = least_ns - sum(row.wall_ns for row in rows[1:])  # the first step compiles
    if left_ns <= 0:
        return rows
    more = timed(loop, 0, MOST_WARM_UP, report, clock, most_ns=left_ns, least=1)
    return joined(rows, [row._replace(warmup=True) for row in more])


def shared(
    loop: Loop,
    share: Quota,
    turn: Optional[Turn],
    report: Callable[[str], None],
    clock: Clock,
    first: int = 0,
) -> List[Iteration]:
    """Time iterations; alternate with other workers if ``turn`` is given."""
    if turn is None:
        most_ns, least = share.most_ns, share.least
        return timed(loop, 0, share.iterations, report, clock, most_ns=most_ns, least=least)
    rows: List[Iteration] = []
    for number in range(share.iterations):
        turn()
        own = timed(loop, 0, MOST_OF_TURN, report, clock, most_ns=TURN_NS, least=1)
        if len(own) > 1:
            own[0] = own[0]._replace(warmup=True)  # other workers have changed the caches
        # store the turn's number: turns with one number run shortly after each other in all workers
        rows = joined(rows, [row._replace(turn=first + number) for row in own])
        took_ns = sum(row.wall_ns for row in rows)
        if share.most_ns is not None and number + 1 >= share.least and took_ns >= share.most_ns:
            break
    return rows


def joined(rows: List[Iteration], later: List[Iteration]) -> List[Iteration]:
    """Append rows, numbering the iterations consecutively."""
    return rows + [row._replace(iteration=len(rows) + row.iteration) for row in later]


def after_profile(rows: List[Iteration]) -> List[Iteration]:
    return [row._replace(after_profile=True) for row in rows]


def refuse_unless_finite(loss: float, number: int) -> None:
    if not math.isfinite(loss):
        raise CaptureError(
            "the loss of iteration {} is {}".format(number, loss),
            "try another --seed or a smaller network",
        )


@contextlib.contextmanager
def collector_frozen() -> Iterator[None]:
    """Turn Python's garbage collector off inside the ``with`` block."""
    was_on = gc.isenabled()
    gc.collect()
    gc.freeze()  # exempt live objects from later collections
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        if was_on:
            gc.enable()


def columns(rows: List[Iteration]) -> Dict[str, List[Any]]:
    names = [name for name in Iteration._fields if name not in ("counts", "waiting")]
    return {
        **{name: [getattr(row, name) for row in rows] for name in names},
        **{name: [getattr(row.counts, name) for row in rows] for name in Counts._fields},
        **{name: [getattr(row.waiting, name) for row in rows] for name in Waiting._fields},
    }


def turn_of(request: CaptureRequest, report: Callable[[str], None]) -> Optional[Turn]:
    """Return a function that waits for the worker's next turn, if workers take turns."""
    if not request.turn_with:
        return None

    def ask() -> None:
        report(TURN)
        if not os.read(0, 1):  # the parent has ended
            raise SystemExit(1)

    return ask
