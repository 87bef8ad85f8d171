"""What a lane's steps did is counted by what it is: nouns over events on drawn timelines."""

from __future__ import annotations

from typing import Any

import pytest
from diagnose.made import tally as expected
from events.rows import Row, row, table

from lstmprof.breakdown.tables import TABLES
from lstmprof.diagnose.step_profile.tally import noun_of, tally
from lstmprof.events.annotate import annotated
from lstmprof.events.annotate.steps import Window, windows

HOST = {"pid": 1, "tid": 1, "rank": 0}
GPU = {"rank": 0, "device": 0, "stream": 7}


def tallied(
    rows: list[Row], device: int | None = 0, only: tuple[str, ...] = ()
) -> dict[str, list[int]]:
    """Noun → [count, total, median, longest] of the nouns of which there are any, or of these."""
    events = annotated(table(rows), captured=False)
    found = tally(events, windows(events, captured=False), 0, device)
    return {
        noun: list(vars(spread).values())
        for noun, spread in found.items()
        if (noun in only if only else spread.count)
    }


def launched(number: int, start: int, end: int, kind: str = "kernel", **fields: Any) -> list[Row]:
    """An activity of [start, end) and its launch 10 ns before it."""
    call = "cudaLaunchKernel" if kind == "kernel" else "cudaMemcpyAsync"
    name = fields.pop("name", "k")
    return [
        row("runtime", call, start - 10, start - 5, **HOST, correlation_id=number),
        row(kind, name, start, end, **{**GPU, **fields}, correlation_id=number),
    ]


def test_a_kernel_is_no_copy_and_no_helper_is_a_product() -> None:
    #  time   10   20  30     50       60       70  80       90  94       110      120
    #         [im2col) [gemm..)        [Memcpy)     [Memset)     [splitK)          [gemm 4 ns)
    rows = [
        *launched(1, 10, 20, name="void at::native::im2col_kernel<float>(long)"),
        *launched(2, 30, 50, name="ampere_sgemm_128x64_nn"),
        *launched(3, 60, 70, "memcpy", name="Memcpy HtoD (Pageable -> Device)"),
        *launched(4, 80, 90, "memset", name="Memset (Device)"),
        *launched(5, 94, 110, name="void splitKreduce_kernel<32, 16, float>(float*)"),
        *launched(6, 120, 124, name="ampere_sgemm_128x64_nn"),
    ]
    assert tallied(rows, only=("kernel", "product", "copy", "memset", "launch", "gap")) == {
        "kernel": [4, 50, 10, 20],
        "product": [2, 24, 4, 20],
        "copy": [1, 10, 10, 10],
        "memset": [1, 10, 10, 10],
        "launch": [4, 20, 5, 5],
        "gap": [6, 54, 10, 10],  # the first launch is at 0, and none is before the end
    }


def test_a_convolution_is_counted_once_and_by_its_name() -> None:
    conv = row("op", "aten::cudnn_convolution", 0, 100, **HOST)
    linear = row("op", "aten::addmm", 100, 200, **HOST)
    rows = [
        conv,
        *launched(1, 20, 30, name="void nchwToNhwcKernel<float, float>(int)"),
        *launched(2, 40, 50, name="sm80_xmma_fprop_implicit_gemm_f32"),
        *launched(3, 60, 65, name="void nhwcToNchwKernel<float, float>(int)"),
        linear,
        *launched(4, 120, 140, name="ampere_sgemm_128x64_tn"),
    ]
    found = tallied(rows, only=("product", "convolution", "kernel"))
    assert {noun: values[0] for noun, values in found.items()} == {
        "kernel": 4,
        "product": 1,
        "convolution": 1,
    }


def test_kernels_of_one_op_are_one_convolution_and_gradients_by_their_names_two() -> None:
    #  time 0          [convolution 2 kernels)   [convolution_backward: dgrad, wgrad, wgrad)
    rows = [
        row("op", "aten::cudnn_convolution", 0, 100, **HOST),
        *launched(1, 20, 30, name="sm80_xmma_fprop_implicit_gemm_f32"),
        *launched(2, 40, 50, name="sm80_xmma_fprop_implicit_gemm_f32"),
        row("op", "aten::convolution_backward", 100, 200, **HOST),
        *launched(3, 120, 130, name="cudnn::cnn::dgrad2d_alg1_1"),
        *launched(4, 140, 150, name="cudnn::cnn::wgrad_alg0_engine"),
        *launched(5, 160, 165, name="cudnn::cnn::wgrad_alg0_engine"),
        row("op", "aten::bmm", 200, 300, **HOST),
        *launched(6, 220, 230, name="ampere_sgemm_128x64_tn"),
        *launched(7, 240, 250, name="ampere_sgemm_128x64_tn"),
    ]
    assert tallied(rows, only=("product", "convolution", "kernel")) == {
        "kernel": [7, 65, 10, 10],
        "product": [1, 20, 20, 20],
        "convolution": [3, 45, 15, 20],
    }


