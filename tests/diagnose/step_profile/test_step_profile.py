"""A step profile: the busiest lane, and where its clean step goes."""

from __future__ import annotations

from pathlib import Path

import pytest
from diagnose.made import diagnose
from events.rows import Row, row, table

from lstmprof.base.errors import RunError
from lstmprof.breakdown import break_down
from lstmprof.breakdown.mean_step import device_word
from lstmprof.diagnose.step_profile import StepProfile, step_profile_of
from lstmprof.events.annotate import annotated
from lstmprof.runs.metadata import run_info
from lstmprof.runs.run import open_run, write_tables

HOST = {"pid": 1, "tid": 1}


def profile(folder: Path, rows: list[Row], source: str = "ingest") -> StepProfile:
    folder.mkdir(exist_ok=True)
    events = annotated(table(rows), captured=source == "capture")
    write_tables(folder, run_info({"name": "r", "source": source}), events)
    return step_profile_of(break_down(open_run(folder)))


def step(start: int, end: int, *inside: Row) -> list[Row]:
    return [row("step", "step", start, end, **HOST), *inside]


def test_the_mean_step_of_a_host_and_its_tables(tmp_path: Path) -> None:
    rows = [
        row("op", "aten::mm", 1, 2, **HOST),  # before the first step
        *step(10, 20, row("op", "aten::mm", 12, 19, **HOST)),
        *step(20, 32, row("op", "aten::mm", 22, 31, **HOST)),
    ]
    found = profile(tmp_path / "r", rows)
    assert (found.steps, found.marked, found.device, found.length_ns) == (2, True, None, 11)
    assert found.parts == {("busy", "gemm"): 8, ("idle", "python"): 3}
    assert [(r["name"], r["count"]) for r in found.rows("ops")] == [("aten::mm", 2)]
    assert found.sync_calls is None


def test_the_busiest_device_of_the_first_rank_and_what_else_there_is(tmp_path: Path) -> None:
    launch = {"rank": 0, **HOST}
    rows = [
        row("step", "step", 0, 100, **launch),
        row("runtime", "cudaLaunchKernel", 1, 2, **launch, correlation_id=1),
        row("runtime", "cudaLaunchKernel", 3, 4, **launch, correlation_id=2),
        row("runtime", "cudaStreamSynchronize", 90, 95, **launch),
        row("kernel", "sgemm", 10, 20, rank=0, device=0, stream=7, correlation_id=1),
        row("kernel", "sgemm", 10, 60, rank=0, device=1, stream=7, correlation_id=2),
    ]
    found = profile(tmp_path / "r", rows)
    assert (found.rank, found.device, found.busy_ns, found.sync_calls) == (0, 1, 50, 1)
    assert [r["total_ns"] for r in found.rows("kernels")] == [50]
    assert found.notes[0] == (
        "this diagnosis is about device 1 of rank 0 only (1 of 2 devices: the busiest device)"
    )


def test_the_steps_that_a_user_names_are_those_of_every_table(tmp_path: Path) -> None:
    host, gpu = {"pid": 1, "tid": 1}, {"device": 0, "stream": 7}
    rows = [row("op", "aten::mm", 0, 100, **HOST)]
    for number in range(2):
        at = 100 * number
        rows += [
            row("range", "batch", at + 10, at + 90, **host),
            row("runtime", "cudaLaunchKernel", at + 15, at + 17, **host, correlation_id=number + 1),
            row("kernel", "sgemm", at + 20, at + 60, **gpu, correlation_id=number + 1),
        ]
    (tmp_path / "r").mkdir()
    write_tables(
        tmp_path / "r", run_info({"source": "ingest"}), annotated(table(rows), captured=False)
    )
    found = step_profile_of(break_down(open_run(tmp_path / "r"), "batch"))
    assert (found.steps, found.marked, found.busy_ns) == (2, True, 40)
    assert [r["count"] for r in found.rows("kernels")] == [2]


def test_what_the_input_phase_took_is_kept_apart(tmp_path: Path) -> None:
    rows = step(
        0,
        100,
        row("range", "input", 10, 30, **HOST),
        row("op", "aten::uniform_", 20, 30, **HOST),
        row("op", "aten::mm", 40, 100, **HOST),
    )
    assert profile(tmp_path / "r", rows).parts == {
        ("input", "python"): 10,
        ("input", "rng"): 10,
        ("idle", "python"): 20,
        ("busy", "gemm"): 60,
    }


def test_contributors_sum_to_the_clean_step_and_what_some_steps_have_stands_beside(
    tmp_path: Path,
) -> None:
    rows = [row("op", "checkpoint", 160, 232, **HOST)]  # in the first step alone
    at = 0
    for op_ns, saved_ns in ((60, 72), (60, 0), (900, 0), (60, 0), (61, 0), (60, 0)):
        end = at + 100 + op_ns + saved_ns  # the third is disturbed
        rows += step(at, end, row("op", "aten::mm", at + 20, at + 20 + op_ns, **HOST))
        at = end
    found = profile(tmp_path / "r", rows)
    assert (found.steps, found.length_ns) == (6, 100 + 60 + 72 // 6)
    assert found.length_ns == sum(c.ns for c in found.contributors)
    assert found.span is not None
    assert [found.span.ns, sum(s.ns for s in found.part_spans.values())] == [pytest.approx(172)] * 2
    assert [(r.name, r.steps, r.each_ns) for r in found.rare] == [("checkpoint", 1, 72)]


def test_a_profile_without_events_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="r: no event of its profile has a duration"):
        profile(tmp_path / "r", [])


def test_the_public_diagnosis_of_one_run_and_of_two(tmp_path: Path) -> None:
    for name, products in (("fast", 1), ("slow", 3)):
        starts = range(10_000, 10_000 + 100_000 * products, 100_000)
        inside = [row("op", "aten::mm", start, start + 100_000, **HOST) for start in starts]
        profile(tmp_path / name, step(0, 10_000 + 100_000 * products, *inside))
    fast, slow = (break_down(open_run(tmp_path / name)) for name in ("fast", "slow"))
    alone = diagnose(slow).verdict
    assert (alone.subject, alone.bottleneck) == ("r", "matmul")
    assert (alone.bottleneck_ns, alone.whole_ns) == (300_000, 310_000)
    found = diagnose(slow, fast)
    assert sum(d.delta_ns for d in found.differences) == 200_000
    assert found.dominant is not None
    assert found.dominant.finding.kind == "matmul"


@pytest.mark.parametrize(
    ("named", "word"),
    [("NVIDIA H100 80GB HBM3", "GPU"), ("AMD Instinct MI210", "GPU"), ("ARTEMIS", "device")],
)
def test_a_device_is_called_a_gpu_where_it_is_one(named: str, word: str) -> None:
    assert device_word(named) == word
