"""Rank the kinds of time of a step, or of the difference between two steps.

::

    reasons ────────────────┐
    roofline, replay ─ savings ─┼▶ findings ─▶ because (half a sentence)
    tables ─ counts ────────────┘

A finding is one kind of time, such as dispatch, and how much of this kind the steps have. For two
steps, the differences of the kinds sum exactly to the difference of the steps' lengths; for one
step, the times of the kinds sum exactly to the step's length. The kind with the largest saving
comes first. If no kind of a single run saves ``NAMED_SHARE`` of the step, the longest kind comes
first. Initialisation that takes ``NAMED_SHARE`` comes before work, because later steps have no
initialisation. The waits of a device for its host (``HOST``) are ranked as one group by their
common saving, because one change of the code may remove them all. All outputs use this order.
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

#: A kind of time with a smaller share of the difference, or of the step, is not named as the
#: bottleneck.
NAMED_SHARE = 0.15
#: lstmprof shows no fix for a kind of time with a smaller share of the difference, or of the step.
ADVISED_SHARE = 0.05
#: Largest number of kernels or ops that a finding shows as evidence.
LARGEST = 3
#: Kinds of time without a known cause.
UNEXPLAINED = (causes.UNRECORDED, causes.UNKNOWN, causes.PROFILER)
CAUSES = tuple(kind for kind in causes.KINDS if kind not in UNEXPLAINED)
#: Kinds of work. How much time a change of the work could save is usually unknown.
_WORK = (causes.GEMM, causes.MEMORY, causes.EMBEDDING, causes.CTC)
#: The group of the kinds in which a device waits for its host.
HOST = "host"
#: Kinds of work that join several parts of the breakdown. A text names at most ``_MOST_PARTS`` of
#: these parts, and only parts that take at least the share ``_NAMED_PART`` of the kind's time in a
#: step. Chosen by hand.
_JOINED = (causes.GEMM, causes.MEMORY, causes.COPY)
_NAMED_PART, _MOST_PARTS = 0.1, 3


@dataclass(frozen=True)
class Difference:
    """The time of one kind in both steps, in ns; ``fast_ns`` is 0 for a single run.

    ``words`` is the name of the kind for people.
    """

    kind: str
    fast_ns: int
    slow_ns: int
    words: str = field(default="", compare=False)

    @property
    def delta_ns(self) -> int:
        """Return the time that this kind adds to the slow step, in ns."""
        return self.slow_ns - self.fast_ns


def timed(fast: StepProfile, slow: StepProfile) -> bool:
    """Return whether both runs were timed without a profiler."""
    return fast.step_ns is not None and slow.step_ns is not None


def untimed(fast: StepProfile, slow: StepProfile) -> str:
    """Return which of two runs was not timed, as a sentence without its full stop."""
    if fast.step_ns is None and slow.step_ns is None:
        return "neither run was timed without a profiler"
    without = labels(fast, slow)[fast.step_ns is not None]
    return f"{without} was not timed without a profiler"


def waterfall(fast: StepProfile, slow: StepProfile) -> list[Difference]:
    """Return the time of each kind in the steps of both runs, in the order of the findings.

    The differences sum to the difference of the lengths of the steps.
    """
    rows = _times(*_kinds(*reasons.marked(fast, slow)))
    return _ranked(rows, {row.kind: row.delta_ns for row in rows}, slow)


_Kinds = Mapping[str, list[Contributor]]


def _kinds(fast: StepProfile | None, slow: StepProfile) -> tuple[_Kinds, _Kinds]:
    """Return (fast, slow): kind of time → contributors; no contributors if ``fast`` is None."""
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
    """Return the group that ranks ``kind``: ``host`` if a device waits for its host, else ``kind``.

    Waits of a device while the host prepares the input or compiles are also in the group ``host``.
    Host time of unknown cause is not in the group ``host``.
    """
    waits = kind in (*causes.WAITS, causes.INPUT, causes.COMPILE) and kind in CAUSES
    return HOST if profile.device is not None and waits else kind


def wait_of(kind: str) -> str:
    """Return ``host`` if ``kind`` is a wait that only a slow host causes, else return ``kind``."""
    return HOST if kind in causes.WAITS and kind in CAUSES else kind


def _ranked(
    rows: Sequence[Difference], saves: Mapping[str, int], slow: StepProfile
) -> list[Difference]:
    """Sort kinds by their group's saving, then their own, largest first; unknown causes last.

    ``saves`` is kind → saving in ns.
    """
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
    """A count, such as the number of launches, in both steps.

    ``slow`` is None if unknown; ``fast`` is None if unknown, and for a single run.
    """

    quantity: str
    fast: float | None
    slow: float | None


@dataclass(frozen=True)
class Culprit:
    """One op, kernel or range of a finding: its ns and its number of calls in each of two steps."""

    name: str
    fast_ns: int
    slow_ns: int
    fast_count: float
    slow_count: float

    @property
    def delta_ns(self) -> int:
        """Return the time that the op, kernel or range adds to the slow step, in ns."""
        return self.slow_ns - self.fast_ns


@dataclass(frozen=True)
class PartTimes:
    """The time of a finding in one part of the breakdown, in ns, in each of the two steps."""

    state: str
    part: str
    fast_ns: int
    slow_ns: int


@dataclass(frozen=True)
class Finding:
    """One kind of time, such as dispatch or matmul, and how much of this kind the steps have.

    ``slow_ns`` is the time of this kind in the slow step, ``fast_ns`` in the fast step (0 for a
    single run). The finding with ``rank`` 1 is reported first. ``share`` is the share of the
    difference between the steps, or of the step of a single run; it is None if the steps are
    equally long. ``saving`` is how much shorter the step would be without this kind. ``changes``
    are the counts in both steps, such as the number of launches. ``largest`` are the ops and
    kernels with the largest difference. ``parts`` are the times by part of the breakdown. ``fast``
    is None for a single run.
    """

    rank: int
    kind: str
    fast_ns: int
    slow_ns: int
    share: float | None
    saving: Saving
    changes: tuple[Change, ...]
    largest: tuple[Culprit, ...]
    parts: tuple[PartTimes, ...]
    slow: StepProfile
    fast: StepProfile | None
    contributors: tuple[Contributor, ...]

    def __repr__(self) -> str:
        sign = "" if self.fast is None or self.delta_ns < 0 else "+"
        return f"<Finding {self.kind}: {sign}{milliseconds(self.delta_ns)} ms>"

    @property
    def delta_ns(self) -> int:
        """Return the time that this kind adds to the slow step, in ns."""
        return self.slow_ns - self.fast_ns

    @property
    def words(self) -> str:
        """Return the name of the kind for people: ``dispatch``, ``matmul and recurrent layer``.

        If the kind joins several parts of the breakdown, the name lists the large ones.
        """
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
            # kernels of a recurrent layer belong to two kinds of time
            words = {**PART_WORDS, "rnn": f"recurrent-layer {self.kind}"}
            large.sort(key=lambda part: part.part == "rnn")  # "matmul and recurrent-layer matmul"
        return listed(words.get(part.part, part.part) for part in large) or causes.shown(self.kind)

    @property
    def difference(self) -> Difference:
        """Return the kind with its time in both steps."""
        return Difference(self.kind, self.fast_ns, self.slow_ns, self.words)

    @property
    def group(self) -> str:
        """Return ``host`` for the waits of a device for its host, else the kind."""
        return group_of(self.kind, self.slow)


def findings(
    fast: StepProfile | None, slow: StepProfile, savings: Mapping[str, Saving] | None = None
) -> list[Finding]:
    """Return one finding per kind of time that occurs, in the order that the module describes.

    The findings sum to the difference of the steps' lengths, or to the step's length for a single
    run (``fast`` is None). ``savings`` is kind -> saving for a single run. The saving of a kind
    that ``savings`` lacks is all the time of this kind.
    """
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
    """Move initialisation to the front if only work precedes it, and its share is large enough."""
    place = next((i for i, row in enumerate(ranked) if row.kind == causes.START), 0)
    start, before = ranked[place : place + 1], ranked[:place]
    named = sum(row.slow_ns for row in start) >= NAMED_SHARE * whole_ns
    if not before or not named or any(row.kind not in _WORK for row in before):
        return ranked
    return [*start, *before, *ranked[place + 1 :]]


def _parts(fast: list[Contributor], slow: list[Contributor]) -> tuple[PartTimes, ...]:
    """Return the times of both steps by part of the breakdown, largest difference first."""
    times: dict[Part, list[int]] = {}
    for place, some in enumerate((fast, slow)):
        for contributor in some:
            times.setdefault((contributor.state, contributor.part), [0, 0])[place] += contributor.ns
    rows = [PartTimes(*part, *both) for part, both in times.items()]
    return tuple(sorted(rows, key=lambda r: (-abs(r.slow_ns - r.fast_ns), r.state, r.part)))


def _largest(fast: list[Contributor], slow: list[Contributor]) -> tuple[Culprit, ...]:
    """Return the ``LARGEST`` ops and kernels with the largest differences between the steps."""
    fast_spent, slow_spent = by_name(fast), by_name(slow)
    culprits = []
    for name in dict.fromkeys([*slow_spent, *fast_spent]):
        (fast_ns, there), (slow_ns, here) = (
            s.get(name, (0, 0.0)) for s in (fast_spent, slow_spent)
        )
        culprits.append(Culprit(name, fast_ns, slow_ns, there, here))
    by_delta = sorted(culprits, key=lambda c: (-abs(c.delta_ns), c.name))
    return tuple(c for c in by_delta[:LARGEST] if c.delta_ns)
