"""Set up the worker process (CPUs, denormals, end), and describe its machine."""

from __future__ import annotations

import contextlib
import ctypes
import glob
import os
import platform
import re
import signal
import sys
import threading
import time
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

from lstmprof.base.errors import CaptureError

PR_SET_PDEATHSIG = 1  # linux/prctl.h
#: Bits of the register MXCSR: 15 flush to zero, 6 denormals are zero (Intel SDM 1, 10.2.3).
MXCSR_FLUSH = 0x8040
MXCSR_WORD = 7  # in glibc's x86_64 fenv_t, after 28 bytes of x87 environment

#: Seconds for which lstmprof watches CPUs to find idle CPUs: 20 ticks of 10 ms.
SAMPLE_S = 0.2

#: Environment variables for thread counts, which math libraries and TensorFlow read at import.
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "TF_NUM_INTRAOP_THREADS",
    "TF_NUM_INTEROP_THREADS",
)


def die_with(parent_pid: int) -> None:
    """Make Linux kill this process when the parent process ends."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:  # the parent ended before prctl
        os._exit(1)


def end_with(lifeline: str) -> None:
    """End this process when the last writer closes the FIFO ``lifeline``."""

    def hold() -> None:
        with open(lifeline, "rb") as fifo:
            fifo.read()
        os._exit(1)

    threading.Thread(target=hold, name="lifeline", daemon=True).start()


def cuda_devices() -> int:
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int(0)
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return 0
    return count.value


def flush_denormals() -> None:
    """Let this thread and its new threads flush denormals to zero (x86-64 Linux)."""
    # on other systems, only a switch of the framework can flush denormals
    if not sys.platform.startswith("linux") or platform.machine() != "x86_64":
        return
    try:
        libm = ctypes.CDLL("libm.so.6")
    except OSError:
        return
    environment = (ctypes.c_uint32 * 16)()
    libm.fegetenv(environment)
    environment[MXCSR_WORD] |= MXCSR_FLUSH
    libm.fesetenv(environment)


def denormals_flushed() -> bool:
    import numpy as np

    denormal = np.full(8, 1, np.int32).view(np.float32)
    return not (denormal * np.float32(1)).view(np.int32).any()


def hardware() -> Dict[str, Any]:
    models = [value for name, value in fields_of("/proc/cpuinfo") if name == "model name"]
    total = dict(fields_of("/proc/meminfo")).get("MemTotal")
    governor = text_of("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
    return {
        "cpu_model": next(iter(models), "") or platform.processor() or None,
        "cores": os.cpu_count(),
        "memory_bytes": int(total.split()[0]) * 1024 if total else None,
        "system": platform.platform(),
        "cpu_governor": (governor or "").strip() or None,
    }


def text_of(path: str) -> Optional[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return None


def fields_of(path: str) -> Iterator[Tuple[str, str]]:
    """Yield (name, value) of each line ``name: value`` in a file like /proc/cpuinfo."""
    for line in (text_of(path) or "").splitlines():
        name, _, value = line.partition(":")
        yield name.strip(), value.strip()


def last_level_cache_bytes(place: str = "/sys/devices/system/cpu/cpu0/cache") -> Optional[int]:
    """Return the size of the first CPU's largest cache."""
    paths = glob.glob(os.path.join(place, "index*", "size"))
    sizes = [re.match(r"(\d+)K$", text_of(path) or "") for path in paths]
    return max([int(size.group(1)) * 1024 for size in sizes if size], default=None)


def clock_mhz(cpus: List[int]) -> Optional[float]:
    place = "/sys/devices/system/cpu/cpu{}/cpufreq/scaling_cur_freq"
    khz = [text_of(place.format(cpu)) for cpu in cpus]
    clocks = [int(text) / 1000 for text in khz if text] or _clocks_of_x86(cpus)
    return round(sum(clocks) / len(clocks), 1) if clocks else None


def _clocks_of_x86(cpus: List[int]) -> List[float]:
    clocks, processor = [], None
    with contextlib.suppress(ValueError):
        for name, value in fields_of("/proc/cpuinfo"):
            processor = int(value) if name == "processor" else processor
            if name == "cpu MHz" and processor in cpus:
                clocks.append(float(value))
    return clocks


def load_average() -> Optional[List[float]]:
    return list(os.getloadavg()) if hasattr(os, "getloadavg") else None


def peak_memory_bytes() -> Optional[int]:
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak) if sys.platform == "darwin" else int(peak) * 1024


def allowed_cpus() -> List[int]:
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def take_cpus(threads: Optional[int], given: Sequence[int] = ()) -> Optional[List[int]]:
    """Pin this process to CPUs, and size thread pools, before a framework is imported."""
    allowed = allowed_cpus()
    if threads and threads > len(allowed):
        raise CaptureError(
            "{} threads need more than the {} CPU(s) that the process may use".format(
                threads, len(allowed)
            ),
            "lower --threads",
        )
    cpus = sorted(given) or idlest(allowed, threads or len(allowed))
    for variable in THREAD_VARIABLES:
        os.environ[variable] = str(threads or len(cpus))
    if not hasattr(os, "sched_setaffinity"):
        return None
    os.sched_setaffinity(0, cpus)  # only threads that start later inherit this
    return cpus


def thread_count() -> int:
    """Return the size of thread pools that ``take_cpus`` set."""
    return int(os.environ[THREAD_VARIABLES[0]])


def cpu_facts() -> Dict[str, Any]:
    return {
        "device": "cpu",
        "device_name": None,
        "device_memory_bytes": None,
        "threads": thread_count(),
    }


def idlest(allowed: List[int], count: int) -> List[int]:
    """Watch the CPUs for SAMPLE_S; return the ``count`` least busy CPUs."""
    if count == len(allowed):
        return allowed
    first = _busy_ticks()
    time.sleep(SAMPLE_S)
    after = _busy_ticks()
    # prefer the last of equally busy CPUs, because interrupts run mostly on the first CPUs
    ordered = sorted(allowed, key=lambda cpu: (after.get(cpu, 0) - first.get(cpu, 0), -cpu))
    return sorted(ordered[:count])


def _busy_ticks() -> Dict[int, int]:
    """Return the busy clock ticks of each CPU since boot."""
    ticks: Dict[int, int] = {}
    for line in (text_of("/proc/stat") or "").splitlines():
        name, *counts = line.split()
        if name.startswith("cpu") and name != "cpu":
            user, nice, system, _idle, _wait, *interrupts = map(int, counts[:8])
            ticks[int(name[3:])] = user + nice + system + sum(interrupts)
    return ticks
