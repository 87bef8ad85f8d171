"""Measure energy, threads and GPU state of timed steps, and CPU use of profiled steps.

CPU energy comes from RAPL's counters of CPU packages, in Linux's powercap (often only for root).
GPU energy comes from NVML (Volta and later), called through ctypes.
"""

from __future__ import annotations

import contextlib
import ctypes
import glob
import os
import time
from typing import Any, Callable, ContextManager, Dict, Iterator, List, Optional, Tuple

from lstmprof.capture.worker.machine.usage import (
    SELF,
    Counts,
    ThreadTimes,
    difference,
    times,
    usage,
)
from lstmprof.capture.worker.profiling import Ranges

POWERCAP = "/sys/class/powercap"
NVML, CUDA = "libnvidia-ml.so.1", "libcuda.so.1"

#: Bits of nvmlClocksEventReasons (nvml.h) for low clocks that neither idleness nor a user causes.
THROTTLE_REASONS = (
    (0x4, "software power cap"),
    (0x8, "hardware slowdown"),
    (0x20, "software thermal slowdown"),
    (0x40, "hardware thermal slowdown"),
    (0x80, "hardware power brake"),
)
#: Names of NVML's function for reasons of low clocks: since driver 535, and before.
CLOCKS_REASONS = (
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetCurrentClocksThrottleReasons",
)
#: Shortest measurement in seconds at which lstmprof reports GPU energy, because A100 and H100
#: measure their power during only 25 % of the time (arXiv:2312.02741).
LEAST_ENERGY_S = 1.0
NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0


class Meters:
    """Measures energy and thread times during the timed steps."""

    def __init__(
        self,
        device: str,
        powercap: str = POWERCAP,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.powercap, self.clock, self.read_s = powercap, clock, 0.0
        self.gpu = NvmlGpu.of(device) if device.startswith("cuda") else None
        self.packages_uj: Optional[int] = 0
        self.gpu_mj: Optional[int] = 0
        self.state: Dict[str, Any] = {}
        self.threads = ThreadTimes()

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Measure inside the ``with`` block, and add the measurements of earlier blocks."""
        packages, gpu = self._counters()
        before, began_s = times(), self.clock()
        yield
        self.read_s += self.clock() - began_s
        self.threads.add(before, times())
        packages_after, gpu_after = self._counters()
        self.packages_uj = _sum(self.packages_uj, _difference(packages_after, packages))
        self.gpu_mj = _sum(self.gpu_mj, _difference(gpu_after, gpu))
        self.state = self.gpu.state() if self.gpu else {}

    def _counters(self) -> Tuple[Optional[int], Optional[int]]:
        return packages_uj(self.powercap), self.gpu.energy_mj() if self.gpu else None

    def facts(self) -> Dict[str, Any]:
        packages = self.packages_uj
        gpu = self.gpu_mj if self.read_s >= LEAST_ENERGY_S else None
        return {
            "timing_cpu_energy_j": None if packages is None else packages / 1e6,
            "timing_gpu_energy_j": None if gpu is None else gpu / 1e3,
            "timing_threads": self.threads.facts(),
            **self.state,
        }


class StepCounts:
    """Counts CPU time, context switches and page faults of each step."""

    def __init__(self, ranges: Ranges) -> None:
        self.ranges = ranges
        self.counts: List[Counts] = []

    def __call__(self, name: str) -> ContextManager[Any]:
        return self._counted() if name == "step" else self.ranges(name)

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        before = usage(SELF)
        with self.ranges("step"):
            yield
        self.counts.append(difference(before, usage(SELF)))

    def facts(self) -> Dict[str, Any]:
        columns = {
            "profiled_cpu_ns": [counts.cpu_ns for counts in self.counts],
            "profiled_voluntary_switches": [counts.voluntary_switches for counts in self.counts],
            "profiled_preemptions": [counts.preemptions for counts in self.counts],
            "profiled_page_faults": [counts.minor_faults for counts in self.counts],
            "profiled_major_faults": [counts.major_faults for counts in self.counts],
        }
        return {name: None if None in column else column for name, column in columns.items()}


def _sum(total: Optional[int], more: Optional[int]) -> Optional[int]:
    return None if total is None or more is None else total + more


def _difference(end: Optional[int], begin: Optional[int]) -> Optional[int]:
    if end is None or begin is None or end < begin:  # the counter wrapped around
        return None
    return end - begin


def packages_uj(powercap: str) -> Optional[int]:
    """Return the energy counter of all CPU packages in µJ."""
    places = sorted(glob.glob(os.path.join(powercap, "intel-rapl:[0-9]*")))
    # skip the domains inside a package, such as ``intel-rapl:0:1``
    packages = [p for p in places if os.path.basename(p).count(":") == 1]
    readings: List[int] = []
    for place in packages:
        try:
            with open(os.path.join(place, "energy_uj"), encoding="ascii") as counter:
                readings.append(int(counter.read()))
        except (OSError, ValueError):
            return None
    return sum(readings) if readings else None


class NvmlGpu:
    """One GPU, observed through NVML (NVIDIA's management library)."""

    def __init__(self, nvml: Any, handle: ctypes.c_void_p) -> None:
        self.nvml, self.handle = nvml, handle

    @classmethod
    def of(cls, device: str, nvml: str = NVML, cuda: str = CUDA) -> Optional[NvmlGpu]:
        """Find the GPU ``cuda:N`` in NVML, by the GPU's PCI bus id."""
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
        """Return the energy since the driver was loaded, or None (before Volta, or MIG)."""
        if self._is_shared():
            return None
        return self._read("nvmlDeviceGetTotalEnergyConsumption", ctypes.c_ulonglong)

    def _is_shared(self) -> bool:
        modes = ctypes.c_uint(), ctypes.c_uint()  # current and pending
        call = getattr(self.nvml, "nvmlDeviceGetMigMode", None)  # since driver 450
        answered = call is not None and call(self.handle, *map(ctypes.byref, modes)) == 0
        return answered and modes[0].value == 1

    def load(self) -> Dict[str, Any]:
        """Return the GPU's recent utilisation, and the memory in use by all processes."""
        utilisation, memory = (ctypes.c_uint * 2)(), (ctypes.c_ulonglong * 3)()  # total free used
        calls = (
            getattr(self.nvml, "nvmlDeviceGetUtilizationRates", None),
            getattr(self.nvml, "nvmlDeviceGetMemoryInfo", None),
        )
        read = [
            call is not None and call(self.handle, into) == 0
            for call, into in zip(calls, (utilisation, memory))
        ]
        return {
            "gpu_share": utilisation[0] / 100 if read[0] else None,
            "gpu_memory_bytes": int(memory[2]) if read[1] else None,
        }

    def state(self) -> Dict[str, Any]:
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
