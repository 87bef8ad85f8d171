"""What is said of two runs, a finding, a limit: sentences, made of their numbers."""

from __future__ import annotations

from lstmprof.diagnose import causes
from lstmprof.diagnose.because import because, pace
from lstmprof.diagnose.causes import KINDS
from lstmprof.diagnose.certainty import no_difference, outcome
from lstmprof.diagnose.findings import Finding, lengths, timed
from lstmprof.diagnose.roofline import Roofline
from lstmprof.diagnose.step_profile import StepProfile, labels
from lstmprof.numbers import listed, milliseconds, percent
from lstmprof.replay import Prediction

#: A replay that misses the observed step by more is told of.
REPLAY_ERROR = 0.05
#: A cause with a smaller share of the difference is not named beside the dominant one.
NAMED_SHARE = 0.15


def of_difference(fast: StepProfile, slow: StepProfile, findings: list[Finding]) -> str:
    """The first sentence: how much slower, and what most of the difference is."""
    fast_name, slow_name = labels(fast, slow)
    ends = lengths(fast, slow)
    what = "a step" if timed(fast, slow) else _profiled(slow)
    times = f"{milliseconds(ends[1])} against {milliseconds(ends[0])} ms {what}"
    if no_difference(fast, slow):
        return f"{slow_name} and {fast_name} {outcome(fast, slow, findings).reason}."
    cause = dominant(findings)
    head = f"{slow_name} is {ends[1] / ends[0]:.2f}× slower than {fast_name} ({times})"
    if cause is None:
        return f"{head}, and no recorded cause adds to it: the profiled steps do not differ so."
    why = because(cause)
    why = f": {why}" if why else ""
    then = _others(cause, findings)
    return f"{head}: {cause.kind}; {_portion(cause, ends[1] - ends[0])}{why}{then}."


def _others(cause: Finding, findings: list[Finding]) -> str:
    """The causes beside the dominant one that add a good share."""
    named = [f for f in findings if f is not cause and f.kind in _CAUSES]
    named = [f for f in named if f.delta_ns > 0 and (f.share or 0) >= NAMED_SHARE]
    texts = [f"{f.kind} (+{milliseconds(f.delta_ns)} ms)" for f in named]
    return "; then " + listed(texts) if texts else ""


#: Kinds that are causes; the others say that a cause is not known.
_CAUSES = tuple(kind for kind in KINDS if kind not in (causes.PROFILER, causes.UNKNOWN))


def dominant(findings: list[Finding]) -> Finding | None:
    """The cause that adds most; None where none adds anything."""
    return next((f for f in findings if f.kind in _CAUSES and f.delta_ns > 0), None)


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


def of_finding(finding: Finding) -> str:
    """One sentence of one finding; of one that the slow run has less of, it says so."""
    share = "" if finding.share is None else f" ({percent(finding.share)})"
    sign = "" if finding.fast is None else "+" if finding.delta_ns >= 0 else ""
    sentence = f"{sign}{milliseconds(finding.delta_ns)} ms{share}: {_what(finding)}"
    why = because(finding) if finding.delta_ns > 0 else ""
    return f"{sentence}; {why}." if why else f"{sentence}."


def _what(finding: Finding) -> str:
    what, fewer = KINDS[finding.kind], finding.delta_ns < 0
    if finding.fast is None:
        return what
    if finding.kind == causes.PROFILER and timed(finding.fast, finding.slow):
        less, large = ("less", "large") if fewer else ("more", "small")
        return (
            f"{what}: undisturbed the steps differ by so much {less} than profiled, and the other "
            f"parts are too {large} by that"
        )
    return f"less time in {what}" if fewer else what


