"""Write the evidence for a kind of time: ``52 convolutions per step (1.2 ms each)``.

For two runs, the evidence compares counts or times: ``2,412 ops per step (baseline: 61)``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from lstmprof.base.numbers import count, cropped, listed, milliseconds, quantity
from lstmprof.breakdown.attribution import CALL, LATENCY
from lstmprof.breakdown.lacks import GPU_UNSEEN
from lstmprof.diagnose.findings import Change, Finding, causes, reasons
from lstmprof.diagnose.findings.counts import NOUNS, QUANTITIES, Quantity, spread_of
from lstmprof.diagnose.step_profile import StepProfile, total_ns
from lstmprof.diagnose.step_profile.contributors import Contributor
from lstmprof.diagnose.step_profile.tally import Spread, is_kernel_call, noun_of
from lstmprof.events.annotate.calls import is_kernel_launch

#: Smallest share of a finding's time at which lstmprof names the calls that take this time. Chosen
#: by hand.
EVIDENCE_SHARE = 0.25
#: Smallest share of a finding's time at which lstmprof attributes the time to the number of calls.
#: Chosen by hand.
_BY_COUNT = 0.5
#: Ratio below which two counts are treated as equal. Chosen by hand.
_LEAST_FACTOR = 1.1
#: Smallest share of a kind of time at which lstmprof treats one op or range as all of this
#: time. Chosen by hand.
_ALL_SHARE = 0.95
#: Smallest share of listed time for which a text names a type of work.
#: Chosen by hand.
_LEAST_LISTED_SHARE = 0.01
#: Smallest ratio of time in the breakdown to duration for kernels that hardly overlap.
_LEAST_OWN_SHARE = 0.8

#: Type of work → name in ``QUANTITIES`` for a host, then for a device if that name differs.
_QUANTITIES: dict[str, tuple[str, ...]] = {
    **{noun: (name,) for noun, (name, _, _) in NOUNS.items()},
    **{"cast": ("casts",), "sync": ("syncs",), "dispatched": ("ops",)},
    "layer": ("layer_ops", "layer_kernels"),
}
_NOUN_OF_KIND = {causes.CAST: "cast", causes.SYNC: "sync", causes.DISPATCH: "dispatched"}
_NOUNS_OF_WORK = {
    causes.GEMM: ("product", "convolution", "attention", "layer", "cell"),
    causes.MEMORY: ("pointwise",),
    causes.EMBEDDING: ("embedding",),
    causes.COPY: ("copy", "memset"),
}
#: Type of work → plural for users, in names of matmul time.
_WORK = {
    "product": "matmuls",
    "convolution": "convolutions",
    "attention": "attention",
    "layer": "recurrent layers",
    "cell": "recurrent cells",
}
#: Smallest share of a kind of time for which a name lists a type of work.
_NAMED = 0.1
_COPY_CALLS = "launches of copies or memsets"
#: (word in the name of an op that computes a whole recurrent layer, library of the op).
_LIBRARIES = (("mkldnn", "oneDNN"), ("miopen", "MIOpen"), ("cudnn", "cuDNN"))


@dataclass(frozen=True)
class _Items:
    """Ops, kernels or calls of one type, such as the 52 convolutions of a step."""

    noun: str
    number: float  # per step
    ns: float  # per step
    profile: StepProfile
    library: str

    @property
    def spread(self) -> Spread | None:
        return spread_of(self.profile, self.noun)

    @property
    def one_by_one(self) -> bool:
        """Return whether the items take similar time, and hardly overlap other work."""
        spread = self.spread
        if spread is None:
            return True
        each_ns = self.ns / self.number
        return not spread.uneven and each_ns > _LEAST_OWN_SHARE * spread.mean_ns

    @property
    def text(self) -> str:
        """Return number and noun: ``52 convolutions``, ``2 oneDNN layer ops``."""
        about = QUANTITIES[_quantity(self.noun, self.profile)]
        text = about.with_noun(self.number)
        return (
            text.replace("recurrent-layer", f"{self.library} recurrent-layer")
            if self.library
            else text
        )


def because(finding: Finding) -> str:
    """Return a finding's evidence as a clause: ``52 convolutions per step``."""
    if finding.kind == causes.SLOWER and finding.fast is not None:
        return reasons.because(finding.fast, finding.slow)
    if finding.kind == causes.CAST and may_be_copies(finding.slow):
        return _by_largest(finding)
    slow = _items(finding, finding.slow, finding.slow_ns)
    if finding.fast is None:
        text = _evidence_of_one(finding, slow)
    else:
        text = _evidence_of_two(finding, slow, _items(finding, finding.fast, finding.fast_ns))
    return text or _by_largest(finding)


