"""How fast a workload's step could be on its device, and how near to it a run came.

The roofline of S. Williams, A. Waterman and D. Patterson (2009) for each part of a step, one part
after the other, as one needs what the other made:

    t = Σ over parts of max(flops / peak of products, bytes / peak of copies)

A bound, not a forecast. The time steps of a recurrent product wait for each other, and one alone
is too small to fill a GPU; here they count as one product whose weights stay on the chip. What
fits into a cache can move faster than a copy of memory, so that a tiny network may beat its bound.
Operations outside of products are held against the peak of products, which none of them exceeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from lstmprof.diagnose.roofline.peaks import Peaks
from lstmprof.diagnose.roofline.work import Cost, costs, flops
from lstmprof.workloads import Workload

#: The ledger's categories of a recurrent layer: what an ``rnn`` op does by itself in one run is
#: divided among products and pointwise kernels in another.
LAYER_CATEGORIES = ("rnn", "gemm", "pointwise")


@dataclass(frozen=True)
class Bound:
    """The least time of one part's work, ns; ``compute_ns`` is None where flops are not counted."""

    cost: Cost
    compute_ns: float | None
    memory_ns: float

    @property
    def ns(self) -> float:
        """The longer of both."""
        return max(self.compute_ns or 0.0, self.memory_ns)

    @property
    def limit(self) -> str:
        """``compute`` or ``memory``: which of both is the longer."""
        return "compute" if (self.compute_ns or 0.0) > self.memory_ns else "memory"


@dataclass(frozen=True)
class Reach:
    """Categories of the ledger that do the same work: their busy time and its least, ns.

    ``bound_ns`` is None where no work is known that they have to do.
    """

    categories: tuple[str, ...]
    busy_ns: float
    bound_ns: float | None

    @property
    def share(self) -> float | None:
        """The least time over the busy one; above 1 the peaks were measured too low."""
        if self.bound_ns is None or not self.busy_ns:
            return None
        return self.bound_ns / self.busy_ns


@dataclass(frozen=True)
class Roofline:
    """The least time of a step and how near to it a run's came."""

    median_ns: float
    peaks: Peaks
    bounds: tuple[Bound, ...]
    reaches: tuple[Reach, ...]

    @property
    def step_ns(self) -> float:
        """The least time of a step: the parts' sum."""
        return sum(bound.ns for bound in self.bounds)

    @property
    def share(self) -> float | None:
        """The least time over the median step."""
        return self.step_ns / self.median_ns if self.median_ns else None

    @property
    def memory_share(self) -> float | None:
        """The part of the least time in which memory is what limits."""
        memory_ns = sum(bound.ns for bound in self.bounds if bound.limit == "memory")
        return memory_ns / self.step_ns if self.step_ns else None

    @property
    def gemm_flops_per_s(self) -> float | None:
        """The rate of products over the whole median step."""
        products = flops((bound.cost for bound in self.bounds), "gemm")
        return products / self.median_ns * 1e9 if self.median_ns else None


def bounds(rows: Sequence[Cost], peaks: Peaks) -> tuple[Bound, ...]:
    """The least time of each row."""
    return tuple(
        Bound(
            row,
            None if row.flops is None else row.flops * 1e9 / peaks.gemm_flops_per_s,
            row.moved_bytes * 1e9 / peaks.copy_bytes_per_s,
        )
        for row in rows
    )


def roofline(
    rows: Sequence[Cost], peaks: Peaks, median_ns: float, busy_ns: Mapping[str, float]
) -> Roofline:
    """The roofline of a step; ``busy_ns`` is a profiled step's busy time by category."""
    least = bounds(rows, peaks)
    return Roofline(median_ns, peaks, least, _reaches(least, busy_ns))


def _reaches(least: Sequence[Bound], busy_ns: Mapping[str, float]) -> tuple[Reach, ...]:
    """One for each category with busy time; with an ``rnn`` op one for all that layers may do."""
    together = LAYER_CATEGORIES if busy_ns.get("rnn") else ()
    groups = {
        together if category in together else (category,)
        for category, ns in busy_ns.items()
        if ns > 0
    }
    found = []
    for group in groups:
        own = [bound.ns for bound in least if bound.cost.category in group]
        busy = sum(busy_ns.get(category, 0) for category in group)
        found.append(Reach(group, busy, sum(own) if own else None))
    return tuple(sorted(found, key=lambda reach: (-reach.busy_ns, reach.categories)))


def workload_of(facts: Mapping[str, Any]) -> Workload | None:
    """The workload in run.json; None of a foreign profile, or where it lacks a field."""
    found = facts.get("workload")
    if not isinstance(found, Mapping):
        return None
    known = {field.name for field in fields(Workload)}
    try:
        return Workload(**{name: value for name, value in found.items() if name in known})
    except TypeError:
        return None


def costs_of(facts: Mapping[str, Any]) -> tuple[Cost, ...] | None:
    """The work of a captured run's step, by its run.json; None where that does not say."""
    workload = workload_of(facts)
    if workload is None or not {"mode", "precision", "seed"} <= facts.keys():
        return None
    return costs(workload, facts["mode"], facts["precision"], facts["seed"])
