"""What time was for: an input that is prepared, a compiler that runs, whatever ran in them."""

from __future__ import annotations

from collections import Counter

import pytest
import shared_traces
from events.rows import Row, row, table

from lstmprof import formats
from lstmprof.diagnose.findings.causes import Comparison, kind_of
from lstmprof.diagnose.step_profile.contributors import contributors
from lstmprof.events.annotate import annotated
from lstmprof.events.annotate.steps import windows
from lstmprof.events.table import EventTable

MAIN, OTHER = {"pid": 1, "tid": 1}, {"pid": 1, "tid": 2}
DATALOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def kinds_of(events: EventTable, device: int | None) -> dict[str, int]:
    """Kind → ns of the whole of one lane."""
    found = windows(events, captured=False)
    kinds: Counter[str] = Counter()
    for each in contributors(events, found, found[0].rank, device):
        kinds[kind_of(each, Comparison(device is not None))] += each.ns
    return dict(kinds)


def kinds(rows: list[Row], device: int | None) -> dict[str, int]:
    return kinds_of(annotated(table(rows), captured=False), device)


#            0        10        20        30        40        50        60 ns
# step       |==========================================================|
# compiler      |5 ------------------------- 35|
# frame            |8 ---- 15|
# aten::mm                       |18 -- 25|
# aten::add                                         |40 -- 45|
@pytest.mark.parametrize(
    "compiler",
    [
        "compile_fx_inner (dynamo_timed)",
        "torch/_dynamo/convert_frame.py(1064): _compile",
        "torch/_inductor/compile_fx.py(1503): fx_codegen_and_compile",
        "torch/_inductor/runtime/triton_heuristics.py(300): precompile",
        "triton/compiler/compiler.py(226): compile",
        "$pjit.py:1822 backend_compile_and_load",
        "tf.function-graph_building",
        "XlaCompile",
        "TfrtTpuCompiler::Compile",
        "trace_to_jaxpr_dynamic",
        "lower_sharding_computation",
        "backend_compile_and_load",
        "FusionKernelRuntime::compileFusionParallel",
        "hiprtcCompileProgram",
        "nvrtcCompileProgram",
    ],
)
def test_what_runs_beneath_a_compiler_is_compiling(compiler: str) -> None:
    rows = [
        row("step", "ProfilerStep#1", 0, 60, **MAIN),
        row("op", compiler, 5, 35, **MAIN),
        row("python", "view.py(3): go", 8, 15, **MAIN),
        row("op", "aten::mm", 18, 25, **MAIN),
        row("op", "aten::add", 40, 45, **MAIN),
    ]
    assert kinds(rows, None)["compile"] == 30 + 5  # and the way into it


@pytest.mark.parametrize(
    "warm",
    [
        "Torch-Compiled Region: 0/0",
        "TorchDynamo Cache Lookup",
        "## Call CompiledFxGraph fal4 ##",
        "CompiledFunctionBackward",
        "torch/_dynamo/eval_frame.py(1039): _fn",
        "triton/runtime/jit.py(574): run",
        "triton/compiler/compiler.py(482): launch_metadata",
        "vllm/compilation/wrapper.py(208): __call__",
        "torch/compiler/__init__.py(367): is_compiling",
        "torch/_inductor/compile_fx.py(1767): run",
        "torch/_inductor/standalone_compile.py(62): __call__",
        "torch/_compile.py(41): inner",
        "mine/models/base_model.py(649): _run_compile_warmup",
        "re/__init__.py(272): _compile",
        "step_compile",
        "forward_compile_warm",
        "PjitFunction(step)",
        "TfrtTpuExecutable::Execute",
    ],
)
def test_running_what_was_compiled_is_no_compiling(warm: str) -> None:
    rows = [row("step", "ProfilerStep#1", 0, 60, **MAIN), row("op", warm, 5, 35, **MAIN)]
    assert "compile" not in kinds(rows, None)


