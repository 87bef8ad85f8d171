"""What the text of ``lstmprof breakdown`` says besides its tables."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pyarrow as pa
import pytest
from events.rows import row, table
from report.runs import WORKLOAD

from lstmprof.cli import run as lstmprof
from lstmprof.events.annotate import annotated
from lstmprof.events.annotate.calls import coverage
from lstmprof.runs.metadata import run_info
from lstmprof.runs.run import TIMINGS_SCHEMA, write_tables

HOST = {"pid": 1, "tid": 1}
GPU = {"device": 0, "stream": 7}


@pytest.mark.parametrize(("linked", "share"), [(1, "50"), (4, "80"), (9, None)])
def test_the_share_of_linked_activities_is_printed_unless_it_is_large(
    linked: int, share: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # host    [aten::mm---------------)
    #           [L0-)   …
    # device          [k0-)  …        [lost-)
    rows = [
        row("op", "aten::mm", 0, 9000, **HOST),
        row("kernel", "lost", 7000, 7010, **GPU, correlation_id=99),
    ]
    for n in range(1, linked + 1):
        at = 100 * n
        rows += [
            row("runtime", "cudaLaunchKernel", at + 10, at + 20, **HOST, correlation_id=n),
            row("kernel", f"k{n}", at + 50, at + 60, **GPU, correlation_id=n),
        ]
    events = annotated(table(rows), captured=False)
    (tmp_path / "mine").mkdir()
    links = dataclasses.asdict(coverage(events))
    write_tables(
        tmp_path / "mine", run_info({"name": "mine", "source": "ingest", "links": links}), events
    )
    assert lstmprof(["breakdown", str(tmp_path / "mine")]) == 0
    said = capsys.readouterr().out
    lines = [line for line in said.splitlines() if "GPU activities are" in line]
    numbers = [sorted(word for word in line.split() if word.isdigit()) for line in lines]
    assert numbers == ([sorted([str(linked + 1), share, share])] if share else [])
    assert any(line.startswith("Warning") for line in said.splitlines())


@pytest.mark.parametrize("marked", [True, False])
def test_a_line_a_device_speaks_of_a_step_where_one_is_marked(
    marked: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    step = [row("step", "ProfilerStep#1", 0, 9000, **HOST)] if marked else []
    kernels = [row("kernel", "k", 50, 60, device=d, stream=7) for d in range(4)]
    events = annotated(table([*step, *kernels]), captured=False)
    (tmp_path / "mine").mkdir()
    write_tables(tmp_path / "mine", run_info({"name": "mine", "source": "ingest"}), events)
    assert lstmprof(["breakdown", str(tmp_path / "mine")]) == 0
    lines = capsys.readouterr().out.splitlines()
    place = next(i for i, line in enumerate(lines) if " in ms" in line)
    last = "step" if marked else "profile"
    assert lines[place].startswith("mine: ")
    assert last in lines[place]
    first_row = next(i for i, line in enumerate(lines) if i > place and line.startswith("device"))
    assert lines[first_row - 1].split()[-1] == last


@pytest.mark.parametrize(
    ("kind", "name", "title"),
    [
        ("kernel", "k1", "mine: kernels\n"),
        ("memcpy", "Memcpy HtoD (Pageable -> Device)", "mine: kernels and copies\n"),
    ],
)
def test_a_copy_is_not_called_a_kernel(
    kind: str, name: str, title: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [row("kernel", "k2", 50, 60, **GPU), row(kind, name, 70, 80, **GPU)]
    events = annotated(table(rows), captured=False)
    (tmp_path / "mine").mkdir()
    write_tables(tmp_path / "mine", run_info({"name": "mine", "source": "ingest"}), events)
    assert lstmprof(["breakdown", str(tmp_path / "mine")]) == 0
    assert title in capsys.readouterr().out


def test_a_profile_without_times_or_kernels_has_no_empty_tables(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    events = annotated(table([row("range", "batch", 0, 9000, **HOST)]), captured=False)
    (tmp_path / "mine").mkdir()
    write_tables(tmp_path / "mine", run_info({"name": "mine", "source": "ingest"}), events)
    assert lstmprof(["breakdown", str(tmp_path / "mine")]) == 0
    said = capsys.readouterr().out
    assert "profile" in said
    assert "by self time" not in said
    assert lstmprof(["breakdown", str(tmp_path / "mine"), "--table", "timings"]) == 0
    assert "lstmprof capture" in capsys.readouterr().out


@pytest.mark.parametrize(("op", "omits"), [("SessionRun", True), ("MatMul", False)])
def test_layers_of_small_cells_may_be_missing_in_tensorflow(
    op: str, omits: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    events = annotated(table([row("op", op, 0, 9000, **HOST)]), captured=True)
    facts = {"name": "mine", "source": "own code", "framework": "tensorflow", "device": "cpu"}
    (tmp_path / "mine").mkdir()
    write_tables(tmp_path / "mine", run_info(facts), events)
    assert lstmprof(["breakdown", str(tmp_path / "mine"), "--table", "layers"]) == 0
    assert ("TensorFlow does not record CPU ops" in capsys.readouterr().out) == omits


def test_a_run_of_own_code_has_no_workload_in_its_heading(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [row("step", "step", 0, 9000, **HOST), row("op", "aten::mm", 10, 8000, **HOST)]
    events = annotated(table(rows), captured=True)
    facts = {"name": "mine", "source": "own code", "device_name": "a CPU", "threads": 2}
    counted = {
        "iteration": [0, 1, 2],
        "wall_ns": [9000, 9100, 9200],
        "round": [0] * 3,
        "warmup": [False] * 3,
        "after_profile": [False] * 3,
    }
    unknown = {name: [None] * 3 for name in TIMINGS_SCHEMA.names if name not in counted}
    timings = pa.table({n: {**counted, **unknown}[n] for n in TIMINGS_SCHEMA.names})
    (tmp_path / "mine").mkdir()
    write_tables(tmp_path / "mine", run_info(facts), events, timings)
    assert lstmprof(["breakdown", str(tmp_path / "mine")]) == 0
    said = capsys.readouterr().out
    assert said.startswith("Time per step: a CPU, 2 threads\n")
    assert "None" not in said


@pytest.mark.parametrize("runs", [2, 3])
def test_a_warning_that_many_runs_have_is_one_line(
    runs: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    events = annotated(table([row("step", "step", 0, 9000, **HOST)]), captured=True)
    unread = {name: [None] for name in TIMINGS_SCHEMA.names}
    timed = {"round": [0], "iteration": [0], "warmup": [False], "wall_ns": [9000]}
    timings = pa.table({**unread, **timed}).cast(TIMINGS_SCHEMA)
    for number in range(runs):
        hot = {"gpu_throttle_reasons": [f"it has {90 + number} °C"]}
        info = {"name": f"r{number}", "source": "capture", "implementation": "torch-nn-lstm"}
        (tmp_path / f"r{number}").mkdir()
        write_tables(tmp_path / f"r{number}", run_info({**info, **hot}), events, timings)
    assert lstmprof(["breakdown", str(tmp_path)]) == 0
    warned = [w for w in capsys.readouterr().out.splitlines() if "the GPU was throttled" in w]
    others = {2: "r1", 3: "r1 and r2"}[runs]
    assert [line.partition(": the GPU")[0] for line in warned] == [f"Warning: r0 (also {others})"]


def ops_of(folder: Path, name: str, network: str, parts: dict[str, int]) -> None:
    """A run of one timed step of 10 ms, a millisecond of it Python, the others ops."""
    rows, at = [row("step", "step", 0, 10_000_000, **HOST)], 0
    for op, ms in parts.items():
        rows.append(row("op", op, at * 1_000_000, (at + ms) * 1_000_000, **HOST))
        at += ms
    unread = {name: [None] for name in TIMINGS_SCHEMA.names}
    timed = {"round": [0], "iteration": [0], "warmup": [False], "wall_ns": [10_000_000]}
    timings = pa.table({**unread, **timed}).cast(TIMINGS_SCHEMA)
    workload = {**WORKLOAD, "name": network}
    info = {"name": name, "source": "capture", "implementation": name, "workload": workload}
    (folder / name).mkdir()
    write_tables(folder / name, run_info(info), annotated(table(rows), captured=True), timings)


def test_the_steps_of_several_runs_stand_side_by_side(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ops_of(tmp_path, "a", "one", {"aten::mm": 8, "aten::tanh": 1})
    ops_of(tmp_path, "b", "one", {"aten::mm": 4, "aten::tanh": 5})
    ops_of(tmp_path, "c", "one", {"aten::mm": 9})
    assert lstmprof(["breakdown", str(tmp_path / "a")]) == 0
    assert "a: time per step" in capsys.readouterr().out
    ops_of(tmp_path, "d", "other", {"aten::mm": 9})
    assert lstmprof(["breakdown", str(tmp_path)]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    at = lines.index(["run", "matmul", "elementwise", "all", "idle", "Python", "step"])
    cells = {line[0]: [float(cell) for cell in line[1:]] for line in lines[at + 1 : at + 4]}
    assert cells == {
        "a": pytest.approx([8, 1, 1, 1, 10], abs=0.01),
        "b": pytest.approx([4, 5, 1, 1, 10], abs=0.01),
        "c": pytest.approx([9, 0, 1, 1, 10], abs=0.01),
    }
    assert lines.count(["run", "matmul", "all", "idle", "Python", "step"]) == 1
    assert lstmprof(["breakdown", str(tmp_path), "--top", "3"]) == 0
    assert "d: time per step" in capsys.readouterr().out


@pytest.mark.parametrize("ranks", [2, 4])
def test_several_ranks_are_a_line_each_and_kernels_are_of_all(
    ranks: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # rank n   [step 10 ms                             )
    #          [L)  [gemm 1 + n ms ───────)  [add 1 ms )
    rows = []
    for rank in range(ranks):
        host, gpu = {**HOST, "rank": rank}, {**GPU, "rank": rank}
        rows += [
            row("step", "step", 0, 10_000_000, **host),
            row("runtime", "cudaLaunchKernel", 0, 10, **host, correlation_id=1),
            row("kernel", "gemm", 20, 1_000_020 + rank * 1_000_000, **gpu, correlation_id=1),
            row("kernel", "add", 8_000_000, 9_000_000, **gpu),
        ]
    events = annotated(table(rows), captured=False)
    (tmp_path / "job").mkdir()
    write_tables(tmp_path / "job", run_info({"name": "job", "source": "ingest"}), events)
    assert lstmprof(["breakdown", str(tmp_path / "job")]) == 0
    said = capsys.readouterr().out
    of_rank = [line.split() for line in said.splitlines() if line.startswith("device 0 of rank ")]
    busy = [sum(map(float, line[5:7])) for line in of_rank]
    assert busy == pytest.approx([2, 3, 4, 5][:ranks])
    assert all(float(line[-1]) == 10 for line in of_rank)
    assert f"job: kernels of {ranks} devices\n" in said
    cells = [
        line.split() for line in said.splitlines() if line.rstrip().endswith((" gemm", " add"))
    ]
    total = sum(1 + rank for rank in range(ranks))
    assert [line[0] for line in cells] == [f"{total}.000", f"{ranks}.000"]
    assert cells[0][1] == f"{100 * total / (total + ranks):.1f}"
    assert [line[3] for line in cells] == [str(ranks)] * 2


def test_what_has_no_steps_is_no_step_beside_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [row("op", "aten::mm", 0, 9_000_000, **HOST)]
    marked = [row("step", "step", 0, 10_000_000, **HOST), *rows]
    for name in "abcd":
        events = annotated(table(rows if name == "a" else marked), captured=False)
        (tmp_path / name).mkdir()
        write_tables(tmp_path / name, run_info({"name": name, "source": "ingest"}), events)
    assert lstmprof(["breakdown", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    begins = [line.split("  ")[0] for line in lines if line.split("  ")[0].strip() in set("bcd")]
    assert begins == ["b", "c", "d"]
    assert sum(line.startswith("a (whole profile)  ") for line in lines) == 1
