"""Find calls that take longer in one of two runs, and the reason, such as page faults.

A call is an op on a host, or a kernel or copy on a device.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from lstmprof.base.numbers import count, cropped, number_of, percent, quantity
from lstmprof.breakdown.clean.script_waits import SCRIPT_WAITS
from lstmprof.breakdown.clean.timings import FAULT_NS
from lstmprof.diagnose.findings import settings
from lstmprof.diagnose.step_profile import Spent, StepProfile, by_name
from lstmprof.diagnose.step_profile.contributors import Contributor
from lstmprof.events.threads import VALUE_READS
from lstmprof.runs.fields import ThreadTime

#: Smallest ratio of instructions per step (slow run / fast run) at which lstmprof reports different
#: code. Chosen by hand.
_MORE_INSTRUCTIONS = 1.5
#: Difference of two clock rates, or of two shares of CPU time, below which lstmprof treats the two
#: as equal. Chosen by hand.
_ALIKE = 0.1
#: Smallest difference in busy CPUs (slow run − fast run) at which lstmprof reports threads that
#: spin or wait for each other. Chosen by hand.
_MORE_CPUS = 0.5
#: Time of a microcode assist for a denormal in ns; 69 to 70 measured on a Xeon (family 6, model
#: 167).
_ASSIST_NS = 70
#: Bytes that a cache miss reads: a cache line of all x86 and most Arm CPUs.
_LINE_BYTES = 64
#: Smallest share of the busiest thread's CPU time at which lstmprof treats a thread as busy. Chosen
#: by hand.
_BUSY = 0.25
#: Smallest share of the difference between two steps that a reported reason explains. Chosen by
#: hand.
_EXPLAINING_SHARE = 0.25
#: The op with which autograd searches gradients for NaN in anomaly mode
#: (torch/csrc/autograd/engine.cpp).
_NAN_SEARCH = "aten::_is_any_true"
#: Word in the name of an op → library that computes the op.
_LIBRARIES = {"mkldnn": "oneDNN", "onednn": "oneDNN", "miopen": "MIOpen", "cudnn": "cuDNN"}


@dataclass(frozen=True)
class Reason:
    """A reason why calls are slower, as a clause with numbers."""

    name: str
    text: str
    setting: str = ""


#: Name of the reason that threads share CPUs or spin.
THREADS = "threads"
#: Name of the reason that only settings differ.
SETTINGS = "settings"
NOT_RECORDED = Reason("not recorded", "the profiles do not show why")
#: Names of reasons that lie in the code or the settings, not in the machine.
EXPLAINS = (
    *("denormals", "anomaly mode", "kernel path", THREADS, "page faults", "other code", SETTINGS),
)


def reason(fast: StepProfile, slow: StepProfile) -> Reason:
    """Return the first reason why calls are slower, with the settings that differ."""
    reasons = (check(fast, slow) for check in _REASONS)
    first = next((reason for reason in reasons if reason is not None), None)
    others = [
        difference
        for difference in settings.disagreements(fast.info, slow.info)
        if difference.fits and (first is None or difference.setting != first.setting)
    ]
    if not others:
        return first or NOT_RECORDED
    differ = (
        f"{'other ' if first and first.setting else ''}settings differ: {settings.listing(others)}"
    )
    return replace(first, text=f"{first.text}; {differ}") if first else Reason(SETTINGS, differ)


def _differs(name: str, fast: StepProfile, slow: StepProfile) -> settings.Disagreement | None:
    differences = settings.disagreements(fast.info, slow.info)
    return next((d for d in differences if d.setting == name), None)


def _denormals(fast: StepProfile, slow: StepProfile) -> Reason | None:
    """Check whether counters or settings show denormals in the slow run only."""
    first, second = (
        _per_step(profile, profile.info.counters.fp_assists) for profile in (fast, slow)
    )
    counted = ""
    if first is not None and second is not None:
        if not _explains_enough((second - first) * _ASSIST_NS, fast, slow):
            return None
        counted = f"{count(second)} microcode assists per step (baseline: {count(first)})"
    only_slow_keeps = (
        settings.denormals(fast.info) == "flushed"
        and settings.denormals(slow.info) in ("kept", "both")
        and slow.device is None
    )
    if not only_slow_keeps:
        return Reason("denormals", f"{counted}, typical of denormals") if counted else None
    flushed = "the baseline flushed denormals to zero, this run did not"
    text = f"{flushed}: {counted}" if counted else flushed
    return Reason("denormals", text, settings.DENORMALS)


def _anomaly_mode(fast: StepProfile, slow: StepProfile) -> Reason | None:
    """Check whether ops or settings show anomaly mode in the slow run only."""
    searches = [profile for profile in (fast, slow) if _names(profile) & {_NAN_SEARCH}]
    if searches == [slow]:
        text = f"anomaly mode checks gradients for NaN ({_NAN_SEARCH})"
        return Reason("anomaly mode", text, settings.ANOMALY)
    difference = _differs(settings.ANOMALY, fast, slow)
    if searches or difference is None or difference.slow != "on":
        return None
    return Reason("anomaly mode", "anomaly mode is on", settings.ANOMALY)


def _threads(fast: StepProfile, slow: StepProfile) -> Reason | None:
    """Check whether the slow run has more threads than CPUs, or whether its threads spin."""
    cpus, threads = slow.info.affinity, slow.info.threads
    fewer = fast.info.threads is None or threads is None or fast.info.threads < threads
    if cpus and threads and threads > len(cpus) and fewer:
        return Reason(THREADS, f"{threads} threads share {len(cpus)} CPUs")
    return _sharing(fast, slow) or _spinning(fast, slow)


def _sharing(fast: StepProfile, slow: StepProfile) -> Reason | None:
    """Check whether only the slow run has more working threads than CPUs."""
    mine, other = _threads_and_cpus(slow), _threads_and_cpus(fast)
    if mine is None or other is None:
        return None
    (threads, cpus), (others, free) = mine, other
    if threads <= cpus or others > free:
        return None
    text = f"{threads} busy threads share {number_of(cpus, 'CPU', 'CPUs')}"
    share, usual = _waited(slow), _waited(fast)
    if share is None:
        return Reason(THREADS, text)
    if usual is not None and share < usual + _ALIKE:
        return None
    return Reason(
        THREADS, f"{text}; the busiest thread waits for a CPU {percent(share)} of its time"
    )


def _waited(profile: StepProfile) -> float | None:
    """Return the share of time in which the busiest thread waited for a CPU."""
    cpu_ns, waited_ns = max((t.cpu_ns or 0, t.waited_ns) for t in _threads_of(profile))
    return waited_ns / (waited_ns + cpu_ns) if cpu_ns and waited_ns is not None else None


def _threads_of(profile: StepProfile) -> list[ThreadTime]:
    """Return the threads of the first timed process."""
    threads = profile.info.timing_threads or ()
    return [thread for thread in threads if thread.round == threads[0].round]


def _threads_and_cpus(profile: StepProfile) -> tuple[int, int] | None:
    """Return (number of busy threads, number of CPUs that the busy threads may use)."""
    times = [(thread.cpu_ns or 0, thread.cpus) for thread in _threads_of(profile)]
    most_ns = max((cpu_ns for cpu_ns, _ in times), default=0)
    allowed = [cpus for cpu_ns, cpus in times if cpu_ns and cpu_ns >= _BUSY * most_ns]
    if not allowed or None in allowed:
        return None
    return len(allowed), len({cpu for cpus in allowed for cpu in cpu_numbers(cpus or "")})


def cpu_numbers(text: str) -> list[int]:
    """Parse Linux's list of CPUs: ``0-2,5``."""
    numbers: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return numbers