def most_of(finding: Finding) -> str | None:
    """Return the op that takes at least half of a finding's time."""
    first = finding.largest[0] if finding.largest else None
    return cropped(first.name) if first and 2 * first.slow_ns >= finding.slow_ns else None


def named(finding: Finding) -> str:
    """Name a kind of time by its work: ``matmuls and recurrent layers``."""
    if finding.kind == causes.LAUNCH:
        whole = total_ns(finding.contributors)
        copying = total_ns(c for c in finding.contributors if c.name and not is_kernel_call(c.name))
        each = ((causes.KINDS[causes.LAUNCH], whole - copying), (_COPY_CALLS, copying))
        return listed(text for text, ns in each if ns >= _NAMED * whole)
    if finding.kind == causes.CAST and may_be_copies(finding.slow):
        return f"{causes.KINDS[causes.CAST]}, or copies to the GPU"
    if finding.kind != causes.GEMM:
        return causes.KINDS[finding.kind]
    spent = _time_by_noun(finding.kind, finding.contributors, finding.slow)
    whole = sum(ns for ns, _ in spent.values())
    names = [_WORK[noun] for noun, (ns, _) in spent.items() if ns >= _NAMED * whole]
    return listed(names) or causes.KINDS[finding.kind]


def may_be_copies(profile: StepProfile) -> bool:
    """Return whether casts may be copies to a GPU: PyTorch has one op for both."""
    # a cast with a recorded dtype is no copy
    unseen = any(lack.kind == GPU_UNSEEN for lack in profile.lacks)
    return unseen and not any(row["to_dtype"] for row in profile.rows("casts"))


def pace(profile: StepProfile) -> str:
    """Describe the pace of launches, and the time of a kernel and of an idle gap."""
    launches, rate = (QUANTITIES[name].amount(profile) for name in ("launches", "launches_per_s"))
    kernel, gap = (spread_of(profile, noun) for noun in ("kernel", "gap"))
    if not launches or rate is None or kernel is None or gap is None:
        return ""
    number = QUANTITIES["launches"].with_noun(launches)
    captured = profile.seen.captured
    into_graph = (
        f", {count(captured)} of them captured into a CUDA graph and not run" if captured else ""
    )
    rates = f", {count(rate)} per second" if rate >= 1 else ""
    idle = (
        f"the longest idle gap of the device takes {quantity(gap.longest_ns, 'ns')}"
        if gap.uneven
        else f"an idle gap of the device takes {quantity(gap.mean_ns, 'ns')}"
    )
    return (
        f"{number}{profile.per_step}{into_graph}{rates}; a kernel takes {lasting(kernel)}, and "
        f"{idle}"
    )


def worth_a_line(finding: Finding) -> list[Change]:
    """Return the counts to print, without zeros and without means of uneven durations."""
    profiles = [profile for profile in (finding.fast, finding.slow) if profile is not None]
    changes = [c for c in finding.changes if c.fast or c.slow]
    if finding.kind == causes.CAST and may_be_copies(finding.slow):
        changes = [c for c in changes if c.quantity != "casts"]
    return [c for c in changes if _is_read(QUANTITIES[c.quantity], profiles)]


def _is_read(about: Quantity, profiles: Sequence[StepProfile]) -> bool:
    if not about.length_of:
        return True
    spreads = (spread_of(profile, about.length_of) for profile in profiles)
    uneven = any(spread is not None and spread.uneven for spread in spreads)
    return (about.statistic == "mean") != uneven


def lasting(spread: Spread) -> str:
    """Write a usual duration: ``"4 µs (median; the longest takes 9 ms)"``."""
    if not spread.uneven:
        return quantity(spread.mean_ns, "ns")
    longest = quantity(spread.longest_ns, "ns")
    return f"{quantity(spread.median_ns, 'ns')} (median; the longest takes {longest})"


def _evidence_of_one(finding: Finding, items: Sequence[_Items]) -> str:
    """Return the evidence in a single run: ``52 convolutions per step (1.2 ms each)``."""
    if not items or sum(i.ns for i in items) < EVIDENCE_SHARE * finding.slow_ns:
        return ""
    first, *others = items
    if first.noun == "dispatched" and _is_mostly_one_op(finding, first):
        return ""
    texts = [
        f"{first.text}{finding.slow.per_step}{_within(_each_time_step(first), _length(first))}",
        *(f"{item.text}{_within(_length(item))}" for item in others),
    ]
    return listed(texts)


