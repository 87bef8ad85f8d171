"""Reasons not to trust the times of a run: their kind and remedy.

Load, preemptions and drift are no reasons: the clean step (``clean_step``) does not hold them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from lstmprof.breakdown.iterations import Iterations
from lstmprof.events.intervals import Ints
from lstmprof.runs.metadata import RunInfo

#: Fewer iterations before and after the profile say nothing about a change.
LEAST = 5
#: A step that takes so much longer after the profile changes with its state. Chosen by hand: above
#: what rounds of one process differ by on a quiet machine.
STATE_SHARE, LEAST_ROUNDS = 0.25, 2

#: Kinds of ``Warning``.
GOVERNOR, LOSS, THROTTLED, STATE = "governor", "loss", "clocks", "state"


@dataclass(frozen=True)
class Warning:
    """A reason to doubt the times of a run (``fault``), and what to do about it (``remedy``)."""

    kind: str
    fault: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.fault}; {self.remedy}"


def warnings(iterations: Iterations, info: RunInfo) -> Iterator[Warning]:
    """Yield every reason not to trust the ``iterations`` of a run with run.json ``info``."""
    governor = info.hardware.cpu_governor
    if governor not in (None, "performance") and info.device == "cpu":
        yield Warning(GOVERNOR, f"the CPU governor is '{governor}'", "set it to 'performance'")
    if info.loss_fell is False and len(iterations) >= 2 * LEAST:
        yield Warning(LOSS, "the loss did not fall", "check that the network learns")
    for reason in info.gpu_throttle_reasons or ():
        yield Warning(THROTTLED, f"the GPU was throttled: {reason}", "cool it, or lock its clocks")
    change = _change_of_state(iterations.before_and_after())
    if change is not None:
        yield Warning(
            STATE,
            f"steps took {1 + change:.2f}× as long after profiling, in every round",
            "look for denormal numbers (see --keep-denormals), and for memory, hooks or logs that "
            "grow from step to step",
        )


def _change_of_state(pairs: list[tuple[Ints, Ints]]) -> float | None:
    """Return by how much steps take longer after the profile; None if not in each of some rounds.

    The fastest iterations after it must be slower than all before. In one round that may be the
    machine; each round is a process of its own.
    """
    some = [(before, after) for before, after in pairs if min(len(before), len(after)) >= LEAST]
    if len(some) < max(len(pairs), LEAST_ROUNDS):
        return None
    changes = [math.log(np.min(after) / np.max(before)) for before, after in some]
    if min(changes) <= 0:
        return None
    medians = [float(np.median(after) / np.median(before)) for before, after in some]
    change = float(np.mean(medians)) - 1
    return change if change >= STATE_SHARE else None
