"""Rank the kinds of time of a step, or of the difference between two steps.

A finding is one kind of time: ``<Finding dispatch: +3.2 ms>``. The times of all findings add up
to the step, or to the difference between two steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lstmprof.base.names import PART_WORDS
from lstmprof.base.numbers import listed, milliseconds
from lstmprof.diagnose.findings import causes, reasons
from lstmprof.diagnose.findings.counts import EVIDENCE, QUANTITIES
from lstmprof.diagnose.findings.savings import DIFFERENCE, TAKEN, Saving
from lstmprof.diagnose.step_profile import Part, StepProfile, by_name, labels, total_ns
from lstmprof.diagnose.step_profile.contributors import Contributor

#: Smallest share of the step, or of the difference between two steps, of a possible bottleneck.
NAMED_SHARE = 0.15
#: Smallest share of the step, or of the difference between two steps, at which lstmprof proposes a
#: fix for a kind of time.
ADVISED_SHARE = 0.05
#: Most kernels or ops that a finding names as evidence.
LARGEST = 3
UNEXPLAINED = (causes.UNRECORDED, causes.UNKNOWN, causes.PROFILER)
CAUSES = tuple(kind for kind in causes.KINDS if kind not in UNEXPLAINED)
#: Kinds of time that are work. The possible saving is usually unknown.
_WORK = (causes.GEMM, causes.MEMORY, causes.EMBEDDING, causes.CTC)
#: Name of the group of all waits of a device for its host. One fix may remove all waits.
HOST = "host"
#: Kinds of time that join several parts of the breakdown. Texts name the large parts.
_JOINED = (causes.GEMM, causes.MEMORY, causes.COPY)
_NAMED_PART, _MOST_PARTS = 0.1, 3  # chosen by hand


@dataclass(frozen=True)
class Difference:
    """The time of one kind, such as matmul, in the steps of two runs."""

    kind: str
    fast_ns: int
    slow_ns: int
    words: str = field(default="", compare=False)

    @property
    def delta_ns(self) -> int:
        return self.slow_ns - self.fast_ns


def timed(fast: StepProfile, slow: StepProfile) -> bool:
    return fast.step_ns is not None and slow.step_ns is not None


def untimed(fast: StepProfile, slow: StepProfile) -> str:
    if fast.step_ns is None and slow.step_ns is None:
        return "neither run was timed without a profiler"
    without = labels(fast, slow)[fast.step_ns is not None]
    return f"{without} was not timed without a profiler"


def waterfall(fast: StepProfile, slow: StepProfile) -> list[Difference]:
    """Return the time of each kind, such as matmul, in the steps of both runs."""
    rows = _times(*_kinds(*reasons.marked(fast, slow)))
    return _ranked(rows, {row.kind: row.delta_ns for row in rows}, slow)


_Kinds = Mapping[str, list[Contributor]]


def _kinds(fast: StepProfile | None, slow: StepProfile) -> tuple[_Kinds, _Kinds]:
    """Group the ops, kernels and calls of each run's step by kind of time."""
    comparison = causes.comparison_of(slow)
    fast_kinds = causes.by_kind(fast, comparison) if fast else {kind: [] for kind in causes.KINDS}
    return fast_kinds, causes.by_kind(slow, comparison)


def _times(fast_kinds: _Kinds, slow_kinds: _Kinds) -> list[Difference]:
    return [
        Difference(kind, total_ns(fast_kinds[kind]), total_ns(slow_kinds[kind]))
        for kind in causes.KINDS
        if fast_kinds[kind] or slow_kinds[kind]
    ]


def group_of(kind: str, profile: StepProfile) -> str:
    """Return ``host`` if the device waits for its host in this kind, else ``kind``."""
    waits = kind in (*causes.WAITS, causes.INPUT, causes.COMPILE) and kind in CAUSES
    return HOST if profile.device is not None and waits else kind


def wait_of(kind: str) -> str:
    """Return ``host`` for each kind of time that only a slow host causes, else ``kind``."""
    return HOST if kind in causes.WAITS and kind in CAUSES else kind


def _ranked(
    rows: Sequence[Difference], saves: Mapping[str, int], slow: StepProfile
) -> list[Difference]:
    """Sort by savings of the group, the wait, then the kind, with unknown causes last."""
    group_ns: Counter[str] = Counter()
    wait_ns: Counter[str] = Counter()
    for row in rows:
        group_ns[group_of(row.kind, slow)] += saves[row.kind]
        wait_ns[wait_of(row.kind)] += saves[row.kind]

    def order(row: Difference) -> tuple[bool, int, str, int, str, int, str]:
        group, wait = group_of(row.kind, slow), wait_of(row.kind)
        sizes = -group_ns[group], group, -wait_ns[wait], wait
        return (row.kind not in CAUSES, *sizes, -saves[row.kind], row.kind)

    return sorted(rows, key=order)


@dataclass(frozen=True)
class Change:
    """A count, such as the number of launches, in the steps of two runs."""

    quantity: str
    fast: float | None
    slow: float | None


@dataclass(frozen=True)
class Culprit:
    """An op, kernel or range, with its time and calls per step in two runs."""

    name: str
    fast_ns: int
    slow_ns: int
    fast_count: float
    slow_count: float

    @property
    def delta_ns(self) -> int:
        return self.slow_ns - self.fast_ns


@dataclass(frozen=True)
class PartTimes:
    """How long one kind of time takes in one part of the breakdown, in two runs."""

    state: str
    part: str
    fast_ns: int
    slow_ns: int


