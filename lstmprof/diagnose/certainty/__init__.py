"""How far a diagnosis can be trusted: of a whole comparison, of a run alone, of one finding.

::

    measure (what is compared) ─ noise ─ sure (what is left) ─ doubts ─ short_ops ─▶ certainty

Certainty is computed. A difference must exceed the noise of the two steps (``noise``). Then every
reason to doubt a run has a size, and it lowers what could be no more than that. Reasons that have
no known size make nothing worse than likely.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from lstmprof.breakdown.lacks import Lack
from lstmprof.breakdown.lacks.rules import GPU_UNSEEN
from lstmprof.diagnose import causes
from lstmprof.diagnose.certainty import short_ops
from lstmprof.diagnose.certainty.measure import crowded, disturbed, remedy
from lstmprof.diagnose.certainty.noise import (
    Sameness,
    difference_ns,
    lengths_in_words,
    machine_was,
    noise_of_kind_ns,
    sameness,
)
from lstmprof.diagnose.certainty.sure import (
    Doubt,
    at_least,
    doubts_of_times,
    is_told,
    largest_doubt,
    least_delta_ns,
    least_ratio,
    ratio,
    told_by_speeds,
)
from lstmprof.diagnose.findings import HOST, UNEXPLAINED, Finding, lengths, timed, untimed
from lstmprof.diagnose.findings.because import most_of, named
from lstmprof.diagnose.findings.savings import REPLAY_ERROR
from lstmprof.diagnose.step_profile import StepProfile, labels
from lstmprof.events.annotate import OWN_CODE
from lstmprof.numbers import count, listed, milliseconds, percent
from lstmprof.replay import Prediction

Level = Literal["measured", "likely", "cannot be told"]
State = Literal["found", "none", "unknown"]

#: Less of a difference, or of a step, explains it by no more than chance.
EXPLAINED_SHARE = 0.5
#: What has no cause and is a smaller share of a step is not named.
SMALL_SHARE = 0.01
#: Kinds of waits that the profiler's own work may lie in.
_BESIDE_OVERHEAD = (causes.DISPATCH, causes.PYTHON, causes.UNRECORDED)
_QUIETER = "capture again on a quieter machine, with more --profile-steps"
_QUIETER_OWN = "run it again on a quieter machine, with more --steps"


@dataclass(frozen=True)
class Certainty:
    """How far one finding can be trusted, and why no further; of what is measured no reason."""

    level: Level
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """Whether a diagnosis says anything.

    ``found``: there is a difference, or a step, and a ``cause`` of it. ``none``: no difference
    beyond noise. ``unknown``: that could not be seen, or cannot be told. ``reason`` of the last two
    is said after the runs' names, without a full stop, and ``advice`` is what would tell more.
    ``differs``: whether there is a difference beyond noise and doubt, with a cause or without;
    of a run alone true. ``at_least``: how many times as long the slow step surely takes, where less
    than half of the difference is sure, and ``rest`` why it is no more; None and empty elsewhere.
    """

    state: State
    reason: str = ""
    cause: Finding | None = None
    advice: str = ""
    differs: bool = True
    at_least: float | None = None
    rest: str = ""

    @property
    def words(self) -> str:
        """The reason and what would tell more."""
        return "; ".join(part for part in (self.reason, self.advice) if part)


def outcome(fast: StepProfile, slow: StepProfile, findings: Sequence[Finding]) -> Outcome:
    """Whether ``slow`` differs from ``fast`` and one of ``findings`` says why."""
    if None in (fast.compared_by, slow.compared_by):
        times = f"{lengths_in_words(fast, slow, 'and')} by the clock"
        lost = f"cannot be told apart on this machine: {times}, but {disturbed(fast, slow)}"
        return Outcome("unknown", lost, advice=remedy(fast, slow), differs=False)
    same, doubt = sameness(fast, slow), largest_doubt(fast, slow)
    told = is_told(fast, slow)
    if same is not None and not told:
        why = f"cannot be told apart: {same.reason}"
        return Outcome("none", why, advice=same.advice, differs=False)
    for label, profile in zip(labels(fast, slow), (fast, slow), strict=True):
        lack = _hidden(profile)
        if lack is not None:
            return Outcome("unknown", f"{_blind(lack)} of {label}")
    whole_ns = difference_ns(fast, slow)
    if doubt and doubt.ns and not told:
        slow_ns = lengths(fast, slow)[1]
        of_whole = f"up to {milliseconds(doubt.ns)} of {milliseconds(slow_ns)} ms"
        unsure_ns = slow_ns * (1 - least_ratio(fast, slow) / ratio(fast, slow))
        if doubt.ns < whole_ns:
            of_whole += f", with the noise of both up to {milliseconds(unsure_ns)}"
        why = f"cannot be told on this machine: {doubt.text} ({of_whole})"
        return Outcome("unknown", why, advice=doubt.remedy, differs=False)
    sure: dict[str, Any] = {"at_least": at_least(fast, slow)}
    if sure["at_least"] is not None:
        sure["rest"] = doubt.text if doubt else _rest(same, fast, slow)
    unexplained = _unexplained_ns(findings)
    cause = next((f for f in findings if _is_cause(f) and _told(f, findings)), None)
    if cause is not None and unexplained <= (1 - EXPLAINED_SHARE) * whole_ns:
        return Outcome("found", cause=cause, **sure)
    why = f"not explained by the profile: {_why_not(whole_ns, findings)}"
    again = "" if _unseen(whole_ns, findings) else _again(fast, slow)
    return Outcome("unknown", why, advice=again, **sure)


def of_run(profile: StepProfile, findings: Sequence[Finding]) -> Outcome:
    """Whether one of ``findings`` says what the step of a run alone is bound by."""
    whole_ns = profile.length_ns
    hidden = _hidden(profile)
    if hidden is not None:
        return Outcome("unknown", _blind(hidden) + _most(findings, "what was recorded"))
    unknown_ns = sum(f.slow_ns for f in findings if f.kind in UNEXPLAINED)
    whole = "the step" if profile.marked else "the profile"
    named = [f for f in findings if _is_cause(f)]
    largest = max((f.slow_ns for f in findings if f.kind in UNEXPLAINED), default=0)
    unseen = bool(named) and largest > sum(f.slow_ns for f in named if f.group == named[0].group)
    if not named or unseen or unknown_ns > (1 - EXPLAINED_SHARE) * whole_ns:
        share = percent(unknown_ns / whole_ns) if whole_ns else "all"
        text = f"not explained by the profile: {share} of {whole} has no recorded cause"
        why = text + _of_what(findings, whole_ns) + _most(findings, "the rest")
        return Outcome("unknown", why, advice=crowded(profile) or "")
    own = _profilers(named[0])
    if own is not None:
        return Outcome("unknown", f"cannot be told: {own.text}", advice=own.remedy)
    cause = next((f for f in named if _told(f, findings)), None)
    if cause is not None and _unsure_ns(cause) >= _lead_ns(cause, named) > 0:
        return Outcome("unknown", f"cannot be told: {_waited(cause)}", advice=remedy(profile))
    if cause is not None:
        return Outcome("found", cause=cause)
    reasons = listed(list(of_finding(named[0], findings).reasons))
    return Outcome("unknown", f"cannot be told: {reasons}", advice=_again(profile))


def _lead_ns(cause: Finding, named: Sequence[Finding]) -> int:
    """By how much the group of ``cause`` takes more than any other of the causes ``named``."""
    groups: Counter[str] = Counter()
    for finding in named:
        groups[finding.group] += finding.slow_ns
    own_ns = groups.pop(cause.group)
    return own_ns - max(groups.values(), default=0)


def _unsure_ns(finding: Finding) -> int:
    """What its steps may have lost to interruptions in this kind of time, for all that is known."""
    return max(
        (
            profile.unsure_ns
            for profile in (finding.fast, finding.slow)
            if profile is not None and (profile.device is None or finding.group == HOST)
        ),
        default=0,
    )


def _profilers(finding: Finding) -> Doubt | None:
    """That most of a wait for the host may be the profiler's own work; None where it is not so."""
    lost_ns, size_ns = finding.slow.lost_overhead_ns, abs(finding.delta_ns)
    if finding.kind not in _BESIDE_OVERHEAD or lost_ns <= EXPLAINED_SHARE * size_ns:
        return None
    text = (
        f"{milliseconds(min(lost_ns, size_ns))} of the {milliseconds(size_ns)} ms of "
        f"{causes.KINDS[finding.kind]} may be the profiler's own work, whose thread is not recorded"
    )
    return Doubt(text, "profile more steps, after some that are not profiled", size_ns)


