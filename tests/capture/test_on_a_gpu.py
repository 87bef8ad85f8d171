"""What only a GPU shows: real captures on one, held to what their own code must launch.

One capture an implementation, shared by the tests; all of them skip where there is no CUDA device.
"""

from __future__ import annotations

import functools
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lstmprof.breakdown import Breakdown, break_down
from lstmprof.capture.harness.rounds import capture_run
from lstmprof.capture.request import CaptureRequest
from lstmprof.capture.worker.machine.host import cuda_devices
from lstmprof.runs.run import Run
from lstmprof.workloads import Workload

SMALL = Workload("small-ce", 1, 64, False, 16, 20, 32, 5, "ce")
STEPS = 2

Captured = Callable[..., Run]


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Captured:
    out = tmp_path_factory.mktemp("runs")

    @functools.cache
    def run_once(name: str, precision: str, cuda_graph: bool) -> Run:
        if not cuda_devices():
            pytest.skip("the driver shows no CUDA device")
        framework = pytest.importorskip(name.partition("-")[0])
        if framework.__name__ == "torch" and not framework.cuda.is_available():
            pytest.skip("this torch has no CUDA")
        asked = CaptureRequest(name, SMALL, "cuda:0", precision, iterations=30, peaks=False)
        fields: dict[str, Any] = {"profile_steps": STEPS, "cuda_graph": cuda_graph}
        return capture_run(CaptureRequest(**{**vars(asked), **fields}), out, rounds=1)

    def run(name: str, precision: str = "fp32", cuda_graph: bool = False) -> Run:
        return run_once(name, precision, cuda_graph)

    return run


def rows_of(run: Run, kind: str) -> list[dict[str, Any]]:
    """The events of ``kind`` that a step launched or holds."""
    found: list[dict[str, Any]] = run.events().to_pylist()
    return [row for row in found if row["kind"] == kind and row["step"] is not None]


def parts(account: Breakdown, state: str) -> Counter[str]:
    """Nanoseconds of each part of all steps on the GPU."""
    found: Counter[str] = Counter()
    for row in account.ledger.to_pylist():
        if row["state"] == state and row["device"] is not None:
            found[row["part"]] += row["ns"]
    return found


def launches_of(run: Run, kernels: list[dict[str, Any]]) -> Counter[str]:
    """How many of ``kernels`` each call launched."""
    names = {row["event_id"]: row["name"] for row in run.events().to_pylist()}
    return Counter(names.get(kernel["launch_id"], "unknown") for kernel in kernels)


EVERY = [
    ("torch-lstmcell-basic", "fp32", False),
    ("torch-lstmcell-basic", "amp-fp16", False),
    ("torch-lstmcell-basic", "fp32", True),
    ("torch-nn-lstm", "fp32", False),
    ("torch-compile", "fp32", False),
    ("jax-scan", "fp32", False),
]


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "precision", "cuda_graph"), EVERY)
def test_the_parts_of_every_step_sum_to_its_length(
    name: str, precision: str, cuda_graph: bool, captured: Captured
) -> None:
    account = break_down(captured(name, precision, cuda_graph))
    sums: Counter[tuple[int, int]] = Counter()
    for row in account.ledger.to_pylist():
        assert row["ns"] >= 0
        sums[row["step"], row["device"]] += row["ns"]
    lengths = {
        (step["step"], step["device"]): step["dur_ns"]
        for step in account.table("steps").to_pylist()
    }
    assert sums == lengths
    assert {device for _, device in sums} == {0}
    assert len(sums) == STEPS
    busy = parts(account, "busy")
    assert busy["other"] <= 0.02 * sum(busy.values()), busy


@pytest.mark.gpu
def test_many_small_kernels_wait_for_their_launches(captured: Captured) -> None:
    run = captured("torch-lstmcell-basic")
    idle = parts(break_down(run), "idle")
    assert idle["launch latency"] > 0
    assert idle["launch call"] > 0
    assert idle["dispatch"] > 0
    kernels = rows_of(run, "kernel")
    assert len(kernels) / STEPS > 10 * SMALL.time_steps
    assert all("Launch" in call for call in launches_of(run, kernels))
    assert {row["phase"] for row in kernels} == {"forward", "loss", "backward", "optimizer"}


@pytest.mark.gpu
def test_cudnns_kernels_are_rnn_in_both_passes(captured: Captured) -> None:
    run = captured("torch-nn-lstm")
    assert run.info.kernels_used == "cuDNN"
    recurrent = [row for row in rows_of(run, "kernel") if row["category"] == "rnn"]
    assert {row["phase"] for row in recurrent} == {"forward", "backward"}
    assert {row["family"] for row in recurrent} <= {"gemm", "pointwise", "persistent", None}
    assert parts(break_down(run), "busy")["rnn"] > 0
    cells = rows_of(captured("torch-lstmcell-basic"), "kernel")
    assert len(rows_of(run, "kernel")) < len(cells)


@pytest.mark.gpu
def test_a_step_copies_its_inputs_and_targets(captured: Captured) -> None:
    copies = rows_of(captured("torch-nn-lstm"), "memcpy")
    batch = SMALL.time_steps * SMALL.batch * SMALL.features * 4
    moved = Counter(row["bytes"] for row in copies if row["phase"] == "input")
    assert moved == {batch: STEPS, SMALL.batch * 8: STEPS}