@dataclass(frozen=True)
class Finding:
    """One kind of time, such as matmul, in the step of one run or of two runs."""

    rank: int  # position in the report, from 1
    kind: str
    fast_ns: int  # 0 for a single run
    slow_ns: int
    share: float | None  # of the step, or of the difference between two steps
    saving: Saving
    changes: tuple[Change, ...]  # counts, such as launches
    largest: tuple[Culprit, ...]  # ops and kernels that differ most between the steps
    parts: tuple[PartTimes, ...]
    slow: StepProfile
    fast: StepProfile | None
    contributors: tuple[Contributor, ...]

    def __repr__(self) -> str:
        sign = "" if self.fast is None or self.delta_ns < 0 else "+"
        return f"<Finding {self.kind}: {sign}{milliseconds(self.delta_ns)} ms>"

    @property
    def delta_ns(self) -> int:
        return self.slow_ns - self.fast_ns

    @property
    def words(self) -> str:
        """Return the name for users, such as ``matmul and recurrent-layer matmul``."""
        ends = (self.fast_ns or 1, self.slow_ns or 1)
        large = [
            part
            for part in self.parts
            if part.state == "busy"
            and self.kind in _JOINED
            and max(part.fast_ns / ends[0], part.slow_ns / ends[1]) >= _NAMED_PART
        ]
        large.sort(key=lambda part: -max(part.fast_ns, part.slow_ns))
        del large[_MOST_PARTS:]
        words = PART_WORDS
        if any(c.part == "rnn" and c.family in ("gemm", "pointwise") for c in self.contributors):
            # add the kind to the name, because a layer has matmul and elementwise kernels
            words = {**PART_WORDS, "rnn": f"recurrent-layer {self.kind}"}
            large.sort(key=lambda part: part.part == "rnn")  # "matmul and recurrent-layer matmul"
        return listed(words.get(part.part, part.part) for part in large) or causes.shown(self.kind)

    @property
    def difference(self) -> Difference:
        return Difference(self.kind, self.fast_ns, self.slow_ns, self.words)

    @property
    def group(self) -> str:
        return group_of(self.kind, self.slow)


def findings(
    fast: StepProfile | None, slow: StepProfile, savings: Mapping[str, Saving] | None = None
) -> list[Finding]:
    """Split a step, or the difference of two steps, into kinds of time."""
    if fast is not None:
        fast, slow = reasons.marked(fast, slow)
    fast_kinds, slow_kinds = _kinds(fast, slow)
    rows = _times(fast_kinds, slow_kinds)
    by = TAKEN if fast is None else DIFFERENCE
    saved = {row.kind: Saving(row.delta_ns, by) for row in rows} | dict(savings or {})
    whole = sum(row.delta_ns for row in rows)
    order = {kind: saving.ns for kind, saving in saved.items()}
    if fast is None:
        group_ns: Counter[str] = Counter()
        for kind, ns in order.items():
            group_ns[group_of(kind, slow)] += ns if kind in CAUSES else 0
        # sort by time instead of savings if all savings are small
        if max(group_ns.values(), default=0) < NAMED_SHARE * whole:
            order = {row.kind: row.slow_ns for row in rows}
    ranked = _ranked(rows, order, slow)
    if fast is None:
        ranked = _initialisation_first(ranked, whole)
    return [
        Finding(
            rank,
            row.kind,
            row.fast_ns,
            row.slow_ns,
            share=row.delta_ns / whole if whole else None,
            saving=saved[row.kind],
            changes=tuple(
                Change(name, QUANTITIES[name].amount(fast) if fast else None, amount)
                for name in EVIDENCE[row.kind]
                if (amount := QUANTITIES[name].amount(slow)) is not None
            ),
            largest=_largest(fast_kinds[row.kind], slow_kinds[row.kind]),
            parts=_parts(fast_kinds[row.kind], slow_kinds[row.kind]),
            slow=slow,
            fast=fast,
            contributors=tuple(slow_kinds[row.kind]),
        )
        for rank, row in enumerate(ranked, start=1)
    ]


def _initialisation_first(ranked: list[Difference], whole_ns: int) -> list[Difference]:
    """Move long initialisation to the front if all earlier kinds are work, such as matmul."""
    place = next((i for i, row in enumerate(ranked) if row.kind == causes.START), 0)
    start, before = ranked[place : place + 1], ranked[:place]
    named = sum(row.slow_ns for row in start) >= NAMED_SHARE * whole_ns
    if not before or not named or any(row.kind not in _WORK for row in before):
        return ranked
    return [*start, *before, *ranked[place + 1 :]]


def _parts(fast: list[Contributor], slow: list[Contributor]) -> tuple[PartTimes, ...]:
    """Return the finding's time in each part of the breakdown, largest difference first."""
    times: dict[Part, list[int]] = {}
    for place, some in enumerate((fast, slow)):
        for contributor in some:
            times.setdefault((contributor.state, contributor.part), [0, 0])[place] += contributor.ns
    rows = [PartTimes(*part, *both) for part, both in times.items()]
    return tuple(sorted(rows, key=lambda r: (-abs(r.slow_ns - r.fast_ns), r.state, r.part)))


def _largest(fast: list[Contributor], slow: list[Contributor]) -> tuple[Culprit, ...]:
    """Return the ops and kernels that differ most between the steps of two runs."""
    fast_spent, slow_spent = by_name(fast), by_name(slow)
    culprits = []
    for name in dict.fromkeys([*slow_spent, *fast_spent]):
        (fast_ns, there), (slow_ns, here) = (
            s.get(name, (0, 0.0)) for s in (fast_spent, slow_spent)
        )
        culprits.append(Culprit(name, fast_ns, slow_ns, there, here))
    by_delta = sorted(culprits, key=lambda c: (-abs(c.delta_ns), c.name))
    return tuple(c for c in by_delta[:LARGEST] if c.delta_ns)
