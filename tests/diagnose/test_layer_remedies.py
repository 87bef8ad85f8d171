"""Why a recurrent layer is slow on a GPU, in profiles made elsewhere: files of Kineto alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from diagnose.layer_documents import (
    A30,
    A100,
    MI300,
    P100,
    SMALL,
    SMALL_BACKWARD,
    V100,
    Document,
    training,
)
from diagnose.torch_profiles import reads_like_its_example

PERSISTENT = "persistent kernels"


@pytest.mark.parametrize(
    ("device", "shape", "needs"),
    [
        (A100, {"hidden": 256, "batch": 60}, "a multiple of 8 (this batch size is 60)"),
        (
            A100,
            {"hidden": 1152, "batch": 64},
            "use at most 1,024 hidden units (this layer has 1,152)",
        ),
        (A100, {"hidden": 512, "batch": 256}, "at most 128 (this batch size is 256)"),
        (A100, {"hidden": 512, "batch": 64, "inputs": 123}, "a multiple of 128 inputs"),
        (A100, {"hidden": 512, "batch": 64, "inputs": 256, "layers": 2}, "one layer per call"),
        (
            A100,
            {"hidden": 512, "batch": 64, "dtype": "float"},
            "use float16 (this layer uses float32)",
        ),
        (
            A100,
            {"hidden": 512, "batch": 64, "dtype": "c10::BFloat16"},
            "use float16 (this layer uses bfloat16)",
        ),
        (A30, {"hidden": 512, "batch": 64}, "98 multiprocessors or more"),
        (
            V100,
            {"hidden": 512, "batch": 80, "time_steps": 40},
            "use a batch size of 8, or a multiple of 16",
        ),
        (A100, {"hidden": 193, "batch": 64, "dtype": "float"}, "at most 192 hidden units"),
    ],
)
def test_the_condition_that_keeps_a_layer_on_the_standard_kernels(
    tmp_path: Path, device: dict[str, Any], shape: dict[str, Any], needs: str
) -> None:
    advice = training(device, **shape).advice(tmp_path)[PERSISTENT]
    assert needs in advice.fix
    assert "forward and backward pass" in advice.seen


def test_a_layer_that_trains_falls_off_in_the_backward_pass_alone(tmp_path: Path) -> None:
    document = training(A100, hidden=160, batch=64, dtype="float", kernels=SMALL)
    advice = document.advice(tmp_path)[PERSISTENT]
    assert "in the backward pass" in advice.seen
    assert "forward" not in advice.seen
    assert "at most 128 hidden units for the backward pass (this layer has 160)" in advice.fix


@pytest.mark.parametrize("batch", [8, 64, 128])
def test_a_layer_on_persistent_kernels_gets_no_advice(tmp_path: Path, batch: int) -> None:
    document = training(A100, hidden=128, batch=batch, kernels=SMALL, backward=SMALL_BACKWARD)
    assert PERSISTENT not in document.advice(tmp_path)


def test_cudnn_may_not_take_what_pytorch_asks_for(tmp_path: Path) -> None:
    document = training(A100, hidden=128, batch=64, dtype="c10::BFloat16")
    advice = document.advice(tmp_path)[PERSISTENT]
    assert "persist_static_small_h" in advice.seen
    assert "float16" in advice.fix


def product(dtype: str, sizes: tuple[int, int, int], kernel: str) -> dict[str, Any]:
    rows, inner, columns = sizes
    shapes = [[columns], [rows, inner], [inner, columns]]
    return {
        "name": "aten::addmm",
        "shapes": shapes,
        "dtypes": [dtype] * 3,
        "kernels": [(kernel, 900.0)],
    }


def of_product(device: dict[str, Any], op: dict[str, Any]) -> Document:
    document = Document(device)
    for number in (1, 2):
        since_us = document.host_us
        document.op(**op)
        document.step(number, since_us=since_us)
    return document


SCALAR, TENSOR = "volta_fp16_sgemm_fp16_128x64_nn", "volta_fp16_s884gemm_fp16_128x64_ldg8_f2f_nn"
UNALIGNED = "void cutlass::Kernel<cutlass_80_tensorop_f16_s16816gemm_f16_64x64_32x6_nn_align2>"


@pytest.mark.parametrize("kernel", [SCALAR, UNALIGNED])
def test_sizes_that_are_no_multiples_of_8(tmp_path: Path, kernel: str) -> None:
    op = product("c10::Half", (640, 320, 1001), kernel)
    advice = of_product(V100, op).advice(tmp_path)["multiples of 8"]
    assert "640 × 320 × 1,001" in advice.seen
    assert "1,001 to 1,008" in advice.fix


@pytest.mark.parametrize(
    ("dtype", "sizes", "kernel"),
    [
        ("c10::Half", (640, 320, 1001), TENSOR),
        ("c10::Half", (640, 320, 1000), SCALAR),
        ("float", (640, 320, 1001), "volta_sgemm_128x64_nn"),
    ],
)
def test_sizes_are_blamed_for_slow_kernels_of_half_precision_alone(
    tmp_path: Path, dtype: str, sizes: tuple[int, int, int], kernel: str
) -> None:
    assert "multiples of 8" not in of_product(V100, product(dtype, sizes, kernel)).advice(tmp_path)


def test_half_precision_without_tensor_cores(tmp_path: Path) -> None:
    op = product("c10::Half", (640, 320, 1001), "maxwell_fp16_sgemm_fp16_128x64_nn")
    advice = of_product(P100, op).advice(tmp_path)
    assert "compute capability 6.0" in advice["float32 without tensor cores"].seen
    assert "multiples of 8" not in advice
    assert "float32 without tensor cores" not in of_product(V100, op).advice(tmp_path)


def on_miopen(*calls: tuple[str, float]) -> Document:
    document = Document(MI300)
    for number in (1, 2):
        since_us = document.host_us
        document.op(
            "aten::miopen_rnn",
            [[10, 64, 320], [], [], [1, 64, 320]],
            ["float", "TensorList", "", "float"],
            [("Cijk_Ailk_Bljk_SB_MT64x64x16", 8.0), ("LSTMForwardHiddenUpdate", 4.0)] * 10,
            calls=calls if number == 1 else (),
        )
        document.step(number, since_us=since_us)
    return document


def test_miopen_compiles_kernels_in_the_steps(tmp_path: Path) -> None:
    advice = on_miopen(("hiprtcCompileProgram", 90_000.0)).advice(tmp_path)
    assert "hiprtcCompileProgram" in advice["warm MIOpen up"].seen
    assert "warm MIOpen up" not in on_miopen().advice(tmp_path)


def test_a_layer_on_miopen_is_many_kernels(tmp_path: Path) -> None:
    assert "aten::miopen_rnn" in on_miopen().advice(tmp_path)["cells instead of MIOpen"].seen


def op_by_op(dtype: str, device: dict[str, Any] = A100) -> Document:
    """nn.LSTM without an op of a library: a product and a fused cell per time step."""
    document, time_steps, hidden = Document(device), 10, 64
    sizes = [[4 * hidden], [32, hidden], [hidden, 4 * hidden]]
    cell = [
        {
            "name": "aten::addmm",
            "shapes": sizes,
            "dtypes": [dtype] * 3,
            "kernels": [("ampere_bf16_s16816gemm_bf16_64x64_ldg8_f2f_stages_64x5_tn", 8.0)],
        },
        {"name": "aten::_thnn_fused_lstm_cell", "kernels": [("lstm_cell_forward", 4.0)]},
    ]
    state = [1, 32, hidden]
    weights = [[4 * hidden, hidden], [4 * hidden, hidden], [4 * hidden], [4 * hidden]]
    for number in (1, 2):
        since_us = document.host_us
        shapes = [[time_steps, 32, hidden], [state, state], weights]
        types = [dtype, "TensorList", "TensorList"]
        document.op("aten::lstm", shapes, types, inside=cell * time_steps)
        document.step(number, since_us=since_us)
    return document


@pytest.mark.parametrize(
    ("document", "named"),
    [
        (op_by_op("c10::BFloat16"), True),
        (op_by_op("c10::BFloat16", MI300), True),
        (op_by_op("float"), False),
        (training(A100, hidden=128, batch=64, dtype="c10::BFloat16"), False),
    ],
)
def test_a_layer_in_bfloat16_without_a_library(
    document: Document, named: bool, tmp_path: Path
) -> None:
    given = document.advice(tmp_path)
    assert ("bfloat16 on cuDNN" in given) == named
    assert not named or reads_like_its_example(given["bfloat16 on cuDNN"])


def compiled(
    cells: int, *weights: list[int], region: str = "Torch-Compiled Region: 0/0"
) -> Document:
    """A call of compiled code with so many products with these weights, one after the other."""
    document = Document(A100)
    product = {
        "name": "aten::addmm",
        "dtypes": ["float"] * 3,
        "kernels": [
            ("ampere_sgemm_32x32_sliced1x4_nn", 6.0),
            ("triton_poi_fused_sigmoid_tanh_3", 3.0),
        ],
    }
    for number in (1, 2):
        since_us = document.host_us
        shapes = [[[weight[1]], [8, weight[0]], weight] for weight in weights]
        document.op(region, inside=[{**product, "shapes": s} for s in shapes] * cells)
        document.step(number, since_us=since_us)
    return document


def looping(turns: int, region: str = "Torch-Compiled Region: 0/0") -> Document:
    """A while_loop in compiled code: before each turn the host reads whether to go on."""
    document = Document(A100)
    wait = [("cudaStreamSynchronize", 9.0)]
    read = {"name": "aten::_local_scalar_dense", "calls": wait}
    read = {"name": "aten::is_nonzero", "inside": [{"name": "aten::item", "inside": [read]}]}
    product = {"name": "aten::addmm", "kernels": [("ampere_sgemm_32x32_sliced1x4_nn", 6.0)]}
    for number in (1, 2):
        since_us = document.host_us
        document.op(region, inside=[*[read, product] * turns, read])
        document.step(number, since_us=since_us)
    return document


@pytest.mark.parametrize(
    ("document", "named"),
    [(looping(16), True), (looping(5), False), (looping(16, "forward"), False)],
)
def test_a_loop_of_torch_that_asks_the_host(
    document: Document, named: bool, tmp_path: Path
) -> None:
    given = document.advice(tmp_path)
    assert ("loop without the host" in given) == named
    assert not named or reads_like_its_example(given["loop without the host"])


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (compiled(16, [32, 128]), "16 LSTM cells"),
        (compiled(12, [32, 96]), "12 GRU cells"),
        (compiled(16, [32, 32]), ""),
        (compiled(4, [32, 128]), ""),
        (compiled(16, [32, 128], region="forward"), ""),
        # The next layer's cells run in between; the MLP and the attention of a transformer.
        (compiled(16, [32, 128], [48, 128]), "16 LSTM cells"),
        (compiled(16, [32, 128], [128, 32]), ""),
        (compiled(16, [32, 96], [32, 32]), ""),
    ],
)
def test_compiled_code_that_runs_a_layer_cell_by_cell(
    document: Document, words: str, tmp_path: Path
) -> None:
    advice = document.advice(tmp_path).get("layer outside compiled code")
    assert words in (advice.seen if advice else "")
    assert (advice is not None) == bool(words)
