"""A flame graph has the stacks of a run, and all of their time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from events.rows import row, table

from lstmprof import cli
from lstmprof.base.errors import RunError, UsageError
from lstmprof.breakdown import Breakdown, break_down
from lstmprof.events.annotate import annotated
from lstmprof.export import call_stacks
from lstmprof.runs.metadata import run_info
from lstmprof.runs.run import open_run, write_tables

HOST, GPU = {"pid": 1, "tid": 1}, {"device": 0, "stream": 7}
#                     0  2    10    20  30    40  50
# train.py(3): step   [---------------------------)
# nn.Module: LSTM_0        [----------)     [--)           5…25, 40…45
# aten::mm                   [--)           [-)            7…15, 41…43
# launch                      8-9                ─▶ sgemm 60…67
ROWS = [
    row("python", "train.py(3): step", 0, 50, **HOST),
    row("python", "nn.Module: LSTM_0", 5, 25, **HOST),
    row("op", "aten::mm", 7, 15, **HOST),
    row("runtime", "cudaLaunchKernel", 8, 9, **HOST, correlation_id=1),
    row("python", "nn.Module: LSTM_0", 40, 45, **HOST),
    row("op", "aten::mm", 41, 43, **HOST),
    row("kernel", "sgemm", 60, 67, **GPU, correlation_id=1),
]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    events = annotated(table(ROWS), captured=False)
    write_tables(tmp_path / "run", run_info({"name": "run", "source": "ingest"}), events)
    return tmp_path / "run"


def broken_down(run: Path) -> Breakdown:
    return break_down(open_run(run), None, ())


def stacks(path: Path) -> dict[str, dict[str, int]]:
    """Profile → stack, ``;`` between calls → its nanoseconds."""
    document: dict[str, Any] = json.loads(path.read_text())
    names = [frame["name"] for frame in document["shared"]["frames"]]
    made = {}
    for profile in document["profiles"]:
        assert profile["endValue"] == sum(profile["weights"])
        texts = [";".join(names[number] for number in stack) for stack in profile["samples"]]
        assert len(set(texts)) == len(texts)
        made[profile["name"]] = dict(zip(texts, profile["weights"], strict=True))
    return made


def test_stacks_by_module(run: Path, tmp_path: Path) -> None:
    assert call_stacks.write(broken_down(run), tmp_path / "x.json") == "modules"
    assert stacks(tmp_path / "x.json") == {
        "host time": {"LSTM_0": 12 + 3, "LSTM_0;aten::mm": 8 + 2},
        "device time": {"LSTM_0;aten::mm;sgemm": 7},
    }


def test_stacks_by_python_and_by_op(run: Path, tmp_path: Path) -> None:
    call_stacks.write(broken_down(run), tmp_path / "p.json", by="python")
    call_stacks.write(broken_down(run), tmp_path / "o.json", by="ops")
    python, ops = stacks(tmp_path / "p.json"), stacks(tmp_path / "o.json")
    step = "train.py(3): step"
    assert python["host time"] == {step: 25 + 15, f"{step};aten::mm": 10}
    assert ops["host time"] == {"aten::mm": 10}
    assert ops["device time"] == {"aten::mm;sgemm": 7}


def test_stacks_without_end_end_with_a_frame_that_says_so(run: Path, tmp_path: Path) -> None:
    names = [f"op{number}" for number in range(2000)]
    rows = [row("op", name, n, 10_000 - 2 * n, pid=1, tid=1) for n, name in enumerate(names)]
    events = annotated(table(rows), captured=False)
    write_tables(run, run_info({"name": "run", "source": "ingest"}), events)
    call_stacks.write(broken_down(run), tmp_path / "x.json", by="ops")
    assert (tmp_path / "x.json").stat().st_size < 4_000_000
    host = stacks(tmp_path / "x.json")["host time"]
    assert host["op0"] == 3
    assert max(len(stack.split(";")) for stack in host) == 257
    assert any(stack.endswith(";op255;(deeper calls)") for stack in host)


def test_what_a_profile_has_not_is_one_line(run: Path, tmp_path: Path) -> None:
    events = annotated(table(ROWS[2:4]), captured=False)
    write_tables(run, run_info({"name": "run", "source": "ingest"}), events)
    with pytest.raises(
        UsageError, match="run: the profile has no stacks of modules; record it with with_stack"
    ):
        call_stacks.write(broken_down(run), tmp_path / "x.json", by="modules")
    assert call_stacks.write(broken_down(run), tmp_path / "x.json") == "ops"
    with pytest.raises(RunError, match="already exists; add --force"):
        call_stacks.write(broken_down(run), tmp_path / "x.json")


def test_the_command_says_by_what(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "x.json"
    assert cli.run(["export", str(run), "--speedscope", str(out)]) == 0
    assert capsys.readouterr().out.startswith(f"wrote {out} (stacks by modules)")
    assert cli.run(["export", str(run), "--perfetto", str(out), "--stack", "ops"]) == 2


def test_two_runs_show_the_step_of_each_and_what_each_has_more(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [row("step", "ProfilerStep#7", 0, 50, **HOST), *(r for r in ROWS[1:6])]
    (tmp_path / "other").mkdir()
    for folder, own in ((run, [ROWS[3], *rows]), (tmp_path / "other", rows[:3])):
        events = annotated(table([r for r in own if r["kind"] != "runtime"]), captured=False)
        write_tables(folder, run_info({"name": folder.name, "source": "ingest"}), events)
    out = tmp_path / "x.json"
    assert cli.run(["export", str(run), str(tmp_path / "other"), "--speedscope", str(out)]) == 0
    assert "(stacks by ops)" in capsys.readouterr().out
    assert stacks(out) == {
        "one step of run": {"step": 40, "step;aten::mm": 10},
        "one step of other": {"step": 42, "step;aten::mm": 8},
        "more in run": {"step;aten::mm": 2},
        "more in other": {"step": 2},
    }
    assert cli.run(["export", *[str(run)] * 3, "--speedscope", str(out)]) == 2
    assert "3 runs are given; give one run, or two to compare them" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["torch-lstmcell-basic", "torch-nn-lstm", "tf-lstmcell"])
def test_the_stacks_of_a_step_sum_to_the_clean_step(name: str) -> None:
    breakdown = break_down(open_run(Path(__file__).parents[2] / "traces" / name))
    (step,) = breakdown.steps()
    of = call_stacks.step_stacks(breakdown, step.rank, step.device, "ops")
    assert (step.clean, int(of.ns.sum())) == (True, sum(ns for *_, ns in step.mean_parts))
