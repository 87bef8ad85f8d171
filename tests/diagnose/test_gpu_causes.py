"""Mistakes on a GPU, in profiles of PyTorch drawn by the simulator: named, and not in their like.

::

    a step   |-launches, calls, blocking calls of one thread-|
    stream                  |-copies-||-products-|
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from diagnose.torch_profiles import advice, reads_like_its_example
from simulator.gpu_programs import (
    Call,
    Gap,
    Instruction,
    Launch,
    Machine,
    Stream,
    Sync,
    Within,
    Work,
)
from simulator.gpu_simulator import simulated
from simulator.lstm_programs import MACHINE, MAIN
from simulator.recording import Recording
from simulator.writers import kineto

import lstmprof as lp

Body = tuple[Instruction, ...]

STREAM: Stream = (0, 7)
#: A tick is a microsecond.
TICK_NS = 1000
PRODUCT = Work("kernel", "ampere_sgemm_128x64_nn", "gemm", 60)
BETWEEN = Work("memcpy", "Memcpy DtoD (Device -> Device)", "layout", 20)
CAST = Work("kernel", "void at::native::float16_copy_kernel_cuda(TensorIterator&)", "cast", 20)
FLATTENS = "torch/nn/modules/rnn.py(288): flatten_parameters"


def op(name: str, *body: Instruction, category: str | None = None) -> Within:
    return Within("op", name, 2, body, 1, category)


def launched(work: Work, call_ticks: int = 4) -> Launch:
    return Launch(STREAM, work, call_ticks)


def copies(number: int) -> Body:
    return tuple(op("aten::copy_", launched(BETWEEN)) for _ in range(number))


def layer(*before: Instruction) -> Body:
    """nn.LSTM on cuDNN, with what its op does before its products."""
    products = tuple(launched(PRODUCT) for _ in range(2))
    return (op("aten::lstm", op("aten::_cudnn_rnn", *before, *products, category="rnn")), Gap(20))


def profile_of(path: Path, *steps: Body, machine: Machine = MACHINE) -> lp.Run:
    """A profile of these steps, as torch.profiler writes it today."""
    program: Body = tuple(
        instruction
        for number, body in enumerate(steps, start=1)
        for instruction in (Within("step", f"ProfilerStep#{number}", 3, body, 8), Gap(5))
    )
    return written(path, program, machine)


def written(path: Path, program: Body, machine: Machine = MACHINE) -> lp.Run:
    recording = Recording(simulated([(MAIN, program)], machine), TICK_NS, MAIN, first_step=1)
    path.write_bytes(kineto.of_today(recording))
    return lp.read(path)


def scattered() -> Body:
    return layer(*copies(8))


def flat() -> Body:
    return layer()


def batch_first() -> Body:
    return layer(op("aten::contiguous", op("aten::clone", *copies(4))))


def tied() -> Body:
    return (Within("python", FLATTENS, 4, (Gap(2),), 1), *scattered())


def flattened_each_time() -> Body:
    laid_out = op("aten::_cudnn_rnn_flatten_weight", *copies(8))
    return (Within("python", FLATTENS, 4, (laid_out,), 1), *flat())


def cast_each_time(number: int) -> Body:
    """Autocast: casts in the op that computes in float32, and the op again, in float16."""
    casts = tuple(op("aten::copy_", launched(CAST)) for _ in range(number))
    inner = op("aten::_cudnn_rnn", *(launched(PRODUCT) for _ in range(2)), category="rnn")
    outer = op("aten::_cudnn_rnn", *casts, inner, category="rnn")
    return (op("aten::lstm", outer), Gap(20))


def fetched(memory: str) -> Body:
    batch = Work("memcpy", f"Memcpy HtoD ({memory} -> Device)", "transfer", 200)
    moved = op("aten::copy_", launched(batch, 9), Sync("stream", STREAM, 2))
    return (op("aten::to", op("aten::_to_copy", moved)), *flat())


def asked(times: int) -> Body:
    value = Work("memcpy", "Memcpy DtoH (Device -> Pinned)", "transfer", 2)
    question = op("aten::_local_scalar_dense", launched(value), Sync("stream", STREAM, 2))
    plain = (op("aten::mm", launched(replace(PRODUCT, ns=9)), category="gemm"),)
    each = (*plain, op("aten::item", question))
    return tuple(i for n in range(20) for i in (each if n < times else plain))


def loading(first_call_ticks: int) -> Body:
    first = op("aten::mm", launched(PRODUCT, first_call_ticks), category="gemm")
    return (first, *(op("aten::mm", launched(PRODUCT), category="gemm") for _ in range(12)))


def drawn_on(cpu_ticks: int, *launches: Instruction) -> Body:
    """Random numbers that take this long on the CPU before anything is launched for them."""
    return (Within("op", "aten::normal_", cpu_ticks, launches, 1, "rng"), *flat())


def looked_up() -> Body:
    """Rows of two large tables, and one short product."""
    rows = Work("kernel", "indexSelectLargeIndex", "embedding", 900)
    found = op("aten::embedding", launched(rows), category="embedding")
    return (found, Gap(9), found, op("aten::mm", launched(PRODUCT), category="gemm"))


def convolved() -> Body:
    """One convolution by two kernels."""
    parts = tuple(launched(Work("kernel", f"sm80_xmma_fprop_{n}", "conv", 90)) for n in range(2))
    return (op("aten::conv2d", op("aten::cudnn_convolution", *parts, category="conv")),)


def elementwise(ops: int) -> Body:
    """So many elementwise kernels, which are launched before the one before them has ended."""
    add = Work("kernel", "vectorized_elementwise_kernel", "pointwise", 90)
    return tuple(op("aten::add", launched(add), category="pointwise") for _ in range(ops))


def asleep(frame: str | None) -> Body:
    """Python that takes most of a step, in a frame that was recorded or in none."""
    wait: Instruction = Gap(3_000)
    return (Within("python", frame, 2, (wait,), 1) if frame else wait, *flat())


def synchronised(times: int) -> Body:
    """Twenty products; after the first ``times`` of them the host waits for the stream."""
    product = op("aten::mm", launched(replace(PRODUCT, ns=9)), category="gemm")
    waits = op("aten::coalesce", product, Sync("stream", STREAM, 2))
    return (*([waits] * times), *([product] * (20 - times)))


INDUCTOR = "/tmp/torchinductor_me/ab/cabcd.py(77): call"


def other_device(launches: int) -> Body:
    """One kernel on the first device after so many launches on the second."""
    work = Work("kernel", "ampere_sgemm_128x64_nn", "gemm", 2)
    first = tuple(
        op("aten::mm", Launch((1, 7), work, 40), category="gemm") for _ in range(launches)
    )
    return (*first, op("aten::mm", launched(replace(PRODUCT, ns=200)), category="gemm"))


STEADY = 3
#: Remedy → (steps of the mistake, steps of what looks like it and is none).
MISTAKES: dict[str, tuple[Callable[[], list[Body]], tuple[Callable[[], list[Body]], ...]]] = {
    "flatten_parameters": (
        lambda: [scattered()] * STEADY,
        (
            lambda: [flat()] * STEADY,
            lambda: [batch_first()] * STEADY,
            lambda: [flattened_each_time()] * STEADY,
        ),
    ),
    "flatten once": (
        lambda: [flattened_each_time()] * STEADY,
        (lambda: [scattered()] * STEADY, lambda: [flat()] * STEADY),
    ),
    "cast the layer's weights once": (
        lambda: [cast_each_time(8)] * STEADY,
        (lambda: [cast_each_time(1)] * STEADY, lambda: [scattered()] * STEADY),
    ),
    "time first": (
        lambda: [batch_first()] * STEADY,
        (lambda: [scattered()] * STEADY, lambda: [flat()] * STEADY),
    ),
    "pin memory": (
        lambda: [fetched("Pageable")] * STEADY,
        (lambda: [fetched("Pinned")] * STEADY,),
    ),
    "ask for no value": (lambda: [asked(20)] * STEADY, (lambda: [asked(0)] * STEADY,)),
    "compute on the device": (
        lambda: [drawn_on(4_400)] * STEADY,
        (
            lambda: [drawn_on(60)] * STEADY,
            lambda: [drawn_on(4_400, launched(PRODUCT))] * STEADY,
        ),
    ),
    "fuse elementwise ops": (
        lambda: [elementwise(12)] * STEADY,
        (lambda: [elementwise(4)] * STEADY, lambda: [flat()] * STEADY),
    ),
    "record frames": (
        lambda: [asleep(None)] * STEADY,
        (
            lambda: [asleep("train.py(9): load")] * STEADY,
            lambda: [asleep(INDUCTOR)] * STEADY,
            lambda: [flat()] * STEADY,
        ),
    ),
    "profile later": (
        lambda: [loading(5_000), loading(4)],
        (lambda: [loading(4)] * STEADY, lambda: [loading(20)] * STEADY),
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_named_in_its_profile(name: str, tmp_path: Path) -> None:
    given = advice(profile_of(tmp_path / "profile.pt.trace.json", *MISTAKES[name][0]()))
    assert name in given
    assert name == "time first" or reads_like_its_example(given[name])


@pytest.mark.parametrize(
    ("name", "number"),
    [(name, n) for name, (_, likes) in MISTAKES.items() for n in range(len(likes))],
)
def test_a_mistake_is_not_named_in_a_profile_of_its_like(
    name: str, number: int, tmp_path: Path
) -> None:
    steps = MISTAKES[name][1][number]()
    assert name not in advice(profile_of(tmp_path / "profile.pt.trace.json", *steps))


def test_a_call_that_sets_the_gpu_up_is_named(tmp_path: Path) -> None:
    loads = (Call("cuModuleLoadData", "runtime", 4_000), *loading(4))
    run = profile_of(tmp_path / "profile.pt.trace.json", loads, loading(4))
    assert "cuModuleLoadData" in advice(run)["profile later"].seen


def test_two_long_first_calls_lead_the_verdict(tmp_path: Path) -> None:
    calls = (Call("cudaFree", "alloc", 2_660), Call("cudaFree", "alloc", 7_150))
    run = profile_of(tmp_path / "profile.pt.trace.json", (*calls, *loading(4)))
    verdict = lp.diagnose(run).verdict
    assert (verdict.bottleneck, verdict.kind) == ("initialisation", "initialisation")
    assert verdict.cause == "CUDA starts up, or loads code, inside the profiled steps"
    assert verdict.fixes[0].saves_ns == verdict.bottleneck_ns == 9_810 * TICK_NS


@pytest.mark.parametrize(
    ("call", "first", "kind"),
    [
        (Call("cudaFree", "alloc", 5_000), True, "initialisation"),
        (Call("cudaOccupancyMaxActiveBlocks", "other", 5_000), True, "initialisation"),
        (Call("cudaMalloc", "alloc", 5_000), True, "allocation"),
        (Call("cudaMemPrefetchAsync", "other", 5_000), True, "runtime"),
        (Call("cudaFree", "alloc", 5_000), False, "allocation"),
    ],
)
def test_a_long_call_before_the_first_launch_of_a_kernel_is_initialisation(
    call: Call, first: bool, kind: str, tmp_path: Path
) -> None:
    other = op("aten::mm", launched(replace(PRODUCT, name="gemv2T_kernel_val")), category="gemm")
    product = op("aten::mm", call, launched(PRODUCT), category="gemm")
    products = (product, *loading(4)) if first else (*loading(4), product)
    body = (other, Gap(100), *products)
    verdict = lp.diagnose(written(tmp_path / "profile.pt.trace.json", body)).verdict
    assert verdict.kind == kind


@pytest.mark.parametrize(("end", "named"), [((), False), (loading(4), True)])
def test_memory_that_is_freed_after_the_last_work_is_not_freed_again_and_again(
    end: Body, named: bool, tmp_path: Path
) -> None:
    # without framework ops, as in a CUDA program
    frees = (Gap(5_000), Call("cudaFree", "alloc", 9_000))
    body = (*(launched(PRODUCT) for _ in range(20)), *frees)
    body += tuple(launched(PRODUCT) for _ in end)
    found = advice(written(tmp_path / "profile.pt.trace.json", body))
    assert ("allocate once" in found) == named
    if named:
        assert found["allocate once"].fix == "allocate memory once, before the loop, and reuse it"


def test_initialisation_leads_over_work_that_takes_a_little_longer(tmp_path: Path) -> None:
    products = tuple(launched(replace(PRODUCT, ns=600)) for _ in range(10))
    for number, (first_ticks, kind) in enumerate(((5_000, "initialisation"), (700, "matmul"))):
        body = (op("aten::mm", launched(PRODUCT, first_ticks), *products, category="gemm"),)
        verdict = lp.diagnose(written(tmp_path / f"{number}.pt.trace.json", body)).verdict
        assert verdict.kind == kind


#: A device that begins what it has after 400 µs.
LATE = replace(MACHINE, latency_ns=400)


def test_a_device_that_begins_late_while_the_host_waits_for_it_is_no_launch(tmp_path: Path) -> None:
    run = profile_of(tmp_path / "1.pt.trace.json", *[synchronised(20)] * STEADY, machine=LATE)
    verdict = lp.diagnose(run).verdict
    assert verdict.kind == "queued"
    assert verdict.fixes[0].name == "launch ahead"
    seen = verdict.fixes[0].seen
    assert all(name in seen for name in ("20 calls", "cudaStreamSynchronize", "aten::coalesce"))
    times = {part.kind: part.slow_ns for part in verdict.where}
    assert times["queued"] > 20 * 390 * TICK_NS
    assert times["launch"] < 20 * 20 * TICK_NS
    ahead = profile_of(tmp_path / "2.pt.trace.json", *[synchronised(0)] * STEADY, machine=LATE)
    assert "launch ahead" not in advice(ahead)


def convolutions(first_ticks: int) -> Body:
    """Convolutions of which the first takes this long on the host; the launches are short."""
    work = launched(Work("kernel", "sm80_xmma_fprop", "conv", 30))
    ticks = (first_ticks, *[40] * 12)
    return tuple(Within("op", "aten::cudnn_convolution", t, (work,), 1, "conv") for t in ticks)


def test_a_long_first_call_of_an_op_is_initialisation_unless_steps_are_marked(
    tmp_path: Path,
) -> None:
    run = written(tmp_path / "1.pt.trace.json", convolutions(7_000))
    verdict = lp.diagnose(run).verdict
    assert verdict.kind == "initialisation"
    assert verdict.fixes[0].name == "profile later"
    assert verdict.fixes[0].seen.startswith("the first aten::cudnn_convolution took 7.0")
    usual = written(tmp_path / "2.pt.trace.json", convolutions(300))
    assert lp.diagnose(usual).verdict.kind == "dispatch"
    marked = profile_of(tmp_path / "3.pt.trace.json", *[convolutions(7_000)] * STEADY)
    assert lp.diagnose(marked).verdict.kind == "dispatch"


def test_latency_of_a_launch_inside_a_long_first_op_is_no_initialisation(tmp_path: Path) -> None:
    run = written(tmp_path / "profile.pt.trace.json", convolutions(7_000), LATE)
    verdict = lp.diagnose(run).verdict
    times = {part.kind: part.slow_ns for part in verdict.where}
    assert 6_900 * TICK_NS < times["initialisation"] <= 7_001 * TICK_NS
    assert times["launch"] >= 100 * TICK_NS
    assert verdict.fixes[0].saves_ns == times["initialisation"]


def test_a_long_first_call_of_an_op_that_only_calls_others_is_initialisation(
    tmp_path: Path,
) -> None:
    # the first aten::_convolution of compiled code on an RTX 4090 takes 9.8 ms on its own
    def body(first_ticks: int) -> Body:
        inner = op("aten::cudnn_convolution", launched(Work("kernel", "fprop", "conv", 30)))
        ticks = (first_ticks, *[4] * 12)
        return tuple(Within("op", "aten::_convolution", t, (inner,), 1) for t in ticks)

    verdict = lp.diagnose(written(tmp_path / "1.pt.trace.json", body(9_800))).verdict
    assert (verdict.kind, verdict.fixes[0].name) == ("initialisation", "profile later")
    assert verdict.fixes[0].seen.startswith("the first aten::_convolution took 9.8")
    short = lp.diagnose(written(tmp_path / "2.pt.trace.json", body(900))).verdict
    assert "initialisation" not in {part.kind for part in short.where}


@pytest.mark.parametrize("name", ["aten::item", "c10d::allreduce_"])
def test_a_long_first_call_of_an_op_that_may_wait_is_no_initialisation(
    name: str, tmp_path: Path
) -> None:
    calls = tuple(Within("op", name, ticks, (), 1) for ticks in (9_800, *[4] * 12))
    run = written(tmp_path / "profile.pt.trace.json", (*calls, *loading(4)))
    assert "initialisation" not in {part.kind for part in lp.diagnose(run).verdict.where}


@pytest.mark.parametrize(("busy", "hidden"), [(3_000, True), (100, False)])
def test_latency_after_a_loading_call_is_initialisation_if_a_short_call_had_hidden_it(
    busy: int, hidden: bool, tmp_path: Path
) -> None:
    # the device works for ``busy`` ticks when a call begins that loads the code of another kernel
    before = op("aten::mm", launched(replace(PRODUCT, ns=busy)), category="gemm")
    loads = op("aten::add_", launched(Work("kernel", "elementwise", "elementwise", 10), 5_000))
    run = written(
        tmp_path / "profile.pt.trace.json", (*loading(4), Gap(2_000), before, loads), LATE
    )
    times = {part.kind: part.slow_ns for part in lp.diagnose(run).verdict.where}
    idle = 5_000 - 400 - busy + hidden * 400
    assert times["initialisation"] == pytest.approx(idle * TICK_NS, abs=20 * TICK_NS)


def test_the_wait_with_which_the_profiler_stops_is_no_wait_of_the_program(tmp_path: Path) -> None:
    stop = Call("cudaDeviceSynchronize", "sync", 9_000)
    stopped = written(tmp_path / "1.pt.trace.json", (*flat(), stop))
    diagnosis = lp.diagnose(stopped)
    times = {part.kind: part.slow_ns for part in diagnosis.verdict.where}
    assert times["profiler"] > 8_000 * TICK_NS
    assert times.get("sync", 0) == 0
    assert diagnosis.verdict.kind != "sync"
    # the same wait before other work, or in a function of the program, is the program's
    frame = Within("python", "torch/cuda/__init__.py(985): synchronize", 2, (stop,), 1)
    for number, body in enumerate(((*flat(), stop, *flat()), (*flat(), frame)), start=2):
        verdict = lp.diagnose(written(tmp_path / f"{number}.pt.trace.json", body)).verdict
        assert verdict.kind == "sync"


def short_products(reads: int) -> Body:
    """Twenty short products, each after Python; the first ``reads`` results are read."""
    product = op("aten::mm", launched(replace(PRODUCT, ns=2)), category="gemm")
    value = Work("memcpy", "Memcpy DtoH (Device -> Pinned)", "transfer", 2)
    question = op("aten::_local_scalar_dense", launched(value, 9), Sync("stream", STREAM, 2))
    read = Within("op", "aten::item", 6, (question,), 6)
    each = ((product, read) if n < reads else (product,) for n in range(20))
    return tuple(i for some in each for i in (*some, Gap(15)))


@pytest.mark.parametrize("times", [20, 1])
def test_values_read_one_by_one_lead_the_verdict_of_a_step_full_of_launches(
    times: int, tmp_path: Path
) -> None:
    run = profile_of(tmp_path / "profile.pt.trace.json", *[short_products(times)] * STEADY)
    diagnosis = lp.diagnose(run)
    leads = "the host reads a value (aten::item) 20 times per step"
    assert diagnosis.verdict.cause.startswith(leads) == (times > 1)
    if times > 1:
        first = diagnosis.fixes[0]
        without = profile_of(tmp_path / "w.pt.trace.json", *[short_products(0)] * STEADY)
        gained_ns = diagnosis.slow.length_ns - lp.diagnose(without).slow.length_ns
        assert first.name == "ask for no value"
        assert first.saves_ns == pytest.approx(gained_ns, rel=0.3)


def copied_to_the_host(times: int) -> Body:
    """Short products, each after Python; ``.cpu()`` copies the first ``times`` of them."""
    product = op("aten::mm", launched(replace(PRODUCT, ns=2)), category="gemm")
    moved = Work("memcpy", "Memcpy DtoH (Device -> Pageable)", "transfer", 2)
    copy = op("aten::copy_", launched(moved, 9), Sync("stream", STREAM, 2))
    read = Within("op", "aten::to", 6, (op("aten::_to_copy", copy),), 6)
    each = ((product, read) if n < times else (product,) for n in range(20))
    return tuple(i for some in each for i in (*some, Gap(15)))


@pytest.mark.parametrize("size", [4, 163_840])
def test_single_values_that_are_copied_to_the_host_are_values_read(
    size: int, tmp_path: Path
) -> None:
    path = tmp_path / "profile.pt.trace.json"
    profile_of(path, *[copied_to_the_host(20)] * STEADY)
    drawn = path.read_bytes()
    assert b'"bytes": 163840' in drawn
    path.write_bytes(drawn.replace(b'"bytes": 163840', b'"bytes": %d' % size))
    diagnosis = lp.diagnose(lp.read(path))
    cause = diagnosis.verdict.cause or ""
    assert cause.startswith("the host reads a value (aten::to) 20 times per step") == (size == 4)
    assert ("ask for no value" in {a.name for a in diagnosis.remedies}) == (size == 4)


@pytest.mark.parametrize(("waits", "launches"), [(True, 20), (False, 20), (True, 3)])
def test_launches_that_wait_for_their_kernels_are_named(
    waits: bool, launches: int, tmp_path: Path
) -> None:
    machine = replace(MACHINE, blocks_launches=waits)
    steps = [elementwise(launches)] * STEADY
    run = profile_of(tmp_path / "profile.pt.trace.json", *steps, machine=machine)
    (diagnosis,) = lp.diagnose([run])
    given = {a.name: a for a in diagnosis.remedies}
    assert ("no debugging settings" in given) == (waits and launches * STEADY >= 10 > 3)


def test_weights_that_are_shared_get_another_fix(tmp_path: Path) -> None:
    apart, shared = (
        advice(profile_of(tmp_path / f"{number}.pt.trace.json", *[step] * STEADY))
        for number, step in enumerate((scattered(), tied()))
    )
    assert "share no weights" in shared["flatten_parameters"].fix
    assert "share no weights" not in apart["flatten_parameters"].fix


def test_an_op_that_computes_on_the_cpu_is_no_dispatch(tmp_path: Path) -> None:
    run = profile_of(tmp_path / "profile.pt.trace.json", *[drawn_on(4_400)] * STEADY)
    (diagnosis,) = lp.diagnose([run])
    assert diagnosis.verdict.kind == "CPU op"
    assert "aten::normal_ takes" in diagnosis.verdict.evidence


@pytest.mark.parametrize("call", ["cudaLaunchKernel", "runFunction - job_prep_and_submit"])
def test_a_launch_for_another_device_is_a_launch(call: str, tmp_path: Path) -> None:
    """Other makers' runtimes have other names for the call (here MTIA's)."""
    path = tmp_path / "profile.pt.trace.json"
    profile_of(path, *[other_device(20)] * STEADY)
    path.write_bytes(path.read_bytes().replace(b"cudaLaunchKernel", call.encode()))
    found = lp.diagnose(lp.read(path), device=0)
    kinds = {explained.finding.kind for explained in found.shown}
    assert "launch" in kinds
    assert "runtime" not in kinds


def test_embedding_look_ups_are_no_elementwise_work(tmp_path: Path) -> None:
    run = profile_of(tmp_path / "profile.pt.trace.json", *[looked_up()] * STEADY)
    (diagnosis,) = lp.diagnose([run])
    assert diagnosis.verdict.kind == "embedding"
    assert diagnosis.verdict.evidence.startswith("2 embedding")


def test_a_convolution_of_two_kernels_is_one(tmp_path: Path) -> None:
    run = profile_of(tmp_path / "profile.pt.trace.json", *[convolved()] * STEADY)
    (diagnosis,) = lp.diagnose([run])
    assert diagnosis.verdict.evidence.startswith("1 convolution per step")


def test_python_of_compiled_code_gets_a_graph_and_no_sampling_profiler(tmp_path: Path) -> None:
    run = profile_of(tmp_path / "profile.pt.trace.json", *[asleep(INDUCTOR)] * STEADY)
    given = advice(run)
    assert "CUDA graph" in given
    assert "look inside" not in given