def _waited(finding: Finding) -> str:
    ns = milliseconds(_unsure_ns(finding))
    return (
        f"in a profiled step up to {ns} ms may be of waiting for a CPU, and of cold caches after "
        "it, and nothing tells in what"
    )


def _hidden(profile: StepProfile) -> Lack | None:
    """What a profile lacks so that nothing can be said of its time; None where it has all that.

    A device that was busy most of the time has that time all the same.
    """
    busy = profile.device is not None and 2 * profile.busy_ns > profile.profiled_ns
    return next((lack for lack in profile.lacks if lack.blinds and not busy), None)


def _blind(lack: Lack) -> str:
    return f"could not look at {lack.hides} ({lack.kind})"


def _of_what(findings: Sequence[Finding], whole_ns: int) -> str:
    """What the time without a cause is, as it goes on after that; empty where nothing tells."""
    shares = [(f.slow_ns / whole_ns, f) for f in findings if f.kind in UNEXPLAINED and whole_ns]
    shares = sorted((s for s in shares if s[0] >= SMALL_SHARE), key=lambda share: -share[0])
    if [f.kind for _, f in shares] == [causes.UNKNOWN]:
        first = most_of(shares[0][1])
        return f", most of it {first}" if first else ""
    each = listed([_with_most(f, percent(share)) for share, f in shares])
    return f" in the program: {each}" if shares else ""


