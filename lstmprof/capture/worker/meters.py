"""What the timing pass cost: CPU time, wall time and energy, and how the GPU fared meanwhile.

Energy is a difference of counters that hardware keeps: RAPL's packages through Linux's powercap
(readable by root alone on many systems) and NVML's total energy of a GPU (Volta and later). What
cannot be read is None, never 0. NVML is called through ctypes: the worker has no library for it.
"""

from __future__ import annotations

import contextlib
import ctypes
import glob
import os
import time
from typing import Any, ContextManager, Dict, Iterator, List, NamedTuple, Optional

from lstmprof.capture.worker.profiling import Ranges

POWERCAP = "/sys/class/powercap"
NVML, CUDA = "libnvidia-ml.so.1", "libcuda.so.1"

#: nvml.h, nvmlClocksEventReasons: what holds clocks down, idleness and the user's limits aside
THROTTLE_REASONS = (
    (0x4, "software power cap"),
    (0x8, "hardware slowdown"),
    (0x20, "software thermal slowdown"),
    (0x40, "hardware thermal slowdown"),
    (0x80, "hardware power brake"),
)
#: its name since driver 535, and the one before, which a later NVML may drop
CLOCKS_REASONS = (
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetCurrentClocksThrottleReasons",
)
NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0


class Meters:
    """Counters read before and after the counted iterations."""

    def __init__(self, device: str, powercap: str = POWERCAP) -> None:
        self.powercap = powercap
        self.gpu = Gpu.of(device) if device.startswith("cuda") else None
        self.began = self._counters()

    def _counters(self) -> Dict[str, Any]:
        counts = kernel_counts()
        return {
            "cpu_ns": time.process_time_ns(),
            "wall_ns": time.perf_counter_ns(),
            "page_faults": counts and counts.page_faults,
            "preemptions": counts and counts.preemptions,
            "packages_uj": packages_uj(self.powercap),
            "gpu_mj": self.gpu.energy_mj() if self.gpu else None,
        }

    def facts(self) -> Dict[str, Any]:
        """What run.json says of the counted iterations; energy in joules."""
        ended, began = self._counters(), self.began
        packages = _difference(ended["packages_uj"], began["packages_uj"])
        gpu = _difference(ended["gpu_mj"], began["gpu_mj"])
        facts: Dict[str, Any] = {
            "timing_cpu_ns": ended["cpu_ns"] - began["cpu_ns"],
            "timing_wall_ns": ended["wall_ns"] - began["wall_ns"],
            "timing_page_faults": _difference(ended["page_faults"], began["page_faults"]),
            "timing_preemptions": _difference(ended["preemptions"], began["preemptions"]),
            "timing_cpu_energy_j": None if packages is None else packages / 1e6,
            "timing_gpu_energy_j": None if gpu is None else gpu / 1e3,
        }
        return dict(facts, **(self.gpu.state() if self.gpu else {}))


class StepCounts:
    """Ranges that count what the kernel did in each ``step``; counts of those that are known."""

    def __init__(self, ranges: Ranges) -> None:
        self.ranges = ranges
        self.page_faults: List[int] = []
        self.preemptions: List[int] = []

    def __call__(self, name: str) -> ContextManager[Any]:
        """The range ``name``."""
        return self._counted() if name == "step" else self.ranges(name)

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        began = kernel_counts()
        with self.ranges("step"):
            yield
        ended = kernel_counts()
        if began is not None and ended is not None:
            self.page_faults.append(ended.page_faults - began.page_faults)
            self.preemptions.append(ended.preemptions - began.preemptions)


class KernelCounts(NamedTuple):
    """What the kernel did with this process so far."""

    page_faults: int  # pages that it had to provide, without reading a disk
    preemptions: int  # involuntary context switches: a CPU was taken from one of its threads


def kernel_counts() -> Optional[KernelCounts]:
    """The counts of getrusage(2), of all threads; None where there is no Unix."""
    try:
        import resource
    except ImportError:
        return None
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return KernelCounts(usage.ru_minflt, usage.ru_nivcsw)


def _difference(end: Optional[int], begin: Optional[int]) -> Optional[int]:
    """None where a counter is unknown, or wrapped round in between."""
    if end is None or begin is None or end < begin:
        return None
    return end - begin


def packages_uj(powercap: str) -> Optional[int]:
    """Energy counter of all CPU packages, µJ; None where none can be read."""
    places = sorted(glob.glob(os.path.join(powercap, "intel-rapl:[0-9]*")))
    packages = [p for p in places if os.path.basename(p).count(":") == 1]  # not their parts
    readings: List[int] = []
    for place in packages:
        try:
            with open(os.path.join(place, "energy_uj"), encoding="ascii") as counter:
                readings.append(int(counter.read()))
        except (OSError, ValueError):
            return None
    return sum(readings) if readings else None


class Gpu:
    """One GPU through NVML."""

    def __init__(self, nvml: Any, handle: ctypes.c_void_p) -> None:
        self.nvml, self.handle = nvml, handle

    @classmethod
    def of(cls, device: str, nvml: str = NVML, cuda: str = CUDA) -> Optional[Gpu]:
        """The GPU that CUDA calls ``cuda:N``, found by its PCI bus; None without a driver."""
        try:
            library, driver = ctypes.CDLL(nvml), ctypes.CDLL(cuda)
        except OSError:
            return None
        bus = ctypes.create_string_buffer(32)
        number = ctypes.c_int()
        handle = ctypes.c_void_p()
        answered = (
            driver.cuInit(0) == 0
            and driver.cuDeviceGet(ctypes.byref(number), int(device.partition(":")[2])) == 0
            and driver.cuDeviceGetPCIBusId(bus, len(bus), number) == 0
            and library.nvmlInit_v2() == 0
            and library.nvmlDeviceGetHandleByPciBusId_v2(bus, ctypes.byref(handle)) == 0
        )
        return cls(library, handle) if answered else None

    def energy_mj(self) -> Optional[int]:
        """Energy since the driver was loaded, mJ; None before Volta."""
        return self._read("nvmlDeviceGetTotalEnergyConsumption", ctypes.c_ulonglong)

    def state(self) -> Dict[str, Any]:
        """Clocks, temperature and what holds the clocks down, now."""
        reasons = self._read(CLOCKS_REASONS[0], ctypes.c_ulonglong)
        if reasons is None:
            reasons = self._read(CLOCKS_REASONS[1], ctypes.c_ulonglong)
        return {
            "gpu_sm_clock_mhz": self._read("nvmlDeviceGetClockInfo", ctypes.c_uint, NVML_CLOCK_SM),
            "gpu_memory_clock_mhz": self._read(
                "nvmlDeviceGetClockInfo", ctypes.c_uint, NVML_CLOCK_MEM
            ),
            "gpu_temperature_c": self._read(
                "nvmlDeviceGetTemperature", ctypes.c_uint, NVML_TEMPERATURE_GPU
            ),
            "gpu_throttle_reasons": None
            if reasons is None
            else [words for bit, words in THROTTLE_REASONS if reasons & bit],
        }

    def _read(self, function: str, type_: Any, *which: int) -> Optional[int]:
        value = type_()
        call = getattr(self.nvml, function, None)
        if call is None or call(self.handle, *which, ctypes.byref(value)) != 0:
            return None
        return int(value.value)
