"""Counters of energy: a powercap folder as Linux has it, NVML through a library compiled here."""

from __future__ import annotations

import itertools
import mmap
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import nvml_stand_in
import pytest
from capture.processes import LIMIT_S

from lstmprof.capture.worker.machine import host
from lstmprof.capture.worker.machine.meters import Meters, NvmlGpu, StepCounts, packages_uj
from lstmprof.capture.worker.profiling import no_ranges

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
    with meters.reading():
        counter(tmp_path, "intel-rapl:0", 3_500_000)
    counter(tmp_path, "intel-rapl:0", 4_000_000)  # not within
    with meters.reading():
        counter(tmp_path, "intel-rapl:0", 4_250_000)
    facts = meters.facts()
    assert (facts["timing_cpu_energy_j"], facts["timing_gpu_energy_j"]) == (2.75, None)
    with meters.reading():
        counter(tmp_path, "intel-rapl:0", 5)
    assert meters.facts()["timing_cpu_energy_j"] is None


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(nvml_stand_in.built(tmp_path_factory.mktemp("nvml")))


@pytest.mark.parametrize(
    ("since_535", "reasons"),
    [
        (False, ["software power cap", "hardware thermal slowdown"]),
        (True, ["hardware power brake"]),
    ],
)
def test_what_holds_the_clocks_down_is_asked_for_by_the_newer_name_first(
    since_535: bool, reasons: list[str], tmp_path: Path
) -> None:
    library = str(nvml_stand_in.built(tmp_path, *["SINCE_535"] * since_535))
    gpu = NvmlGpu.of("cuda:0", library, library)
    assert gpu is not None
    assert gpu.state()["gpu_throttle_reasons"] == reasons


def test_a_gpu_is_found_by_its_bus_and_read(library: str) -> None:
    gpu = NvmlGpu.of("cuda:1", library, library)
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


def test_the_load_of_a_gpu_is_read_and_what_is_not_answered_is_none(library: str) -> None:
    loads = [
        gpu.load() for n in (0, 1) for gpu in [NvmlGpu.of(f"cuda:{n}", library, library)] if gpu
    ]
    assert loads == [
        {"gpu_share": 0.87, "gpu_memory_bytes": 5_000_000_000},
        {"gpu_share": 0.87, "gpu_memory_bytes": None},  # NVML answered with an error
    ]


@pytest.mark.parametrize(("each_s", "joules"), [(0.4, None), (0.5, 2.0)])
def test_energy_of_a_gpu_in_less_than_a_second_is_unknown(
    each_s: float, joules: float | None, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stand-in's counter grows by 1 J a reading; the clock by ``each_s``."""
    gpu = NvmlGpu.of("cuda:0", library, library)
    monkeypatch.setattr(NvmlGpu, "of", lambda device: gpu)
    meters = Meters("cuda:0", clock=itertools.count(0, each_s).__next__)
    for _ in range(2):
        with meters.reading():
            pass
    assert meters.facts()["timing_gpu_energy_j"] == joules


def test_the_energy_of_a_gpu_that_is_divided_is_unknown(tmp_path: Path) -> None:
    library = str(nvml_stand_in.built(tmp_path, "MIG"))
    gpu = NvmlGpu.of("cuda:0", library, library)
    assert gpu is not None
    assert gpu.energy_mj() is None
    assert gpu.state()["gpu_sm_clock_mhz"] == 1980


def test_what_is_not_there_is_none(library: str) -> None:
    assert NvmlGpu.of("cuda:7", library, library) is None
    assert NvmlGpu.of("cuda:0", "libno-such.so", library) is None


def test_page_faults_are_counted_step_by_step() -> None:
    pages, page = 500, mmap.PAGESIZE
    counts = StepCounts(no_ranges)
    with counts("step"), counts("input"), mmap.mmap(-1, pages * page) as fresh:
        for place in range(0, pages * page, page):
            fresh[place] = 1
    with counts("step"):
        pass
    facts = counts.facts()
    faults = facts["profiled_page_faults"]
    assert faults[0] > pages / 20  # fewer than pages where the kernel gives huge ones
    assert faults[1] < faults[0]
    assert min(facts["profiled_cpu_ns"]) >= 0
    assert {len(column) for column in facts.values()} == {2}


def preemptions() -> int:
    """Of this thread, so far."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw


@pytest.mark.measured
def test_preemptions_are_counted_step_by_step() -> None:
    cpu = host.allowed_cpus()[0]
    rival = subprocess.Popen([sys.executable, "-c", ALWAYS_BUSY.format(cpu)])
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, [cpu])
        counts = StepCounts(no_ranges)
        with counts("step"):
            before, until = preemptions(), time.monotonic() + LIMIT_S
            while preemptions() < before + 10 and time.monotonic() < until:
                pass
        with counts("step"):
            pass
    finally:
        os.sched_setaffinity(0, allowed)
        rival.kill()
        rival.wait()
    first, second = counts.facts()["profiled_preemptions"]
    assert first >= 10  # both want the one CPU
    assert second < first
