"""The step without a cause, replayed (Daydream).

::

    events of a step ─ graph ─ dependencies ─ change ─ simulate ─▶ ledger of the step without it

``graph`` has what host threads and streams did (``calls``, ``streams``), ``dependencies`` who
waited for whom, and ``changes`` what a replay may leave out or compute in another form.
``critical_path`` is the longest path of the replay.
"""

from __future__ import annotations

from collections.abc import Sequence

from lstmprof.breakdown import Breakdown
from lstmprof.breakdown.replay.changes import (
    CHANGES,
    ERRORS,
    Change,
    Error,
    as_layer_op,
    compiled,
    faster_gemms,
    recurrent_share,
)
from lstmprof.breakdown.replay.what_if import Prediction, predictions
from lstmprof.events.annotate.steps import median_step

__all__ = [
    "CHANGES",
    "ERRORS",
    "Change",
    "Error",
    "Prediction",
    "as_layer_op",
    "compiled",
    "faster_gemms",
    "recurrent_share",
    "what_if",
]


def what_if(
    breakdown: Breakdown, place: tuple[int | None, int | None], changes: Sequence[Change]
) -> list[Prediction]:
    """Return predictions of the median clean step of a rank and device with each of ``changes``.

    Raises:
        RunError: a file of the run is missing or damaged.
    """
    if breakdown.has_clean:
        clean = breakdown.clean(*place)
        return predictions(clean.events, median_step(clean.windows), changes)
    own = [window for window in breakdown.windows if window.rank == place[0]]
    return predictions(breakdown.events(), median_step(own), changes)
