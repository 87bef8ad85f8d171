"""A row of the catalogue of causes, what it answers with, and what several ask of a profile."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from lstmprof.diagnose import causes
from lstmprof.diagnose.findings import Finding
from lstmprof.diagnose.seen import Fact
from lstmprof.diagnose.step_profile import StepProfile
from lstmprof.numbers import count, times_a_step

#: Kinds of time that several rows are for: a device waits for its host, work is done.
HOST = (causes.LAUNCH, causes.DISPATCH, causes.PYTHON, causes.UNRECORDED)
WORK = (causes.GEMM, causes.MEMORY)
TORCH, TENSORFLOW, JAX = ("torch",), ("tensorflow",), ("jax",)
#: TensorFlow 1 has other functions; a profile made elsewhere does not tell it from TensorFlow 2.
TENSORFLOW_1 = ("tensorflow1",)
#: Fewer kernels are no series of launches.
SERIES = 10
_COMPILED_OP = re.compile(r"^Torch-Compiled|CompiledF|^TorchDynamo|^XlaLaunch|:Xla(?:Launch|Run)")
_COMPILED_KERNEL = re.compile(r"^triton_|fusion")


@dataclass(frozen=True)
class Told:
    """What to change (``fix``, verb first), and the evidence that was ``seen`` (a clause).

    ``saves_ns`` is the time of the clean step that the fix addresses, None if unknown.
    ``implementation`` is the row that it advises to use, if any. ``source`` is the one of the
    remedy's sources that holds here, None if the framework decides.
    """

    fix: str
    saves_ns: int | None = None
    implementation: str | None = None
    source: str | None = None
    seen: str = ""


@dataclass(frozen=True)
class Example:
    """A real profile in which the cause was seen: what ran where, and what was said of it."""

    of: str
    told: str


@dataclass(frozen=True, kw_only=True)
class Remedy:
    """One cause of a slow step: how it is seen, what to do about it, where to read of it.

    ``decide`` answers for a finding of ``kinds`` in which it sees the ``condition``, what must be
    seen in the profile; ``cause`` is what then makes the step slow, ``saves`` the time that is
    addressed: None where no profile tells it; ``of_several`` whether that time is of several kinds,
    not of the finding's alone; ``instead`` what will take some of it, where the same is done
    in another form: how much no profile tells. ``frameworks`` is empty where it is for any.
    ``sources`` are addresses of pages, the first of them printed with the remedy. docs/causes.md is
    made of all this.
    """

    name: str
    cause: str
    condition: str
    kinds: tuple[str, ...]
    decide: Callable[[Finding], Told | None]
    sources: tuple[str, ...]
    frameworks: tuple[str, ...] = ()
    saves: str | None = None
    of_several: bool = False
    instead: str | None = None
    example: Example | None = None


def often(profile: StepProfile, number: float) -> str:
    """``40 times per step``; ``40 times`` where no step is marked."""
    if profile.marked:
        return times_a_step(number)
    return "once" if number == 1 else f"{count(number)} times"


def often_in_all(profile: StepProfile, held: Iterable[Fact]) -> str:
    """How ``often`` all of ``held`` together."""
    return often(profile, sum(one.count for one in held))


def each(profile: StepProfile) -> str:
    """`` per step``; empty where no step is marked."""
    return " per step" if profile.marked else ""


def total(held: Iterable[Fact]) -> int:
    """Nanoseconds of ``held`` per step."""
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
