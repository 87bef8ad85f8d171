"""Calls that two runs make as often and that take longer in one of them, and what shows why.

The same calls are ops, on a device its activities, of one name and number in two runs of one
implementation, workload and precision. Where each takes half as long again they are no matter of
how many products or ops there are: something else differs, and the facts of the runs may say what.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from lstmprof.diagnose.step_profile import Contributor, Spent, StepProfile, by_name, labels
from lstmprof.events.threads import ASKS
from lstmprof.numbers import count, cropped, percent, quantity

#: A call of the slow run takes so many times as long as the same of the fast one, or longer.
LONGER = 1.5
#: Calls a step against the other run's: closer than this, they are as many.
AS_MANY = 0.02
#: Shares that differ by less are alike: of a thread's time on a CPU, of a clock.
_ALIKE = 0.1
#: CPUs kept busy by more than one thread's worth beyond the other run: its threads spin, or wait in
#: turn for CPUs that they share.
_MORE_CPUS = 0.5
#: The first touch of a page takes the kernel so long. Measured on an EPYC beside seven other
#: processes: 2.7 to 3.4 µs of CPU time for each of 20,000 pages of 4 KiB (mmap, no huge pages).
_FAULT_NS = 2_700
#: What explains so much of a step's difference is its reason.
_TELLING_SHARE = 0.25
#: In anomaly mode autograd searches gradients for NaN with it (torch/csrc/autograd/engine.cpp).
_NAN_SEARCH = "aten::_is_any_true"
#: Parts of ops' names that say whose kernels ran: oneDNN's, MIOpen's, cuDNN's.
_LIBRARIES = {"mkldnn": "oneDNN", "onednn": "oneDNN", "miopen": "MIOpen", "cudnn": "cuDNN"}


@dataclass(frozen=True)
class Reason:
    """Why calls are slower: ``name`` of what was seen, ``text`` as half a sentence with it."""

    name: str
    text: str


NOT_RECORDED = Reason("not recorded", "the reason is not recorded")


def marked(
    fast: StepProfile, slow: StepProfile, undisturbed: tuple[StepProfile, StepProfile]
) -> tuple[StepProfile, StepProfile]:
    """Both, with the contributors that are slower calls marked as these.

    ``undisturbed`` are both without what recording took of them.
    """
    names = slower_names(*undisturbed)
    first, second = (
        replace(
            profile,
            contributors=tuple(
                replace(c, slower=_is_call(c, profile) and c.name in names)
                for c in profile.contributors
            ),
        )
        for profile in (fast, slow)
    )
    return first, second


def slower_names(fast: StepProfile, slow: StepProfile) -> frozenset[str]:
    """Names of the calls that ``slow`` makes as often, each for ``LONGER`` times as long."""
    if not _alike(fast, slow):
        return frozenset()
    of_fast, of_slow = _calls(fast), _calls(slow)
    return frozenset(
        name for name in of_fast.keys() & of_slow.keys() if _is_longer(of_fast[name], of_slow[name])
    )


def _alike(fast: StepProfile, slow: StepProfile) -> bool:
    """Whether calls of one name are known to do the same in both runs; not in foreign ones."""
    first, second = fast.info, slow.info
    on_one_kind = (fast.device is None) == (slow.device is None)
    return (
        on_one_kind
        and first.implementation is not None
        and all(
            getattr(first, fact) == getattr(second, fact)
            for fact in ("implementation", "framework", "workload", "precision", "tf32", "mode")
        )
    )


def _is_longer(fast: tuple[int, float], slow: tuple[int, float]) -> bool:
    (fast_ns, fast_count), (slow_ns, slow_count) = fast, slow
    as_many = fast_count > 0 and abs(slow_count - fast_count) <= AS_MANY * fast_count
    return as_many and fast_ns > 0 and slow_ns / slow_count >= LONGER * fast_ns / fast_count


def _calls(profile: StepProfile) -> Spent:
    return by_name(c for c in profile.contributors if _is_call(c, profile))


def _is_call(contributor: Contributor, profile: StepProfile) -> bool:
    """Whether it is work that is called: no wait of a device, no Python between, no question."""
    c = contributor
    if c.name is None or c.name in ASKS or c.compiling or c.part == "collective":
        return False
    arranges = profile.device is None and (c.part == "dispatch" or c.call_overhead)
    return c.state == "busy" or (c.state == "idle" and arranges)


def reason(fast: StepProfile, slow: StepProfile) -> Reason:
    """The first of what is known to make calls slower that the facts of both runs show."""
    found = (look(fast, slow) for look in _REASONS)
    return next((reason for reason in found if reason is not None), NOT_RECORDED)


def _denormals(fast: StepProfile, slow: StepProfile) -> Reason | None:
    if fast.info.denormals_flushed is not True or slow.info.denormals_flushed is not False:
        return None
    other = labels(fast, slow)[0]
    return Reason("denormals", f"{other} flushed denormal numbers to zero, and this run did not")


def _anomaly_mode(fast: StepProfile, slow: StepProfile) -> Reason | None:
    searches = [profile for profile in (fast, slow) if _names(profile) & {_NAN_SEARCH}]
    if searches != [slow]:
        return None
    return Reason("anomaly mode", f"anomaly mode searches the gradients for NaN ({_NAN_SEARCH})")


def _threads(fast: StepProfile, slow: StepProfile) -> Reason | None:
    """More CPUs kept busy for longer, or more threads than CPUs."""
    cpus, threads = slow.info.affinity, slow.info.threads
    fewer = fast.info.threads is None or threads is None or fast.info.threads < threads
    if cpus and threads and threads > len(cpus) and fewer:
        return Reason("threads", f"its {threads} threads share {len(cpus)} CPUs")
    first, second = _busy_cpus(fast), _busy_cpus(slow)
    if first is None or second is None or second < first + _MORE_CPUS:
        return None
    return Reason(
        "threads",
        f"its threads keep {second:.1f} CPUs busy where those of {labels(fast, slow)[0]} keep "
        f"{first:.1f}, and each call still takes longer: they spin or wait for each other",
    )


def _page_faults(fast: StepProfile, slow: StepProfile) -> Reason | None:
    first, second = _faults(fast), _faults(slow)
    if first is None or second is None:
        return None
    if (second - first) * _FAULT_NS < _TELLING_SHARE * (slow.length_ns - fast.length_ns):
        return None
    return Reason(
        "page faults", f"it has {count(second)} page faults a step against {count(first)}"
    )


def _kernel_path(fast: StepProfile, slow: StepProfile) -> Reason | None:
    first, second = (profile.info.kernels_used for profile in (fast, slow))
    if first and second and first != second:
        return Reason("kernel path", f"{second} ran where {labels(fast, slow)[0]} ran {first}")
    theirs, own = _libraries(fast), _libraries(slow)
    if theirs == own:
        return None
    whose = [" and ".join(sorted(some)) or "no known library" for some in (own, theirs)]
    return Reason(
        "kernel path",
        f"it runs kernels of {whose[0]} where {labels(fast, slow)[0]} runs those of {whose[1]}",
    )


def _clocks(fast: StepProfile, slow: StepProfile) -> Reason | None:
    first, second = (profile.info.gpu_sm_clock_mhz for profile in (fast, slow))
    if slow.device is None or not first or not second or second >= first * (1 - _ALIKE):
        return None
    held = ", ".join(slow.info.gpu_throttle_reasons or ())
    why = f" ({held})" if held else ""
    return Reason("clocks", f"its GPU ran at {second:,} MHz against {first:,}{why}")


def _contention(fast: StepProfile, slow: StepProfile) -> Reason | None:
    """Other processes took the CPUs of the slow run, and not those of the fast one."""
    first, second = (_preemptions_per_s(profile) for profile in (fast, slow))
    share, other = _cpu_share(slow), _cpu_share(fast)
    if share is not None and other is not None and share < other - _ALIKE:
        return Reason(
            "contention",
            f"it had a CPU for {percent(share)} of its time against {percent(other)}: other "
            "processes or its own threads had it for the rest",
        )
    if first is None or second is None or second < 10 or second < 2 * first:
        return None
    return Reason(
        "contention",
        f"other processes took its CPU {count(second)} times a second against {count(first)}",
    )


_REASONS: tuple[Callable[[StepProfile, StepProfile], Reason | None], ...] = (
    _denormals,
    _anomaly_mode,
    _kernel_path,
    _threads,
    _page_faults,
    _clocks,
    _contention,
)


def _names(profile: StepProfile) -> set[str]:
    return {row["name"] for row in profile.rows("ops")}


def _libraries(profile: StepProfile) -> set[str]:
    return {
        library
        for part, library in _LIBRARIES.items()
        if any(part in name.lower() for name in _names(profile))
    }


def _busy_cpus(profile: StepProfile) -> float | None:
    wall_ns, cpu_ns = profile.info.timing_wall_ns, profile.info.timing_cpu_ns
    return cpu_ns / wall_ns if wall_ns and cpu_ns is not None else None


def _cpu_share(profile: StepProfile) -> float | None:
    """Share of its time in which one thread had a CPU; None where several ran."""
    return _busy_cpus(profile) if profile.info.threads == 1 else None


def _faults(profile: StepProfile) -> float | None:
    """Page faults of an undisturbed step."""
    faults, wall_ns = profile.info.timing_page_faults, profile.info.timing_wall_ns
    return faults / wall_ns * profile.length_ns if wall_ns and faults is not None else None


def _preemptions_per_s(profile: StepProfile) -> float | None:
    times, wall_ns = profile.info.timing_preemptions, profile.info.timing_wall_ns
    return times / wall_ns * 1e9 if wall_ns and times is not None else None


def because(fast: StepProfile, slow: StepProfile) -> str:
    """Which marked call adds most and how long it takes in both; then the reason."""
    of_fast, of_slow = (by_name(c for c in run.contributors if c.slower) for run in (fast, slow))
    common = of_fast.keys() & of_slow.keys()
    added = {name: of_slow[name][0] - of_fast[name][0] for name in common if of_slow[name][1]}
    if not added:
        return ""
    most = max(sorted(added), key=added.__getitem__)
    each = [quantity(ns / calls, "ns") for ns, calls in (of_slow[most], of_fast[most])]
    return f"{cropped(most)} takes {each[0]} a call against {each[1]}; {reason(fast, slow).text}"
