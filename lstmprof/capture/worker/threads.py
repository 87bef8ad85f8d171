"""What each thread of the process had of the CPUs: what it ran, and what it waited to run.

CPU time by the thread's own clock, which knows it to the moment (clock_getcpuclockid(3);
the number is made as linux/posix-timers.h makes it), waiting in a run queue by schedstat
(Documentation/scheduler/sched-stats.rst). A thread of a pool that spins while it has nothing to do
runs all the time, and looks here like one that works: as many threads at 100 % as the pool has.
"""

from __future__ import annotations

import os
import re
import sys
import time
from typing import Any, Dict, List, NamedTuple, Optional

TASKS = "/proc/self/task"
#: Told are those that ran most.
MOST_THREADS = 16
_PER_THREAD_SCHED = 6  # linux/posix-timers.h: CPUCLOCK_PERTHREAD_MASK | CPUCLOCK_SCHED


class Times(NamedTuple):
    """Of one thread since it began."""

    cpu_ns: int
    waited_ns: Optional[int]  # ready, with no CPU; None where the kernel does not count it


Readings = Dict[int, Times]  # by thread id


class Waiting(NamedTuple):
    """CPU time of the thread that runs a step, and when some had no CPU; None is unknown.

    Ready to run, without one: that thread, all others of its process, and the processes that it has
    started to load data (by ``multiprocessing``).
    """

    thread_cpu_ns: Optional[int] = None
    waited_ns: Optional[int] = None
    others_waited_ns: Optional[int] = None
    children_waited_ns: Optional[int] = None


class Waits(NamedTuple):
    """CPU time of the thread that asks; the folder of a process's threads → thread → its wait."""

    cpu_ns: int
    waited_ns: Dict[str, Dict[str, int]]


def this_thread() -> Optional[int]:
    """The number by which the system knows the thread that asks; None where it tells none."""
    try:
        return int(os.path.basename(os.readlink("/proc/thread-self")))
    except (OSError, ValueError):
        return None


def waits(*, ends: bool = False) -> Optional[Waits]:
    """Since each thread began, and each of the children; None where the kernel does not count.

    What the thread that asks had is read last, or first where what is measured ``ends``: reading
    the others takes time, in which it may lose its CPU.
    """
    this = this_thread()
    own = os.path.join(TASKS, str(this), "schedstat")
    cpu_ns, own_ns = time.thread_time_ns(), _waited_of(own)
    found = {folder: _waits_in(folder) for folder in (TASKS, *_children())}
    if not ends:
        own_ns, cpu_ns = _waited_of(own), time.thread_time_ns()
    if own_ns is None:
        return None
    found[TASKS][str(this)] = own_ns
    return Waits(cpu_ns, found)


def _waits_in(folder: str) -> Dict[str, int]:
    """Thread → what it waited since it began, of one process; none where that has ended."""
    try:
        names = os.listdir(folder)
    except OSError:
        return {}
    of_threads = {name: _waited_of(os.path.join(folder, name, "schedstat")) for name in names}
    return {name: ns for name, ns in of_threads.items() if ns is not None}


def waiting_between(before: Optional[Waits], after: Optional[Waits]) -> Waiting:
    """What passed between two readings that one thread took; of who ended meanwhile nothing."""
    if before is None or after is None:
        return Waiting()
    more = {}
    for folder, of_threads in after.waited_ns.items():
        began = before.waited_ns.get(folder, {})
        more[folder] = {name: ns - began.get(name, 0) for name, ns in of_threads.items()}
    others = more.pop(TASKS)
    own = others.pop(str(this_thread()))
    of_children = sum(sum(some.values()) for some in more.values())
    return Waiting(after.cpu_ns - before.cpu_ns, own, sum(others.values()), of_children)


def _children() -> List[str]:
    """Folders of the threads of processes that ``multiprocessing`` started, ended or not."""
    processes = getattr(sys.modules.get("multiprocessing.process"), "_children", ())
    return [f"/proc/{process.pid}/task" for process in tuple(processes) if process.pid]


def _waited_of(path: str) -> Optional[int]:
    """None where the thread has ended, or the kernel counts nothing: it says 0 0 0 then."""
    try:
        with open(path, encoding="ascii") as line:
            words = line.read().split()
    except OSError:
        return None
    return int(words[1]) if len(words) == 3 and words[2] != "0" else None


def times() -> Optional[Readings]:
    """Of every thread that there is; None where the system does not tell."""
    try:
        threads = [int(name) for name in os.listdir(TASKS)]
    except OSError:
        return None
    readings = {}
    for thread in threads:
        try:
            cpu_ns = time.clock_gettime_ns(~thread << 3 | _PER_THREAD_SCHED)
        except OSError:  # it ended meanwhile
            continue
        readings[thread] = Times(cpu_ns, _waited_ns(thread))
    return readings


def _waited_ns(thread: int) -> Optional[int]:
    words = _text(thread, "schedstat").split()
    return int(words[1]) if len(words) == 3 else None


def _text(thread: int, file: str) -> str:
    try:
        with open(os.path.join(TASKS, str(thread), file), encoding="utf-8") as lines:
            return lines.read().strip()
    except OSError:
        return ""


def _allowed(status: str) -> Optional[str]:
    """The CPUs that it may run on, as 0-1,4."""
    line = re.search(r"^Cpus_allowed_list:\s*(\S+)", status, re.MULTILINE)
    return line.group(1) if line else None


class ThreadTimes:
    """The times of all threads over what lies between pairs of readings."""

    def __init__(self) -> None:
        self.sums: Optional[Readings] = {}

    def add(self, before: Optional[Readings], after: Optional[Readings]) -> None:
        """Count what each thread had between two readings; one that ended before is lost."""
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
        """``timing_threads`` of run.json: those that ran, the longest first; None is unknown."""
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
