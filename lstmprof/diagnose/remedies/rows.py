"""One row of the catalogue of causes (``Remedy``), and helper functions for rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lstmprof.base.numbers import count, cropped, milliseconds, quantity, times_a_step
from lstmprof.diagnose.findings import Finding, causes
from lstmprof.diagnose.seen import Fact, Gaps
from lstmprof.diagnose.step_profile import StepProfile, total_ns

#: Kinds of time in which the host holds up the step.
HOST = (causes.LAUNCH, causes.DISPATCH, causes.PYTHON, causes.UNRECORDED)
#: Kinds of time in which a device or CPU computes: matmuls and elementwise ops.
WORK = (causes.GEMM, causes.MEMORY)
TORCH, TENSORFLOW, JAX = ("torch",), ("tensorflow",), ("jax",)
#: Framework of fixes for TensorFlow 1. A profile without a version counts as TensorFlow 2.
TENSORFLOW_1 = ("tensorflow1",)
#: Smallest number of kernels or launches that lstmprof treats as many. Chosen by hand.
SERIES = 10
_COMPILED_OP = re.compile(r"^Torch-Compiled|CompiledF|^TorchDynamo|^XlaLaunch|:Xla(?:Launch|Run)")
_COMPILED_KERNEL = re.compile(r"^triton_|fusion")


@dataclass(frozen=True)
class Match:
    """The evidence for a cause in a profile, and the time that the fix can save."""

    seen: str = ""
    saves_ns: int | None = None
    fix: str = ""  # replaces the text of the ``Remedy``, like cause and source
    cause: str = ""
    implementation: str | None = None  # built-in implementation to use instead
    source: str | None = None
    at_most: bool = False  # the fix saves only a part of ``saves_ns``


Decide = Callable[[Finding], Match | None]


@dataclass(frozen=True, kw_only=True)
class Remedy:
    """One cause of a slow step, and the function that looks for the cause."""

    name: str
    cause: str
    fix: str
    condition: str  # describes the function for docs/causes.md
    kinds: tuple[str, ...]  # kinds of time that the cause may take
    sources: tuple[str, ...]
    frameworks: tuple[str, ...] = ()  # empty: all
    several_kinds: bool = False  # the fix also saves time of other kinds
    first: bool = False  # may be the verdict's cause even if the saving is unknown
    instead: str | None = None  # new work that takes a part of the saved time
    decide: Decide = field(init=False)

    def __call__(self, decide: Decide) -> Remedy:
        """Store the decorated function as ``decide``; its name then means this row."""
        object.__setattr__(self, "decide", decide)
        return self


def from_facts(f: Finding, facts: Sequence[Fact], seen: str) -> Match | None:
    """Return a match with the filled-in text ``seen``, or None without facts."""
    return Match(in_words(f.slow, seen, facts), total(facts)) if facts else None


def in_words(profile: StepProfile, seen: str, facts: Sequence[Fact]) -> str:
    """Fill in a template such as ``{name} runs {times}``."""
    name, number = cropped(facts[0].name), sum(fact.count for fact in facts)
    return seen.format(
        name=name,
        names=f"{name} and other ops" if len(facts) > 1 else name,
        within=facts[0].within,
        n=count(number),
        times=often(profile, number),
        ms=in_ms(profile, total(facts)),
        cost=f"{often(profile, number)} ({milliseconds(total(facts))} ms)",
    )


def often(profile: StepProfile, number: float) -> str:
    """Return ``40 times per step``, or ``40 times`` without step markers."""
    if profile.marked:
        return times_a_step(number)
    return "once" if number == 1 else f"{count(number)} times"


def often_in_all(profile: StepProfile, facts: Iterable[Fact]) -> str:
    """Return how often all these events run, such as ``40 times per step``."""
    return often(profile, sum(fact.count for fact in facts))


def in_ms(profile: StepProfile, ns: float) -> str:
    """Return a time as text, such as ``22.0 ms per step``."""
    return f"{milliseconds(ns)} ms{profile.per_step}"


def total(facts: Iterable[Fact]) -> int:
    return sum(fact.ns for fact in facts)


def layers_ns(profile: StepProfile, rows: Iterable[Mapping[str, Any]]) -> int:
    """Return the layers' forward plus backward time, in ns per step."""
    took = (
        ((row["forward_ns"] or 0) + (row["backward_ns"] or 0)) * (row["calls"] or 0) for row in rows
    )
    return round(sum(took) / profile.steps)


def times_called(profile: StepProfile, pattern: re.Pattern[str]) -> float:
    """Return the calls per step of all ops and ranges that match ``pattern``."""
    rows = [*profile.rows("ops"), *profile.rows("ranges")]
    times: int = sum(r["count"] for r in rows if pattern.search(r["name"]))
    return times / profile.steps


def series_of_launches(finding: Finding) -> int | None:
    """Return the idle time between kernels, if slow launches cause this time."""
    gaps = finding.slow.seen.gaps
    if gaps is None or gaps.kernels < SERIES or gaps.gap_ns < gaps.kernel_ns:
        # launches do not cause the gaps: kernels are few, or longer than the gaps
        return None
    waits_ns = max(gaps.all_ns, finding.slow.waits_for_host_ns)
    # unusually long gaps have another cause, so usual gaps must be at least half of the waits
    return gaps.usual_ns if 2 * gaps.usual_ns >= waits_ns else None


def is_mostly_calls(profile: StepProfile) -> bool:
    kinds = causes.by_kind(profile)
    calling_ns = sum(total_ns(kinds[kind]) for kind in (causes.DISPATCH, causes.PYTHON))
    return 2 * calling_ns >= profile.length_ns


def kernels_and_gaps(gaps: Gaps) -> str:
    """Return the median kernel and the median idle gap before a kernel, as text."""
    kernel, gap = quantity(gaps.kernel_ns, "ns"), quantity(gaps.gap_ns, "ns")
    return f"the median kernel takes {kernel}, and the median idle gap before a kernel takes {gap}"


def is_compiled(profile: StepProfile) -> bool:
    """Return whether a compiler (Inductor, XLA) made some ops or kernels."""
    if any(_COMPILED_OP.search(row["name"]) for row in profile.rows("ops")):
        return True
    return any(_COMPILED_KERNEL.search(row["name"]) for row in profile.rows("kernels"))


def is_retraced(profile: StepProfile) -> bool:
    """Return whether a profiled step traced or compiled, or shapes differ between steps."""
    return bool(profile.seen.compiled) or profile.seen.shapes is not None
