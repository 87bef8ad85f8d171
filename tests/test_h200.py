"""Two runs of ``lstmprof run`` on an NVIDIA H200: a loop over LSTMCell, and nn.LSTM in its place.

They are the scripts of docs/slow_lstm.md on a GPU (torch 2.11, CUDA 13.0, cuDNN 9). The raw
profiles are left out; the events are as lstmprof wrote them there.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import lstmprof as lp
from lstmprof.breakdown import break_down
from lstmprof.runs.run import Run, open_run

RUNS = Path(__file__).with_name("h200")
#: Kernels and ops of one step, counted in the raw profiles.
KERNELS = {"loop": 819, "layer": 37}
OPS = {"loop": 3_836, "layer": 239}


@pytest.fixture(params=["loop", "layer"])
def run(request: pytest.FixtureRequest) -> Run:
    return open_run(RUNS / request.param)


def test_the_parts_of_each_step_sum_to_it(run: Run) -> None:
    found = break_down(run)
    sums: Counter[int] = Counter()
    for row in found.ledger.to_pylist():
        assert row["ns"] > 0
        assert row["device"] == 0
        sums[row["step"]] += row["ns"]
    assert sums == {step["step"]: step["dur_ns"] for step in found.table("steps").to_pylist()}
    assert len(sums) == 10


def test_every_kernel_has_its_launch_and_no_step_has_others(run: Run) -> None:
    events = run.events().to_pylist()
    kinds = {row["event_id"]: row["kind"] for row in events}
    kernels = [row for row in events if row["kind"] == "kernel"]
    assert {kinds[row["launch_id"]] for row in kernels} == {"runtime"}
    ops = [row for row in events if row["kind"] == "op"]
    for rows, expected in ((kernels, KERNELS), (ops, OPS)):
        counts = Counter(row["step"] for row in rows)
        # Without a number: the step with which the session began.
        assert counts == dict.fromkeys([None, *range(10)], expected[run.info.name])


def test_the_clean_step_is_the_undisturbed_one(run: Run) -> None:
    timings = run.timings()
    assert timings is not None
    walls = [r["wall_ns"] for r in timings.to_pylist() if not r["warmup"]]
    assert lp.read(run.path).step_ms == pytest.approx(np.quantile(walls, 0.1) / 1e6, rel=0.05)


def test_the_layers_are_complete() -> None:
    network = {"time_steps": 50, "batch": 8, "inputs": 32, "hidden": 64, "layers": 1}
    for name, form, cells in (("loop", "cell op", 50), ("layer", "layer op", 50)):
        (row,) = break_down(open_run(RUNS / name), None, ["layers"]).table("layers").to_pylist()
        assert {key: row[key] for key in network} == network
        assert (row["form"], row["per_step"], row["cells"]) == (form, 1.0, cells)
    # 64 hidden units are few enough for cuDNN to keep the weights on the chip.
    assert row["algorithm_seen"] == row["backward_algorithm_seen"] == "persist_static_small_h"


def test_the_cause_of_the_loop_is_the_loop() -> None:
    diagnosis = lp.diagnose(RUNS / "loop", RUNS / "layer")
    assert diagnosis.verdict.cause.startswith("50 LSTMCell calls per step")
    assert diagnosis.ratio is not None
    assert diagnosis.ratio.low > 7
    assert diagnosis.fixes[0].name == "layer in one op"
