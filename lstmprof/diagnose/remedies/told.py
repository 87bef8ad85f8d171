"""What a remedy answers with, and what several of them ask of a profile."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from lstmprof.diagnose.findings import Finding
from lstmprof.diagnose.seen import Fact
from lstmprof.diagnose.step_profile import StepProfile
from lstmprof.numbers import count, times_a_step

#: Fewer kernels are no series of launches.
SERIES = 10
_COMPILED_OP = re.compile(r"^Torch-Compiled|CompiledF|^TorchDynamo|^XlaLaunch|:Xla(?:Launch|Run)")
_COMPILED_KERNEL = re.compile(r"^triton_|fusion")


@dataclass(frozen=True)
class Told:
    """What to do; ``saves_ns`` is the time of the mean step that it addresses, None unknown."""

    sentence: str
    saves_ns: int | None = None


def often(profile: StepProfile, number: float) -> str:
    """``40 times a step``; ``40 times`` where no step is marked."""
    if profile.marked:
        return times_a_step(number)
    return "once" if number == 1 else f"{count(number)} times"


def each(profile: StepProfile) -> str:
    """`` a step``; empty where no step is marked."""
    return " a step" if profile.marked else ""


def total(held: Iterable[Fact]) -> int:
    """Nanoseconds of ``held``."""
    return sum(one.ns for one in held)


def times_called(profile: StepProfile, pattern: re.Pattern[str]) -> float:
    """Ops and ranges a step whose name has ``pattern``."""
    rows = [*profile.rows("ops"), *profile.rows("ranges")]
    times: int = sum(r["count"] for r in rows if pattern.search(r["name"]))
    return times / profile.steps


def series_of_launches(finding: Finding) -> int | None:
    """The time in usual gaps before kernels that are shorter than these; None where not so.

    One long gap or call says nothing of launching: the usual gaps must be most of the gaps, and of
    what the device waits for its host.
    """
    gaps = finding.slow.seen.gaps
    if gaps is None or gaps.kernels < SERIES or gaps.gap_ns < gaps.kernel_ns:
        return None
    waits_ns = max(gaps.all_ns, finding.slow.waits_for_host_ns)
    return gaps.usual_ns if 2 * gaps.usual_ns >= waits_ns else None


def is_compiled(profile: StepProfile) -> bool:
    """Whether what a compiler made is among its ops or kernels."""
    if any(_COMPILED_OP.search(row["name"]) for row in profile.rows("ops")):
        return True
    return any(_COMPILED_KERNEL.search(row["name"]) for row in profile.rows("kernels"))


def is_retraced(profile: StepProfile) -> bool:
    """Whether something was traced or compiled in a profiled step, or shapes differ."""
    return bool(profile.seen.compiled) or profile.seen.shapes is not None