def _is_mostly_one_op(finding: Finding, ops: _Items) -> bool:
    """Return whether a few calls of one op take most of the time."""
    largest = max(finding.largest, key=lambda c: c.slow_ns, default=None)
    if largest is None or not 0 < largest.slow_count < ops.number / 2:
        return False
    usual_ns = (ops.ns - largest.slow_ns) / (ops.number - largest.slow_count)
    return ops.number * usual_ns < _BY_COUNT * ops.ns


def _evidence_of_two(finding: Finding, slow: Sequence[_Items], fast: Sequence[_Items]) -> str:
    """Compare the numbers of calls in two runs, or the times of these calls."""
    added = sum(i.ns for i in slow) - sum(i.ns for i in fast)
    if not slow or added < EVIDENCE_SHARE * finding.delta_ns:
        return ""
    first = slow[0]
    there = next((i.number for i in fast if i.noun == first.noun), None)
    if there is None and finding.fast is not None:
        there = QUANTITIES[_quantity(first.noun, finding.fast)].amount(finding.fast)
    if len(slow) == 1 and there is not None and first.number >= _LEAST_FACTOR * there:
        none_other = all(i.noun == first.noun for i in fast)
        if none_other and _without(first, there) >= _BY_COUNT * finding.delta_ns:
            here = f"{first.text}{finding.slow.per_step}{_within(_uneven(first))}"
            return _with_baseline(here, count(there) if there else "none")
    alike = [(i.noun, i.number) for i in slow] == [(i.noun, i.number) for i in fast]
    if alike and len(slow) == 1 and first.one_by_one and fast[0].one_by_one:
        return _same_number(first, fast[0])
    text = f"{'dispatching ' if first.noun == 'dispatched' else ''}{_times_in_words(slow)}"
    return _with_baseline(text, _times_in_words(fast, uneven=False)) if fast else text


def _without(items: _Items, number: float) -> float:
    """Return the time that a step would save with only ``number`` calls."""
    saved_ns = items.ns * (1 - number / items.number)
    spread = items.spread
    if not number or spread is None or not spread.uneven:
        return saved_ns
    # assume that the saved calls are short calls
    return min(saved_ns, (items.number - number) * spread.median_ns)


def _same_number(slow: _Items, fast: _Items) -> str:
    """Compare the time per call, if both runs have equally many calls."""
    if slow.number == 1:
        return (
            f"{slow.text} takes {milliseconds(slow.ns)} ms (baseline: {milliseconds(fast.ns)} ms)"
        )
    here, there = (quantity(items.ns / items.number, "ns") for items in (slow, fast))
    return f"{slow.text} take {here} each (baseline: {there})"


def _times_in_words(items: Sequence[_Items], *, uneven: bool = True) -> str:
    """Return text such as ``52 convolutions take 61.0 ms and 1 matmul 2.3 ms``."""
    least_ns = _LEAST_LISTED_SHARE * sum(item.ns for item in items)
    items = [item for item in items if item.ns >= least_ns]
    first = items[0]
    takes = "takes" if first.number == 1 or first.noun == "dispatched" else "take"
    lengths = _within(_uneven(first)) if uneven else ""
    texts = [f"{item.text} {milliseconds(item.ns)} ms" for item in items[1:]]
    return listed([f"{first.text} {takes} {milliseconds(first.ns)} ms{lengths}", *texts])


def _with_baseline(text: str, there: str) -> str:
    """Add the baseline to a text: ``2,412 ops per step (baseline: 61)``."""
    return (
        f"{text[:-1]}; baseline: {there})" if text.endswith(")") else f"{text} (baseline: {there})"
    )


def _within(*remarks: str) -> str:
    """Return remarks in brackets: `` (33 per time step, 1.2 ms each)``."""
    text = ", ".join(remark for remark in remarks if remark)
    return f" ({text})" if text else ""


def _length(items: _Items) -> str:
    """Return how long each of the items takes: ``1.2 ms each``."""
    spread = items.spread
    if spread is None or (items.noun == "launch" and not spread.uneven):
        return ""
    if spread.uneven:
        longest = f", longest {quantity(spread.longest_ns, 'ns')}"
        # a call that takes longer than all calls in the breakdown overlaps other work
        hidden = spread.longest_ns > items.ns * items.profile.steps
        return f"median {quantity(spread.median_ns, 'ns')}{'' if hidden else longest}"
    return lasting(spread) + (" each" if items.number != 1 else "")


