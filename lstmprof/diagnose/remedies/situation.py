"""A finding with the runs it is about: what a remedy is chosen by."""

from __future__ import annotations

from dataclasses import dataclass

from lstmprof import implementations
from lstmprof.diagnose.counts import QUANTITIES
from lstmprof.diagnose.findings import Culprit, Finding
from lstmprof.diagnose.step_profile import Contributor, StepProfile
from lstmprof.errors import UsageError


@dataclass(frozen=True)
class Situation:
    """A finding with the runs it is about; ``contributors`` are the slow run's of its kind."""

    finding: Finding
    contributors: tuple[Contributor, ...]
    slow: StepProfile
    fast: StepProfile | None

    def fact(self, name: str) -> object:
        """A fact of the slow run; None unknown."""
        return self.slow.facts.get(name)

    @property
    def on_gpu(self) -> bool:
        """Whether the slow run's lane is a device."""
        return self.slow.device is not None

    def can(self, need: str) -> bool:
        """Whether the slow run's implementation does not refuse ``need``; False unknown."""
        try:
            row = implementations.find(str(self.fact("implementation")))
        except UsageError:
            return False
        refused = row.refusals()
        return (
            need not in refused and f"{need} on {'cuda' if self.on_gpu else 'cpu'}" not in refused
        )

    def counted(self, quantity_: str) -> float:
        """A count of the slow run, 0 where it is unknown."""
        return QUANTITIES[quantity_].of(self.slow) or 0.0

    def cells(self) -> int:
        """Cells of a step: time steps × layers × directions; 0 unknown."""
        w = self.slow.facts.get("workload") or {}
        steps = (w.get("time_steps") or 0) * (w.get("layers") or 0)
        return int(steps) * (2 if w.get("bidirectional") else 1)

    def done_more_often(self) -> Culprit | None:
        """The largest that the same implementation calls half as often again as in the fast run."""
        fast, name = self.fast, self.fact("implementation")
        if fast is None or name is None or fast.facts.get("implementation") != name:
            return None
        grown = (c for c in self.finding.largest if c.slow_count > 1.5 * c.fast_count)
        return next((c for c in grown if c.delta_ns > 0), None)
