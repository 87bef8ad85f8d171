"""What a step would be shorter by without a cause: by a replay, by the roofline, by its time."""

from __future__ import annotations

from pathlib import Path

import pytest
from diagnose.made import contributor, diagnose
from events.rows import Row, row, table
from hypothesis import given, settings, strategies as st
from simulator import drawn_programs as drawn
from simulator.drawn_programs import Body
from simulator.gpu_programs import BlockingCopy, Gap, Launch, Machine, Within, Work
from simulator.gpu_simulator import simulated

from lstmprof.breakdown import break_down
from lstmprof.diagnose.findings import causes
from lstmprof.diagnose.findings.savings import REPLAY, ROOFLINE, TAKEN, Saving, saving_of
from lstmprof.diagnose.remedies import TABLE
from lstmprof.diagnose.roofline import Peaks, Reach, Roofline
from lstmprof.diagnose.verdict.what_ifs import DiagnosisOptions
from lstmprof.events.annotate import annotated
from lstmprof.runs.metadata import run_info
from lstmprof.runs.run import open_run, write_tables

MS = 1_000_000
HOST = {"pid": 1, "tid": 1}
GPU = {"device": 0, "stream": 7}


def launched(op: str, at: int, kernel: str, begins: int, ends: int) -> list[Row]:
    """An op of 2 µs in which a kernel is launched that runs from ``begins`` to ``ends``, in µs."""
    given = {"correlation_id": at}
    return [
        row("op", op, at * 1000, (at + 2) * 1000, **HOST),
        row("runtime", "cudaLaunchKernel", at * 1000 + 500, at * 1000 + 1500, **HOST, **given),
        row("kernel", kernel, begins * 1000, ends * 1000, **GPU, **given),
    ]


def test_a_cast_that_hides_behind_the_host_saves_what_a_replay_says(tmp_path: Path) -> None:
    # host  to|....|mm|......      µs 0..2, 40..42
    # GPU      cast  |  mm |       3..23, 43..63: without the cast the step is as long but for 2 µs
    rows = [
        row("step", "step", 0, 64_000, **HOST),
        *launched("mine::halved", 0, "float_to_half_kernel", 3, 23),
        *launched("aten::mm", 40, "gemm_kernel", 43, 63),
    ]
    (tmp_path / "r").mkdir()
    write_tables(tmp_path / "r", run_info({"name": "r"}), annotated(table(rows), captured=True))
    diagnosis = diagnose(break_down(open_run(tmp_path / "r")))
    cast = next(e for e in diagnosis.findings if e.finding.kind == "cast").finding
    assert cast.slow_ns == 20_000
    assert cast.saving.by == REPLAY
    assert cast.saving.ns <= 2_000
    # so it is not named first, though it takes as long as the product
    assert diagnosis.findings[0].finding.kind != "cast"


def test_a_copy_saves_no_time_of_work_that_would_overlap_without_it(tmp_path: Path) -> None:
    # stream 20  [mm 3..103)                      without the copy both products run at once, if the
    # stream 7     [copy 5..123)[mm 123..223)     device has room: of that nothing is known
    beside = launched("aten::mm", 0, "gemm_kernel", 3, 103)
    beside[-1]["stream"] = 20
    copy = launched("aten::copy_", 3, "CatArrayBatchedCopy", 5, 123)
    after = launched("aten::mm", 6, "gemm_kernel", 123, 223)
    ends = row("runtime", "cudaDeviceSynchronize", 10_000, 223_500, **HOST)
    rows = [row("step", "step", 0, 224_000, **HOST), *copy, *beside, *after, ends]
    (tmp_path / "r").mkdir()
    write_tables(tmp_path / "r", run_info({"name": "r"}), annotated(table(rows), captured=True))
    diagnosis = diagnose(break_down(open_run(tmp_path / "r")))
    (moved,) = (e.finding for e in diagnosis.findings if e.finding.kind == "copy")
    assert (moved.slow_ns, moved.saving.by) == (20_000, REPLAY)
    assert moved.saving.ns == 20_000 + diagnosis.slow.length_ns - diagnosis.slow.busy_ns


@pytest.mark.parametrize(("copy", "saves_idle"), [(1, False), (0, True)])
def test_only_a_copy_that_the_host_does_not_read_saves_the_wait_for_it(
    tmp_path: Path, copy: int, saves_idle: bool
) -> None:
    # GPU   [mm 100][copy 10]          [mm 100][copy 10]          …
    # host  [waits          ][Python 60]
    kernel = Launch((0, 7), Work("kernel", *drawn.KERNELS[0], 100_000), 1_000)
    moved = BlockingCopy((0, 7), Work("memcpy", *drawn.COPIES[copy], 10_000))
    read = Within("op", "aten::copy_", 0, (moved,), 0)
    body = Within("step", "step", 1_000, (kernel, read, Gap(60_000)) * 8, 1_000)
    rows = simulated([(1, (body,))], Machine(latency_ns=2_000, return_ns=1_000)).rows
    (tmp_path / "r").mkdir()
    write_tables(tmp_path / "r", run_info({"name": "r"}), annotated(table(rows), captured=True))
    diagnosis = diagnose(break_down(open_run(tmp_path / "r")))
    (moves,) = (e.finding for e in diagnosis.findings if e.finding.kind == "copy")
    assert (moves.slow_ns, moves.saving.by) == (80_000, REPLAY)
    # Copies to the device let the host run ahead of it by 7 times 60 µs.
    assert (moves.saving.ns > 400_000) is saves_idle
    assert (moves.saving.ns < 120_000) is not saves_idle