def of_run(profile: StepProfile, findings: list[Finding]) -> str:
    """The first sentence on a run alone: what takes most of its step."""
    name = profile.label
    if profile.device is not None and profile.waits_for_host_ns > profile.busy_ns:
        return f"{name} is host-bound: {_waits(profile, findings)}."
    cause = next((f for f in findings if f.kind in _CAUSES and f.slow_ns > 0), None)
    if cause is None:
        return f"{name}: the profile says nothing of what its time was spent on."
    unknown = sum(f.slow_ns for f in findings if f.kind not in _CAUSES)
    if unknown > cause.slow_ns:
        share, most = percent(unknown / profile.profiled_ns), milliseconds(cause.slow_ns)
        return (
            f"{name}: the cause of {share} of {_whole(profile)} is not known; of what is known "
            f"most are {KINDS[cause.kind]}, {most} ms."
        )
    why = because(cause)
    amount = f"{milliseconds(cause.slow_ns)} of {milliseconds(profile.profiled_ns)} ms"
    share = percent(cause.slow_ns / profile.profiled_ns)
    sentence = f"{name} is {cause.kind}: {share} of {_whole(profile)} ({amount}) are"
    return f"{sentence} {KINDS[cause.kind]}" + (f"; {why}." if why else ".")


def _whole(profile: StepProfile) -> str:
    return "the step" if profile.marked else "the profile"


def _waits(profile: StepProfile, findings: list[Finding]) -> str:
    """How little the device is busy, what it waits for, and at which rate it is given work."""
    waits = [f for f in findings if f.kind in causes.WAITS and (f.share or 0) >= 0.01]
    shares = [f"{KINDS[f.kind]} {percent(f.share or 0)}" for f in waits]
    busy = percent(profile.busy_ns / profile.profiled_ns)
    amount = f"{milliseconds(profile.busy_ns)} of {milliseconds(profile.profiled_ns)} ms"
    waited = percent(profile.waits_for_host_ns / profile.profiled_ns)
    sentence = (
        f"the GPU is busy {busy} of {_whole(profile)} ({amount}) and waits for its host {waited}"
    )
    sentence += f": {', '.join(shares)}" if shares else ""
    rate = pace(profile)
    return f"{sentence}; {rate}" if rate else sentence


def of_roofline(limit: Roofline) -> str:
    """The least time of the step, the share reached, and the rate of its products."""
    share = f": it reaches {percent(limit.share)}" if limit.share is not None else ""
    share += ", so these peaks are too low" if (limit.share or 0) > 1 else ""
    text = f"the device could do this step's work in {milliseconds(limit.step_ns)} ms{share}"
    if limit.gemm_flops_per_s is None:
        return f"{text}."
    reached, peak = (gflops(r) for r in (limit.gemm_flops_per_s, limit.peaks.gemm_flops_per_s))
    return f"{text}; products run at {reached} of {peak} GFLOP/s over the whole step."


def gflops(flops_per_s: float) -> str:
    """``98.4``."""
    return f"{flops_per_s / 1e9:,.1f}"


def of_what_if(name: str, prediction: Prediction) -> str:
    """The profiled step, what is saved, what is then the most; and the undisturbed step.

    Last the model's own error, where it is large.
    """
    replayed_ns = prediction.replayed_ns
    saved = prediction.saved_ns / replayed_ns if replayed_ns else 0.0
    ends = f"{milliseconds(prediction.predicted_ns)} instead of {milliseconds(replayed_ns)} ms"
    text = f"{name}: {ends} ({percent(-saved) if saved else 'nothing saved'})"
    if prediction.bottleneck is not None:
        state, part, ns = prediction.bottleneck
        text += f"; then {state} {part} is the most, {milliseconds(ns)} ms"
    if prediction.undisturbed_ns is not None:
        text += f"; undisturbed it would take {milliseconds(prediction.undisturbed_ns)} ms"
    off = replayed_ns / prediction.observed_ns - 1 if prediction.observed_ns else 0.0
    if abs(off) > REPLAY_ERROR:
        text += f"; the unchanged step is replayed {percent(off)} off, so take this with care"
    return f"{text}."
