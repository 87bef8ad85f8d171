"""What a replay predicts of a step with one change."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True)
class Prediction:
    """A step with one change.

    ``replayed_ns`` is what the replay makes of the unchanged step: its difference from
    ``observed_ns`` is the model's own error. ``ledger`` has the parts of the predicted step
    (``breakdown.ledger.SCHEMA``). ``undisturbed_ns`` is what the median undisturbed step would take
    with the change, None where it was not timed: it shrinks as the replayed step does from which
    the recording of its ops is taken.
    """

    observed_ns: int
    replayed_ns: int
    predicted_ns: int
    ledger: pa.Table
    undisturbed_ns: int | None = None

    @property
    def saved_ns(self) -> int:
        """How much shorter the step would be."""
        return self.replayed_ns - self.predicted_ns

    @property
    def bottleneck(self) -> tuple[str, str, int] | None:
        """(state, part, ns) of the largest part that is left; None where no time is."""
        rows = self.ledger.select(["ns", "state", "part"]).to_pylist()
        largest = max(rows, key=lambda r: (r["ns"], r["state"], r["part"]), default=None)
        return None if largest is None else (largest["state"], largest["part"], largest["ns"])
