"""The algorithm that frameworks ask cuDNN for, at every boundary of their conditions.

The expected values are read off the sources that the module names, case by case; the grid is held
against the same conditions written as one expression.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from lstmprof.breakdown.recurrent.cudnn_algorithm import (
    DYNAMIC,
    SMALL_H,
    STANDARD,
    STATIC,
    Choice,
    Gpu,
    Layer,
    algorithm,
    algorithms_of_kernels,
)

#: An LSTM that PyTorch runs with persist_static on an A100, each condition just met or far from it.
LAYER = Layer(
    framework="torch",
    mode="lstm",
    dtype="float16",
    time_steps=40,
    batch=64,
    inputs=256,
    hidden=256,
    layers=1,
    directions=1,
    packed=False,
    projection=0,
)
P100, V100, T4 = Gpu(60, 56), Gpu(70, 80), Gpu(75, 40)
A100, A40, L40, H100 = Gpu(80, 108), Gpu(86, 84), Gpu(89, 142), Gpu(90, 132)


def chosen(gpu: Gpu = A100, forward: bool = True, **changes: Any) -> Choice:
    return algorithm(replace(LAYER, **changes), gpu, forward)


def unmet(choice: Choice, name: str) -> str | None:
    refusal = choice.refusal_of(name)
    return None if refusal is None else refusal.condition


@pytest.mark.parametrize("mode", ["lstm", "gru"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize(
    ("hidden", "forward", "backward"),
    [
        (64, SMALL_H, SMALL_H),
        (128, SMALL_H, SMALL_H),
        (129, SMALL_H, STANDARD),
        (192, SMALL_H, STANDARD),
        (193, STANDARD, STANDARD),
    ],
)
def test_few_hidden_units(mode: str, dtype: str, hidden: int, forward: str, backward: str) -> None:
    for gpu, layers, directions in itertools.product((P100, T4, A40, H100), (1, 3), (1, 2)):
        shape = {"mode": mode, "dtype": dtype, "hidden": hidden}
        shape |= {"layers": layers, "directions": directions}
        assert chosen(gpu, True, **shape).algorithm == forward
        assert chosen(gpu, False, **shape).algorithm == backward


@pytest.mark.parametrize("mode", ["rnn_tanh", "rnn_relu"])
@pytest.mark.parametrize(
    ("hidden", "forward", "backward"),
    [
        (256, SMALL_H, SMALL_H),
        (257, SMALL_H, STANDARD),
        (384, SMALL_H, STATIC),  # a multiple of 128, too many for the small kernel
        (385, STANDARD, STANDARD),
    ],
)
def test_few_hidden_units_of_plain_cells(
    mode: str, hidden: int, forward: str, backward: str
) -> None:
    assert chosen(mode=mode, hidden=hidden).algorithm == forward
    assert chosen(mode=mode, hidden=hidden, forward=False).algorithm == backward


def test_the_backward_pass_falls_off_before_the_forward_pass() -> None:
    backward = chosen(forward=False, hidden=192, dtype="float32")
    refusal = backward.refusal_of(SMALL_H)
    assert refusal is not None
    assert refusal.condition == "few hidden units"
    assert refusal.need == "use at most 128 hidden units for the backward pass (this layer has 192)"


@pytest.mark.parametrize(
    ("changes", "condition"),
    [
        ({"projection": 64}, "no projection"),
        ({"packed": True}, "not packed"),
        ({"dtype": "float64"}, "not double"),
    ],
)
@pytest.mark.parametrize("hidden", [64, 1024])
def test_what_every_persistent_kernel_refuses(
    changes: dict[str, Any], condition: str, hidden: int
) -> None:
    choice = chosen(H100, hidden=hidden, **changes)
    assert choice.algorithm == STANDARD
    assert unmet(choice, SMALL_H) == condition
    assert unmet(choice, STATIC) == ("float16" if condition == "not double" else condition)


def test_devices_before_6_0_have_no_persistent_kernel() -> None:
    assert unmet(chosen(Gpu(52, 24), hidden=64), SMALL_H) == "compute capability 6.0"
    assert unmet(chosen(P100), STATIC) == "compute capability 7.0"


@pytest.mark.parametrize(
    ("changes", "condition"),
    [
        ({}, None),
        ({"hidden": 1024}, None),
        ({"hidden": 1152}, "hidden at most 1024"),
        ({"hidden": 200}, "hidden a multiple of 128"),
        ({"inputs": 200}, "inputs a multiple of 128"),
        ({"layers": 2}, "one layer"),
        ({"directions": 2}, "one direction"),
        ({"dtype": "float32"}, "float16"),
        ({"dtype": "bfloat16"}, "float16"),
        ({"mode": "gru"}, "not GRU"),
        ({"batch": 8}, None),
        ({"batch": 60}, "batch a multiple of 8"),
        ({"batch": 80}, None),
        ({"batch": 112}, None),
        ({"batch": 128}, None),
        ({"batch": 136}, "batch at most 128"),
        ({"batch": 256, "hidden": 512}, "batch at most 128"),
        ({"time_steps": 1}, None),
    ],
)
@pytest.mark.parametrize("gpu", [A100, L40, H100, Gpu(100, 148)], ids=lambda gpu: gpu.sm)
def test_persist_static_from_8_0_on(
    gpu: Gpu, changes: dict[str, Any], condition: str | None
) -> None:
    for forward in (True, False):
        choice = chosen(gpu, forward, **changes)
        assert choice.algorithm == (STATIC if condition is None else STANDARD)
        assert unmet(choice, STATIC) == condition


@pytest.mark.parametrize(
    ("gpu", "condition"),
    [
        (Gpu(80, 98), None),
        (Gpu(80, 97), "98 multiprocessors"),
        (Gpu(80, 56), "98 multiprocessors"),  # an A30
        (Gpu(90, 60), "98 multiprocessors"),  # a slice of an H100
        (A40, "98 multiprocessors"),
        (Gpu(86, 128), "not compute capability x.6"),
        (T4, "not Turing"),
    ],
)
def test_devices_without_persist_static(gpu: Gpu, condition: str | None) -> None:
    choice = chosen(gpu)
    assert choice.algorithm == (STATIC if condition is None else STANDARD)
    assert unmet(choice, STATIC) == condition


@pytest.mark.parametrize("batch", [88, 96, 104])
@pytest.mark.parametrize("hidden", [768, 896, 1024])
def test_plain_cells_that_are_large_both_ways(batch: int, hidden: int) -> None:
    choice = chosen(mode="rnn_relu", batch=batch, hidden=hidden)
    fits = batch < 96 or hidden < 896
    assert unmet(choice, STATIC) == (None if fits else "plain cells small")


@pytest.mark.parametrize(
    ("batch", "least"),
    [(8, 10), (16, 10), (32, 10), (48, 20), (96, 20), (128, 40)],
)
def test_time_steps_on_volta(batch: int, least: int) -> None:
    assert chosen(V100, batch=batch, time_steps=least).algorithm == STATIC
    short = chosen(V100, batch=batch, time_steps=least - 1)
    assert (short.algorithm, unmet(short, STATIC)) == (STANDARD, "enough time steps")


@pytest.mark.parametrize("batch", [24, 60, 80, 112, 136])
def test_batches_that_volta_refuses(batch: int) -> None:
    choice = chosen(V100, batch=batch, time_steps=100)
    assert unmet(choice, STATIC) == "batch 8 or a multiple of 16"


def test_a_batch_too_large_for_volta_is_said_as_such() -> None:
    refusal = chosen(V100, batch=144, time_steps=100).refusal_of(STATIC)
    assert refusal is not None
    assert (refusal.condition, refusal.need) == (
        "enough time steps",
        "use a batch size of at most 128 (this batch size is 144)",
    )


def of_pytorch(layer: Layer, gpu: Gpu, forward: bool) -> str:
    """The conditions as one expression each."""
    mode, half = layer.mode, layer.dtype == "float16"
    b, t, h, d = layer.batch or 0, layer.time_steps or 0, layer.hidden or 0, layer.inputs or 0
    plain = mode in ("rnn_tanh", "rnn_relu")
    if layer.projection or layer.packed:
        return STANDARD
    limit = ((192, 384) if forward else (128, 256))[plain]
    if layer.dtype != "float64" and (gpu.sm or 0) >= 60 and h <= limit:
        return SMALL_H
    shape = layer.layers == 1 == layer.directions and h <= 1024 and not h % 128 and not d % 128
    volta = (gpu.sm or 0) // 10 == 7 and gpu.sm != 75
    volta &= b in (8, 16, 32, 48, 64, 96, 128)
    volta &= (t >= 40 and b <= 128) or (t >= 20 and b <= 96) or (t >= 10 and b <= 32)
    later = (gpu.sm or 0) >= 80 and (gpu.multiprocessors or 0) >= 98 and (gpu.sm or 0) % 10 != 6
    later &= mode != "gru" and not b % 8 and b <= 128 and (not plain or b < 96 or h < 896)
    return STATIC if half and shape and (volta or later) else STANDARD


def test_every_combination_of_the_boundaries() -> None:
    shapes = itertools.product(
        ("lstm", "gru", "rnn_tanh"),
        ("float16", "float32", "float64"),
        (128, 129, 193, 257, 384, 896, 1024, 1152),
        (60, 80, 96, 128, 136),
        (19, 20),
        (128, 123),
    )
    names = ("mode", "dtype", "hidden", "batch", "time_steps", "inputs")
    for shape in shapes:
        layer = replace(LAYER, **dict(zip(names, shape, strict=True)))
        for gpu, forward in itertools.product((P100, V100, T4, A100, A40, H100), (True, False)):
            expected = of_pytorch(layer, gpu, forward)
            assert algorithm(layer, gpu, forward).algorithm == expected, (layer, gpu, forward)


@pytest.mark.parametrize(
    ("changes", "gpu", "fact"),
    [
        ({"packed": None}, A100, "packed"),
        ({"hidden": 64}, Gpu(), "compute capability"),
        ({}, Gpu(80, None), "multiprocessors"),
        ({"hidden": None}, A100, "hidden"),
        ({"dtype": None, "hidden": 512}, A100, "dtype"),
    ],
)
def test_a_fact_that_would_decide_is_asked_for(
    changes: dict[str, Any], gpu: Gpu, fact: str
) -> None:
    choice = chosen(gpu, **changes)
    assert (choice.algorithm, choice.unknown) == (None, fact)


def test_what_is_refused_whatever_the_device_needs_no_device() -> None:
    choice = chosen(Gpu(), dtype="float32")
    assert choice.algorithm == STANDARD
    assert [(r.algorithm, r.condition) for r in choice.refusals] == [
        (SMALL_H, "few hidden units"),
        (STATIC, "float16"),
    ]


@pytest.mark.parametrize("op", ["CudnnRNN", "CudnnRNNV3", "CudnnRNNBackprop", "CudnnRNNBackpropV3"])
def test_tensorflow_asks_for_the_standard_algorithm(op: str) -> None:
    choice = chosen(framework="tensorflow", op=op, hidden=64)
    assert (choice.algorithm, unmet(choice, STATIC)) == (STANDARD, "caller")


@pytest.mark.parametrize("op", ["CudnnRNNV2", "CudnnRNNBackpropV2"])
def test_tensorflow_times_the_algorithms_in_one_op(op: str) -> None:
    choice = chosen(framework="tensorflow", op=op)
    assert choice.algorithm is None
    assert choice.unknown is not None


@pytest.mark.parametrize("framework", ["jax", "cudnn"])
def test_callers_that_never_ask_for_another(framework: str) -> None:
    assert chosen(framework=framework, hidden=64).algorithm == STANDARD


def test_an_unknown_framework_is_unknown() -> None:
    assert chosen(framework=None).algorithm is None


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["void RNN_blockPersist_fp_LSTM_HMMA<__half, __half, float, 1, 128>(x)"], (SMALL_H,)),
        (["void RNN_blockPersist_bp_GRU<float, float, float, 128>", "sgemm"], (SMALL_H,)),
        (["persistRNN_addBias<float, float>", "RNN_blockPersist_fp_GRU<float>"], (SMALL_H,)),
        (["RNN_persist_fp_LSTM", "persistRNN_init"], (STATIC, DYNAMIC)),
        (["void elemWiseRNNcell<__half, __half, float, 2, 1>(int)", "nvjet"], (STANDARD,)),
        (["void LSTM_elementWise_fp<float, float, float>(int, int)"], (STANDARD,)),
        (["ampere_sgemm_128x64_nn"], ()),
        ([], ()),
    ],
)
def test_what_kernels_say_by_their_names(names: list[str], expected: tuple[str, ...]) -> None:
    assert algorithms_of_kernels(names) == expected


@pytest.mark.parametrize("unknown", ["mode", "batch", "hidden"])
def test_of_a_plain_layer_of_unknown_size_it_is_not_known_whether_it_is_small(unknown: str) -> None:
    plain = {"mode": "rnn_tanh", "hidden": 512}
    assert chosen(**plain).algorithm == STATIC
    assert chosen(**{**plain, unknown: None}).algorithm is None