def cast_counts(run: Run) -> dict[str, float]:
    """Casts of a step by the op that asked for them."""
    found: defaultdict[str, float] = defaultdict(float)
    for row in break_down(run).table("casts").to_pylist():
        found[row["within"] or row["op"]] += row["per_step"]
    return found


def casts_in_the_code(time_steps: int) -> dict[str, int]:
    """What autocast casts of ``torch-lstmcell-basic`` on one layer, its head and the loss.

    Forward, each product its input (x and h at every time step, the last h) and each weight once
    (W, U, b, head); the loss its scores. Backward, each of these but x and the first h, which are
    zeros that nobody asks a gradient of.
    """
    weights, inputs, states, loss = 4, time_steps, time_steps, 1
    return {
        "aten::linear": weights + inputs + states + 1,
        "aten::cross_entropy_loss": loss,
        "ToCopyBackward0": weights + (states - 1) + 1 + loss,
    }


def test_autocast_casts_what_the_code_says_on_a_cpu(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    asked = CaptureRequest(
        "torch-lstmcell-basic",
        SMALL,
        "cpu",
        "amp-bf16",
        iterations=2,
        warmup=1,
        profile_steps=STEPS,
        peaks=False,
    )
    found = cast_counts(capture_run(asked, tmp_path, rounds=1))
    expected = casts_in_the_code(SMALL.time_steps)
    assert {op: found[op] for op in expected} == expected


@pytest.mark.gpu
def test_autocast_casts_what_the_code_says_on_a_gpu(captured: Captured) -> None:
    found = cast_counts(captured("torch-lstmcell-basic", "amp-fp16"))
    expected = casts_in_the_code(SMALL.time_steps)
    assert {op: found[op] for op in expected} == expected
    assert sum(cast_counts(captured("torch-lstmcell-basic")).values()) == 0


@pytest.mark.gpu
def test_a_graph_s_kernels_belong_to_its_one_launch(captured: Captured) -> None:
    eager, graph = (captured("torch-lstmcell-basic", "fp32", g) for g in (False, True))
    names = {row["event_id"]: row["name"] for row in graph.events().to_pylist()}
    replayed = [
        row for row in rows_of(graph, "kernel") if names.get(row["launch_id"]) == "cudaGraphLaunch"
    ]
    assert len(replayed) / STEPS > 10 * SMALL.time_steps
    assert len({row["launch_id"] for row in replayed}) == STEPS
    # Kineto writes the node since February 2026 (pytorch/kineto#1276): torch 2.11 does not.
    assert len({row["graph_node_id"] is None for row in replayed}) == 1
    assert graph.info.cuda_graph is True
    walls = [statistics.median(_walls(run)) for run in (graph, eager)]
    assert walls[0] < walls[1]


def _walls(run: Run) -> list[int]:
    timings = run.timings()
    assert timings is not None
    return [row["wall_ns"] for row in timings.to_pylist() if not row["warmup"]]


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["torch-nn-lstm", "torch-lstmcell-basic"])
def test_device_events_lie_within_the_wall_and_around_the_work(
    name: str, captured: Captured
) -> None:
    run = captured(name)
    timings = run.timings()
    assert timings is not None
    rows = [row for row in timings.to_pylist() if not row["warmup"]]
    assert all(0 < row["device_ns"] <= row["wall_ns"] for row in rows)
    busy_ns = sum(parts(break_down(run), "busy").values()) / STEPS
    assert statistics.median(row["device_ns"] for row in rows) > 0.5 * busy_ns


@pytest.mark.gpu
def test_nvml_tells_clocks_temperature_and_energy(captured: Captured) -> None:
    info = captured("torch-lstmcell-basic").info
    assert info.hardware.gpu
    assert info.hardware.gpu_memory_bytes > 1 << 30
    assert info.gpu_sm_clock_mhz > 100
    assert info.gpu_memory_clock_mhz > 100
    assert 10 < info.gpu_temperature_c < 110
    assert info.gpu_throttle_reasons is not None
    assert info.timing_gpu_energy_j is None  # of less than LEAST_ENERGY_S it says nothing
    assert len(info.profiled_preemptions) == STEPS


@pytest.mark.gpu
def test_inductor_fuses_the_cell(captured: Captured) -> None:
    run = captured("torch-compile")
    assert run.info.kernels_used == "Inductor"
    names = Counter(row["name"].partition("_")[0] for row in rows_of(run, "kernel"))
    assert names["triton"] / STEPS >= SMALL.time_steps
    assert len(rows_of(run, "kernel")) < len(rows_of(captured("torch-lstmcell-basic"), "kernel"))


@pytest.mark.gpu
def test_jax_has_kernels_of_both_passes_and_says_what_it_ran_on(captured: Captured) -> None:
    run = captured("jax-scan")
    kernels = rows_of(run, "kernel")
    assert len(kernels) / STEPS > SMALL.time_steps
    assert {"forward", "backward"} <= {row["phase"] for row in kernels}
    assert run.info.versions["cuda"]
    assert run.info.hardware.gpu_memory_bytes > 1 << 30
    timings = run.timings()
    assert timings is not None
    assert timings.column("device_ns").null_count == timings.num_rows
