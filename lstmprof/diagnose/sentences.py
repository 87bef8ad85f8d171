"""What is said of a finding, and of the whole: sentences, made of its numbers."""

from __future__ import annotations

from lstmprof.diagnose import causes
from lstmprof.diagnose.causes import KINDS
from lstmprof.diagnose.counts import QUANTITIES
from lstmprof.diagnose.findings import Finding
from lstmprof.diagnose.reasons import because, each_step
from lstmprof.diagnose.step_profile import StepProfile, labels
from lstmprof.diagnose.waterfall import lengths, timed
from lstmprof.numbers import count, listed, milliseconds, percent, quantity

#: A cause with a smaller share of the difference is not named beside the dominant one.
NAMED_SHARE = 0.15
#: A smaller difference between the medians of a step is none.
EQUAL_SHARE = 0.02


def of_difference(fast: StepProfile, slow: StepProfile, found: list[Finding]) -> str:
    """The first sentence: how much slower, and what most of the difference is."""
    fast_name, slow_name = labels(fast, slow)
    ends = lengths(fast, slow)
    what = "a step" if timed(fast, slow) else _profiled(slow)
    times = f"{milliseconds(ends[1])} against {milliseconds(ends[0])} ms {what}"
    if no_difference(fast, slow):
        return f"{slow_name} and {fast_name} take the same time ({times}): {_sameness(fast, slow)}."
    cause = dominant(found)
    head = f"{slow_name} is {ends[1] / ends[0]:.2f}× slower than {fast_name} ({times})"
    if cause is None:
        return f"{head}, and no recorded cause adds to it: the profiled steps do not differ so."
    why = because(cause, fast, slow)
    why = f": {why}" if why else ""
    then = _others(cause, found)
    return f"{head}: {cause.kind}; {_portion(cause, ends[1] - ends[0])}{why}{then}."


def _others(cause: Finding, found: list[Finding]) -> str:
    """The causes beside the dominant one that add a good share."""
    named = [f for f in found if f is not cause and f.kind in _CAUSES]
    named = [f for f in named if f.delta_ns > 0 and (f.share or 0) >= NAMED_SHARE]
    texts = [f"{f.kind} (+{milliseconds(f.delta_ns)} ms)" for f in named]
    return "; then " + listed(texts) if texts else ""


#: Kinds that are causes; the others say that a cause is not known.
_CAUSES = tuple(kind for kind in KINDS if kind not in (causes.PROFILER, causes.UNKNOWN))


def dominant(found: list[Finding]) -> Finding | None:
    """The cause that adds most; None where none adds anything."""
    return next((f for f in found if f.kind in _CAUSES and f.delta_ns > 0), None)


def no_difference(fast: StepProfile, slow: StepProfile) -> bool:
    """Whether the two steps take the same time, as far as was measured.

    Their medians' 95 % intervals overlap, or they differ by less than ``EQUAL_SHARE``.
    """
    ends = lengths(fast, slow)
    if ends[1] <= ends[0] * (1 + EQUAL_SHARE):
        return True
    if not timed(fast, slow) or fast.interval_ns is None or slow.interval_ns is None:
        return False
    return fast.interval_ns[1] >= slow.interval_ns[0]


def _sameness(fast: StepProfile, slow: StepProfile) -> str:
    """Why a difference is none."""
    ends = lengths(fast, slow)
    if ends[1] <= ends[0] * (1 + EQUAL_SHARE):
        return f"they are less than {percent(EQUAL_SHARE)} apart"
    return "the 95 % intervals of their medians overlap"


def _profiled(profile: StepProfile) -> str:
    return "a profiled step" if profile.marked else "in the whole profile"


def _portion(cause: Finding, whole_ns: int) -> str:
    """``18.1 of the 26.5 ms are framework dispatch``."""
    what = KINDS[cause.kind]
    delta = milliseconds(cause.delta_ns)
    if cause.delta_ns > whole_ns:
        won_back = milliseconds(cause.delta_ns - whole_ns)
        return f"{delta} ms more are {what}, of which {won_back} are won back elsewhere"
    return f"{delta} of the {milliseconds(whole_ns)} ms are {what}"


def of_finding(finding: Finding, fast: StepProfile | None, slow: StepProfile) -> str:
    """One sentence of one finding; of one that the slow run has less of, it says so."""
    less = fast is not None and finding.delta_ns < 0
    what = f"less time in {KINDS[finding.kind]}" if less else KINDS[finding.kind]
    share = "" if finding.share is None else f" ({percent(finding.share)})"
    sign = "" if fast is None else "+" if finding.delta_ns >= 0 else ""
    said = f"{sign}{milliseconds(finding.delta_ns)} ms{share}: {what}"
    why = because(finding, fast, slow)
    return f"{said}; {why}." if why and finding.delta_ns > 0 else f"{said}."


def of_run(profile: StepProfile, found: list[Finding]) -> str:
    """The first sentence on a run alone: what takes most of its step."""
    name = str(profile.facts.get("implementation") or profile.name)
    if profile.device is not None and _waiting_ns(found) > profile.busy_ns:
        return f"{name} is host-bound: {_waits(profile, found)}."
    causes_found = [f for f in found if f.kind in _CAUSES and f.slow_ns > 0]
    if not causes_found:
        return f"{name}: the profile says nothing of what its time was spent on."
    cause = causes_found[0]
    unknown = sum(f.slow_ns for f in found if f.kind not in _CAUSES)
    if unknown > cause.slow_ns:
        share, most = percent(unknown / profile.profiled_ns), milliseconds(cause.slow_ns)
        return (
            f"{name}: the cause of {share} of {_whole(profile)} is not known; of what is known "
            f"most are {KINDS[cause.kind]}, {most} ms."
        )
    why = because(cause, None, profile)
    of = f"{milliseconds(cause.slow_ns)} of {milliseconds(profile.profiled_ns)} ms"
    share = percent(cause.slow_ns / profile.profiled_ns)
    said = f"{name} is {cause.kind}: {share} of {_whole(profile)} ({of}) are {KINDS[cause.kind]}"
    return f"{said}; {why}." if why else f"{said}."


def _waiting_ns(found: list[Finding]) -> int:
    return sum(f.slow_ns for f in found if f.kind in causes.WAITS)


def _whole(profile: StepProfile) -> str:
    return "the step" if profile.marked else "the profile"


def _waits(profile: StepProfile, found: list[Finding]) -> str:
    """How little the device is busy, what it waits for, and at which rate it is given work."""
    waits = [f for f in found if f.kind in causes.WAITS and (f.share or 0) >= 0.01]
    shares = [f"{KINDS[f.kind]} {percent(f.share or 0)}" for f in waits]
    busy = percent(profile.busy_ns / profile.profiled_ns)
    of = f"{milliseconds(profile.busy_ns)} of {milliseconds(profile.profiled_ns)} ms"
    said = f"the GPU is busy {busy} of {_whole(profile)} ({of}) and waits for its host: "
    said += ", ".join(shares)
    values = {name: QUANTITIES[name].of(profile) for name in _RATES}
    launches, rate, kernel, gap = values.values()
    if launches is None or rate is None or kernel is None or gap is None:
        return said
    took, waited = quantity(kernel, "ns"), quantity(gap, "ns")
    return (
        f"{said}; it gets {count(launches)} kernel launches{each_step(profile)}, {count(rate)} a "
        f"second, and a kernel takes {took} against a gap of {waited}"
    )


_RATES = ("launches", "launches_per_s", "mean_kernel_ns", "mean_gap_ns")