def _spinning(fast: StepProfile, slow: StepProfile) -> Reason | None:
    first, second = _busy_cpus(fast), _busy_cpus(slow)
    if first is None or second is None or second < first + _MORE_CPUS:
        return None
    busy = f"threads keep {second:.1f} CPUs busy (baseline: {first:.1f})"
    return Reason(THREADS, f"{busy}, but calls take longer: threads spin or wait for each other")


def _page_faults(fast: StepProfile, slow: StepProfile) -> Reason | None:
    first, second = (
        _per_step(profile, profile.info.timing_page_faults) for profile in (fast, slow)
    )
    if first is None or second is None:
        return None
    if not _explains_enough((second - first) * FAULT_NS, fast, slow):
        return None
    number = f"{count(second)} page faults per step"
    return Reason("page faults", f"{number} (baseline: {count(first)})")


def _kernel_path(fast: StepProfile, slow: StepProfile) -> Reason | None:
    first, second = (profile.info.kernels_used for profile in (fast, slow))
    if first and second and first != second:
        setting = settings.ONEDNN if "onednn" in (first + second).lower() else ""
        text = f"the layer runs on {second} (baseline: {first})"
        return Reason("kernel path", text, setting)
    theirs, own = _libraries(fast), _libraries(slow)
    if theirs == own:
        difference = _differs(settings.ONEDNN, fast, slow)
        text = f"oneDNN is {difference.slow}" if difference else ""
        return Reason("kernel path", text, settings.ONEDNN) if difference else None
    whose = [" and ".join(sorted(some)) or "no known library" for some in (own, theirs)]
    setting = settings.ONEDNN if _LIBRARIES["onednn"] in theirs ^ own else ""
    text = f"{whose[0]} runs the kernels (baseline: {whose[1]})"
    return Reason("kernel path", text, setting)


