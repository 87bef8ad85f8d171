"""Predict the time of a step with one change, such as without casts, by a replay (Daydream).

::

    events of a step ─ graph ─ dependencies ─ change ─ simulate ─▶ ledger of the changed step

``graph``: what host threads and streams did. ``dependencies``: what this work waited for.
``changes``: what to leave out or compute in another form. ``critical_path``: the longest chain of
dependencies.
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
    "what_if",
]


def what_if(
    breakdown: Breakdown, rank_device: tuple[int | None, int | None], changes: Sequence[Change]
) -> list[Prediction]:
    """Predict a device's or the host's median step (clean if possible) with each change."""
    if breakdown.has_clean:
        clean = breakdown.clean(*rank_device)
        return predictions(clean.events, median_step(clean.windows), changes)
    own = [window for window in breakdown.windows if window.rank == rank_device[0]]
    return predictions(breakdown.events(), median_step(own), changes)