#          0        10        20        30        40        50        60 ns
# step     |==========================================================|
# compiler    |5 ------------ 20|
#   launch      |8 9|
# aten::mm                            |32 ---- 40|
#   launch                              |34 - 37|
# kernel              |10 - 15|  (an autotuner's)  |42 --- 50|
def test_a_device_waits_for_a_compiler_and_what_it_tries_out_is_compiling() -> None:
    on_device = {"device": 0, "stream": 7}
    rows = [
        row("step", "ProfilerStep#1", 0, 60, **MAIN),
        row("op", "backend_compile", 5, 20, **MAIN),
        row("runtime", "cudaLaunchKernel", 8, 9, **MAIN, correlation_id=1),
        row("kernel", "candidate", 10, 15, **on_device, correlation_id=1),
        row("op", "aten::mm", 32, 40, **MAIN),
        row("runtime", "cudaLaunchKernel", 34, 37, **MAIN, correlation_id=2),
        row("kernel", "sgemm", 42, 50, **on_device, correlation_id=2),
    ]
    found = kinds(rows, 0)
    assert found["compile"] == (10 - 5) + (15 - 10) + (20 - 15)
    assert found["launch"] == 42 - 34
    assert found["Python"] == 5 + (32 - 20) + (60 - 50)


#          0        10        20        30        40        50        60 ns
# step     |==========================================================|
# compiler    |5 ------------------ 30|
# next            |10 ------------------------------ 48|   a generator's frame
#   call             |15 --------- 28|
# aten::mm                              |35 -- 42|
# kernel                                       |43 - 50|
def test_a_frame_that_begins_inside_a_compiler_and_ends_after_it_compiles_until_then() -> None:
    rows = [
        row("step", "ProfilerStep#1", 0, 60, **MAIN),
        row("range", "CUDAGraphNode.record (dynamo_timed)", 5, 30, **MAIN),
        row("python", "<built-in function next>", 10, 48, **MAIN),
        row("python", "partition.py(6894): call", 15, 28, **MAIN),
        row("op", "aten::mm", 35, 42, **MAIN),
        row("runtime", "cudaLaunchKernel", 36, 41, **MAIN, correlation_id=1),
        row("kernel", "sgemm", 43, 50, device=0, stream=7, correlation_id=1),
    ]
    assert kinds(rows, 0)["compile"] == 30 - 5
    assert kinds(rows[:5], None)["compile"] == 30 - 5


#          0        10        20        30        40        50 ns
# step     |================================================|
# main        |5 6| capture begins      |32 34| capture ends
#   launches          |18 20|  (captured)       |38 40|
# other     |2 --------- 22| a frame
# kernel                                             |42 - 48|
def test_a_thread_that_captures_a_graph_compiles_and_another_does_not() -> None:
    rows = [
        row("step", "ProfilerStep#1", 0, 50, **MAIN),
        row("runtime", "cudaStreamBeginCapture", 5, 6, **MAIN, correlation_id=1),
        row("runtime", "cudaLaunchKernel", 18, 20, **MAIN, correlation_id=2),
        row("runtime", "cudaStreamEndCapture", 32, 34, **MAIN, correlation_id=3),
        row("python", "other.py(3): go", 2, 22, **OTHER),
        row("runtime", "cudaGraphLaunch", 38, 40, **MAIN, correlation_id=4),
        row("kernel", "sgemm", 42, 48, device=0, stream=7, correlation_id=4),
    ]
    assert kinds(rows, 0)["compile"] == 34 - 5


#          0        10        20        30        40        50 ns
# step     |================================================|
# main       |2 -- compile ------------ 28|
# other                                       |36 38| launch
# kernel                                          |39 - 45|
def test_a_wait_for_a_thread_of_which_nothing_is_recorded_while_another_compiles() -> None:
    rows = [
        row("step", "ProfilerStep#1", 0, 50, **MAIN),
        row("range", "compileFusionParallel", 2, 28, **MAIN),
        row("range", "X::compileFusionParallel", 2, 28, **MAIN),
        row("runtime", "cudaLaunchKernel", 36, 38, **OTHER, correlation_id=1),
        row("kernel", "sgemm", 39, 45, device=0, stream=7, correlation_id=1),
    ]
    found = kinds(rows, 0)
    assert found["compile"] == 28 - 2
    assert found["unrecorded"] == 2 + (36 - 28)


