"""What is said of two runs, a finding, a limit: sentences, made of their numbers."""

from __future__ import annotations

from collections.abc import Sequence

from lstmprof.breakdown.mean_step import waits_for_host_ns
from lstmprof.diagnose import causes, settings
from lstmprof.diagnose.certainty import (
    Outcome,
    of_finding as certainty_of,
    of_prediction,
)
from lstmprof.diagnose.certainty.pair import in_words, layer_in_words, structure_in_words
from lstmprof.diagnose.findings import CAUSES, HOST, NAMED_SHARE, Finding, lengths
from lstmprof.diagnose.findings.because import because, most_of, named, pace
from lstmprof.diagnose.findings.savings import REPLAY, ROOFLINE
from lstmprof.diagnose.roofline import Roofline
from lstmprof.diagnose.step_profile import StepProfile, labels
from lstmprof.numbers import listed, milliseconds, percent
from lstmprof.replay import Error, Prediction

#: An interval whose ends are so many times apart is in the sentence.
WIDE = 1.25
#: From so many times on no digits behind the point.
_WHOLE = 100
#: A wait with a smaller share is not named among those for the host.
SMALL_SHARE = 0.01


def of_difference(
    fast: StepProfile, slow: StepProfile, findings: Sequence[Finding], outcome: Outcome
) -> str:
    """The first sentence: how much slower, and what most of the difference is; or why not."""
    fast_name, slow_name = labels(fast, slow)
    if outcome.state == "none":
        return f"{slow_name} and {fast_name} {outcome.words}{_differ(fast, slow)}."
    cause, ends = outcome.cause, lengths(fast, slow)
    head = f"{slow_name} takes {_times(ends[1], ends[0])} as long as {fast_name} "
    head += f"({lengths_in_words(fast, slow)}{_interval(outcome)})"
    if cause is None:
        return f"{head}; {outcome.words}{_differ(fast, slow)}."
    why = because(cause)
    why = f": {why}" if why else ""
    then = _others(cause, findings)
    then += _settings(fast, slow, cause)
    doubt = _doubt(cause, findings)
    differ = _differ(fast, slow)
    return f"{head}{differ}: {cause.kind}; {_portion(cause, findings)}{why}{then}{doubt}."


def lengths_in_words(fast: StepProfile, slow: StepProfile) -> str:
    """``36.6 against 18.3 ms per step``; of a profile without step markers that it is the whole."""
    fast_ms, slow_ms = map(milliseconds, lengths(fast, slow))
    here, there = ("per step" if p.marked else "in the whole profile" for p in (slow, fast))
    if here == there:
        return f"{slow_ms} against {fast_ms} ms {here}"
    return f"{slow_ms} ms {here} against {fast_ms} ms {there}"


def _interval(outcome: Outcome) -> str:
    """The interval of the ratio, if it is wide."""
    ratio = outcome.ratio
    if ratio is None or (ratio.high is not None and ratio.high < WIDE * ratio.low):
        return ""
    return f"; ratio {in_words(ratio)}"


def _differ(fast: StepProfile, slow: StepProfile) -> str:
    """What one run does and the other does not: certain without timing."""
    words = structure_in_words(fast, slow)
    return f"; {words}" if words else ""


def _times(slow_ns: int, fast_ns: int) -> str:
    """``1.23×``; of a hundred times and more ``1,031×``."""
    ratio = slow_ns / fast_ns
    return f"{ratio:,.0f}×" if ratio >= _WHOLE else f"{ratio:.2f}×"


def verdict(
    fast: StepProfile | None, slow: StepProfile, findings: Sequence[Finding], outcome: Outcome
) -> str:
    """The first sentence in a line: how much slower and the cause; or that it cannot be told."""
    cause = outcome.cause
    if fast is None:
        return _verdict_of_run(slow, cause)
    fast_name, slow_name = labels(fast, slow)
    ends = lengths(fast, slow)
    times = f"{milliseconds(ends[1])} and {milliseconds(ends[0])} ms"
    if outcome.state == "none":
        return f"{slow_name} and {fast_name} cannot be told apart: {times}"
    head = f"{slow_name} takes {_times(ends[1], ends[0])} as long as {fast_name}"
    if cause is None:
        return f"{head}; the profile does not hold why"
    whole_ns = sum(f.delta_ns for f in findings)
    delta_ns = sum(f.delta_ns for f in findings if f.group == cause.group)
    of = f"{milliseconds(delta_ns)} of the {milliseconds(whole_ns)} ms"
    return f"{head}: {cause.kind}" + (f", {of}" if delta_ns <= whole_ns else "")


