"""Decide how certain a diagnosis is, and whether the diagnosis may name a cause.

The levels are measured, likely and unknown. A doubt lowers the level:
``Certainty("likely", ("a GPU may have done unrecorded work",))``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from lstmprof.base.numbers import cropped, in_prose, listed, milliseconds, percent
from lstmprof.breakdown.lacks import CLOCKS, GPU_UNSEEN, Lack
from lstmprof.breakdown.replay import Prediction
from lstmprof.diagnose.certainty.pair import (
    EQUAL_SHARE,
    Ratio,
    Structure,
    counts_in_words,
    in_words,
    least_excess_ns,
    ratio_of,
    rough_lengths,
    short_ops_doubt,
    structure_of,
)
from lstmprof.diagnose.findings import (
    UNEXPLAINED,
    Finding,
    causes,
    timed,
    untimed,
    wait_of,
)
from lstmprof.diagnose.findings.because import because, may_be_copies, most_of, named
from lstmprof.diagnose.findings.reasons import EXPLAINS, reason
from lstmprof.diagnose.findings.savings import REPLAY_ERROR
from lstmprof.diagnose.findings.settings import shared_cpus
from lstmprof.diagnose.step_profile import StepProfile, labels
from lstmprof.events.annotate import OWN_CODE

Level = Literal["measured", "likely", "unknown"]
State = Literal["found", "none", "unknown"]

#: Smallest share of the step, or of the difference between two steps, that known causes must
#: explain for lstmprof to name a cause. Chosen by hand.
EXPLAINED_SHARE = 0.5
#: Beginning of ``Outcome.reason`` if the profile does not show the cause.
NOT_EXPLAINED = "the profile does not show why: "
#: Words for ``causes.UNKNOWN`` (time without a known cause) that is mostly work.
_UNKNOWN_WORK = "work of an unknown category"
#: Smallest share of the step for which a text mentions time without a known cause.
SMALL_SHARE = 0.01
#: Kinds of time that may include the profiler's own work.
_BESIDE_OVERHEAD = (causes.DISPATCH, causes.PYTHON, causes.UNRECORDED)
_MORE = "capture both again with more --profile-steps"
_MORE_OWN = "run both again with more --steps"
#: Smallest share of the difference between two steps at which lstmprof names a kind of time as the
#: cause although both runs make the same calls.
CAUSE_SHARE = 0.3


@dataclass(frozen=True)
class Certainty:
    level: Level
    reasons: tuple[str, ...] = ()  # why the level is not higher


@dataclass(frozen=True)
class Outcome:
    """The result of a diagnosis: the kind of time that is the cause, or why none is named."""

    state: State  # none: no difference beyond noise
    reason: str = ""  # a clause; the names of the runs precede it
    cause: Finding | None = None
    advice: str = ""
    differs: bool = True  # beyond noise
    ratio: Ratio | None = None

    @property
    def equal(self) -> bool:
        """Return whether the slow step takes at most 2 % longer than the fast step."""
        return self.ratio is not None and self.ratio.value <= 1 + EQUAL_SHARE

    @property
    def words(self) -> str:
        return "; ".join(part for part in (self.reason, self.advice) if part)


def outcome(fast: StepProfile, slow: StepProfile, findings: Sequence[Finding]) -> Outcome:
    """Decide whether ``slow`` is slower than ``fast``, and which kind of time is the cause."""
    ratio, structure = ratio_of(fast, slow), structure_of(fast, slow)
    if ratio.value <= 1 + EQUAL_SHARE:
        why = f"take equally long: {_lengths(fast, slow)}, at most {percent(EQUAL_SHARE)} apart"
        return Outcome("none", why, differs=False, ratio=ratio)
    if not ratio.sure and (structure.same or structure.fewer or not structure.certain):
        calls = f"make {structure.calls} and " if structure.same else ""
        why = f"{calls}may take equally long: {_lengths(fast, slow)}, ratio {in_words(ratio)}"
        return Outcome("none", why, advice=_more(fast, slow), differs=False, ratio=ratio)
    for label, profile in zip(labels(fast, slow), (fast, slow), strict=True):
        lack = _hiding_lack(profile)
        if lack is not None:
            why = _lack_in_words(lack, f" of {in_prose(label)}")
            return Outcome("unknown", why, differs=ratio.sure, ratio=ratio)
    if structure.same:
        return _outcome_of_same_work(fast, slow, findings, ratio, structure)
    slower = _without_reason(findings)
    some = (f for f in findings if _is_cause(f) and f is not slower and _is_likely(f, findings))
    cause = next(some, None)
    unexplained = _unexplained_ns(findings) + (slower.delta_ns if slower else 0)
    whole_ns = slow.length_ns - fast.length_ns
    if cause is not None and unexplained <= (1 - EXPLAINED_SHARE) * whole_ns:
        return Outcome("found", cause=cause, differs=ratio.sure, ratio=ratio)
    if not ratio.sure:
        why = f"may take equally long: {_lengths(fast, slow)}, ratio {in_words(ratio)}"
        return Outcome("none", why, advice=_more(fast, slow), differs=False, ratio=ratio)
    why = f"{NOT_EXPLAINED}{_why_not(whole_ns, findings)}"
    if slower is not None and slower.delta_ns > (1 - EXPLAINED_SHARE) * whole_ns:
        why = f"the same calls take longer: {because(slower)}"
    again = "" if _unseen(whole_ns, findings) else _more(fast, slow)
    return Outcome("unknown", why, advice=again, ratio=ratio)


def _outcome_of_same_work(
    fast: StepProfile,
    slow: StepProfile,
    findings: Sequence[Finding],
    ratio: Ratio,
    structure: Structure,
) -> Outcome:
    """Decide why ``slow`` is slower although both runs make the same calls."""
    factor = max(structure.factor or 1.0, 1.0)
    whole_ns = slow.length_ns - fast.length_ns
    beyond = [f for f in findings if least_excess_ns(f, factor) >= CAUSE_SHARE * whole_ns]
    slower = _without_reason(findings)
    for finding in filter(_is_cause, findings):
        large = finding.delta_ns >= CAUSE_SHARE * whole_ns
        if finding is not slower and (
            large if finding.kind == causes.SLOWER else finding in beyond
        ):
            return Outcome("found", cause=finding, ratio=ratio)
    calls = because(slower) if slower is not None and slower in beyond else ""
    name = in_prose(labels(fast, slow)[1])
    took = f"{structure.calls} take {factor:.2f}× as long in {name}"
    if calls:
        why = f"the same calls take longer, some by a larger factor than others: {calls}"
    elif factor - 1 >= EXPLAINED_SHARE * (ratio.value - 1):
        why = f"{took}, all by about the same factor: the machine or a setting may differ"
    else:
        why = f"{took}, and no kind of time stands out"
    return Outcome("unknown", why, advice=shared_cpus_in_words(slow), ratio=ratio)


def shared_cpus_in_words(profile: StepProfile) -> str:
    """Return advice if a run on a CPU has more threads than CPUs, else an empty text."""
    shared = None if profile.device is not None else shared_cpus(profile.info)
    if shared is None:
        return ""
    return f"{shared}: run as many threads as CPUs (torch.set_num_threads, OMP_NUM_THREADS)"


def _lengths(fast: StepProfile, slow: StepProfile) -> str:
    return f"{milliseconds(slow.length_ns)} and {milliseconds(fast.length_ns)} ms"


def _more(*profiles: StepProfile) -> str:
    own = any(profile.info.source == OWN_CODE for profile in profiles)
    return _MORE_OWN if own else _MORE


def outcome_of_one(profile: StepProfile, findings: Sequence[Finding]) -> Outcome:
    """Decide which kind of time, such as matmul, is the bottleneck of a single run."""
    whole_ns = profile.length_ns
    hidden = _hiding_lack(profile)
    if hidden is not None:
        largest_part = _longest_op(profile, findings) or _most(findings, "what was recorded")
        return Outcome("unknown", _lack_in_words(hidden) + largest_part)
    unknown_ns = sum(f.slow_ns for f in findings if f.kind in UNEXPLAINED)
    whole = "the step" if profile.marked else "the profile"
    named = [f for f in findings if _is_cause(f)]
    unknown = [f for f in findings if f.kind in UNEXPLAINED and f.kind != causes.PROFILER]
    largest = max((f.slow_ns for f in unknown), default=0)
    explained: Counter[str] = Counter()
    for finding in named:
        explained[finding.group] += finding.slow_ns
    unseen = bool(named) and largest > max(explained.values())
    if not named or unseen or unknown_ns > (1 - EXPLAINED_SHARE) * whole_ns:
        why = f"{NOT_EXPLAINED}{_unexplained_kinds(findings, whole_ns, whole)}"
        why += _most(findings, f"the other {milliseconds(whole_ns - unknown_ns)} ms")
        return Outcome("unknown", why, advice=shared_cpus_in_words(profile))
    own, sure = _profilers(named[0]), [f for f in named if _is_likely(f, findings)]
    if own:
        sure = _longest_wait(sure, named[0].slow_ns)
    if sure:
        return Outcome("found", cause=sure[0])
    if own:
        advice = "profile more steps, and let some unprofiled steps run first"
        return Outcome("unknown", f"cause unknown: {own}", advice=advice)
    reasons = listed(certainty_of(named[0], findings).reasons)
    return Outcome("unknown", f"cause unknown: {reasons}", advice=_more(profile))


def _longest_wait(some: Sequence[Finding], least_ns: int) -> list[Finding]:
    """Return the longest kind, if ``least_ns`` or longer. Waits for a slow host are one kind."""
    times: Counter[str] = Counter()
    for finding in some:
        times[wait_of(finding.kind)] += finding.slow_ns
    longest = max(times, key=times.__getitem__, default=None)
    if longest is None or times[longest] < least_ns:
        return []
    return [f for f in some if wait_of(f.kind) == longest]


def _profilers(finding: Finding) -> str:
    """Return a doubt if most of a finding's time may be the profiler's own work."""
    lost_ns, size_ns = finding.slow.lost_overhead_ns, abs(finding.delta_ns)
    if finding.kind not in _BESIDE_OVERHEAD or lost_ns <= EXPLAINED_SHARE * size_ns:
        return ""
    return (
        f"{milliseconds(min(lost_ns, size_ns))} of the {milliseconds(size_ns)} ms of "
        f"{causes.KINDS[finding.kind]} may be the profiler's own work; the profile does not show "
        "in which thread the profiler worked"
    )


def _hiding_lack(profile: StepProfile) -> Lack | None:
    """Return the missing data that hides causes, unless the device is mostly busy."""
    # missing data hides little if the device is busy for over half of the step
    busy = profile.device is not None and 2 * profile.busy_ns > profile.length_ns
    return next((lack for lack in profile.lacks if lack.blinds and not busy), None)


def _lack_in_words(lack: Lack, whose: str = "") -> str:
    return f"the profile{whose} does not show {lack.hides} ({lack.words})"


def _unexplained_kinds(findings: Sequence[Finding], whole_ns: int, whole: str) -> str:
    """List unexplained kinds of time: ``unrecorded host time takes 60 % of the step``."""
    shares = [(f.slow_ns / whole_ns, f) for f in findings if f.kind in UNEXPLAINED and whole_ns]
    texts: list[str] = []
    for share, finding in sorted(shares, key=lambda share: -share[0]):
        if share >= SMALL_SHARE:
            takes = percent(share) if texts else f"takes {percent(share)} of {whole}"
            first = most_of(finding) if finding.kind == causes.UNKNOWN else None
            most = f" (most of it {first})" if first else ""
            works = 2 * sum(p.slow_ns for p in finding.parts if p.state == "busy")
            ran = finding.kind == causes.UNKNOWN and works > finding.slow_ns
            texts.append(f"{_UNKNOWN_WORK if ran else causes.KINDS[finding.kind]} {takes}{most}")
    return listed(texts) or f"no cause was recorded for {whole}"


def _most(findings: Sequence[Finding], what: str) -> str:
    """Name the longest explained kind: ``; most of the other 5.0 ms is matmuls, 3.1 ms``."""
    causes = [f for f in findings if f.kind not in UNEXPLAINED and f.slow_ns > 0]
    if not causes:
        return ""
    cause = max(causes, key=lambda f: f.slow_ns)
    half = 2 * cause.slow_ns > sum(f.slow_ns for f in causes)
    most = "most" if half else "the largest part"
    return f"; {most} of {what} is {named(cause)}, {milliseconds(cause.slow_ns)} ms"


def _longest_op(profile: StepProfile, findings: Sequence[Finding]) -> str:
    """Name the longest op on the host if no explained kind of time takes longer."""
    lengths_ns = {r["name"]: r["host_self_ns"] / profile.steps for r in profile.rows("ops")}
    name = max(lengths_ns, key=lengths_ns.__getitem__, default=None)
    longest_ns = max((f.slow_ns for f in findings if f.kind not in UNEXPLAINED), default=0)
    if profile.device is None or name is None or lengths_ns[name] <= longest_ns:
        return ""
    whole = milliseconds(profile.length_ns)
    took = f"{milliseconds(lengths_ns[name])} of {whole} ms"
    return f"; the longest op on the host is '{cropped(name)}', {took}"


def certainty_of(finding: Finding, findings: Sequence[Finding]) -> Certainty:
    if finding.kind in UNEXPLAINED:
        return Certainty("unknown", (f"the time is {causes.KINDS[finding.kind]}",))
    own, doubts = _profilers(finding), tuple(_doubts(finding))
    if own:
        return Certainty("unknown", (own,))
    longer = (f for f in findings if f.fast is None and f.slow_ns > finding.slow_ns)
    same_wait = (f for f in longer if wait_of(f.kind) == wait_of(finding.kind))
    doubts += tuple(filter(None, map(_profilers, same_wait)))
    return Certainty("likely", doubts) if doubts else Certainty("measured")


def _doubts(finding: Finding) -> Iterator[str]:
    """Yield reasons why the time or the cause of a finding may be wrong."""
    fast, slow = finding.fast, finding.slow
    if any(lack.kind == GPU_UNSEEN for lack in slow.lacks):
        yield "a GPU may have done unrecorded work"
    if finding.kind in causes.WAITS and any(lack.kind == CLOCKS for lack in slow.lacks):
        yield "the clocks of host and device differ"
    others = slow.straggler
    if finding.kind == causes.COLLECTIVE and others is not None and others.state == "unknown":
        yield f"how much of this time is waiting for other ranks is unknown: {others.reason}"
    if finding.kind == causes.CAST and may_be_copies(slow):
        yield "some of these casts may be copies to the GPU"
    if omitted := short_ops_doubt(finding):
        yield omitted
    if fast is None:
        if rough := rough_lengths(finding):
            yield rough
        return
    ratio = ratio_of(fast, slow)
    if not ratio.sure:
        text = f"the ratio of the steps is {in_words(ratio)}"
        yield f"{text}; the counts of calls are certain" if counts_in_words(fast, slow) else text
    if not timed(fast, slow):
        yield untimed(fast, slow)


def prediction_certainty(prediction: Prediction) -> Certainty:
    """Rate the forecast of a replay by the replay's error for the unchanged step."""
    off_ns = abs(prediction.replayed_ns - prediction.observed_ns)
    off = off_ns / prediction.observed_ns if prediction.observed_ns else 0.0
    if off <= REPLAY_ERROR:
        return Certainty("likely")
    reason = f"the replay of the unchanged step differs from its measured time by {percent(off)}"
    if off_ns >= abs(prediction.saved_ns):
        return Certainty("unknown", (f"{reason}, which is more than the change saves",))
    return Certainty("likely", (reason,))