#            0        10        20        30        40        50        60 ns
# step       |==========================================================|
# next batch    |5 ------------------------- 35|
#   aten::sub      |8 ---- 15|
#   copy                       |17 19|
# Memcpy                          |20 -------- 30|
# aten::mm                                         |40 ---- 50|
#   launch                                           |42 45|
# kernel                                                |46 - 52|
@pytest.mark.parametrize(
    "batch",
    [
        DATALOADER,
        "torch/utils/data/dataloader.py(702): __next__",
        "train/IteratorGetNext",
        "model/next:IteratorGetNextSync",
        "IteratorGetNext",
        "[pl][profile][_TrainingEpochLoop].train_dataloader_next",
        "data_loading",
        "## load_data ##",
        "train.py(12): get_batch",
    ],
)
def test_a_device_waits_for_its_input(batch: str) -> None:
    on_device = {"device": 0, "stream": 7}
    rows = [
        row("step", "ProfilerStep#1", 0, 60, **MAIN),
        row("python" if ".py(" in batch else "range", batch, 5, 35, **MAIN),
        row("op", "aten::sub", 8, 15, **MAIN),
        row("runtime", "cudaMemcpyAsync", 17, 19, **MAIN, correlation_id=1),
        row("memcpy", "Memcpy HtoD (Pinned -> Device)", 20, 30, **on_device, correlation_id=1),
        row("op", "aten::mm", 40, 50, **MAIN),
        row("runtime", "cudaLaunchKernel", 42, 45, **MAIN, correlation_id=2),
        row("kernel", "sgemm", 46, 52, **on_device, correlation_id=2),
    ]
    assert kinds(rows, 0)["input"] == 35 - 5


#            0        10        20        30        40 ns
# main        |2 ------ DataLoader ------- 26|            one op
# worker                                       |29 31 33 35| three ops, no markers
# kernel                                              |36 - 40|
def test_the_input_is_prepared_by_the_thread_that_launches_though_another_has_more_ops() -> None:
    on_device = {"device": 0, "stream": 7}
    rows = [
        row("runtime", "cudaLaunchKernel", 0, 1, **MAIN, correlation_id=1),
        row("kernel", "first", 1, 2, **on_device, correlation_id=1),
        row("range", DATALOADER, 2, 26, **MAIN),
        *(row("op", "aten::add", at, at + 1, **OTHER) for at in (27, 29, 31)),
        row("runtime", "cudaLaunchKernel", 33, 35, **OTHER, correlation_id=2),
        row("kernel", "sgemm", 36, 40, **on_device, correlation_id=2),
    ]
    assert kinds(rows, 0)["input"] == 26 - 2


#            0        10        20        30        40 ns
# main        |1 --------- EagerKernelExecute --------- 41|
# tf_data     |2 -- IteratorGetNextOp -- 26|
# tf_Compute                                  |33 35|
# kernel                                              |36 - 40|
@pytest.mark.parametrize(
    ("name", "input_ns"),
    [
        ("IteratorGetNextOp::DoCompute", 26 - 2),
        ("IteratorGetNextAsOptionalOp::DoCompute", 26 - 2),
        ("Iterator::Prefetch", 0),  # in the background, for a later step
    ],
)
def test_tensorflow_takes_the_next_element_on_a_thread_that_launches_nothing(
    name: str, input_ns: int
) -> None:
    rows = [
        row("step", "train", 0, 42, **MAIN),
        row("op", "EagerKernelExecute", 1, 41, **MAIN),
        row("op", name, 2, 26, **OTHER),
        row("runtime", "cudaLaunchKernel", 33, 35, pid=1, tid=3, correlation_id=1),
        row("kernel", "sgemm", 36, 40, device=0, stream=7, correlation_id=1),
    ]
    found = kinds(rows, 0)
    assert found.get("input", 0) == input_ns
    assert found["unrecorded"] == 33 - input_ns