def _clocks(fast: StepProfile, slow: StepProfile) -> Reason | None:
    """Check whether a lower clock of CPU or GPU explains enough of the difference."""
    on_host = slow.device is None
    first, second = (
        profile.info.cpu_clock_mhz if on_host else profile.info.gpu_sm_clock_mhz
        for profile in (fast, slow)
    )
    if not first or not second or second >= first * (1 - _ALIKE):
        return None
    if not _explains_enough((first / second - 1) * fast.length_ns, fast, slow):
        return None
    throttled = ", ".join(slow.info.gpu_throttle_reasons or ()) if not on_host else ""
    why = f"; throttled by {throttled}" if throttled else ""
    clock = f"the {'CPU' if on_host else 'GPU'} ran at {second:,.0f} MHz"
    return Reason("clocks", f"{clock} (baseline: {first:,.0f}){why}")


def _cache_misses(fast: StepProfile, slow: StepProfile) -> Reason | None:
    """Check whether more cache misses explain enough of the difference."""
    first, second = (
        _per_step(profile, profile.info.counters.cache_misses) for profile in (fast, slow)
    )
    peaks = slow.info.peaks
    rate = peaks.copy_bytes_per_s if peaks else None
    if slow.device is not None or first is None or second is None or not rate:
        return None
    if not _explains_enough((second - first) * _LINE_BYTES / rate * 1e9, fast, slow):
        return None
    number = f"{count(second)} cache misses per step"
    return Reason("cache misses", f"{number} (baseline: {count(first)})")


def _other_code(fast: StepProfile, slow: StepProfile) -> Reason | None:
    """Check whether the slow run executes many more instructions than the fast run."""
    first, second = (
        _per_step(profile, profile.info.counters.instructions) for profile in (fast, slow)
    )
    if slow.device is not None or not first or not second or second < _MORE_INSTRUCTIONS * first:
        return None
    return Reason(
        "other code", f"the same calls execute {second / first:.1f} times as many instructions"
    )


def _contention(fast: StepProfile, slow: StepProfile) -> Reason | None:
    """Check whether other processes took the slow run's CPUs."""
    first, second = (_preemptions_per_s(profile) for profile in (fast, slow))
    share, other = _cpu_share(slow), _cpu_share(fast)
    if share is not None and other is not None and share < other - _ALIKE:
        had = f"{percent(share)} of the time (baseline: {percent(other)})"
        return Reason("contention", f"the step's thread had a CPU for only {had}")
    if first is None or second is None or second < 10 or second < 2 * first:
        return None
    times = f"other processes took the step's CPU {count(second)} times per second"
    return Reason("contention", f"{times} (baseline: {count(first)})")