def test_an_op_that_calls_another_of_its_kind_is_not_counted_beside_it() -> None:
    #  time 0    10                  90  100      110   140  150
    #       [conv2d [thnn_conv2d [_slow_conv2d_forward) )  )
    #                                        [relu_ [clamp_min_) )  [add)
    rows = [
        row("op", "aten::conv2d", 0, 100, **HOST),
        row("op", "aten::thnn_conv2d", 5, 95, **HOST),
        row("op", "aten::_slow_conv2d_forward", 10, 90, **HOST),
        row("op", "aten::relu_", 100, 150, **HOST),
        row("op", "aten::clamp_min_", 110, 140, **HOST),
        row("op", "aten::add", 150, 160, **HOST),
    ]
    assert tallied(rows, device=None, only=("op", "convolution", "pointwise")) == {
        "op": [5, 150, 20, 80],
        "convolution": [1, 80, 80, 80],
        "pointwise": [2, 40, 10, 30],
    }


def test_kernels_named_as_their_op_alone_are_counted_by_its_calls() -> None:
    #  host   [Conv a)          [Conv a) [Conv b)
    #  stream    [Conv)(Conv)      [Conv)    [Conv)(Conv)    ; TensorFlow 1 names no kernel
    a, b = "net/a/Conv2D:Conv2D", "net/b/Conv2D:Conv2D"
    rows = [
        *(row("op", a, start, start + 9, **HOST) for start in (0, 50)),
        *(
            row("kernel", "Conv2D", start, start + 5, **GPU, op_name=name)
            for start, name in ((10, a), (20, a), (60, a), (80, b), (90, b))
        ),
    ]
    assert tallied(rows, only=("kernel", "convolution")) == {
        "kernel": [5, 25, 5, 5],
        "convolution": [3, 25, 10, 10],
    }


def test_launches_are_calls_that_launched_kernels_of_this_device() -> None:
    rows = [
        *launched(1, 20, 30),
        *launched(2, 40, 50, device=1),
        row("runtime", "cudaGraphLaunch", 51, 58, **HOST, correlation_id=3),
        *(row("kernel", "k", t, t + 5, **GPU, correlation_id=3) for t in (60, 70)),
        row("runtime", "hipMemcpyWithStream", 71, 75, **HOST, correlation_id=4),
        row("kernel", "__amd_rocclr_copyBuffer", 80, 85, **GPU, correlation_id=4),
        row("runtime", "cudaLaunchKernel", 90, 95, **HOST, correlation_id=5),  # of no device
    ]
    found = tallied(rows)
    assert (found["launch"], found["kernel"][0]) == ([2, 12, 5, 7], 4)
    other = tallied(rows, device=1)
    assert (other["launch"][0], other["kernel"][0]) == (1, 1)
    of_one_device = [r for r in rows if r["device"] != 1 and r["correlation_id"] != 2]
    assert tallied(of_one_device)["launch"][0] == 3


def test_gaps_before_copies_and_at_the_borders_of_a_step_count() -> None:
    #  time   0    10   20   30   40   50   60   70   80   90
    #              [long......)         [short)  [copy)[short)
    #                   [in)
    moved = {**HOST, "rank": 0}
    rows = [
        row("step", "step", 0, 100, **moved),
        row("kernel", "long", 10, 40, **GPU),
        row("kernel", "in", 20, 25, **{**GPU, "stream": 8}),
        row("kernel", "short", 50, 55, **GPU),
        row("memcpy", "Memcpy DtoD (Device -> Device)", 60, 70, **GPU),
        row("kernel", "short", 71, 80, **GPU),
    ]
    assert tallied(rows)["gap"] == [6, 10 + 0 + 10 + 5 + 1 + 20, 5, 20]


