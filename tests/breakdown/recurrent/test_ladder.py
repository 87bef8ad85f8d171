"""The rung that a forward pass stands on, what the next one saves, and the floor below all."""

from __future__ import annotations

from dataclasses import replace

import pytest
from breakdown.recurrent.rows import Timeline

from lstmprof.breakdown.recurrent.ladder import RUNGS, Standing, Work, floor_ns, standing
from lstmprof.breakdown.recurrent.network import Network
from lstmprof.runs.fields import Peaks
from lstmprof.runs.metadata import run_info

#: Ten time steps of one layer, eight products and five pointwise kernels each, of 2 µs and 1 µs,
#: each after a gap of 3 µs.
NAIVE = Work(
    cells=10,
    layers=1,
    products=80,
    pointwise=50,
    products_ns=160_000,
    pointwise_ns=50_000,
    length_ns=160_000 + 50_000 + 130 * 3_000,
)


def changed(**fields: int | bool) -> Work:
    return replace(NAIVE, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("work", "rung", "missing"),
    [
        (NAIVE, "separate products", "combined gates"),
        (changed(products=20), "combined gates", "products on two streams"),
        (changed(products=20, streams=2), "products on two streams", "fused pointwise"),
        (changed(products=11), "combined gates", "fused pointwise"),
        (changed(products=20, streams=2, pointwise=10), "fused pointwise", "combined inputs"),
        (changed(products=11, pointwise=10), "combined inputs", "persistent kernel"),
        (
            changed(products=12, pointwise=10, layers=2),
            "combined inputs",
            "wavefront over layers",
        ),
        (
            changed(products=12, pointwise=10, layers=2, streams=2),
            "wavefront over layers",
            "persistent kernel",
        ),
        (changed(persistent=True, products=1, pointwise=0), "persistent kernel", None),
    ],
)
def test_the_last_rung_before_the_first_that_is_missing(
    work: Work, rung: str, missing: str | None
) -> None:
    found = standing(work)
    assert found is not None
    assert (found.rung, found.missing) == (rung, missing)


def test_rungs_are_in_the_order_of_the_paper() -> None:
    assert list(changed(layers=2).climbed) == list(RUNGS[1:])


def test_combined_gates_leave_out_the_launches_of_six_products_a_time_step() -> None:
    assert standing(NAIVE) == Standing("separate products", "combined gates", 60 * 3_000)


def test_a_fused_kernel_leaves_out_four_of_five_passes_over_the_elements() -> None:
    work = changed(products=11, length_ns=160_000 + 50_000 + 61 * 3_000)
    found = standing(work)
    assert found is not None
    assert found.saves_ns == 40 * 3_000 + 40_000


def test_a_persistent_kernel_leaves_the_floor() -> None:
    work = changed(products=11, pointwise=10)
    found, unknown = standing(work, 100_000.0), standing(work)
    assert found is not None
    assert found.saves_ns == work.length_ns - 100_000
    assert unknown is not None
    assert unknown.saves_ns is None


@pytest.mark.parametrize("nothing", ["cells", "products", "pointwise"])
def test_a_pass_of_unknown_parts_stands_nowhere(nothing: str) -> None:
    assert standing(changed(**{nothing: 0})) is None


PEAKS = Peaks(gemm_flops_per_s=1e12, copy_bytes_per_s=1e11)
LSTM = Network(
    cell="lstm",
    time_steps=20,
    batch=64,
    inputs=123,
    hidden=320,
    layers=1,
    directions=1,
    dtype="float32",
)


def test_the_floor_is_the_product_of_the_state_and_the_gates_time_step_after_time_step() -> None:
    product_ns = 2 * 64 * 4 * 320 * 320 / 1e12 * 1e9
    pointwise_ns = 64 * 320 * 7 * 4 / 1e11 * 1e9
    assert floor_ns(LSTM, PEAKS) == pytest.approx(20 * (product_ns + pointwise_ns))
    assert floor_ns(LSTM, PEAKS, backward=True) == pytest.approx(40 * (product_ns + pointwise_ns))


@pytest.mark.parametrize(
    ("cell", "gates", "moved"), [("gru", 3, 8), ("rnn_tanh", 1, 2), ("rnn_relu", 1, 2)]
)
def test_the_floor_of_another_cell_has_its_gates_and_states(
    cell: str, gates: int, moved: int
) -> None:
    product_ns = 2 * 64 * gates * 320 * 320 / 1e12 * 1e9
    pointwise_ns = 64 * 320 * moved * 4 / 1e11 * 1e9
    floor = floor_ns(replace(LSTM, cell=cell), PEAKS)
    assert floor == pytest.approx(20 * (product_ns + pointwise_ns))


def test_layers_begin_a_time_step_apart_and_directions_together() -> None:
    one = floor_ns(LSTM, PEAKS)
    four = floor_ns(replace(LSTM, layers=4, directions=2), PEAKS)
    assert one is not None
    assert four == pytest.approx(one * 23 / 20)


@pytest.mark.parametrize("fact", ["cell", "time_steps", "batch", "hidden", "layers", "dtype"])
def test_a_floor_needs_to_know_the_network(fact: str) -> None:
    assert floor_ns(replace(LSTM, **{fact: None}), PEAKS) is None
    assert floor_ns(LSTM, None) is None
    assert floor_ns(LSTM, Peaks()) is None


def test_the_layer_table_has_the_rung_of_a_loop() -> None:
    timeline = Timeline()
    for _ in range(9):
        for inputs in (10, 16):
            shapes = [[64], [6, inputs], [inputs, 64]]
            timeline.op(
                "aten::linear", [[6, inputs], [64, inputs]], inside=[("aten::addmm", shapes)]
            )
        for name in ("add", "sigmoid", "sigmoid", "tanh", "mul", "sigmoid", "tanh", "mul"):
            timeline.op(f"aten::{name}", [[6, 16]])
    peaks = {"gemm_flops_per_s": 1e12, "copy_bytes_per_s": 1e11}
    (layer,) = timeline.layers(run_info({"peaks": peaks}))
    assert (layer["rung"], layer["next_rung"]) == ("combined gates", "products on two streams")
    assert layer["next_rung_saves_ns"] is None
    assert layer["floor_ns"] == pytest.approx(9 * (2 * 6 * 64 * 16 / 1e3 + 6 * 16 * 7 * 4 / 1e2))
    (unmeasured,) = timeline.layers()
    assert unmeasured["floor_ns"] is None


def test_combined_gates_save_the_time_before_six_of_eight_products() -> None:
    """Products take 8 ns, other ops 10 ns; 1,050 of 2,796 ns are before or between the 189 ops."""
    timeline = Timeline()
    for _ in range(9):
        for _gate in range(4):
            for inputs in (10, 16):
                shapes = [[16], [6, inputs], [inputs, 16]]
                timeline.op(
                    "aten::linear", [[6, inputs], [16, inputs]], inside=[("aten::addmm", shapes)]
                )
            timeline.op("aten::add", [[6, 16]])
        for name in ("sigmoid", "sigmoid", "tanh", "mul", "sigmoid", "tanh", "mul", "mul", "add"):
            timeline.op(f"aten::{name}", [[6, 16]])
    (layer,) = timeline.layers()
    assert (layer["rung"], layer["next_rung"]) == ("separate products", "combined gates")
    assert layer["next_rung_saves_ns"] == 9 * 6 * 1_050 / 189