#            0        10        20        30        40 ns
# main        |1 ------------- FunctionRun ------------ 41|
# tf_data     |2 -- IteratorGetNextOp -- 26|
# tf_Compute                |14 - MatMul - 20|   |30 - MatMul - 38|
def test_a_host_waits_for_the_next_element_while_no_op_computes() -> None:
    rows = [
        row("step", "train", 0, 42, **MAIN),
        row("op", "FunctionRun", 1, 41, **MAIN),
        row("op", "IteratorGetNextOp::DoCompute", 2, 26, **OTHER),
        *(row("op", "MatMul", *at, pid=1, tid=3, category="gemm") for at in ((14, 20), (30, 38))),
    ]
    assert kinds(rows, None)["input"] == 24 - 6


def read_one_by_one(between: str, took_ns: int = 20, pause_ns: int = 10) -> list[Row]:
    """A step of 10 µs with ten values, before each of which the op ``between`` runs."""
    rows, at = [row("step", "step", -1000, 10_000_000, **MAIN)], 1000
    for _ in range(10):
        rows.append(row("op", between, at, at + took_ns, **MAIN))
        rows.append(row("op", "aten::item", at + took_ns + 5, at + took_ns + 9, **MAIN))
        at += took_ns + 9 + pause_ns
    return rows


def test_one_long_wait_for_the_cpu_is_part_of_the_loop_it_fell_into() -> None:
    rows = read_one_by_one("aten::select")
    for one in rows[7:]:  # all after the third value
        one["start_ns"] += 5_000_000
    assert kinds(rows, None)["sync"] == 9 * (20 + 9 + 10) + 9 + 5_000_000


#  step  |=====================================================|
#  ops      |select|5 ns|item 4 ns| 10 ns |select|5 ns|item| …   ten times
def test_a_loop_that_reads_values_takes_what_picks_them_out_too() -> None:
    assert kinds(read_one_by_one("aten::select"), None)["sync"] == 9 * (20 + 9 + 10) + 9


#  step  |==========================================================|
#  ops    |unbind 900 ns|  pause  |select|5 ns|item 4 ns| 10 ns |select| …   ten times
@pytest.mark.parametrize(("pause_ns", "taken_apart"), [(90, True), (900, True), (901, False)])
def test_a_loop_over_a_tensor_begins_where_that_is_taken_apart(
    pause_ns: int, taken_apart: bool
) -> None:
    rows = read_one_by_one("aten::select")
    unbind = row("op", "aten::unbind", 100 - pause_ns, 1000 - pause_ns, **MAIN)
    loop = kinds(rows, None)["sync"]
    before = 900 + pause_ns + 20  # and the first value is picked out
    with_unbind = kinds([rows[0], unbind, *rows[1:]], None)["sync"]
    assert with_unbind == loop + (before if taken_apart else 0)


@pytest.mark.parametrize(
    ("why", "rows"),
    [
        ("an op between computes", read_one_by_one("aten::mm")),
        ("a reduction takes long", read_one_by_one("aten::sum", took_ns=30_000)),
        ("Python does something else", read_one_by_one("aten::select", pause_ns=200_000)),
        ("there are few", read_one_by_one("aten::select")[:7]),
    ],
)
def test_values_that_no_loop_reads_one_by_one_take_their_own_time(
    why: str, rows: list[Row]
) -> None:
    items = sum(one["name"] == "aten::item" for one in rows)
    assert kinds(rows, None)["sync"] == (5 + 4) * items, why


@shared_traces.needed
@pytest.mark.parametrize(
    ("name", "kind", "least_share"),
    [
        ("tf/tpu-inference.xplane.pb", "compile", 0.01),
        ("kineto/kineto2021-resnet50-v100-nw0.pt.trace.json.gz", "input", 0.3),
    ],
)
def test_real_profiles_compile_and_wait_for_input(name: str, kind: str, least_share: float) -> None:
    events = annotated(formats.read(shared_traces.FOLDER / name).events, captured=False)
    found = windows(events, captured=False)
    rank = found[0].rank
    device = events.ints("device", -1)
    found_kinds = kinds_of(events, int(device.max()) if (device >= 0).any() else None)
    assert rank is None or rank >= 0
    assert found_kinds[kind] / sum(found_kinds.values()) >= least_share
