"""Tables for a paper: what falls into which cell, what stands out, and how it is written."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path

import pytest
from commands.written_runs import step, write_run
from report import runs

import lstmprof as lp
from lstmprof.breakdown.clean.slot_times import BETWEEN_PROCESSES, Z95
from lstmprof.cli import run as lstmprof
from lstmprof.report.grid import FIELDS, VALUES

Said = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def traces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two implementations of two batches, of which one is missing."""
    monkeypatch.chdir(tmp_path)
    for name, batch, ms in (("slow_one", 8, 20), ("quick", 64, 50), ("slow_one", 64, 90)):
        workload = {"name": f"net-b{batch}", "batch": batch, "hidden": 4}
        facts = {"implementation": name, "workload": workload, "device_name": "A & B 100 %"}
        facts |= {"framework": "torch", "versions": {"torch": "2.13.0", "nvtx": "1"}}
        facts |= {"started_at": "2026-11-23T10:00:00Z"}
        write_run(tmp_path / "traces", f"{name}-{batch}", step(("aten::mm", ms - 1)), ms, **facts)
    return tmp_path / "traces"


def written(capsys: Said, *arguments: str) -> str:
    assert lstmprof(["table", "traces", "--columns", "batch", *arguments]) == 0
    return capsys.readouterr().out


def with_interval(ms: float) -> str:
    """A step of one round, with what processes of the same code differ by."""
    return f"{ms:.2f} ± {ms * math.sinh(Z95 * BETWEEN_PROCESSES):.2f}"


def test_markdown_leaves_a_missing_cell_empty_and_the_fastest_bold(capsys: Said) -> None:
    lines = written(capsys).splitlines()
    assert lines[:4] == [
        "| implementation | batch 8 | batch 64 |",
        "|---|---:|---:|",
        f"| quick |  | **{with_interval(50)} (1.00×)** |",
        rf"| slow\_one | {with_interval(20)} | {with_interval(90)} (1.80×) |",
    ]
    for text in (
        "A & B 100 %",
        "torch 2.13.0",
        "1 round",
        "1 timed iteration per run;",
        "2026-11-23",
    ):
        assert text in lines[-1]
    assert "nvtx" not in lines[-1]


def test_latex_escapes_what_it_would_read_as_its_own(capsys: Said) -> None:
    text = written(capsys, "--format", "latex", "--value", "step, slowdown")
    assert r"slow\_one & 20.00 & 90.00 (1.80$\times$) \\" in text
    assert r"quick &  & \textbf{50.00 (1.00$\times$)} \\" in text
    assert r"A \& B 100 \%" in text
    assert text.count(r"\begin{tabular}{lrr}") == text.count(r"\end{tabular}") == 1


def test_csv_has_a_column_a_number_and_nothing_where_nothing_was_measured(capsys: Said) -> None:
    text = written(capsys, "--format", "csv", "--value", "step ± interval, slowdown")
    first, second = csv.DictReader(io.StringIO(text))
    assert first["batch 8 step ms"] == first["batch 8 slowdown"] == ""
    assert float(first["batch 64 step ms"]) == pytest.approx(50, rel=1e-4)
    assert second["batch 8 slowdown"] == ""
    assert float(second["batch 64 slowdown"]) == pytest.approx(1.8, rel=1e-4)


def test_html_escapes_names(traces: Path, capsys: Said) -> None:
    write_run(traces, "x", step(("aten::mm", 9)), 10, implementation="<b>x")
    text = written(capsys, "--format", "html")
    assert "&lt;b&gt;x" in text
    assert "<td></td>" in text


def cell(run: Path) -> str:
    timings = lp.read(run).timings()
    assert timings is not None
    assert timings.step_low_ns is not None
    assert timings.step_high_ns is not None
    half_ns = (timings.step_high_ns - timings.step_low_ns) / 2
    return f"{timings.step_ns / 1e6:.2f} ± {half_ns / 1e6:.2f}"


def test_the_step_has_its_interval_and_what_it_touches_is_bold_too(
    tmp_path: Path, capsys: Said
) -> None:
    made = tmp_path / "made"
    made.mkdir()
    long = {**runs.WORKLOAD, "name": "long", "time_steps": 40}
    # None is near a border of rounding, as the last digit of a mean is the processor's.
    kernels = {"fast": 200, "near": 202, "far": 520, "alone": 920}
    for name, count in kernels.items():
        facts = {"workload": long} if name == "alone" else {}
        implementation = "fast" if name == "alone" else name
        runs.run(
            *(made, name),
            implementation=implementation,
            kernels=count,
            walls_ns=runs.walls(count * runs.PERIOD),
            facts=facts,
        )
    assert lstmprof(["table", str(made), "--columns", "time-steps"]) == 0
    lines = {line.split(" | ")[0]: line for line in capsys.readouterr().out.splitlines()}
    cells = {name: cell(made / name) for name in kernels}
    assert f"| **{cells['fast']} (1.00×)** | {cells['alone']} |" in lines["| fast"]
    assert f"| **{cells['near']} (1.01×)** |" in lines["| near"]
    assert f"| {cells['far']} (2.60×) |" in lines["| far"]


def test_rows_that_need_it_are_told_apart_by_what_differs(traces: Path, capsys: Said) -> None:
    facts = {"implementation": "slow_one", "workload": {"name": "net-b8", "batch": 8, "hidden": 4}}
    write_run(traces, "half", step(("aten::mm", 9)), 10, precision="amp-fp16", **facts)
    write_run(traces, "tried", step(("aten::mm", 9)), 15, label="tried", **facts)
    rows = [line.split(" |")[0] for line in written(capsys).splitlines()[:6] if ":|" not in line]
    assert rows == [
        "| implementation, label, precision",
        r"| slow\_one, tried, fp32",
        r"| slow\_one, amp-fp16",
        r"| slow\_one, fp32",
        "| quick",
    ]


def test_runs_of_own_code_are_told_apart_by_their_names(tmp_path: Path, capsys: Said) -> None:
    for name in ("mine", "yours"):
        write_run(tmp_path / "own", name, step(("aten::mm", 9)), 10, implementation=None)
    assert lstmprof(["table", "own"]) == 0
    head, _, *rows = (line.split(" |")[0] for line in capsys.readouterr().out.splitlines()[:4])
    assert (head, rows) == ("| implementation, run", ["| mine", "| yours"])


def test_implementations_as_columns_leave_workloads_for_rows(capsys: Said) -> None:
    assert lstmprof(["table", "traces", "--columns", "implementation"]) == 0
    head = capsys.readouterr().out.splitlines()[0]
    assert head.startswith("| workload | ")


def test_the_samples_make_a_table_without_options(capsys: Said) -> None:
    assert lstmprof(["table", str(Path(__file__).parents[2] / "traces")]) == 0
    out = capsys.readouterr().out
    for row in ("jax-scan", "torch-nn-lstm", "torch-nn-lstm, torch==1.8.1"):
        assert f"| {row} |" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--rows", "bach"], "unknown field of --rows 'bach'; did you mean 'batch'?"),
        (["--rows", " , "], "--rows is empty"),
        (["--value", "median ± interval"], "write 'step ± interval'"),
        (["--value", "mode"], "unknown value 'mode'"),
    ],
)
def test_what_cannot_be_meant_is_one_line(arguments: list[str], said: str, capsys: Said) -> None:
    assert lstmprof(["table", "traces", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


def test_the_help_names_every_field_and_value(capsys: Said) -> None:
    assert lstmprof(["table", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.replace("-\n", "-").split()).replace("- ", "-")
    for name in (*FIELDS, *VALUES):
        assert name in text
