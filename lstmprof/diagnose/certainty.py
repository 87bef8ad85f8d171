"""How far a diagnosis can be trusted: of a whole comparison, of a run alone, of one finding.

Certainty is computed. A difference must exceed the noise of the two medians: their 95 % intervals
(``breakdown/rounds.py``), wider where the runs were captured apart; of runs whose rounds took turns
that of the rounds' ratios. Then every reason to doubt a
run has a size, and it lowers what could be no more than that. Reasons that have no known size make
nothing worse than likely.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from lstmprof.breakdown import doubts
from lstmprof.breakdown.doubts import between_processes
from lstmprof.breakdown.lacks import Lack
from lstmprof.breakdown.lacks.rules import GPU_UNSEEN
from lstmprof.breakdown.rounds import (
    BUSY_BETWEEN_PROCESSES,
    CLUSTERS,
    Z95,
    error_of,
    error_of_pairs,
    error_within,
    round_of,
)
from lstmprof.diagnose import causes
from lstmprof.diagnose.because import named
from lstmprof.diagnose.findings import UNEXPLAINED, Finding, lengths, timed
from lstmprof.diagnose.savings import REPLAY_ERROR
from lstmprof.diagnose.step_profile import StepProfile, labels
from lstmprof.numbers import count, listed, milliseconds, percent
from lstmprof.replay import Prediction

Level = Literal["measured", "likely", "cannot be told"]
State = Literal["found", "none", "unknown"]

#: A smaller difference between the medians of a step is none.
EQUAL_SHARE = 0.02
#: Less of a difference, or of a step, explains it by no more than chance.
EXPLAINED_SHARE = 0.5
#: Runs that do not take turns and start so many seconds after each other were captured apart: the
#: machine may have changed its speed. Of sixteen such pairs of identical code, three rounds each,
#: on a machine with no other work, eight differed beyond their intervals, by up to 1.65×.
APART_S = 60.0
_QUIETER = "capture again on a quieter machine, with more --profile-steps"


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
    is said after the runs' names, without a full stop.
    """

    state: State
    reason: str = ""
    cause: Finding | None = None


@dataclass(frozen=True)
class _Doubt:
    """What may make a time wrong by ``ns``; None unknown."""

    text: str
    remedy: str
    ns: float | None


def outcome(fast: StepProfile, slow: StepProfile, findings: Sequence[Finding]) -> Outcome:
    """Whether ``slow`` differs from ``fast`` and one of ``findings`` says why."""
    sameness = _sameness(fast, slow)
    if sameness:
        return Outcome("none", f"cannot be told apart: {sameness}")
    for label, profile in zip(labels(fast, slow), (fast, slow), strict=True):
        lack = _hidden(profile)
        if lack is not None:
            return Outcome("unknown", f"{_blind(lack)} of {label}")
    whole_ns = difference_ns(fast, slow)
    sized = reversed([d for d in _doubts_of_times(fast, slow) if d.ns])
    doubt = max(sized, key=lambda d: d.ns or 0.0, default=None)
    if doubt and doubt.ns and doubt.ns >= whole_ns - noise_ns(fast, slow):
        of_whole = f"up to {milliseconds(doubt.ns)} of {milliseconds(lengths(fast, slow)[1])} ms"
        text = f"{doubt.text} ({of_whole}); {doubt.remedy}"
        return Outcome("unknown", f"cannot be told on this machine: {text}")
    unexplained = _unexplained_ns(findings)
    cause = next((f for f in findings if _is_cause(f) and _told(f, findings)), None)
    if cause is not None and unexplained <= (1 - EXPLAINED_SHARE) * whole_ns:
        return Outcome("found", cause=cause)
    return Outcome("unknown", f"not explained by the profile: {_why_not(whole_ns, findings)}")


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
        return Outcome("unknown", text + _most(findings, "the rest"))
    cause = next((f for f in named if _told(f, findings)), None)
    if cause is not None:
        return Outcome("found", cause=cause)
    reasons = listed(list(of_finding(named[0], findings).reasons))
    return Outcome("unknown", f"cannot be told: {reasons}; {_QUIETER}")


def _hidden(profile: StepProfile) -> Lack | None:
    """What a profile lacks so that nothing can be said of its time; None where it has all that.

    A device that was busy most of the time has that time all the same.
    """
    busy = profile.device is not None and 2 * profile.busy_ns > profile.profiled_ns
    return next((lack for lack in profile.lacks if lack.blinds and not busy), None)


def _blind(lack: Lack) -> str:
    return f"could not look at {lack.hides} ({lack.kind})"


def _most(findings: Sequence[Finding], what: str) -> str:
    """What most of ``what`` goes to, as the end of a sentence; empty where nothing is known."""
    causes = [f for f in findings if f.kind not in UNEXPLAINED and f.slow_ns > 0]
    if not causes:
        return ""
    cause = max(causes, key=lambda f: f.slow_ns)
    return f"; most of {what} is {named(cause)}, {milliseconds(cause.slow_ns)} ms"


