"""What goes with an op, held against two real programs of which one does one thing more."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from lstmprof.base.errors import LstmprofError
from lstmprof.breakdown import break_down
from lstmprof.breakdown.replay.calls import Calls
from lstmprof.breakdown.replay.graph import step_graph
from lstmprof.capture.harness.rounds import captured_runs
from lstmprof.capture.request import CaptureRequest
from lstmprof.runs.run import Run
from lstmprof.workloads import Workload

pytest.importorskip("torch")
PROGRAMS = Path(__file__).parents[3] / "benchmarks" / "diagnosis" / "programs"
NETWORK = Workload("tiny", 1, 4, False, 2, 3, 4, 2, "ce")
CATEGORIES = {"casts": ("cast",), "transposes": ("layout", "transfer")}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    with pytest.MonkeyPatch.context() as patch:
        paths = [str(PROGRAMS), os.environ.get("PYTHONPATH", "")]
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
        requests = {
            label or "plain": CaptureRequest(
                "torch-lstmcell-basic",
                NETWORK,
                "cpu",
                iterations=1,
                warmup=1,
                profile_steps=1,
                peaks=False,
                label=label,
            )
            for label in ("", *CATEGORIES)
        }
        out = tmp_path_factory.mktemp("runs")
        results = dict(captured_runs([requests], out, rounds=1))
    return {name: run for name, run in results.items() if not isinstance(run, LstmprofError)}


def calls_of(run: Run) -> Calls:
    breakdown = break_down(run)
    return step_graph(breakdown.events(), breakdown.windows[0]).calls


def ops(calls: Calls) -> Counter[str]:
    """Name → how often; of a run's only step."""
    kinds = calls.events.column("kind").to_pylist()
    names = calls.events.column("name").to_pylist()
    return Counter(name for name, kind in zip(names, kinds, strict=True) if kind == "op")


@pytest.mark.parametrize("label", CATEGORIES)
def test_the_ops_left_are_those_of_the_program_without_it(label: str, runs: dict[str, Run]) -> None:
    calls, plain = calls_of(runs[label]), calls_of(runs["plain"])
    work = calls.work_of_category(*CATEGORIES[label])
    gone = calls.without(work & ~calls.work_of_autograd(work) if label == "transposes" else work)
    names = calls.events.column("name").to_pylist()
    is_op = calls.events.is_kind("op")
    left = Counter(names[row] for row in range(len(names)) if is_op[row] and not gone[row])
    assert left == ops(plain)
    assert ops(calls).total() > left.total()
