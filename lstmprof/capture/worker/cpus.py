"""The CPUs that a worker keeps to, and the number of threads it tells every thread pool."""

from __future__ import annotations

import os
import time
from typing import Dict, List, Optional

from lstmprof.errors import CaptureError

#: how long CPUs are watched to see which are idle; 20 ticks of 10 ms
SAMPLE_S = 0.2

#: what OpenMP, MKL and TensorFlow read once, when they are loaded
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "TF_NUM_INTRAOP_THREADS",
    "TF_NUM_INTEROP_THREADS",
)


def allowed_cpus() -> List[int]:
    """CPUs that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def take_cpus(threads: Optional[int]) -> Optional[List[int]]:
    """Keep to ``threads`` of the allowed CPUs and tell every thread pool; None takes all.

    To be called before the framework is imported: threads inherit the affinity of the one that
    makes them. None is returned where the system has no affinity.

    Raises:
        CaptureError: fewer CPUs are allowed.
    """
    allowed = allowed_cpus()
    if threads and threads > len(allowed):
        raise CaptureError(
            "{} threads are more than the {} CPU(s) allowed here".format(threads, len(allowed)),
            "give fewer --threads",
        )
    cpus = idlest(allowed, threads or len(allowed))
    for variable in THREAD_VARIABLES:
        os.environ[variable] = str(threads or len(cpus))
    if not hasattr(os, "sched_setaffinity"):
        return None
    os.sched_setaffinity(0, cpus)
    return cpus


def thread_count() -> int:
    """The threads that ``take_cpus`` told every thread pool to have."""
    return int(os.environ[THREAD_VARIABLES[0]])


def idlest(allowed: List[int], count: int) -> List[int]:
    """The ``count`` CPUs that did least over SAMPLE_S; of equals the last, far from interrupts."""
    if count == len(allowed):
        return allowed
    before = _busy_ticks()
    time.sleep(SAMPLE_S)
    after = _busy_ticks()
    ordered = sorted(allowed, key=lambda cpu: (after.get(cpu, 0) - before.get(cpu, 0), -cpu))
    return sorted(ordered[:count])


def _busy_ticks() -> Dict[int, int]:
    """CPU -> clock ticks not idle since boot (proc(5), /proc/stat); empty where there is none."""
    ticks: Dict[int, int] = {}
    try:
        with open("/proc/stat", encoding="ascii") as lines:
            for line in lines:
                name, *counts = line.split()
                if name.startswith("cpu") and name != "cpu":
                    user, nice, system, _idle, _wait, *interrupts = map(int, counts[:8])
                    ticks[int(name[3:])] = user + nice + system + sum(interrupts)
    except OSError:
        pass
    return ticks