def of_finding(finding: Finding, findings: Sequence[Finding]) -> Certainty:
    """How far ``finding``, one of ``findings``, can be trusted."""
    if finding.kind in UNEXPLAINED:
        return Certainty("cannot be told", (f"it is {causes.KINDS[finding.kind]}",))
    size_ns = abs(finding.delta_ns)
    noise = _noise_of(finding)
    if size_ns <= noise:
        reason = f"it is no more than the noise of the difference ({milliseconds(noise)} ms)"
        return Certainty("cannot be told", (reason,))
    some = list(_doubts(finding, findings))
    large = [d.text for d in some if d.ns is not None and d.ns >= size_ns]
    if large:
        return Certainty("cannot be told", tuple(large))
    doubtful = [d.text for d in some if d.ns is None or d.ns + noise >= size_ns]
    return Certainty("likely", tuple(doubtful)) if doubtful else Certainty("measured")


def _noise_of(finding: Finding) -> float:
    """Up to which difference of one kind's times nothing can be told.

    Where the rounds took turns it is the speed of the machine that is not known, which changes each
    kind by as much of its own time.
    """
    if finding.fast is None:
        return 0.0
    if not _in_turn(finding.fast, finding.slow):
        return noise_ns(finding.fast, finding.slow)
    longer = max(abs(finding.fast_ns), abs(finding.slow_ns))
    return longer * -math.expm1(-_noise(finding.fast, finding.slow))


def no_difference(fast: StepProfile, slow: StepProfile) -> bool:
    """Whether the two steps cannot be told apart."""
    return bool(_sameness(fast, slow))


def difference_ns(fast: StepProfile, slow: StepProfile) -> int:
    """By how much the steps' ``lengths`` differ."""
    ends = lengths(fast, slow)
    return ends[1] - ends[0]


def noise_ns(fast: StepProfile, slow: StepProfile) -> float:
    """The difference of the steps up to which they cannot be told apart."""
    return lengths(fast, slow)[1] * -math.expm1(-_noise(fast, slow))


def _noise(fast: StepProfile, slow: StepProfile) -> float:
    """The same of the logarithm of their ratio: the two 95 % intervals touch."""
    if timed(fast, slow) and _one_process(fast, slow):
        return sum(error_within(profile.rounds) or 0.0 for profile in (fast, slow))
    paired = error_of_pairs(fast.rounds, slow.rounds) if _in_turn(fast, slow) else None
    if timed(fast, slow) and paired is not None:
        return paired + _off_pairs(fast, slow)
    least = Z95 * BUSY_BETWEEN_PROCESSES if _apart(fast, slow) else 0.0
    both = timed(fast, slow)
    return max(_error(fast, both, upper=True), least) + max(_error(slow, both, upper=False), least)


def _error(profile: StepProfile, timed: bool, *, upper: bool) -> float:
    """How far a step may be from one end of its interval, in logarithms; 0 unknown."""
    interval_ns = profile.interval_ns
    if timed and interval_ns is not None and profile.median_ns and interval_ns[0] > 0:
        return abs(math.log(interval_ns[upper] / profile.median_ns))
    profiled = (round_of(profile.steps_ns),) if profile.steps_ns else ()
    rounds = profile.rounds if timed else profiled
    return error_of(rounds, between_processes(profile.info)) or 0.0


def _starts(profile: StepProfile) -> tuple[str, ...]:
    info = profile.info
    return tuple(info.rounds or ()) or ((info.started_at,) if info.started_at else ())


def _one_process(fast: StepProfile, slow: StepProfile) -> bool:
    """Whether one process timed both in turn."""
    return bool(_starts(fast)) and _starts(fast) == _starts(slow)


def _in_turn(fast: StepProfile, slow: StepProfile) -> bool:
    """Whether the rounds of both took turns: each of one before the next of the other."""
    starts = [_starts(fast), _starts(slow)]
    if len(starts[0]) != len(starts[1]) or len(starts[0]) < CLUSTERS:
        return False
    both = list(zip(*starts, strict=True))
    return all(max(one) < min(after) for one, after in itertools.pairwise(both))


def _off_pairs(fast: StepProfile, slow: StepProfile) -> float:
    """How far the rounds' mean ratio is from that of the medians, in logarithms."""
    pairs = zip(fast.rounds, slow.rounds, strict=True)
    ratios = [math.log(b.median_ns / a.median_ns) for a, b in pairs]
    ends = lengths(fast, slow)
    return abs(statistics.fmean(ratios) - math.log(ends[1] / ends[0]))


def _apart(fast: StepProfile, slow: StepProfile) -> bool:
    """Whether one was captured, all rounds of it, and long after that the other."""
    first, second = sorted(_starts(profile) for profile in (fast, slow))
    if not first or not second or max(first) >= min(second):
        return False
    gap = datetime.fromisoformat(min(second)) - datetime.fromisoformat(max(first))
    return gap.total_seconds() > APART_S