def _verdict_of_run(profile: StepProfile, cause: Finding | None) -> str:
    if cause is None:
        return f"{profile.label}: what it is bound by cannot be told"
    if cause.kind in causes.WAITS and cause.group == HOST:
        share = percent(profile.waits_for_host_ns / profile.length_ns)
        waits = f"the {profile.device_word} waits for its host {share} of {_whole(profile)}"
        return f"{profile.label} is {cause.kind}: {waits}"
    share = percent(cause.slow_ns / profile.length_ns)
    return f"{profile.label} is {cause.kind}: {share} of {_whole(profile)}"


def _doubt(cause: Finding, findings: Sequence[Finding]) -> str:
    """Why a cause is likely and no more; empty where it was measured."""
    certainty = certainty_of(cause, findings)
    return f"; likely, because {listed(list(certainty.reasons))}" if certainty.reasons else ""


def _settings(fast: StepProfile, slow: StepProfile, cause: Finding) -> str:
    """What was set otherwise, of one implementation; calls that are each slower tell it as well."""
    differ = [d for d in settings.disagreements(fast.info, slow.info) if d.fits]
    alike = fast.implementation == slow.implementation is not None
    if not differ or not alike or cause.kind == causes.SLOWER:
        return ""
    return f"; settings differ: {settings.listing(differ)}"


def _others(cause: Finding, findings: Sequence[Finding]) -> str:
    """The causes beside the dominant one, and those told with it, that add a good share."""
    others = [f for f in findings if f.group != cause.group and f.kind in CAUSES]
    others = [f for f in others if f.delta_ns > 0 and (f.share or 0) >= NAMED_SHARE]
    texts = [f"{named(f)} (+{milliseconds(f.delta_ns)} ms)" for f in others]
    return "; then " + listed(texts) if texts else ""


def _portion(cause: Finding, findings: Sequence[Finding]) -> str:
    """``18.1 of the 26.5 ms go to framework dispatch``; of a group all that it adds."""
    whole_ns = sum(f.delta_ns for f in findings)
    group = [f for f in findings if f.group == cause.group]
    delta_ns = sum(f.delta_ns for f in group)
    what = named(cause)
    if len(group) > 1:
        parts = [f for f in group if abs(f.delta_ns) >= NAMED_SHARE * abs(delta_ns)]
        each = listed([f"{named(f)} {signed_ms(f.delta_ns)}" for f in parts])
        what = f"waits of the device for its host ({each})"
    if delta_ns <= whole_ns:
        return f"{milliseconds(delta_ns)} of the {milliseconds(whole_ns)} ms go to {what}"
    less = min(findings, key=lambda f: f.delta_ns)
    back = f", of which {milliseconds(-less.delta_ns)} are won back in {named(less)}"
    return f"{milliseconds(delta_ns)} ms more go to {what}{back if less.kind in CAUSES else ''}"


def signed_ms(ns: int) -> str:
    """``+18.1 ms``."""
    return f"{'+' if ns >= 0 else ''}{milliseconds(ns)} ms"


def of_finding(finding: Finding) -> str:
    """One sentence of one finding; of one that the slow run has less of, it says so."""
    share = "" if finding.share is None else f" ({percent(finding.share)})"
    amount = milliseconds(finding.slow_ns) + " ms"
    amount = amount if finding.fast is None else signed_ms(finding.delta_ns)
    sentence = f"{amount}{share}: {_what(finding)}"
    if finding.saving.by in (REPLAY, ROOFLINE):
        sentence += f", {_saved(finding)}"
    why = because(finding) if finding.delta_ns > 0 else ""
    return f"{sentence}; {why}." if why else f"{sentence}."