_REASONS: tuple[Callable[[StepProfile, StepProfile], Reason | None], ...] = (
    _denormals,
    _anomaly_mode,
    _kernel_path,
    _threads,
    _page_faults,
    _clocks,
    _contention,
    _cache_misses,
    _other_code,
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
    """Return the share of the time in which a run with one thread had a CPU."""
    return _busy_cpus(profile) if profile.info.threads == 1 else None


def _per_step(profile: StepProfile, timed: int | None) -> float | None:
    """Convert a count over all timed iterations to a count per step."""
    wall_ns = profile.info.timing_wall_ns
    return timed / wall_ns * profile.length_ns if wall_ns and timed is not None else None


def _explains_enough(ns: float, fast: StepProfile, slow: StepProfile) -> bool:
    """Return whether ``ns`` of CPU time explain at least a quarter of the difference."""
    share = _cpu_share(slow)
    scale = 1 / share if share and share < 1 else 1
    return ns * scale >= _EXPLAINING_SHARE * (slow.length_ns - fast.length_ns)


def _preemptions_per_s(profile: StepProfile) -> float | None:
    times, wall_ns = profile.info.timing_preemptions, profile.info.timing_wall_ns
    return times / wall_ns * 1e9 if wall_ns and times is not None else None


#: Smallest ratio of the mean time per call (slow run / fast run) at which lstmprof reports slower
#: calls.
LONGER = 1.5
#: Largest relative difference of two numbers of calls that lstmprof treats as equal.
AS_MANY = 0.02


def marked(fast: StepProfile, slow: StepProfile) -> tuple[StepProfile, StepProfile]:
    """Mark in both profiles the calls that take longer in the slow run."""
    # count waits of a script as Python if the other run's profile does not show such waits
    names, waits = slower_names(fast, slow), fast.shows_waits and slow.shows_waits
    return _marked(fast, names, waits), _marked(slow, names, waits)


def _marked(profile: StepProfile, names: frozenset[str], waits: bool) -> StepProfile:
    marks = (
        replace(
            c,
            slower=_is_call(c, profile) and c.name in names,
            part="python" if c.part == SCRIPT_WAITS and not waits else c.part,
        )
        for c in profile.contributors
    )
    return replace(profile, contributors=tuple(marks))


def slower_names(fast: StepProfile, slow: StepProfile) -> frozenset[str]:
    """Return the calls that both runs make equally often, but that take longer in ``slow``."""
    if not _alike(fast, slow):
        return frozenset()
    fast_calls, slow_calls = calls(fast), calls(slow)
    ranges = {row["name"] for profile in (fast, slow) for row in profile.rows("ranges")}
    names = (fast_calls.keys() & slow_calls.keys()) - ranges  # time between ops is no call
    return frozenset(name for name in names if _is_longer(fast_calls[name], slow_calls[name]))


def _alike(fast: StepProfile, slow: StepProfile) -> bool:
    """Return whether calls of one name do equal work in both runs."""
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


def calls(profile: StepProfile) -> Spent:
    """Return time and number of the calls of each op and kernel."""
    return by_name(c for c in profile.contributors if _is_call(c, profile))


def _is_call(contributor: Contributor, profile: StepProfile) -> bool:
    """Return whether this is an op or kernel, not a wait or the read of a value."""
    c = contributor
    if c.name is None or c.name in VALUE_READS or c.compiling or c.part == "collective":
        return False
    arranges = profile.device is None and (c.part == "dispatch" or c.call_overhead)
    return c.state == "busy" or (c.state == "idle" and arranges)


def because(fast: StepProfile, slow: StepProfile) -> str:
    """Name the slower call that adds most time, and the reason."""
    fast_calls, slow_calls = (
        by_name(c for c in run.contributors if c.slower) for run in (fast, slow)
    )
    common = fast_calls.keys() & slow_calls.keys()
    added = {
        name: slow_calls[name][0] - fast_calls[name][0] for name in common if slow_calls[name][1]
    }
    if not added:
        return ""
    most = max(sorted(added), key=added.__getitem__)
    each = [quantity(ns / number, "ns") for ns, number in (slow_calls[most], fast_calls[most])]
    takes = f"{cropped(most)} takes {each[0]} per call (baseline: {each[1]})"
    return f"{takes}; {reason(fast, slow).text}"
