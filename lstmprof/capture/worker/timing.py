"""The timing pass: no profiler, the host clock around steps that end in a synchronisation.

Everything but the step itself (loss values, rows, progress) happens while the clock is stopped.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import math
from typing import Any, Callable, Dict, Iterator, List, Optional

from lstmprof.errors import CaptureError

Clock = Callable[[], int]

#: a progress line at most this often: the parent that shows it shares the machine
REPORT_EVERY_NS = 1_000_000_000

#: counted whatever the time that they take: a median needs them
LEAST_ITERATIONS = 3


@dataclasses.dataclass(frozen=True)
class Iteration:
    """One row of timings.parquet."""

    iteration: int
    warmup: bool
    wall_ns: int
    device_ns: Optional[int]
    loss: float


@dataclasses.dataclass(frozen=True)
class Loop:
    """What is timed: a step, and how its outcome is read once the clock has stopped."""

    step: Callable[[], Any]
    loss: Callable[[Any], float]
    device_ns: Callable[[], Optional[int]]


def timed(
    loop: Loop,
    warmup: int,
    iterations: int,
    report: Callable[[str], None],
    clock: Clock,
    *,
    most_ns: Optional[int] = None,
) -> List[Iteration]:
    """One row for each of ``warmup + iterations`` steps, in order.

    After ``most_ns`` none is begun, but LEAST_ITERATIONS are counted before.

    Raises:
        CaptureError: a loss is not finite.
    """
    rows: List[Iteration] = []
    began_ns = reported_ns = clock()
    step = loop.step
    for number in range(warmup + iterations):
        start_ns = clock()
        outcome = step()
        end_ns = clock()
        row = Iteration(
            number, number < warmup, end_ns - start_ns, loop.device_ns(), loop.loss(outcome)
        )
        rows.append(row)
        refuse_unless_finite(row.loss, number)
        if end_ns - reported_ns >= REPORT_EVERY_NS:
            reported_ns = end_ns
            report("timed {} of {} iterations".format(number + 1, warmup + iterations))
        enough = number + 1 >= warmup + LEAST_ITERATIONS
        if most_ns is not None and enough and end_ns - began_ns >= most_ns:
            break
    return rows


def numbered_on(rows: List[Iteration], first: int) -> List[Iteration]:
    """``rows`` with their numbers going on from ``first``."""
    return [dataclasses.replace(row, iteration=first + row.iteration) for row in rows]


def refuse_unless_finite(loss: float, number: int) -> None:
    """Raise CaptureError if ``loss`` is NaN or infinite."""
    if not math.isfinite(loss):
        raise CaptureError(
            "the loss of iteration {} is {}".format(number, loss),
            "its times would mean nothing; try another --seed or a smaller network",
        )


@contextlib.contextmanager
def collector_frozen() -> Iterator[None]:
    """Everything alive taken out of the garbage collector's sight, and the collector off."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


def columns(rows: List[Iteration]) -> Dict[str, List[Any]]:
    """The rows as the columns of timings.parquet."""
    names = [field.name for field in dataclasses.fields(Iteration)]
    return {name: [getattr(row, name) for row in rows] for name in names}