def _saved(finding: Finding) -> str:
    """What a step would gain without a finding, where that is not all of its time."""
    amount = f"{milliseconds(max(finding.saving.ns, 0))} ms"
    if finding.saving.by == ROOFLINE:
        some = f"of which {amount} are" if finding.saving.ns > 0 else "none of which is"
        return f"{some} above the least time of this work"
    shorter = f"{amount} shorter" if finding.saving.ns > 0 else "no shorter"
    return f"without which {_whole(finding.slow)} is replayed {shorter}"


def _what(finding: Finding) -> str:
    what, fewer = named(finding), finding.delta_ns < 0
    if finding.fast is None:
        return what
    return f"less time in {what}" if fewer else what


def of_run(profile: StepProfile, findings: Sequence[Finding], outcome: Outcome) -> str:
    """The first sentence on a run alone: what most of its step could be saved of; or why not."""
    name, cause = profile.label, outcome.cause
    if cause is None:
        return f"{name}: {outcome.words}."
    doubt = _doubt(cause, findings)
    if cause.kind in causes.WAITS and cause.group == HOST:
        waits = f"the {profile.device_word} waits for its host {_waits(cause, findings)}"
        return f"{name}: {waits}{doubt}.{_pace(profile)}"
    why = "; ".join(words for words in (_calls(profile), because(cause)) if words)
    share = percent(cause.slow_ns / profile.length_ns)
    amount = f"{milliseconds(cause.slow_ns)} of {milliseconds(profile.length_ns)} ms"
    sentence = f"{name} is {cause.kind}: {share} of {_whole(profile)} ({amount}) goes to"
    sentence += f" {named(cause)}" + (f"; {why}" if why else "")
    return f"{sentence}{_then(cause, findings)}{doubt}."


def _calls(profile: StepProfile) -> str:
    """That it calls the cells of a layer one by one; empty if it does not."""
    words = layer_in_words(profile)
    return f"it makes {words}" if "cell" in words.lower() else ""


def _then(cause: Finding, findings: Sequence[Finding]) -> str:
    """The other causes with a good share of the step; all waits for the host in one number."""
    shares = [
        (f.share or 0, f"{named(f)} {percent(f.share or 0)}{_avoidable(f, cause)}")
        for f in findings
        if f is not cause and f.kind in CAUSES and f.group != HOST and (f.share or 0) >= NAMED_SHARE
    ]
    waits = cause.slow.waits_for_host_ns / cause.slow.length_ns
    if cause.kind not in causes.WAITS and cause.slow.device is not None and waits >= NAMED_SHARE:
        in_all = "in all " if cause.group == HOST else ""
        text = f"{in_all}the {cause.slow.device_word} waits for its host {percent(waits)}"
        shares.append((waits, text + _unrecorded(findings)))
    texts = [text for _, text in sorted(shares, key=lambda share: -share[0])]
    return f"; then {listed(texts)}" if texts else ""


def _avoidable(finding: Finding, cause: Finding) -> str:
    """Why ``finding``, which takes longer than ``cause``, is not told first: little can be saved.

    Empty where it takes no longer.
    """
    if finding.slow_ns <= cause.slow_ns or finding.saving.by not in (REPLAY, ROOFLINE):
        return ""
    return f" (at most {milliseconds(max(finding.saving.ns, 0))} ms can be saved)"


def _unrecorded(findings: Sequence[Finding]) -> str:
    """What of the waits for a host has no recorded cause, in brackets; empty where that is little.

    Such time is told first of no step, though all waits together are the most of it.
    """
    share = sum(f.share or 0 for f in findings if f.kind == causes.UNRECORDED)
    return f" ({percent(share)} unrecorded)" if share >= SMALL_SHARE else ""


def _whole(profile: StepProfile) -> str:
    return "the step" if profile.marked else "the profile"


