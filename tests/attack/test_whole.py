"""A few damaged inputs through all commands; many: ``python -m attack.whole``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from attack import damages, whole
from attack.targets import TARGETS


@pytest.fixture
def way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> whole.Way:
    monkeypatch.setattr(whole, "HANG_S", 0)  # an alarm comes by the clock of a busy machine
    return whole.Way(tmp_path / "input")


@pytest.mark.parametrize("name", ["kineto", "run directory"])
def test_an_accepted_input_passes_through_every_command(name: str, way: whole.Way) -> None:
    assert not list(way.problems(TARGETS[name], TARGETS[name].seeds()[0]))
    assert way.counts["commands"] == len(whole.COMMANDS)
    assert way.counts["whole way"] == 1


def test_new_profiles_pass_through_every_command_as_ranks_of_a_job(
    way: whole.Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whole, "JOB", 3)
    target = TARGETS["mxnet"]
    for number in range(12):
        assert not list(way.problems(target, target.drawn(number, target.seeds())))
    new = way.counts["new"]
    jobs = (new - way.counts["alone"]) // 3
    assert jobs > 0
    assert way.counts["commands"] == len(whole.COMMANDS) * (way.counts["alone"] + jobs)
    assert sum(way.counts[end] for end in ("new", "refused", "equal profiles")) == 12


def test_a_command_that_fails_on_a_job_names_the_input(
    way: whole.Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whole, "COMMANDS", (("query", "SELECT no_column FROM events", "{run}"),))
    target = TARGETS["mxnet"]
    content = target.seeds()[0]
    assert [problem[:5] for _, problem in way.problems(target, content)] == ["query"]
    assert not list(way.problems(target, content)), "an equal profile goes no further"


def test_a_defect_is_a_problem() -> None:
    assert damages.problem_of(1, "error: a bug in lstmprof", "")


def _onnx(inputs: list[object], dur: int = 251) -> dict[str, object]:
    args = {"op_name": "LSTM", "provider": "CPUExecutionProvider", "input_type_shape": inputs}
    place = {"ph": "X", "cat": "Node", "pid": 1, "tid": 1}
    return {**place, "name": "lstm_kernel_time", "ts": 726, "dur": dur, "args": args}


#: Inputs of this fuzzer that ended as a defect, reduced; other defects have unit tests.
DEFECTS = {
    "more operations than 64 bits": [_onnx([{"float": [20, 4, 12]}, {"float": [2, 2**32]}])],
    "a lone surrogate as an element type": [
        _onnx([{"float": [20, 4, 12]}, {"\ud800": [2, 128]}]),
        {**_onnx([{"\ud800": [2]}, {"float": [2]}]), "name": "cast_kernel_time"},
    ],
    "a copy of 9 EB in 1 ns": {
        "schemaVersion": 1,
        "traceEvents": [
            {
                **{"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD", "pid": 0, "tid": 7},
                **{"ts": 1, "dur": 0.001, "args": {"device": 0, "stream": 7, "bytes": 2**62}},
            }
        ],
    },
}


@pytest.mark.parametrize("name", DEFECTS)
def test_a_reduced_defect_passes_through_every_command(name: str, way: whole.Way) -> None:
    content = json.dumps(DEFECTS[name]).encode()
    target = TARGETS["onnxruntime" if content[:1] == b"[" else "kineto"]
    assert not list(way.problems(target, content))
    assert way.counts["whole way"] == 1
