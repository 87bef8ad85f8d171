"""How fast the step of a run could be: its roofline, and the step replayed without a cause."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lstmprof.breakdown import Breakdown
from lstmprof.diagnose.comparable import CONDITIONS
from lstmprof.diagnose.diagnosis import WhatIf
from lstmprof.diagnose.profiler_overhead import recording_ns
from lstmprof.diagnose.roofline import Roofline, costs_of, roofline
from lstmprof.diagnose.roofline.peaks import Peaks, highest, recorded
from lstmprof.diagnose.step_profile import StepProfile, median_step, total_ns, typical
from lstmprof.errors import UsageError
from lstmprof.replay.changes import CHANGES, Change, faster_gemms
from lstmprof.replay.what_if import Timed, what_ifs

#: What is asked by this name beside the causes of ``CHANGES``.
GEMM_AT_ROOFLINE = "gemm at roofline"


@dataclass(frozen=True)
class Asked:
    """What a user wants to know of limits: ``without`` are names of ``CHANGES``.

    ``peaks`` are the device's, None for those that were measured with the runs.
    """

    without: tuple[str, ...] = ()
    gemm_at_roofline: bool = False
    peaks: Peaks | None = None


#: What a peak depends on.
_OF_PEAKS = ("device", "precision", "threads")


def roofline_of(
    profile: StepProfile, others: Iterable[StepProfile], given: Peaks | None
) -> Roofline | None:
    """The roofline of a run; None where its work or the device's peaks are not known.

    The peaks are ``given``, or the highest that it or one of ``others`` on the same device and in
    the same precision measured.
    """
    alike = [
        other
        for other in (profile, *others)
        if all(CONDITIONS[c](other.facts) == CONDITIONS[c](profile.facts) for c in _OF_PEAKS)
    ]
    peaks = given or highest(found for c in alike if (found := recorded(c.facts)) is not None)
    rows = costs_of(profile.facts)
    if peaks is None or rows is None:
        return None
    busy = {part: float(ns) for (state, part), ns in profile.parts.items() if state == "busy"}
    return roofline(rows, peaks, profile.length_ns, busy)


def what_ifs_of(
    breakdown: Breakdown, profile: StepProfile, limit: Roofline | None, asked: Asked
) -> tuple[WhatIf, ...]:
    """The step of ``profile`` replayed with each change that was asked for.

    Raises:
        UsageError: GEMMs are to run at the roofline, and that is not known, or there are none.
        RunError: a file of the run is missing or damaged.
    """
    changes: dict[str, Change] = {f"without {name}": CHANGES[name] for name in asked.without}
    if asked.gemm_at_roofline:
        changes[GEMM_AT_ROOFLINE] = faster_gemms(gemm_factor(profile, limit))
    if not changes:
        return ()
    window = median_step(typical([w for w in breakdown.windows if w.rank == profile.rank]))
    timed = None if profile.median_ns is None else Timed(profile.median_ns, _recording_ns(profile))
    found = what_ifs(breakdown.run.events(), window, list(changes.values()), timed)
    return tuple(WhatIf(name, one) for name, one in zip(changes, found, strict=True))


def _recording_ns(profile: StepProfile) -> float:
    """Of one op; none where a device is seen, as in a diagnosis."""
    return recording_ns(profile) if profile.device is None else 0.0


def gemm_factor(profile: StepProfile, limit: Roofline | None) -> float:
    """How many times as fast the products would be at their bound; at least 1.

    Raises:
        UsageError: that is not known, or there are no products.
    """
    if limit is None:
        raise UsageError(
            f"{profile.name}: the roofline of its products is not known",
            "give the peaks of its device with --peaks; it needs a run that lstmprof captured",
        )
    bound = sum(one.ns for one in limit.bounds if one.cost.category == "gemm")
    spent = total_ns(
        i for i in profile.contributors if "gemm" in (i.part, i.family) and i.state == "busy"
    )
    if not spent or not bound:
        raise UsageError(
            f"{profile.name}: its profile has no matrix products of their own",
            "leave --gemm-at-roofline out",
        )
    return max(spent / bound, 1.0)
