"""A row of the catalogue of causes (``Remedy``), its match in a profile, and helpers for rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lstmprof.base.numbers import count, cropped, milliseconds, quantity, times_a_step
from lstmprof.diagnose.findings import Finding, causes
from lstmprof.diagnose.seen import Fact, Gaps
from lstmprof.diagnose.step_profile import StepProfile, total_ns

#: Kinds of time that several rows have in common. ``HOST``: the host launches kernels, dispatches
#: ops or runs Python, and no kernel runs. ``WORK``: matmuls or elementwise ops run.
HOST = (causes.LAUNCH, causes.DISPATCH, causes.PYTHON, causes.UNRECORDED)
WORK = (causes.GEMM, causes.MEMORY)
TORCH, TENSORFLOW, JAX = ("torch",), ("tensorflow",), ("jax",)
#: TensorFlow 1 has other functions than TensorFlow 2. A profile that lstmprof did not capture does
#: not show the version, and counts as TensorFlow 2.
TENSORFLOW_1 = ("tensorflow1",)
#: Least number of kernels, launches or calls per step that count as many. Chosen by hand.
SERIES = 10
_COMPILED_OP = re.compile(r"^Torch-Compiled|CompiledF|^TorchDynamo|^XlaLaunch|:Xla(?:Launch|Run)")
_COMPILED_KERNEL = re.compile(r"^triton_|fusion")


@dataclass(frozen=True)
class Match:
    """The evidence for a row in a profile, and the time that the fix can save.

    ``seen`` is the evidence as a clause with counts; it may be empty. ``saves_ns`` is the time of
    the clean step that the fix addresses, in ns; it is None if unknown. If ``at_most`` is True, the
    fix saves only a part of this time, because some of the work remains. ``fix``, ``cause`` and
    ``source`` replace the fields of the ``Remedy`` with these names if the profile allows more
    precise ones; otherwise they are empty or None. ``implementation`` is the name in ``lstmprof
    list`` of the implementation that the fix advises; it is None if the fix is another change.
    """

    seen: str = ""
    saves_ns: int | None = None
    fix: str = ""
    cause: str = ""
    implementation: str | None = None
    source: str | None = None
    at_most: bool = False


Decide = Callable[[Finding], Match | None]


@dataclass(frozen=True, kw_only=True)
class Remedy:
    """One cause of a slow step: how it shows in a profile, what to change, and sources.

    A ``Remedy`` decorates a function, its ``decide``, and takes the function's place. The function
    returns a match if a finding of one of the ``kinds`` meets the ``condition``. ``cause`` and
    ``fix`` are clauses. ``instead`` names new work that takes an unknown part of the saved time; it
    is None if there is no such work. ``frameworks`` is empty if the row is for every framework.
    ``sources`` are addresses of pages.

    ``several_kinds`` is True if the fix saves time of other kinds than the finding's, too.
    ``first`` is True if this cause becomes the verdict's cause even if the saving is unknown.
    docs/causes.md is generated from these fields and from docs/causes.toml, which has an example
    of each cause.
    """

    name: str
    cause: str
    fix: str
    condition: str
    kinds: tuple[str, ...]
    sources: tuple[str, ...]
    frameworks: tuple[str, ...] = ()
    several_kinds: bool = False
    first: bool = False
    instead: str | None = None
    decide: Decide = field(init=False)

    def __call__(self, decide: Decide) -> Remedy:
        """Return this row with ``decide``, the decorated function."""
        object.__setattr__(self, "decide", decide)
        return self


def from_facts(f: Finding, facts: Sequence[Fact], seen: str) -> Match | None:
    """Return a match if there are ``facts``, else None.

    The fix saves at most the time of all these facts. ``seen`` is a template of the evidence.
    ``{name}`` and ``{within}`` are fields of the first fact; ``{names}`` adds "and other ops" if
    there are several facts. For all facts together, ``{n}`` is the number of calls, ``{times}``
    says how often they are called (``40 times per step``), ``{ms}`` is the time, and ``{cost}`` has
    both.
    """
    return Match(in_words(f.slow, seen, facts), total(facts)) if facts else None


def in_words(profile: StepProfile, seen: str, facts: Sequence[Fact]) -> str:
    """Return the template ``seen`` (see ``from_facts``), filled from ``facts``."""
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
    """Return ``40 times per step``, or ``40 times`` if the profile has no step markers."""
    if profile.marked:
        return times_a_step(number)
    return "once" if number == 1 else f"{count(number)} times"


def often_in_all(profile: StepProfile, facts: Iterable[Fact]) -> str:
    """Return the number of times that ``facts`` happen in all, as text (see ``often``)."""
    return often(profile, sum(fact.count for fact in facts))


def in_ms(profile: StepProfile, ns: float) -> str:
    """Return a time as text, such as ``22.0 ms per step``."""
    return f"{milliseconds(ns)} ms{profile.per_step}"


def total(facts: Iterable[Fact]) -> int:
    """Return the sum of the times of ``facts``, in ns per step."""
    return sum(fact.ns for fact in facts)


def layers_ns(profile: StepProfile, rows: Iterable[Mapping[str, Any]]) -> int:
    """Return the time of the layers in ``rows`` of the layer table, both passes, in ns per step."""
    took = (
        ((row["forward_ns"] or 0) + (row["backward_ns"] or 0)) * (row["calls"] or 0) for row in rows
    )
    return round(sum(took) / profile.steps)


def times_called(profile: StepProfile, pattern: re.Pattern[str]) -> float:
    """Return the number per step of ops and ranges whose name matches ``pattern``."""
    rows = [*profile.rows("ops"), *profile.rows("ranges")]
    times: int = sum(r["count"] for r in rows if pattern.search(r["name"]))
    return times / profile.steps


def series_of_launches(finding: Finding) -> int | None:
    """Return the ns per step of gaps before kernels, if slow launches explain the gaps, else None.

    Unusually long gaps are left out. Launches do not explain the gaps if fewer than ``SERIES``
    kernels run, if the median gap is shorter than the median kernel, or if the gaps of usual length
    take less than half of all gaps (or of the waits for the host).
    """
    gaps = finding.slow.seen.gaps
    if gaps is None or gaps.kernels < SERIES or gaps.gap_ns < gaps.kernel_ns:
        return None
    waits_ns = max(gaps.all_ns, finding.slow.waits_for_host_ns)
    return gaps.usual_ns if 2 * gaps.usual_ns >= waits_ns else None


def is_mostly_calls(profile: StepProfile) -> bool:
    """Return whether dispatch and Python take at least half of the step."""
    kinds = causes.by_kind(profile)
    calling_ns = sum(total_ns(kinds[kind]) for kind in (causes.DISPATCH, causes.PYTHON))
    return 2 * calling_ns >= profile.length_ns


def kernels_and_gaps(gaps: Gaps) -> str:
    """Return a clause with the median kernel and the median idle gap before a kernel."""
    kernel, gap = quantity(gaps.kernel_ns, "ns"), quantity(gaps.gap_ns, "ns")
    return f"the median kernel takes {kernel}, and the median idle gap before a kernel takes {gap}"


def is_compiled(profile: StepProfile) -> bool:
    """Return whether names of ops or kernels show that a compiler (Inductor, XLA) made them."""
    if any(_COMPILED_OP.search(row["name"]) for row in profile.rows("ops")):
        return True
    return any(_COMPILED_KERNEL.search(row["name"]) for row in profile.rows("kernels"))


def is_retraced(profile: StepProfile) -> bool:
    """Return whether a profiled step traced or compiled, or shapes differ between steps."""
    return bool(profile.seen.compiled) or profile.seen.shapes is not None
