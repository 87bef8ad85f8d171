"""How fast the step of a run could be: its roofline, and the step replayed without a cause."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lstmprof.breakdown import Breakdown
from lstmprof.diagnose.cases import typical
from lstmprof.diagnose.comparable import CONDITIONS
from lstmprof.diagnose.diagnosis import WhatIf
from lstmprof.diagnose.profiler_overhead import recording_ns
from lstmprof.diagnose.roofline import Roofline, costs_of, roofline
from lstmprof.diagnose.roofline.peaks import Peaks, highest, recorded
from lstmprof.diagnose.step_profile import Case, total_ns
from lstmprof.errors import UsageError
from lstmprof.events.annotate.steps import Window
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


def roofline_of(case: Case, others: Iterable[Case], given: Peaks | None) -> Roofline | None:
    """The roofline of a run; None where its work or the device's peaks are not known.

    The peaks are ``given``, or the highest that it or one of ``others`` on the same device and in
    the same precision measured.
    """
    alike = [
        other
        for other in (case, *others)
        if all(CONDITIONS[c](other.facts) == CONDITIONS[c](case.facts) for c in _OF_PEAKS)
    ]
    peaks = given or highest(found for c in alike if (found := recorded(c.facts)) is not None)
    rows = costs_of(case.facts)
    if peaks is None or rows is None:
        return None
    busy = {part: float(ns) for (state, part), ns in case.parts.items() if state == "busy"}
    return roofline(rows, peaks, case.length_ns, busy)


def what_ifs_of(
    account: Breakdown, case: Case, limit: Roofline | None, asked: Asked
) -> tuple[WhatIf, ...]:
    """The step of ``case`` replayed with each change that was asked for.

    Raises:
        UsageError: GEMMs are to run at the roofline, and that is not known, or there are none.
        RunError: a file of the run is missing or damaged.
    """
    changes: dict[str, Change] = {f"without {name}": CHANGES[name] for name in asked.without}
    if asked.gemm_at_roofline:
        changes[GEMM_AT_ROOFLINE] = faster_gemms(gemm_factor(case, limit))
    if not changes:
        return ()
    window = _median_step([w for w in account.windows if w.rank == case.rank])
    timed = None if case.median_ns is None else Timed(case.median_ns, _recording_ns(case))
    found = what_ifs(account.run.events(), window, list(changes.values()), timed)
    return tuple(WhatIf(name, one) for name, one in zip(changes, found, strict=True))


def _recording_ns(case: Case) -> float:
    """Of one op; none where a device is seen, as in a diagnosis."""
    return recording_ns(case) if case.device is None else 0.0


def _median_step(windows: Sequence[Window]) -> Window:
    """The step of median length, the shorter of two."""
    by_length = sorted(typical(list(windows)), key=lambda w: w.end_ns - w.start_ns)
    return by_length[(len(by_length) - 1) // 2]


def gemm_factor(case: Case, limit: Roofline | None) -> float:
    """How many times as fast the products would be at their bound; at least 1.

    Raises:
        UsageError: that is not known, or there are no products.
    """
    if limit is None:
        raise UsageError(
            f"{case.name}: the roofline of its products is not known",
            "give the peaks of its device with --peaks; it needs a run that lstmprof captured",
        )
    bound = sum(one.ns for one in limit.bounds if one.cost.category == "gemm")
    spent = total_ns(i for i in case.items if "gemm" in (i.part, i.family) and i.state == "busy")
    if not spent or not bound:
        raise UsageError(
            f"{case.name}: its profile has no matrix products of their own",
            "leave --gemm-at-roofline out",
        )
    return max(spent / bound, 1.0)
