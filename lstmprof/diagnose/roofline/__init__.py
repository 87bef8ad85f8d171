"""The roofline of a step: the least time that the step can take on its device.

    t = Σ over parts of max(flops / peak matmul rate, bytes / peak copy rate)

The parts run one after the other. A layer's recurrent matmuls count as one large matmul, so even
a perfect program may take longer. A tiny network may take less time, because caches are faster
than memory copies. Source: S. Williams, A. Waterman and D. Patterson (2009).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import asdict

from lstmprof.base.errors import UsageError
from lstmprof.base.numbers import milliseconds
from lstmprof.diagnose.roofline.work import Cost, costs, flops
from lstmprof.diagnose.step_profile import StepProfile, total_ns
from lstmprof.runs.metadata import RunInfo, condition
from lstmprof.workloads import Workload, checked

#: Categories of a layer's work: one ``rnn`` op, or separate matmuls and elementwise kernels.
LAYER_CATEGORIES = ("rnn", "gemm", "pointwise")
#: Largest numbers of layers and inputs for a roofline: counting more work takes too long.
_MOST_LAYERS, _MOST_INPUTS = 1000, 2**28
#: Conditions on which the peak rates of a run depend.
_PEAK_CONDITIONS = ("device", "precision", "threads")

_PREFIXES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "p": 1e15}
_NUMBER = r"\s*(\d+(?:\.\d*)?(?:e[+-]?\d+)?|\.\d+(?:e[+-]?\d+)?)\s*"
_RATES = {
    "matmuls": re.compile(_NUMBER + r"(?:([kmgtp]?)flops?(?:/s)?)?\s*", re.IGNORECASE),
    "copies": re.compile(_NUMBER + r"(?:([kmgtp]?)b(?:ytes)?/s)?\s*", re.IGNORECASE),
}
_EXAMPLE = "write it like 67e12,3.35e12 or 67TFLOP/s,3.35TB/s"


@dataclass(frozen=True)
class Peaks:
    gemm_flops_per_s: float
    copy_bytes_per_s: float


@dataclass(frozen=True)
class Bound:
    """The least time that a device needs for one part of the work."""

    cost: Cost
    compute_ns: float | None  # None: the number of operations is unknown
    memory_ns: float

    @property
    def ns(self) -> float:
        return max(self.compute_ns or 0.0, self.memory_ns)

    @property
    def limit(self) -> str:
        return "compute" if (self.compute_ns or 0.0) > self.memory_ns else "memory"


@dataclass(frozen=True)
class Reach:
    """The busy time and the least time of categories of work, such as ``gemm``."""

    categories: tuple[str, ...]
    busy_ns: float
    bound_ns: float | None

    @property
    def share(self) -> float | None:
        if self.bound_ns is None or not self.busy_ns:
            return None
        # the share exceeds 1 if caches hold the data, or if a measured peak rate is too low
        return self.bound_ns / self.busy_ns


@dataclass(frozen=True)
class Roofline:
    """The least time of a step on its device."""

    clean_ns: float  # clean step, else mean profiled step
    peaks: Peaks
    bounds: tuple[Bound, ...]
    reaches: tuple[Reach, ...]

    def __repr__(self) -> str:
        return f"<Roofline: at least {milliseconds(self.step_ns)} ms per step>"

    @property
    def step_ns(self) -> float:
        """Return the least time of a step."""
        return sum(bound.ns for bound in self.bounds)

    @property
    def share(self) -> float | None:
        return self.step_ns / self.clean_ns if self.clean_ns else None

    @property
    def memory_share(self) -> float | None:
        memory_ns = sum(bound.ns for bound in self.bounds if bound.limit == "memory")
        return memory_ns / self.step_ns if self.step_ns else None

    @property
    def gemm_flops_per_s(self) -> float | None:
        """Return the flops of the matmuls per second of the clean step."""
        products = flops((bound.cost for bound in self.bounds), "gemm")
        return products / self.clean_ns * 1e9 if self.clean_ns else None


def bounds(rows: Sequence[Cost], peaks: Peaks) -> tuple[Bound, ...]:
    return tuple(
        Bound(
            row,
            None if row.flops is None else row.flops * 1e9 / peaks.gemm_flops_per_s,
            row.moved_bytes * 1e9 / peaks.copy_bytes_per_s,
        )
        for row in rows
    )


def roofline(
    rows: Sequence[Cost], peaks: Peaks, clean_ns: float, busy_ns: Mapping[str, float]
) -> Roofline:
    least = bounds(rows, peaks)
    return Roofline(clean_ns, peaks, least, _reaches(least, busy_ns))


def _reaches(least: Sequence[Bound], busy_ns: Mapping[str, float]) -> tuple[Reach, ...]:
    """Compare busy time with least time by category of work, longest busy first."""
    # an ``rnn`` op does matmuls and elementwise work at once, so compare their sum
    together = LAYER_CATEGORIES if busy_ns.get("rnn") else ()
    groups = {
        together if category in together else (category,)
        for category, ns in busy_ns.items()
        if ns > 0
    }
    reaches = []
    for group in groups:
        bounds_ns = [bound.ns for bound in least if bound.cost.category in group]
        busy = sum(busy_ns.get(category, 0) for category in group)
        reaches.append(Reach(group, busy, sum(bounds_ns) if bounds_ns else None))
    return tuple(sorted(reaches, key=lambda reach: (-reach.busy_ns, reach.categories)))


def workload_of(info: RunInfo) -> Workload | None:
    """Return the workload in run.json, or None if invalid or too large."""
    values = {name: value for name, value in asdict(info.workload).items() if value is not None}
    try:
        workload = checked(Workload(**values))
    except (TypeError, UsageError):
        return None
    inputs = workload.batch * workload.time_steps * workload.features
    return workload if workload.layers <= _MOST_LAYERS and inputs <= _MOST_INPUTS else None


def costs_of(info: RunInfo) -> tuple[Cost, ...] | None:
    """Return the FLOPs and bytes of each part of a step, from run.json's workload."""
    workload = workload_of(info)
    if workload is None or info.mode is None or info.precision is None or info.seed is None:
        return None
    return costs(workload, info.mode, info.precision, info.seed)