def _with_most(finding: Finding, share: str) -> str:
    """What a finding without a cause is and how much, of an unknown one what takes most of it."""
    first = most_of(finding) if finding.kind == causes.UNKNOWN else None
    return f"{causes.KINDS[finding.kind]} {share}" + (f" (most of it {first})" if first else "")


def _most(findings: Sequence[Finding], what: str) -> str:
    """What most of ``what`` goes to, as the end of a sentence; empty where nothing is known."""
    causes = [f for f in findings if f.kind not in UNEXPLAINED and f.slow_ns > 0]
    if not causes:
        return ""
    cause = max(causes, key=lambda f: f.slow_ns)
    half = 2 * cause.slow_ns > sum(f.slow_ns for f in causes)
    most = "most" if half else "the largest part"
    return f"; {most} of {what} is {named(cause)}, {milliseconds(cause.slow_ns)} ms"


def of_finding(finding: Finding, findings: Sequence[Finding]) -> Certainty:
    """How far ``finding``, one of ``findings``, can be trusted."""
    if finding.kind in UNEXPLAINED:
        return Certainty("cannot be told", (f"it is {causes.KINDS[finding.kind]}",))
    size_ns, noise = abs(finding.delta_ns), _noise_of(finding)
    fast, slow = finding.fast, finding.slow
    if fast is not None and at_least(fast, slow) is not None:
        return _at_least(finding, findings)
    if size_ns <= noise:
        if fast is not None and told_by_speeds(fast, slow):
            return _at_least(finding, findings)
        reason = f"it is no more than the noise of the difference ({milliseconds(noise)} ms)"
        return Certainty("cannot be told", (reason,))
    some = list(_doubts(finding, findings))
    large = [d.text for d in some if d.ns is not None and d.ns >= size_ns]
    if large:
        return Certainty("cannot be told", tuple(large))
    doubtful = [d.text for d in some if d.ns is None or d.ns + noise >= size_ns]
    return Certainty("likely", tuple(doubtful)) if doubtful else Certainty("measured")


def _rest(same: Sameness | None, fast: StepProfile, slow: StepProfile) -> str:
    """What leaves open how much more than is sure it is, where no doubt does."""
    why = "" if same is None else same.why.removeprefix("and ")
    return machine_was(fast, slow) or why


def _at_least(finding: Finding, findings: Sequence[Finding]) -> Certainty:
    """Of a finding of which, whatever the machine did, some is more in the slow step, or none."""
    least_ns = least_delta_ns(finding)
    if least_ns <= 0:
        reason = "the machine may have made all of it"
        return Certainty("cannot be told", (reason,))
    others = [d for d in _doubts(finding, findings) if not d.log]
    large = [d.text for d in others if d.ns is not None and d.ns >= least_ns]
    if large:
        return Certainty("cannot be told", tuple(large))
    sure = f"the machine may have made all but {milliseconds(least_ns)} ms of it"
    return Certainty("likely", (sure,))


def _noise_of(finding: Finding) -> float:
    """Up to which difference of one kind's times nothing can be told."""
    if finding.fast is None:
        return 0.0
    longer = max(abs(finding.fast_ns), abs(finding.slow_ns))
    return noise_of_kind_ns(finding.fast, finding.slow, longer)