def _uneven(items: _Items) -> str:
    """Return median and longest duration, if a few long calls distort the mean."""
    spread = items.spread
    few = spread is not None and spread.uneven and _LEAST_OWN_SHARE * spread.longest_ns <= items.ns
    return _length(items) if few else ""


def _each_time_step(items: _Items) -> str:
    name = f"{_quantity(items.noun, items.profile)}_per_time_step"
    number = QUANTITIES[name].amount(items.profile) if name in QUANTITIES else None
    return "" if number is None else f"{count(number)} per time step"


def _items(finding: Finding, profile: StepProfile, spent_ns: int) -> list[_Items]:
    """Group ops, kernels or calls by type (convolution, copy …), most time first."""
    contributors: Sequence[Contributor] = finding.contributors
    if profile is not finding.slow:
        comparison = causes.comparison_of(finding.slow)
        contributors = causes.by_kind(profile, comparison)[finding.kind]
    whole = total_ns(contributors)
    share = min(1.0, spent_ns / whole) if whole else 0.0  # the times sum to at most ``spent_ns``
    return [
        _Items(noun, number, ns * share, profile, _library(names))
        for noun, (ns, names) in _time_by_noun(finding.kind, contributors, profile).items()
        if (number := QUANTITIES[_quantity(noun, profile)].amount(profile))
    ]


def _time_by_noun(
    kind: str, contributors: Sequence[Contributor], profile: StepProfile
) -> dict[str, tuple[int, set[str]]]:
    """Return {type of work: (time, names of ops and kernels)}, longest time first."""
    spent: dict[str, tuple[int, set[str]]] = {}
    for contributor in contributors:
        noun = _noun(kind, contributor, profile.device is not None)
        if noun is not None:
            ns, names = spent.get(noun, (0, set()))
            spent[noun] = (ns + contributor.ns, {*names, str(contributor.name)})
    return dict(sorted(spent.items(), key=lambda item: -item[1][0]))


def _noun(kind: str, contributor: Contributor, on_device: bool) -> str | None:
    """Return the type of an op, kernel or call as a noun, such as ``launch``."""
    name = contributor.name
    if name is None:
        return None
    if kind == causes.LAUNCH:
        launches = contributor.part in (CALL, LATENCY) and is_kernel_call(name)
        return "launch" if launches or is_kernel_launch(name) else None
    if kind in _NOUN_OF_KIND:
        return _NOUN_OF_KIND[kind]
    busy = contributor.state == "busy"
    category = contributor.part if busy else contributor.purpose
    noun = noun_of(category or "", contributor.family or "", name, on_device)
    return noun if noun in _NOUNS_OF_WORK.get(kind, ()) else None


def _quantity(noun: str, profile: StepProfile) -> str:
    names = _QUANTITIES[noun]
    return names[0] if profile.device is None else names[-1]


def _library(names: set[str]) -> str:
    """Return the library, such as ``cuDNN``, that computes all these ops."""
    libraries = {
        next((library for part, library in _LIBRARIES if re.search(part, name, re.I)), "")
        for name in names
    }
    return libraries.pop() if len(libraries) == 1 else ""


def _by_largest(finding: Finding) -> str:
    """Name the op that adds most time."""
    first = next((c for c in finding.largest if c.delta_ns > 0), None)
    if first is None or first.delta_ns < EVIDENCE_SHARE * finding.delta_ns:
        return ""
    if first.name in causes.comparison_of(finding.slow).markers:
        nearly_all = first.slow_ns >= _ALL_SHARE * finding.slow_ns
        outside = f"{milliseconds(first.slow_ns)} ms are outside the step's ranges"
        return "" if finding.fast is not None or nearly_all else outside
    text = f"{cropped(first.name)} takes {milliseconds(first.slow_ns)} ms"
    if finding.kind == causes.PYTHON:
        text = f"{milliseconds(first.slow_ns)} ms are in {cropped(first.name)}"
    if finding.kind == causes.RANGE:
        text = f"{milliseconds(first.slow_ns)} ms are inside the range '{cropped(first.name)}'"
    if finding.kind == causes.QUEUE:
        text = f"{milliseconds(first.slow_ns)} ms of it before {cropped(first.name)}"
    if finding.fast is None:
        return text
    there = f"{milliseconds(first.fast_ns)} ms" if first.fast_ns else "none"
    return f"{text} (baseline: {there})"
