"""Recurrent kernels without ops, as Nsight Systems has them."""

from __future__ import annotations

from breakdown.recurrent.rows import HOST, known, layers_of
from events.rows import Row, row

GPU = {"device": 0, "stream": 7}


def kernels(at: int, *names: str) -> list[Row]:
    return [
        row("kernel", name, at + 10 * n, at + 10 * n + 8, **GPU) for n, name in enumerate(names)
    ]


def test_cudnns_kernels_are_a_layer_of_which_little_is_known() -> None:
    forward = "void LSTM_elementWise_fp<float, float, float, (cudnnRNNBiasMode_t)2>(int)"
    backward = "void LSTM_elementWise_bp1<float, float, float>(int, int)"
    rows = [row("step", f"step#{n}", 1000 * n, 1000 * n + 900, **HOST) for n in range(2)]
    for n in range(2):
        rows += kernels(1000 * n, forward, "sgemm", forward, forward, backward, "sgemm", backward)
    (layer,) = layers_of(rows)
    assert known(layer, "form", "library", "op", "cell") == (
        *("layer op", "cuDNN", "LSTM_elementWise_fp", "lstm"),
    )
    assert known(layer, "forward_ns", "backward_ns") == (38, 28)
    assert known(layer, "calls", "time_steps", "cells", "hidden") == (None, None, None, None)


def test_pytorchs_fused_kernel_is_launched_once_a_cell() -> None:
    name = (
        "void at::native::(anonymous namespace)::kernel::lstm_cell_forward<float, float, int, 2>()"
    )
    (layer,) = layers_of(kernels(0, *[name] * 12))
    assert known(layer, "form", "op", "cells") == ("cell op", "lstm_cell_forward", 12)


def test_other_kernels_are_none() -> None:
    assert (
        layers_of(kernels(0, "void mylstmnet_gemm()", "nvjet_tst_64x8", "elementwise_kernel")) == []
    )


def ops(*names: str) -> list[Row]:
    return [row("op", name, 10 * n, 10 * n + 8, **HOST) for n, name in enumerate(names)]


def test_mxnets_rnn_op_is_a_layer_with_both_passes() -> None:
    (layer,) = layers_of(ops("mxnet::RNN", "mxnet::FullyConnected", "mxnet::_backward_RNN"))
    assert known(layer, "form", "framework", "op", "cell", "cells") == (
        *("layer op", "mxnet", "mxnet::RNN", None, None),
    )
    assert known(layer, "forward_ns", "backward_ns") == (8, 8)


def test_chainers_functions_are_cells_and_its_links_for_stacks_are_layers() -> None:
    cells = ["chainer::LSTM", "chainer::Stack"] * 4 + ["chainer::LSTMBackward"] * 4
    (loop,) = layers_of(ops(*cells))
    assert known(loop, "form", "cell", "cells") == ("cell op", "lstm", 4)
    (stack,) = layers_of(ops("chainer::NStepBiGRU", "chainer::LinearFunction"))
    assert known(stack, "form", "op", "cell") == ("layer op", "chainer::NStepBiGRU", "gru")