def _doubts(finding: Finding, findings: Sequence[Finding]) -> Iterator[Doubt]:
    """What may have made ``finding`` without a cause in the code."""
    fast, slow = finding.fast, finding.slow
    if any(lack.kind == GPU_UNSEEN for lack in slow.lacks):
        yield Doubt("a GPU may have worked that was not recorded", "record its kernels", None)
    left_out = short_ops.doubt_of(finding)
    if left_out is not None:
        yield Doubt(left_out, "", None)
    if fast is not None:
        yield from doubts_of_times(fast, slow)
        if not timed(fast, slow):
            yield Doubt(untimed(fast, slow), "capture both", None)
    own = _profilers(finding)
    if own is not None:
        yield own
    if _unsure_ns(finding):
        yield Doubt(_waited(finding), remedy(slow), _unsure_ns(finding))
    effect_ns = sum(f.delta_ns for f in findings if f.kind == causes.PROFILER)
    if finding.kind != causes.PROFILER and effect_ns:
        text = f"what profiling changed ({milliseconds(effect_ns)} ms) may hide this or cause it"
        lost = _lost(slow) if fast is None else _lost(fast, slow)
        yield Doubt(f"{text}{lost}", _quieter(slow), abs(effect_ns))


def _again(*profiles: StepProfile) -> str:
    """What would tell more: fewer threads, where they may have taken each other's CPU."""
    return crowded(*profiles) or _quieter(*profiles)


def _quieter(*profiles: StepProfile) -> str:
    own = any(profile.info.source == OWN_CODE for profile in profiles)
    return _QUIETER_OWN if own else _QUIETER


def _lost(*profiles: StepProfile) -> str:
    """That the profiled steps lost their CPU, in words; empty where they did not."""
    counts = [p.info.profiled_preemptions for p in profiles]
    most = max((statistics.median(some) for some in counts if some), default=0)
    return f", and a profiled step lost its CPU {count(most)} times" if most >= 1 else ""


def of_prediction(prediction: Prediction) -> Certainty:
    """How far a replay without a cause can be trusted: by how well it replays the step with it."""
    off_ns = abs(prediction.replayed_ns - prediction.observed_ns)
    off = off_ns / prediction.observed_ns if prediction.observed_ns else 0.0
    if off <= REPLAY_ERROR:
        return Certainty("likely")
    reason = f"the replay of the unchanged step is {percent(off)} off"
    if off_ns >= abs(prediction.saved_ns):
        return Certainty("cannot be told", (f"{reason}, which is more than is saved",))
    return Certainty("likely", (reason,))


def _is_cause(finding: Finding) -> bool:
    return finding.kind not in UNEXPLAINED and finding.delta_ns > 0


def _told(finding: Finding, findings: Sequence[Finding]) -> bool:
    return of_finding(finding, findings).level != "cannot be told"


def _unexplained_ns(findings: Sequence[Finding]) -> int:
    return sum(f.delta_ns for f in findings if f.kind in UNEXPLAINED)


def _unseen(whole_ns: int, findings: Sequence[Finding]) -> Finding | None:
    """What was not recorded, where that is half of a difference: no quieter machine would tell."""
    unseen = [
        f
        for f in findings
        if f.kind in UNEXPLAINED
        and not (f.kind == causes.PROFILER and f.fast is not None and timed(f.fast, f.slow))
    ]
    largest = max(unseen, key=lambda f: f.delta_ns, default=None)
    if largest is None or largest.delta_ns <= (1 - EXPLAINED_SHARE) * whole_ns:
        return None
    return largest


def _why_not(whole_ns: int, findings: Sequence[Finding]) -> str:
    """Why no finding explains a difference."""
    unexplained_ns, unseen = _unexplained_ns(findings), _unseen(whole_ns, findings)
    largest = max((f for f in findings if _is_cause(f)), key=lambda f: f.delta_ns, default=None)
    if unseen is not None:
        what = f"{causes.KINDS[unseen.kind]}, which is no cause"
        text = f"{milliseconds(unseen.delta_ns)} ms more are {what}"
    elif unexplained_ns > (1 - EXPLAINED_SHARE) * whole_ns:
        text = f"the profiled steps do not show {milliseconds(unexplained_ns)} of the "
        text += f"{milliseconds(whole_ns)} ms"
    elif largest is None:
        text = "no recorded cause adds to it"
    else:
        text = (
            f"{largest.kind} adds most, and {listed(list(of_finding(largest, findings).reasons))}"
        )
    return text
