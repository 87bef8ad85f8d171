"""Resource usage of this process, and of each of its threads.

getrusage(2) takes 0.7 µs (CPython 3.11, Linux 6.18). It counts a thread on another CPU only up to
that CPU's last clock tick (every 1 to 10 ms). The rest is counted in the next iteration, so sums
over iterations are right. A thread's times come from its CPU-time clock (clock_getcpuclockid(3))
and from its file schedstat (Documentation/scheduler/sched-stats.rst).
"""

from __future__ import annotations

import os
import re
import sys
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional

from lstmprof.capture.worker.machine.host import text_of

try:
    import resource
except ImportError:  # not on Unix
    resource = None  # type: ignore[assignment]

Usage = Any  # a struct_rusage, or None
_TASKS = "/proc/self/task"
#: Largest number of recorded threads; lstmprof records the threads with the most CPU time.
MOST_THREADS = 16
_PER_THREAD_SCHED = 6  # linux/posix-timers.h: CPUCLOCK_PERTHREAD_MASK | CPUCLOCK_SCHED


class Counts(NamedTuple):
    """CPU time, switches and faults of a process between two readings of getrusage(2)."""

    cpu_ns: Optional[int]
    voluntary_switches: Optional[int]  # a thread gave up its CPU, to wait
    preemptions: Optional[int]  # a CPU was taken from a thread
    minor_faults: Optional[int]  # pages that came without reading a disk
    major_faults: Optional[int]  # pages that were read from disk


def _unread(_whose: int) -> None:
    """Return None: this system has no getrusage."""


#: Function that reads getrusage: ``usage(SELF)``.
usage: Callable[[int], Usage] = _unread if resource is None else resource.getrusage
SELF = 0 if resource is None else resource.RUSAGE_SELF


def difference(before: Usage, after: Usage) -> Counts:
    if before is None or after is None:
        return Counts(None, None, None, None, None)
    # read fields by position, which takes half the time of reading by name
    return Counts(
        int(1e6 * (after[0] - before[0] + after[1] - before[1]) + 0.5) * 1000,
        after[14] - before[14],
        after[15] - before[15],
        after[6] - before[6],
        after[7] - before[7],
    )


class Times(NamedTuple):
    """A thread's CPU time and waiting time since the thread began."""

    cpu_ns: int
    # time ready to run, but without a CPU; None if the kernel does not measure this time
    waited_ns: Optional[int]


Readings = Dict[int, Times]  # by thread id


class Waiting(NamedTuple):
    """How long threads ran, and waited for a CPU, during a step."""

    thread_cpu_ns: Optional[int] = None
    waited_ns: Optional[int] = None
    others_waited_ns: Optional[int] = None  # further threads of this process
    children_waited_ns: Optional[int] = None  # processes that load data


class ThreadWaits(NamedTuple):
    """The calling thread's CPU time, and each thread's wait for a CPU so far."""

    cpu_ns: int
    waited_ns: Dict[str, Dict[str, int]]  # folder like /proc/7/task -> thread -> ns


def this_thread() -> Optional[int]:
    try:
        return int(os.path.basename(os.readlink("/proc/thread-self")))
    except (OSError, ValueError):
        return None


def waits(*, ends: bool = False) -> Optional[ThreadWaits]:
    """Return how long threads of this process and its children waited for a CPU."""
    this = this_thread()
    own = os.path.join(_TASKS, str(this), "schedstat")
    # read this thread closest to the step, because reading other threads takes CPU time
    cpu_ns, own_ns = time.thread_time_ns(), _waited_of(own)
    by_folder = {folder: _waits_in(folder) for folder in (_TASKS, *_children())}
    if not ends:
        own_ns, cpu_ns = _waited_of(own), time.thread_time_ns()
    if own_ns is None:
        return None
    by_folder[_TASKS][str(this)] = own_ns
    return ThreadWaits(cpu_ns, by_folder)


def active_ns(thread: Optional[int]) -> Optional[int]:
    """Return how long a thread has run or waited for a CPU so far."""
    waited_ns = _waited_of(os.path.join(_TASKS, str(thread), "schedstat"))
    if thread is None or waited_ns is None:
        return None
    return time.clock_gettime_ns(_clock_of(thread)) + waited_ns


