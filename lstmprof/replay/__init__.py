"""The step without a cause, replayed (Daydream).

::

    events of a step ─ graph ─ dependencies ─ change ─ simulate ─▶ ledger of the step without it

``graph`` says what host threads and streams did (``rows``, ``threads``, ``streams``),
``dependencies`` who waited for whom, ``changes`` what may be taken out (``calls``: with what),
``forecasts`` in which other forms its layers may be computed.
"""

from __future__ import annotations

from collections.abc import Sequence

from lstmprof.breakdown import Breakdown
from lstmprof.events.annotate.steps import Window
from lstmprof.replay.changes import CHANGES, Change, Recording, faster_gemms
from lstmprof.replay.forecasts import ERRORS, Error, as_layer_op, compiled, recurrent_share
from lstmprof.replay.what_if import Prediction, Timed, predictions

__all__ = [
    "CHANGES",
    "ERRORS",
    "Change",
    "Error",
    "Prediction",
    "Recording",
    "Timed",
    "as_layer_op",
    "compiled",
    "faster_gemms",
    "recurrent_share",
    "what_if",
]


def what_if(
    breakdown: Breakdown, window: Window, changes: Sequence[Change], timed: Timed | None = None
) -> list[Prediction]:
    """A step of a run with each of ``changes``; ``timed``: its undisturbed steps.

    Raises:
        RunError: a file of the run is missing or damaged.
    """
    return predictions(breakdown.events(), window, changes, timed)