def _sameness(fast: StepProfile, slow: StepProfile) -> str:
    """Why no difference can be told, with both lengths; empty where it can."""
    ends = lengths(fast, slow)
    unmarked = "a profiled step" if slow.marked else "in the whole profile"
    what = "a step" if timed(fast, slow) else unmarked
    times = f"{milliseconds(ends[1])} and {milliseconds(ends[0])} ms {what}"
    if ends[1] <= ends[0] * (1 + EQUAL_SHARE):
        return f"{times}, less than {percent(EQUAL_SHARE)} apart"
    if ends[0] <= 0 or math.log(ends[1] / ends[0]) > _noise(fast, slow):
        return ""
    if _apart(fast, slow):
        return (
            f"{times}, captured more than a minute apart, and a machine may change its speed "
            "by as much in that time; capture both by one command with --rounds 3, or without a "
            "pause"
        )
    if not timed(fast, slow) or fast.interval_ns is None or slow.interval_ns is None:
        return (
            f"{times}, one process each, and two processes of the same code may differ by as much; "
            "capture both with --rounds 3"
        )
    if _in_turn(fast, slow):
        error = percent(math.expm1(_noise(fast, slow)))
        return f"{times}, and by chance rounds side by side may be {error} apart here; " + (
            _more(fast, slow)
        )
    return (
        f"{times}, 95 % intervals {_interval(slow)} and {_interval(fast)} ms; {_more(fast, slow)}"
    )


def _interval(profile: StepProfile) -> str:
    low, high = profile.interval_ns or (None, None)
    return f"{milliseconds(low)}–{milliseconds(high)}"


def _more(fast: StepProfile, slow: StepProfile) -> str:
    """What makes the intervals narrower."""
    if min(len(fast.rounds), len(slow.rounds)) < CLUSTERS:
        return f"capture both with --rounds {CLUSTERS}, which shows how far processes differ"
    return "more --rounds on a quieter machine would narrow them"


def _doubts_of_times(fast: StepProfile, slow: StepProfile) -> list[_Doubt]:
    """What may have made the undisturbed steps differ without a cause in the code.

    That the fast run lost its CPU makes none: it would be faster still. What one process timed in
    turn saw the same machine, and so did rounds in turn.
    """
    if not timed(fast, slow) or _one_process(fast, slow):
        return []
    some = []
    one_machine = (doubts.DRIFT, doubts.MODES, doubts.BUSY) if _in_turn(fast, slow) else ()
    for label, profile in zip(labels(fast, slow), (fast, slow), strict=True):
        if profile.interval_ns is None:
            some.append(
                _Doubt(f"{label}: too few iterations were timed", "more --iterations", None)
            )
        for warning in profile.doubts:
            taken = warning.kind in (doubts.BUSY, doubts.CPU_TAKEN)
            passed = warning.kind in (doubts.INFLATION, *one_machine)
            if not passed and not (taken and profile is fast):
                ns = None if warning.size is None else warning.size * profile.length_ns
                some.append(_Doubt(f"{label}: {warning.fault}", warning.remedy, ns))
    return some


def _doubts(finding: Finding, findings: Sequence[Finding]) -> Iterator[_Doubt]:
    """What may have made ``finding`` without a cause in the code."""
    fast, slow = finding.fast, finding.slow
    if any(lack.kind == GPU_UNSEEN for lack in slow.lacks):
        yield _Doubt("a GPU may have worked that was not recorded", "record its kernels", None)
    if fast is not None:
        yield from _doubts_of_times(fast, slow)
        if not timed(fast, slow):
            yield _Doubt("not both runs were timed without a profiler", "capture both", None)
    effect_ns = sum(f.delta_ns for f in findings if f.kind == causes.PROFILER)
    if finding.kind != causes.PROFILER and effect_ns:
        text = f"what profiling changed ({milliseconds(effect_ns)} ms) may hide this or cause it"
        lost = _lost(slow) if fast is None else _lost(fast, slow)
        yield _Doubt(f"{text}{lost}", _QUIETER, abs(effect_ns))


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


def _why_not(whole_ns: int, findings: Sequence[Finding]) -> str:
    """Why no finding explains a difference, and what to do."""
    unexplained_ns = _unexplained_ns(findings)
    largest = max((f for f in findings if _is_cause(f)), key=lambda f: f.delta_ns, default=None)
    if unexplained_ns > (1 - EXPLAINED_SHARE) * whole_ns:
        text = f"the profiled steps do not show {milliseconds(unexplained_ns)} of the "
        text += f"{milliseconds(whole_ns)} ms"
    elif largest is None:
        text = "no recorded cause adds to it"
    else:
        text = (
            f"{largest.kind} adds most, and {listed(list(of_finding(largest, findings).reasons))}"
        )
    return f"{text}; {_QUIETER}"
