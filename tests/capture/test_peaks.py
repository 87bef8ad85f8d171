"""What the device does at best: chosen sizes by a clock of the test's, figures by real products."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lstmprof.capture.harness.supervisor import capture
from lstmprof.capture.request import CaptureRequest
from lstmprof.capture.worker import loops
from lstmprof.capture.worker.machine import host, peaks as worker_peaks
from lstmprof.capture.worker.machine.peaks import faster
from lstmprof.workloads import Workload

CE = Workload("tiny-ce", 1, 4, False, 2, 5, 3, 3, "ce")
FIGURES = ("gemm_flops_per_s", "gemm_size", "copy_bytes_per_s", "copy_bytes")
MS = 1_000_000


def loop_of(framework: str) -> Any:
    if framework != "cudnn":
        pytest.importorskip(framework)
    return loops.loop_for(framework)


class Machine:
    """A clock that goes on by what each product takes; ``flops_per_ns`` of them."""

    def __init__(self, flops_per_ns: float) -> None:
        self.flops_per_ns, self.now_ns, self.sizes = flops_per_ns, 0, list[int]()

    def clock(self) -> int:
        return self.now_ns

    def product(self, size: int) -> Callable[[int], None]:
        self.sizes.append(size)

        def run(times: int) -> None:
            self.now_ns += round(times * 2 * size**3 / self.flops_per_ns)

        return run


def test_a_product_on_a_cpu_is_as_large_as_takes_50_ms() -> None:
    machine = Machine(flops_per_ns=100)
    size, best_ns = worker_peaks.best_product(machine.product, (512, 4096), lambda: machine.now_ns)
    assert machine.sizes == [512, 1536]  # of 2.7 and 72 ms
    assert (size, best_ns) == (1536, pytest.approx(2 * 1536**3 / 100))
    assert machine.now_ns < 1000 * MS


def test_a_product_on_a_gpu_is_run_several_times_between_two_readings() -> None:
    machine = Machine(flops_per_ns=1_000_000)
    size, best_ns = worker_peaks.best_product(machine.product, (8192, 8192), lambda: machine.now_ns)
    assert machine.sizes == [8192]
    assert (size, best_ns) == (8192, pytest.approx(2 * 8192**3 / 1e6, rel=1e-3))


def test_the_best_of_several_counts_and_a_slow_machine_is_given_up_early() -> None:
    took = iter([80 * MS, 60 * MS, 90 * MS, 70 * MS, 65 * MS])
    now = [0]

    def run(times: int) -> None:
        now[0] += next(took)

    assert worker_peaks.best(run, lambda: now[0]) == 60 * MS

    slow = Machine(flops_per_ns=0.5)  # half a second for the smallest
    worker_peaks.best_product(slow.product, (512, 4096), lambda: slow.now_ns)
    assert slow.sizes == [512]
    assert slow.now_ns == 3 * round(2 * 512**3 / 0.5)


def test_of_two_libraries_the_faster_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(flops_per_ns=1)
    slow, fast = machine.product(64), machine.product(32)
    monkeypatch.setattr(worker_peaks, "time", SimpleNamespace(perf_counter_ns=machine.clock))
    assert faster(slow, fast) is fast
    assert faster(fast, slow) is fast


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Real products and copies, too small to be peaks."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    for name, value in (("CPU_SIZES", (64, 64)), ("LEAST_NS", MS), ("BUDGET_NS", MS)):
        monkeypatch.setattr(worker_peaks, name, value)
    monkeypatch.setattr(worker_peaks, "LEAST_CPU_BUFFER", 1 << 20)


@pytest.mark.measured
@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("framework", ["torch", "tensorflow", "jax", "pytensor"])
def test_each_framework_measures_its_product_and_a_copy(framework: str) -> None:
    peaks = worker_peaks.measured(loop_of(framework), "cpu", "fp32")
    assert peaks["reason"] is None
    assert (peaks["gemm_size"], peaks["precision"]) == (64, "fp32")
    assert peaks["copy_bytes"] >= 2 << 20
    assert 1e6 < peaks["gemm_flops_per_s"] < 1e13
    assert 1e7 < peaks["copy_bytes_per_s"] < 1e13


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("framework", ["torch", "tensorflow"])
def test_amp_is_measured_in_16_bits(framework: str, monkeypatch: pytest.MonkeyPatch) -> None:
    loop, asked = loop_of(framework), []
    product = loop.product

    def asked_for(size: int, device: str, dtype: str) -> Callable[[int], None]:
        asked.append(dtype)
        run: Callable[[int], None] = product(size, device, dtype)
        return run

    monkeypatch.setattr(loop, "product", asked_for)
    peaks = worker_peaks.measured(loop, "cpu", "amp-bf16")
    assert (peaks["reason"], asked) == (None, ["bfloat16"])


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"peaks": False}, "turned off by --no-peaks"),
        ({"profile_steps": 0}, "measured in the first round only"),
        ({"implementation": "cudnn-direct"}, "cudnn has no matmul benchmark"),
    ],
)
def test_peaks_that_were_not_measured_are_null_with_the_reason(
    fields: dict[str, Any], reason: str
) -> None:
    request = CaptureRequest(**{"implementation": "torch-nn-lstm", "workload": CE} | fields)
    said: list[str] = []
    framework = request.implementation.partition("-")[0]
    peaks = worker_peaks.facts(request, loop_of(framework), "cpu", said.append)
    assert bool(said) == (request.peaks and request.steps_to_profile > 0)
    assert (peaks["reason"], peaks["precision"]) == (reason, "fp32")
    assert [peaks[name] for name in FIGURES] == [None] * 4


def test_a_failure_to_measure_is_a_reason_and_not_the_capture_s() -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("here torch can use a GPU")
    peaks = worker_peaks.measured(loop_of("torch"), "cuda:0", "fp32")
    assert "CUDA" in peaks["reason"]
    assert peaks["gemm_flops_per_s"] is None


@pytest.mark.measured
def test_a_capture_says_what_the_device_does_at_best(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    request = CaptureRequest(
        "torch-nn-lstm", CE, device="cpu", iterations=2, warmup=1, profile_steps=1
    )
    said: list[str] = []
    peaks = capture(request, tmp_path / "capture", said.append).metadata["peaks"]
    assert (peaks["reason"], peaks["precision"]) == (None, "fp32")
    least, most = worker_peaks.CPU_SIZES
    assert least <= peaks["gemm_size"] <= most
    assert peaks["gemm_flops_per_s"] > 1e9
    assert peaks["copy_bytes_per_s"] > 1e8
    assert peaks["copy_bytes"] == 2 * worker_peaks.cpu_buffer_bytes()
    assert "measuring the device's peak rates" in said


def test_the_last_level_cache_is_the_largest_told(tmp_path: Path) -> None:
    for number, size in enumerate(("48K", "1024K", "32768K", "unknown")):
        (tmp_path / f"index{number}").mkdir()
        (tmp_path / f"index{number}" / "size").write_text(size + "\n")
    assert host.last_level_cache_bytes(str(tmp_path)) == 32 << 20
    assert host.last_level_cache_bytes(str(tmp_path / "none")) is None


@pytest.mark.gpu
def test_a_gpu_is_measured_with_products_of_8192() -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    peaks = worker_peaks.measured(loop_of("torch"), "cuda:0", "amp-bf16")
    assert (peaks["reason"], peaks["gemm_size"], peaks["copy_bytes"]) == (None, 8192, 2 << 30)
    assert peaks["gemm_flops_per_s"] > 1e12
    assert peaks["copy_bytes_per_s"] > 1e11