def _waits(cause: Finding, findings: Sequence[Finding]) -> str:
    """How long the device waits, for what, and how little it is busy."""
    profile = cause.slow
    whole_ns = profile.length_ns
    waits = [(_waiting_ns(f) / whole_ns, f) for f in findings]
    waits.sort(key=lambda wait: (-wait[0], wait[1].rank))
    each = listed([f"{_wait(f)} {percent(share)}" for share, f in waits if share >= SMALL_SHARE])
    amount = f"{milliseconds(profile.waits_for_host_ns)} of {milliseconds(whole_ns)} ms"
    share = percent(profile.waits_for_host_ns / whole_ns)
    sentence = f"{share} of {_whole(profile)} ({amount}): {each}{_then(cause, findings)}; "
    return f"{sentence}it is busy {percent(profile.busy_ns / whole_ns)}"


def _pace(profile: StepProfile) -> str:
    """How fast its work comes, as a sentence of its own."""
    rate = pace(profile)
    return f" {rate[0].upper()}{rate[1:]}." if rate else ""


def _wait(finding: Finding) -> str:
    """What a device waits for: of runtime calls the one that is most of them, by its name."""
    first = most_of(finding) if finding.kind == causes.RUNTIME else None
    return named(finding) if first is None else f"{named(finding)} (most of it {first})"


def _waiting_ns(finding: Finding) -> int:
    """What of a finding is a device's wait for its host."""
    idle = (c for c in finding.contributors if c.state != "busy")
    return waits_for_host_ns((c.part, c.ns) for c in idle)


def of_roofline(limit: Roofline) -> str:
    """The least time of the step, the share reached, and the rate of its products."""
    share = f": it reaches {percent(limit.share)}" if limit.share is not None else ""
    share += ", so these peaks are too low" if (limit.share or 0) > 1 else ""
    text = f"the device could do this step's work in {milliseconds(limit.step_ns)} ms{share}"
    if limit.gemm_flops_per_s is None:
        return f"{text}.{_quicker(limit)}"
    reached, peak = (gflops(r) for r in (limit.gemm_flops_per_s, limit.peaks.gemm_flops_per_s))
    rate = f"products run at {reached} of {peak} GFLOP/s over the whole step"
    return f"{text}; {rate}.{_quicker(limit)}"


def _quicker(limit: Roofline) -> str:
    """Why some of the work may take less than its least, a sentence; empty where none does."""
    quicker = [" + ".join(r.categories) for r in limit.reaches if (r.share or 0) > 1]
    if not quicker or (limit.share or 0) > 1:
        return ""
    return (
        f" More than 100 % of {listed(quicker)}: what fits into a cache moves faster than a copy "
        "of memory, or a peak was measured too low."
    )


def gflops(flops_per_s: float) -> str:
    """``98.4``."""
    return f"{flops_per_s / 1e9:,.1f}"


def _of_forecast(error: Error | None) -> str:
    """How far a forecast may be off."""
    if error is None:
        return "this is a forecast, and how far such a one is off was not measured"
    median, worst = percent(error.median), percent(error.worst)
    return (
        f"this is a forecast: on {error.pairs} pairs on a host such were off by {median} in the "
        f"median, {worst} at most"
    )


def of_what_if(
    name: str, prediction: Prediction, form: str | None = None, error: Error | None = None
) -> str:
    """Return the step, what is saved of it and what is then its largest part.

    Last the model's own error, where it is large; of a forecast of ``form`` its measured ``error``.
    """
    replayed_ns = prediction.replayed_ns
    saved = prediction.saved_ns / replayed_ns if replayed_ns else 0.0
    ends = f"{milliseconds(prediction.predicted_ns)} instead of {milliseconds(replayed_ns)} ms"
    text = f"{name}: {ends} ({percent(-saved) if saved else 'nothing saved'})"
    if prediction.bottleneck is not None:
        state, part, ns = prediction.bottleneck
        text += f"; then {state} {part} is the most, {milliseconds(ns)} ms"
    if form is not None:
        text += f"; {_of_forecast(error)}"
    doubts = of_prediction(prediction).reasons
    return f"{text}; {listed([*doubts])}, so take this with care." if doubts else f"{text}."