def test_a_copy_saves_its_time_if_no_activity_has_a_launch(tmp_path: Path) -> None:
    # A timeline of TensorFlow 1 has no launches: nothing says what waits for the copy.
    rows = [
        row("memcpy", "MEMCPYHtoD", 0, 40_000, **GPU),
        row("kernel", "gemm_kernel", 40_000, 70_000, **GPU),
        row("op", "MatMul", 0, 70_000, **HOST),
    ]
    (tmp_path / "r").mkdir()
    write_tables(tmp_path / "r", run_info({"name": "r"}), annotated(table(rows), captured=False))
    first = diagnose(break_down(open_run(tmp_path / "r"))).findings[0].finding
    assert (first.kind, first.saving) == ("copy", Saving(40_000, TAKEN))


@settings(max_examples=40, deadline=None)
@given(
    st.lists(drawn.bodies(drawn.STREAMS) | drawn.casts(drawn.STREAMS), min_size=1, max_size=6),
    drawn.throttled,
    st.sampled_from((0, 1)),
)
def test_no_saving_exceeds_what_the_step_has(
    tmp_path_factory: pytest.TempPathFactory, inner: list[Body], machine: Machine, device: int
) -> None:
    """A kind saves its own time and the idle time at most; a fix saves the time of its kinds."""
    work = tuple(Launch((d, 7), Work("kernel", *drawn.KERNELS[0], 5), 1) for d in (0, 1))
    body = Within("step", "step", 1, (*sum(inner, ()), *work), 40)
    folder = tmp_path_factory.mktemp("r")
    events = annotated(
        table(simulated([(1, (body, *inner[0], body))], machine).rows), captured=False
    )
    write_tables(folder, run_info({"name": "r"}), events)
    diagnosis = diagnose(break_down(open_run(folder)), wanted=DiagnosisOptions(device=device))
    kinds = {e.finding.kind: e.finding.slow_ns for e in diagnosis.findings}
    idle_ns = diagnosis.slow.length_ns - diagnosis.slow.busy_ns
    waits_ns = sum(ns for kind, ns in kinds.items() if kind in causes.WAITS)
    rows = {row.name: row.kinds for row in TABLE}
    for explained in diagnosis.findings:
        finding = explained.finding
        assert 0 <= finding.saving.ns <= finding.slow_ns + idle_ns
        for fix in explained.remedies:
            own = {finding.kind, *rows[fix.name]}
            most_ns = waits_ns + sum(ns for kind, ns in kinds.items() if kind in own)
            assert 0 <= (fix.saves_ns or 0) <= most_ns


def test_work_saves_what_it_takes_above_its_least_time() -> None:
    rows = [contributor("busy", "gemm", 60 * MS), contributor("busy", "rnn", 20 * MS)]
    limit = Roofline(
        clean_ns=100 * MS,
        peaks=Peaks(1.0, 1.0),
        bounds=(),
        reaches=(Reach(("rnn", "gemm"), 80 * MS, 20 * MS), Reach(("cast",), 5 * MS, None)),
    )
    assert saving_of(rows, limit) == Saving(60 * MS, ROOFLINE)
    assert saving_of(rows, None) == Saving(80 * MS, TAKEN)
    waits = [contributor("idle", "gemm", 7 * MS), contributor("busy", "cast", 5 * MS)]
    assert saving_of(waits, limit) == Saving(12 * MS, TAKEN)


def test_work_faster_than_its_bound_saves_nothing_and_never_less() -> None:
    limit = Roofline(100 * MS, Peaks(1.0, 1.0), (), (Reach(("gemm",), 10 * MS, 30 * MS),))
    assert saving_of([contributor("busy", "gemm", 10 * MS)], limit) == Saving(0, ROOFLINE)


def test_json_says_what_a_finding_saves_and_by_what(tmp_path: Path) -> None:
    rows = [row("step", "step", 0, 5_000, **HOST), row("op", "aten::mm", 0, 4_000, **HOST)]
    (tmp_path / "r").mkdir()
    write_tables(tmp_path / "r", run_info({"name": "r"}), annotated(table(rows), captured=True))
    first = diagnose(break_down(open_run(tmp_path / "r"))).to_dict()["findings"][0]
    assert (first["rank"], first["saves_ns"], first["saves_by"]) == (1, 4_000, TAKEN)
