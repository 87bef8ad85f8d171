"""By what runs are compared: wall time of undisturbed iterations, CPU time, or nothing.

A run that lost its CPU in most of its iterations is compared by the CPU time of all (see
``breakdown/iterations.py``), and so is whatever it is held against.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lstmprof.diagnose import settings
from lstmprof.diagnose.step_profile import StepProfile
from lstmprof.numbers import listed, percent

#: What gives runs their CPU.
_OTHERS = "close other programs, or give each run CPUs of its own"
_FEWER = "as many threads as CPUs (torch.set_num_threads, OMP_NUM_THREADS), and capture again"


def by_one_measure(profiles: Sequence[StepProfile]) -> list[StepProfile]:
    """``profiles`` by CPU time where one of them needs that and all have it."""
    told = [profile for profile in profiles if profile.compared_by is not None]
    needed = any(profile.compared_by == "CPU time" for profile in told)
    if not needed or any(profile.cpu is None for profile in told):
        return [replace(p, compared_by=None) if needed and p.cpu is None else p for p in profiles]
    return [profile if profile.cpu is None else _by_cpu(profile) for profile in profiles]


def _by_cpu(profile: StepProfile) -> StepProfile:
    cpu = profile.cpu
    assert cpu is not None
    return replace(
        profile,
        compared_by="CPU time",
        step_ns=cpu.step_ns,
        interval_ns=cpu.interval_ns,
        rounds=cpu.rounds,
    )


def disturbed(*profiles: StepProfile) -> str:
    """For how much of the time these had their CPU."""
    some = [
        f"{profile.label} had its CPU for {percent(profile.cpu_share)} of the time"
        if profile.cpu_share is not None
        else f"{profile.label} lost its CPU in most iterations"
        for profile in profiles
        if profile.compared_by is None
    ]
    return listed(some)


def remedy(*profiles: StepProfile) -> str:
    """What gives those that were ``disturbed`` their CPU."""
    lost = [profile for profile in profiles if profile.compared_by is None]
    return crowded(*(lost or profiles)) or _OTHERS


def crowded(*profiles: StepProfile) -> str | None:
    """What to do where runs on a CPU have more threads than that; None where they have not."""
    crowds = []
    for profile in profiles:
        whose = "its" if len(profiles) == 1 else f"{profile.label}'s"
        shared = None if profile.device is not None else settings.shared_cpus(profile.info)
        if shared is not None:
            crowds.append(f"{whose} {shared}")
    return f"{listed(crowds)}: run {_FEWER}" if crowds else None
