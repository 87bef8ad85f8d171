"""The worker's place on the host: its parent, its floating-point mode, its hardware."""

from __future__ import annotations

import ctypes
import glob
import os
import platform
import re
import signal
import sys
from typing import Any, Dict, List, Optional

PR_SET_PDEATHSIG = 1  # linux/prctl.h
#: MXCSR bits 15 (flush to zero) and 6 (denormals are zero): Intel SDM volume 1, section 10.2.3
MXCSR_FLUSH = 0x8040
MXCSR_WORD = 7  # in glibc's x86_64 fenv_t, after 28 bytes of x87 environment


def die_with(parent_pid: int) -> None:
    """Let the kernel kill this process when its parent ends, however it ends (Linux)."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:  # it ended before prctl
        os._exit(1)


def cuda_devices() -> int:
    """CUDA devices that the driver shows, without any framework; 0 where there is no driver."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int(0)
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return 0
    return count.value


def flush_denormals() -> None:
    """Make this thread, and all that it will start, treat denormals as zero (x86_64, glibc).

    Elsewhere only the framework's own switch does it; ``denormals_flushed`` says what came of it.
    """
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
    """Whether the calling thread flushes denormals, by trying."""
    import numpy as np

    denormal = np.full(8, 1, np.int32).view(np.float32)
    return not (denormal * np.float32(1)).view(np.int32).any()


def hardware() -> Dict[str, Any]:
    """The host's processor and memory; what the system does not tell is None."""
    return {
        "cpu_model": _field("/proc/cpuinfo", "model name") or platform.processor() or None,
        "cores": os.cpu_count(),
        "memory_bytes": _memory_bytes(),
        "system": platform.platform(),
        "cpu_governor": _first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
    }


def _first_line(path: str) -> Optional[str]:
    try:
        with open(path, encoding="utf-8") as lines:
            return lines.readline().strip() or None
    except OSError:
        return None


def _field(path: str, name: str) -> Optional[str]:
    try:
        with open(path, encoding="utf-8") as lines:
            for line in lines:
                key, _, value = line.partition(":")
                if key.strip() == name:
                    return value.strip()
    except OSError:
        pass
    return None


def _memory_bytes() -> Optional[int]:
    total = _field("/proc/meminfo", "MemTotal")
    return int(total.split()[0]) * 1024 if total else None


def last_level_cache_bytes(place: str = "/sys/devices/system/cpu/cpu0/cache") -> Optional[int]:
    """Size of the largest cache that the first CPU has or shares; None where none is told."""
    sizes = [_first_line(path) or "" for path in glob.glob(os.path.join(place, "index*", "size"))]
    return max([int(s[:-1]) * 1024 for s in sizes if re.match(r"\d+K\Z", s)], default=None)


def load_average() -> Optional[List[float]]:
    """Runnable processes over 1, 5 and 15 minutes; None where the system has none."""
    return list(os.getloadavg()) if hasattr(os, "getloadavg") else None


def peak_memory_bytes() -> Optional[int]:
    """Largest resident size so far; None where the system does not tell."""
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak) if sys.platform == "darwin" else int(peak) * 1024
