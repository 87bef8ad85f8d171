"""Counters of energy: a powercap folder as Linux has it, NVML through a library compiled here."""

from __future__ import annotations

import mmap
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lstmprof.capture import worker_cpus
from lstmprof.capture.worker_meters import Gpu, Meters, StepCounts, packages_uj
from lstmprof.capture.worker_ranges import no_ranges

LIBRARY = r"""
#include <string.h>
typedef void *Device;
int cuInit(unsigned flags) { return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return ordinal > 1; }
int cuDeviceGetPCIBusId(char *id, int len, int device) {
    strncpy(id, device ? "0000:82:00.0" : "0000:02:00.0", len); return 0;
}
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetHandleByPciBusId_v2(const char *id, Device *d) {
    *d = (Device)(id[5] == '8' ? 2L : 1L); return 0;
}
int nvmlDeviceGetTotalEnergyConsumption(Device d, unsigned long long *mj) {
    static unsigned long long now = 5000; *mj = now += 1000 * (long)d; return 0;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(Device d, unsigned long long *bits) {
    *bits = 0x1 | 0x4 | 0x40; return 0;
}
int nvmlDeviceGetTemperature(Device d, int sensor, unsigned *celsius) { *celsius = 61; return 0; }
int nvmlDeviceGetClockInfo(Device d, int clock, unsigned *mhz) {
    *mhz = clock == 1 ? 1980 : 3201; return clock == 2 ? 999 : 0;
}
"""


ALWAYS_BUSY = "import os; os.sched_setaffinity(0, [{}]); [0 for _ in iter(int, 1)]"


def counter(folder: Path, name: str, microjoules: int) -> None:
    (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / name / "energy_uj").write_text(f"{microjoules}\n")


def test_packages_are_summed_without_their_parts(tmp_path: Path) -> None:
    counter(tmp_path, "intel-rapl:0", 70)
    counter(tmp_path, "intel-rapl:1", 30)
    counter(tmp_path, "intel-rapl:0:0", 9)  # the cores, a part of package 0
    assert packages_uj(str(tmp_path)) == 100
    (tmp_path / "intel-rapl:1" / "energy_uj").unlink()
    assert packages_uj(str(tmp_path)) is None
    assert packages_uj(str(tmp_path / "none")) is None


def test_energy_is_the_difference_and_a_wrapped_counter_is_unknown(tmp_path: Path) -> None:
    counter(tmp_path, "intel-rapl:0", 1_000_000)
    meters = Meters("cpu", str(tmp_path))
    counter(tmp_path, "intel-rapl:0", 3_500_000)
    facts = meters.facts()
    assert facts["timing_cpu_energy_j"] == 2.5
    assert facts["timing_gpu_energy_j"] is None
    assert facts["timing_wall_ns"] > 0
    counter(tmp_path, "intel-rapl:0", 5)
    assert meters.facts()["timing_cpu_energy_j"] is None


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    if shutil.which("gcc") is None:
        pytest.skip("no gcc to compile a library with NVML's functions")
    place = tmp_path_factory.mktemp("nvml")
    (place / "nvml.c").write_text(LIBRARY)
    built = place / "libnvml.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", built, place / "nvml.c"], check=True)
    return str(built)


def test_a_gpu_is_found_by_its_bus_and_read(library: str) -> None:
    gpu = Gpu.of("cuda:1", library, library)
    assert gpu is not None
    first = gpu.energy_mj()
    assert first is not None
    assert gpu.energy_mj() == first + 2000  # handle 2: the device of bus 82
    assert gpu.state() == {
        "gpu_sm_clock_mhz": 1980,
        "gpu_memory_clock_mhz": None,  # NVML answered with an error
        "gpu_temperature_c": 61,
        "gpu_throttle_reasons": ["software power cap", "hardware thermal slowdown"],
    }


def test_what_is_not_there_is_none(library: str) -> None:
    assert Gpu.of("cuda:7", library, library) is None
    assert Gpu.of("cuda:0", "libno-such.so", library) is None


def test_page_faults_are_counted_step_by_step() -> None:
    pages, page = 500, mmap.PAGESIZE
    counts = StepCounts(no_ranges)
    with counts("step"), counts("input"), mmap.mmap(-1, pages * page) as fresh:
        for place in range(0, pages * page, page):
            fresh[place] = 1
    with counts("step"):
        pass
    assert counts.page_faults[0] > pages / 20  # fewer than pages where the kernel gives huge ones
    assert counts.page_faults[1] < counts.page_faults[0]


def test_preemptions_are_counted_step_by_step() -> None:
    cpu = worker_cpus.allowed_cpus()[0]
    rival = subprocess.Popen([sys.executable, "-c", ALWAYS_BUSY.format(cpu)])
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, [cpu])
        counts = StepCounts(no_ranges)
        with counts("step"):
            until = time.monotonic() + 0.5
            while time.monotonic() < until:
                pass
        with counts("step"):
            pass
    finally:
        os.sched_setaffinity(0, allowed)
        rival.kill()
        rival.wait()
    assert counts.preemptions[0] > 5  # both want the one CPU, a slice is a few ms
    assert counts.preemptions[1] < counts.preemptions[0]
    assert len(counts.page_faults) == 2