def test_gaps_sum_to_those_of_the_launch_gap_table() -> None:
    #  time   0    10   20   30   40   50   60   70
    #         [long......)         [short)  [copy)[short)
    #              [in)
    rows = [
        row("kernel", "long", 0, 30, **GPU),
        row("kernel", "in", 10, 15, **{**GPU, "stream": 8}),
        row("kernel", "short", 40, 45, **GPU),
        row("memcpy", "Memcpy DtoD (Device -> Device)", 50, 60, **GPU),
        row("kernel", "short", 61, 70, **GPU),
        row("kernel", "elsewhere", 62, 63, **{**GPU, "device": 1}),
    ]
    events = annotated(table(rows), captured=False)
    found = tallied(rows)["gap"]
    assert found == [4, 0 + 10 + 5 + 1, 1, 10]
    gaps = TABLES["launch_gaps"].of(events, [Window(0, 0, 0, 70, None)]).to_pylist()
    assert sum(r["gap_total_ns"] for r in gaps if r["device"] == 0) == found[1]


def test_only_the_steps_given_count() -> None:
    rows = [
        row("step", "step", 0, 100, **HOST),
        *launched(1, 20, 30),
        row("step", "step", 100, 200, **HOST),
        *launched(2, 120, 170),
    ]
    events = annotated(table(rows), captured=False)
    both = windows(events, captured=False)
    assert tally(events, both[1:], 0, 0)["kernel"] == expected(kernel=[50])["kernel"]


def test_on_a_host_ops_are_counted_by_what_they_compute() -> None:
    ops = (
        *("aten::mm", "aten::mkldnn_convolution", "aten::mkldnn_rnn_layer", "aten::tanh"),
        *("aten::sum", "aten::cat", "aten::view", "x:BlockLSTM", "x:LSTMBlockCell"),
        "aten::_scaled_dot_product_flash_attention_for_cpu",
    )
    rows = [row("op", name, 10 * n, 10 * n + 4, **HOST) for n, name in enumerate(ops)]
    counts = {noun: values[0] for noun, values in tallied(rows, device=None).items()}
    assert counts == {
        **{"op": 9, "product": 1, "convolution": 1, "attention": 1, "pointwise": 2},
        **{"copy": 1, "layer": 2, "cell": 1},
    }


def test_what_cannot_be_known_has_no_row() -> None:
    on_host = tallied([row("op", "aten::mm", 0, 9, **HOST)], None, ("kernel", "launch", "gap"))
    assert on_host == {}
    alone = tallied([row("kernel", "k", 0, 9, **GPU)], 0, ("launch", "gap", "product"))
    assert alone == {"gap": [0, 0, 0, 0], "product": [0, 0, 0, 0]}


@pytest.mark.parametrize(
    ("category", "family", "name", "noun"),
    [
        ("rnn", "gemm", "ampere_sgemm_128x64_nn", "product"),
        ("rnn", "persistent", "RNN_blockPersist_fp_LSTM", "layer"),
        ("rnn", "pointwise", "elemWiseRNNcell", "pointwise"),
        ("rnn", "", "nobody_knows", None),
        ("optimizer", "", "Memcpy DtoD (Device -> Device)", "copy"),
        ("optimizer", "", "multi_tensor_apply_kernel", "pointwise"),
        ("embedding", "", "split_embedding_codegen_forward_unweighted_kernel", "embedding"),
        ("layout", "", "transpose_readWrite_alignment_kernel", "copy"),
        ("transfer", "", "[CUDA memcpy HtoD]", "copy"),
        ("memset", "", "[CUDA memset]", "memset"),
        ("collective", "", "ncclKernel_AllReduce", None),
        ("cast", "", "convert_element_type", None),
        ("other", "", "nobody_knows", None),
    ],
)
def test_what_an_activity_is(category: str, family: str, name: str, noun: str | None) -> None:
    assert noun_of(category, family, name, on_device=True) == noun


def test_an_op_that_autocast_calls_again_is_one() -> None:
    #  time  0                    100
    #        [mkldnn_rnn_layer     )     the wrapper, which casts
    #           10 [mkldnn_rnn_.. 90)
    name = "aten::mkldnn_rnn_layer"
    rows = [row("op", name, 0, 100, **HOST), row("op", name, 10, 90, **HOST)]
    assert tallied(rows, None)["layer"] == [1, 80, 80, 80]