def _clock_of(thread: int) -> int:
    """Return the id of a thread's CPU-time clock (clock_getcpuclockid(3))."""
    return ~thread << 3 | _PER_THREAD_SCHED


def _waits_in(folder: str) -> Dict[str, int]:
    """Return thread -> ns waited for a CPU, from a folder like ``/proc/7/task``."""
    try:
        names = os.listdir(folder)
    except OSError:
        return {}
    waits = {name: _waited_of(os.path.join(folder, name, "schedstat")) for name in names}
    return {name: ns for name, ns in waits.items() if ns is not None}


def waiting_between(before: Optional[ThreadWaits], after: Optional[ThreadWaits]) -> Waiting:
    if before is None or after is None:
        return Waiting()
    more = {}
    for folder, waits in after.waited_ns.items():
        began = before.waited_ns.get(folder, {})
        more[folder] = {name: ns - began.get(name, 0) for name, ns in waits.items()}
    others = more.pop(_TASKS)
    own = others.pop(str(this_thread()))
    children_ns = sum(sum(some.values()) for some in more.values())
    return Waiting(after.cpu_ns - before.cpu_ns, own, sum(others.values()), children_ns)


def _children() -> List[str]:
    """Return ``/proc/PID/task`` of each child that multiprocessing started."""
    processes = getattr(sys.modules.get("multiprocessing.process"), "_children", ())
    return [f"/proc/{process.pid}/task" for process in tuple(processes) if process.pid]


def _waited_of(path: str) -> Optional[int]:
    """Return how many ns a thread has waited for a CPU, from its file ``schedstat``."""
    try:
        with open(path, encoding="ascii") as line:
            words = line.read().split()
    except OSError:
        return None
    return int(words[1]) if len(words) == 3 and words[2] != "0" else None


def times() -> Optional[Readings]:
    try:
        threads = [int(name) for name in os.listdir(_TASKS)]
    except OSError:
        return None
    readings = {}
    for thread in threads:
        try:
            cpu_ns = time.clock_gettime_ns(_clock_of(thread))
        except OSError:  # the thread has ended meanwhile
            continue
        words = _text(thread, "schedstat").split()
        readings[thread] = Times(cpu_ns, int(words[1]) if len(words) == 3 else None)
    return readings


def _text(thread: int, file: str) -> str:
    return (text_of(os.path.join(_TASKS, str(thread), file)) or "").strip()


def _allowed(status: str) -> Optional[str]:
    """Return the CPUs that a thread may use, such as ``0-1,4``."""
    line = re.search(r"^Cpus_allowed_list:\s*(\S+)", status, re.MULTILINE)
    return line.group(1) if line else None


class ThreadTimes:
    """Adds up each thread's times over several intervals."""

    def __init__(self) -> None:
        self.sums: Optional[Readings] = {}

    def add(self, before: Optional[Readings], after: Optional[Readings]) -> None:
        if self.sums is None or before is None or after is None:
            self.sums = None
            return
        for thread, ended in after.items():
            began = before.get(thread, Times(0, 0))
            total = self.sums.get(thread, Times(0, 0))
            self.sums[thread] = Times(
                total.cpu_ns + ended.cpu_ns - began.cpu_ns,
                _more(total.waited_ns, began.waited_ns, ended.waited_ns),
            )

    def facts(self) -> Optional[List[Dict[str, Any]]]:
        if self.sums is None:
            return None
        ran = sorted(self.sums.items(), key=lambda entry: -entry[1].cpu_ns)
        return [
            {
                "name": _text(thread, "comm") or None,
                "main": thread == os.getpid(),
                "cpu_ns": sums.cpu_ns,
                "waited_ns": sums.waited_ns,
                "cpus": _allowed(_text(thread, "status")),
            }
            for thread, sums in ran[:MOST_THREADS]
            if sums.cpu_ns
        ]


def _more(total: Optional[int], began: Optional[int], ended: Optional[int]) -> Optional[int]:
    return None if total is None or began is None or ended is None else total + ended - began