def _is_cause(finding: Finding) -> bool:
    return finding.kind not in UNEXPLAINED and finding.delta_ns > 0


def _without_reason(findings: Sequence[Finding]) -> Finding | None:
    """Return the finding ``slower calls`` unless the reason lies in code or settings."""
    for finding in findings:
        if finding.kind == causes.SLOWER and finding.fast is not None and finding.delta_ns > 0:
            explained = reason(finding.fast, finding.slow).name in EXPLAINS
            return None if explained else finding
    return None


def _is_likely(finding: Finding, findings: Sequence[Finding]) -> bool:
    return certainty_of(finding, findings).level != "unknown"


def _unexplained_ns(findings: Sequence[Finding]) -> int:
    return sum(f.delta_ns for f in findings if f.kind in UNEXPLAINED)


def _unseen(whole_ns: int, findings: Sequence[Finding]) -> Finding | None:
    """Return the unexplained finding that is over half of the difference, if any."""
    unseen = [f for f in findings if f.kind in UNEXPLAINED]
    largest = max(unseen, key=lambda f: f.delta_ns, default=None)
    if largest is None or largest.delta_ns <= (1 - EXPLAINED_SHARE) * whole_ns:
        return None
    return largest


def _why_not(whole_ns: int, findings: Sequence[Finding]) -> str:
    """Return a clause that says why no kind of time is the cause of the difference."""
    unexplained_ns, unseen = _unexplained_ns(findings), _unseen(whole_ns, findings)
    largest = max((f for f in findings if _is_cause(f)), key=lambda f: f.delta_ns, default=None)
    if unseen is not None:
        what = f"{causes.KINDS[unseen.kind]}, whose cause is unknown"
        text = f"{milliseconds(unseen.delta_ns)} ms of the difference are {what}"
    elif unexplained_ns > (1 - EXPLAINED_SHARE) * whole_ns:
        text = f"the profiled steps do not explain {milliseconds(unexplained_ns)} ms of the "
        text += f"difference of {milliseconds(whole_ns)} ms"
    elif largest is None:
        text = "no recorded kind of time is longer in the slower run"
    else:
        doubts = listed(certainty_of(largest, findings).reasons)
        text = f"the largest difference is in {largest.words}, but {doubts}"
    return text
