"""A step in another form, to the nanosecond, under drawn timelines."""

from __future__ import annotations

import pytest
from events.rows import Row, row, table

from lstmprof.breakdown.replay import Error, Prediction, as_layer_op, compiled
from lstmprof.breakdown.replay.changes import Change
from lstmprof.breakdown.replay.what_if import predictions
from lstmprof.diagnose.verdict.sentences import what_if_sentence
from lstmprof.diagnose.verdict.what_ifs import recurrent_share
from lstmprof.events.annotate import annotated
from lstmprof.events.annotate.steps import windows
from lstmprof.workloads import Workload

HOST = {"pid": 1, "tid": 1}


def op(name: str, start_ns: int, end_ns: int, **columns: object) -> Row:
    return row("op", name, start_ns, end_ns, **HOST, **columns)


def forecast(rows: list[Row], change: Change) -> Prediction:
    events = annotated(table(rows), captured=True)
    (window,) = windows(events, captured=True)
    return predictions(events, window, [change])[0]


# ns      0    4        10       20 22         30   36 38     50     60    70
# host    [step[forward-[mm------)--[sigmoid---)-[mul-)[cat----)-)--[mm----)--)
ONE_STEP = [
    row("step", "step", 0, 100, **HOST),
    row("range", "forward", 4, 60, **HOST),
    op("aten::linear", 6, 21),
    op("aten::mm", 10, 20),
    op("aten::sigmoid", 22, 30),
    op("aten::mul", 32, 37),
    op("aten::cat", 38, 50),
    row("range", "optimizer", 70, 90, **HOST),
    op("aten::add", 75, 80),
]


def test_compiled_a_pass_has_products_copies_and_one_memory_pass_a_chain() -> None:
    # outside the pass 4 + 40; in it the product's 10, sigmoid's 8 of which 5 move data as mul's 5
    # do, and the copy's 12
    assert forecast(ONE_STEP, compiled).predicted_ns == 44 + 10 + 8 + 12


def test_a_chain_ends_where_something_else_computes() -> None:
    # host    [step[forward[sigmoid)[mul-)[mm----)[tanh)-)--)
    rows = [
        row("step", "step", 0, 60, **HOST),
        row("range", "forward", 1, 50, **HOST),
        op("aten::sigmoid", 2, 10),
        op("aten::mul", 12, 18),
        op("aten::mm", 20, 30),
        op("aten::tanh", 32, 41),
    ]
    assert forecast(rows, compiled).predicted_ns == 11 + 8 + 10 + 9


def test_as_one_layer_op_products_that_do_not_recur_run_at_the_device_s_rate() -> None:
    # half of the product's 10 recurs, the other half is five times as fast; no copy is left
    assert forecast(ONE_STEP, as_layer_op(0.5, 5.0)).predicted_ns == 44 + 5 + 1 + 8


def test_sums_of_gradients_are_none_of_a_layer_op() -> None:
    # host    [step[backward[evaluate[MmB[mm))--[add_--))-)--)
    forward = {"sequence_number": 1, "forward_thread": 1}
    rows = [
        row("step", "step", 0, 40, **HOST),
        row("range", "backward", 1, 36, **HOST),
        op("autograd::engine::evaluate_function: MmBackward0", 2, 30, **forward),
        op("MmBackward0", 3, 14, **forward),
        op("aten::mm", 4, 12),
        op("aten::add_", 16, 28),
    ]
    assert forecast(rows, compiled).predicted_ns == 5 + 8 + 12
    assert forecast(rows, as_layer_op(1.0, 5.0)).predicted_ns == 5 + 8


def test_on_a_device_chains_are_one_kernel_and_start_at_once() -> None:
    # host    [step[forward[L1)[L2)[L3)-)[sync-----------)-)
    # device                ~~[sigmoid)~[mul)~[gemm-----)
    device = {"device": 0, "stream": 7}
    launches = [
        row("runtime", "cudaLaunchKernel", 4 * n, 4 * n + 2, **HOST, correlation_id=n)
        for n in (1, 2, 3)
    ]
    rows = [
        row("step", "step", 0, 50, **HOST),
        row("range", "forward", 2, 16, **HOST),
        *launches,
        row("kernel", "sigmoid_kernel_cuda", 8, 14, **device, correlation_id=1),
        row("kernel", "vectorized_elementwise_kernel", 16, 20, **device, correlation_id=2),
        row("kernel", "ampere_sgemm", 24, 40, **device, correlation_id=3),
        row("runtime", "cudaDeviceSynchronize", 18, 42, **HOST, correlation_id=4),
    ]
    prediction = forecast(rows, compiled)
    assert prediction.replayed_ns == 50
    busy = {r["part"]: r["ns"] for r in prediction.ledger.to_pylist() if r["state"] == "busy"}
    assert busy == {"pointwise": 6, "gemm": 16}


@pytest.mark.parametrize(
    ("mode", "layers", "share"),
    [
        ("forward", 1, 64 / 96),
        # 96 forward, 64 of the state's gradient, 96 of the weights'; the inputs are data
        ("train", 1, 128 / 256),
        ("train", 2, (128 + 128) / (256 + 3 * 128)),
    ],
)
def test_what_recurs_is_counted_from_the_network(mode: str, layers: int, share: float) -> None:
    network = Workload("small", layers, 64, False, 8, 20, 32, 10, "ce")
    assert recurrent_share(network, mode) == pytest.approx(share)


def test_a_forecast_says_how_far_such_were_off() -> None:
    prediction = forecast(ONE_STEP, compiled)
    unmeasured = what_if_sentence("compiled", prediction, "compiled")
    assert "error of this forecast is unknown" in unmeasured
    measured = what_if_sentence("compiled", prediction, "compiled", Error(3, 0.21, 0.4))
    assert all(words in measured for words in ("3 tests", "21 %", "40 %"))
    assert "forecast" not in what_if_sentence("without casts", prediction)