def recorded(info: RunInfo) -> Peaks | None:
    """Return the peak rates in run.json, or None without valid rates."""
    peaks = info.peaks
    if peaks is None or not peaks.gemm_flops_per_s or not peaks.copy_bytes_per_s:
        return None
    rates = (peaks.gemm_flops_per_s, peaks.copy_bytes_per_s)
    return Peaks(*rates) if min(rates) > 0 else None


def highest(peaks: Iterable[Peaks]) -> Peaks | None:
    rates = [(each.gemm_flops_per_s, each.copy_bytes_per_s) for each in peaks]
    return Peaks(*map(max, zip(*rates, strict=True))) if rates else None


def parsed(text: str) -> Peaks:
    """Parse the value of --peaks: ``67e12,3.35e12`` or ``67TFLOP/s,3.35TB/s``."""
    parts = text.split(",")
    if len(parts) != 2:
        raise UsageError(f"--peaks '{text}' is not a matmul rate and a copy rate", _EXAMPLE)
    return Peaks(*(_rate(kind, part) for kind, part in zip(_RATES, parts, strict=True)))


def _rate(kind: str, text: str) -> float:
    match = _RATES[kind].fullmatch(text)
    rate = float(match[1]) * _PREFIXES[(match[2] or "").lower()] if match else 0.0
    if not 0 < rate < math.inf:
        raise UsageError(f"--peaks: '{text.strip()}' is not a rate of {kind} above 0", _EXAMPLE)
    return rate


def roofline_of(
    profile: StepProfile, others: Iterable[StepProfile], given: Peaks | None
) -> Roofline | None:
    """Return the roofline of a run, with the user's or the best measured peak rates."""
    # use the best rates of all runs: one run's library may be slow (MKL on a CPU of another maker)
    alike = [
        other
        for other in (profile, *others)
        if all(condition(c, other.info) == condition(c, profile.info) for c in _PEAK_CONDITIONS)
    ]
    peaks = given or highest(rates for run in alike if (rates := recorded(run.info)) is not None)
    rows = costs_of(profile.info)
    if peaks is None or rows is None:
        return None
    busy = {part: float(ns) for (state, part), ns in profile.parts.items() if state == "busy"}
    return roofline(rows, peaks, profile.length_ns, busy)


def gemm_factor(profile: StepProfile, limit: Roofline | None) -> float:
    """Return the time of the matmuls divided by their least time, at least 1."""
    if limit is None:
        raise UsageError(
            f"{profile.name}: the roofline of its matmuls is unknown",
            "use a run that lstmprof capture recorded, and give the device's peak rates with "
            "--peaks",
        )
    bound = sum(each.ns for each in limit.bounds if each.cost.category == "gemm")
    spent = total_ns(
        i for i in profile.contributors if "gemm" in (i.part, i.family) and i.state == "busy"
    )
    if not spent or not bound:
        raise UsageError(
            f"{profile.name}: the profile has no separate matmuls", "omit --gemm-at-roofline"
        )
    return max(spent / bound, 1.0)
