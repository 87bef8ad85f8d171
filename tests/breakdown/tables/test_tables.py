"""The kernel table, the timings and the mean step, by hand on a few rows."""

from __future__ import annotations

import pyarrow as pa
import pytest
from events.rows import row, table

from lstmprof.breakdown.attribution.ledger import ledger
from lstmprof.breakdown.clean.slot_times import Span
from lstmprof.breakdown.clean.timings import slowdowns, timings
from lstmprof.breakdown.mean_step import mean_steps
from lstmprof.breakdown.tables import TABLES
from lstmprof.events.annotate import annotated
from lstmprof.events.annotate.steps import windows
from lstmprof.runs.metadata import run_info
from lstmprof.runs.run import TIMINGS_SCHEMA

kernels = TABLES["kernels"].of

HOST = {"pid": 1, "tid": 1}
GPU = {"device": 0, "stream": 7}


def test_kernels_are_grouped_and_percentiles_are_rows() -> None:
    # two steps; gemm of 1…4 ns in the first, 10 ns in the second; one before any step
    gemms = [(2, 1), (4, 2), (7, 3), (11, 4), (32, 10)]
    rows = [
        row("step", "ProfilerStep#1", 1, 20, **HOST),
        row("step", "ProfilerStep#2", 30, 50, **HOST),
    ]
    rows += [row("kernel", "gemm", at, at + n, **GPU, category="gemm") for at, n in gemms]
    rows += [row("kernel", "relu", 0, 1, **GPU, category="pointwise")]
    events = annotated(table(rows), captured=False)
    found = kernels(events, windows(events, captured=False)).to_pylist()
    assert [r["name"] for r in found] == ["gemm", "relu"]
    gemm = found[0]
    assert (gemm["count"], gemm["total_ns"], gemm["mean_ns"]) == (5, 20, 4.0)
    assert (gemm["p50_ns"], gemm["p95_ns"], gemm["max_ns"]) == (3, 10, 10)
    assert gemm["share"] == pytest.approx(20 / 21)
    assert (gemm["per_step"], found[1]["per_step"]) == (2.5, 0.0)


def test_on_a_cpu_the_table_holds_the_self_time_of_computing_ops() -> None:
    # [aten::linear-----------)   arranges: not in the table
    #    [aten::addmm-----)
    #        [aten::copy_)
    rows = [
        row("op", "aten::linear", 0, 20, **HOST),
        row("op", "aten::addmm", 3, 16, **HOST),
        row("op", "aten::copy_", 7, 12, **HOST),
    ]
    events = annotated(table(rows), captured=False)
    found = kernels(events, windows(events, captured=False)).to_pylist()
    assert [(r["name"], r["total_ns"], r["per_step"]) for r in found] == [
        ("aten::addmm", 8, None),
        ("aten::copy_", 5, None),
    ]


def test_the_kernel_table_says_which_rule_decided_most_of_a_category() -> None:
    # gemm launched twice beneath aten::mm, once beneath nothing; relu by its own name
    rows = [row("op", "aten::mm", 0, 9, **HOST)]
    for at, correlation in ((1, 1), (3, 2), (20, 3)):
        rows += [row("runtime", "cudaLaunchKernel", at, at + 1, **HOST, correlation_id=correlation)]
        rows += [row("kernel", "sgemm", at + 30, at + 31, **GPU, correlation_id=correlation)]
    rows += [row("kernel", "elementwise_relu", 60, 61, **GPU), row("kernel", "k", 61, 62, **GPU)]
    events = annotated(table(rows), captured=False)
    found = {r["name"]: r["rule"] for r in kernels(events, []).to_pylist()}
    assert found == {
        "sgemm": "op: GEMM (torch)",
        "elementwise_relu": "kernel name: element by element (any)",
        "k": "activity: no rule knows op or kernel (any)",
    }


@pytest.mark.parametrize("rule", ["op: a rule of old (torch)", None])
def test_a_rule_is_told_as_it_was_stored_when_it_decided(rule: str | None) -> None:
    events = annotated(table([row("op", "aten::mm", 0, 9, **HOST)]), captured=False)
    other = events.with_columns({"rule": pa.array([rule], pa.string())})
    assert kernels(other, []).to_pylist()[0]["rule"] == rule


def test_an_empty_profile_has_empty_tables() -> None:
    events = annotated(table([]), captured=False)
    assert windows(events, captured=False) == []
    assert kernels(events, []).num_rows == 0
    assert ledger(events, []).num_rows == 0


def test_the_mean_step_keeps_every_nanosecond() -> None:
    rows = [
        row("step", "ProfilerStep#1", 0, 10, **HOST),
        row("step", "ProfilerStep#2", 10, 25, **HOST),
    ]
    rows += [row("kernel", "k", 2, 8, **GPU, category="gemm")]
    events = annotated(table(rows), captured=False)
    (step,) = mean_steps(ledger(events, windows(events, captured=False)))
    assert (step.steps, step.total_ns, step.mean_ns) == (2, 25, 12.5)
    assert step.parts[0] == ("busy", "other", 6)
    assert sum(ns for _, _, ns in step.parts) == 25
    assert step.waits_for_host_share == pytest.approx(17 / 25)  # tails in python; 2 ns unattributed


def test_no_share_of_launches_is_claimed_where_no_idle_time_has_a_cause() -> None:
    rows = [row("kernel", "k", 2, 8, **GPU), row("kernel", "k", 10, 12, **GPU)]
    events = annotated(table(rows), captured=False)
    (step,) = mean_steps(ledger(events, windows(events, captured=False)))
    assert step.waits_for_host_share is None


def measured(walls: list[int], warmup: int) -> pa.Table:
    rows = [
        {
            "round": 0,
            "iteration": i,
            "warmup": i < warmup,
            "wall_ns": w,
            "device_ns": None,
            "loss": 1.0,
        }
        for i, w in enumerate(walls)
    ]
    return pa.Table.from_pylist(rows, schema=TIMINGS_SCHEMA)


def test_timings_leave_the_warm_up_out() -> None:
    facts = {"workload": {"batch": 64}, "compile_ns": 900, "profiled_wall_ns": [11, 12, 13]}
    found = timings(measured([900, 500, 8, 10, 12], warmup=2), run_info(facts))
    assert found is not None
    assert (found.iterations, found.median_ns, found.mean_ns, found.std_ns) == (3, 10.0, 10.0, 2.0)
    assert (found.p95_ns, found.compile_ns) == (12, 900)
    assert found.inflation_share == pytest.approx(0.2)
    # no step was profiled: the 10th percentile of 8, 10 and 12
    assert found.step_ns == found.typical_ns == pytest.approx(8.4)
    assert found.samples_per_s == pytest.approx(64 / 8.4e-9)
    assert found.lost_ns == pytest.approx(10 - 8.4)
    assert (found.step_low_ns, found.step_high_ns) == (None, None)


def test_few_profiled_steps_are_not_compared_with_steps_of_other_work() -> None:
    facts = run_info({"profiled_wall_ns": [38, 16, 22]})
    even, uneven = (measured(walls, warmup=0) for walls in ([20, 20, 20, 21], [12, 16, 24, 40]))
    for walls, work_varies, known in [
        (uneven, True, False),
        (uneven, False, True),
        (even, True, True),
    ]:
        found = timings(walls, facts, work_varies=work_varies)
        assert found is not None
        assert (found.inflation_share is not None) == known


@pytest.mark.parametrize(
    ("timed", "profiled", "warned"),
    [
        (1_256, 60_937, True),
        (1_256, 2_000, False),  # 0.7 · 10⁶ · 2.7 ns: 2 ms of 100 ms
        (40_000, 60_937, False),  # timed steps have them, too
    ],
)
def test_page_faults_that_only_profiled_steps_have_are_a_warning_with_a_remedy(
    timed: int, profiled: int, warned: bool
) -> None:
    table = measured([60_000_000] * 3, warmup=0)
    place = table.column_names.index("minor_faults")
    table = table.set_column(place, "minor_faults", pa.array([timed] * 3, pa.int64()))
    facts = {"profiled_page_faults": [9, profiled, profiled], "profiled_wall_ns": [10**8] * 3}
    found = timings(table, run_info(facts))
    assert found is not None
    warnings = [str(warning) for warning in found.warnings]
    assert bool(warnings) == warned
    for text in warnings:
        assert "60,937 page faults" in text
        assert "set MALLOC_TOP_PAD_=134217728 MALLOC_MMAP_THRESHOLD_=" in text


def test_the_clean_step_is_the_step_and_what_iterations_took_beyond_it_is_lost() -> None:
    table = measured([8, 10, 12], warmup=0)
    found = timings(table, run_info({"workload": {"batch": 64}}), Span(5, 6, 7))
    assert found is not None
    assert (found.step_low_ns, found.step_ns, found.step_high_ns) == (5, 6, 7)
    assert found.lost_ns == 10 - 6
    assert found.samples_per_s == pytest.approx(64 / 6e-9)
    longer = timings(table, run_info({}), Span(5, 11, 20))
    assert longer is not None
    assert longer.lost_ns is None


def test_the_cpu_share_is_that_of_the_thread_that_ran_the_iterations() -> None:
    def with_columns(**columns: list[int]) -> pa.Table:
        table = measured([100, 100], warmup=0)
        for name, values in columns.items():
            table = table.set_column(table.column_names.index(name), name, [values])
        return table

    # 30 of the second wait were before the iteration or after it: it ran 90 of its 100
    waits = with_columns(waited_ns=[20, 40], thread_cpu_ns=[70, 90], preemptions=[1, 4])
    found = timings(waits, run_info({"threads": 2}))
    assert found is not None
    assert (found.cpu_share, found.preemptions) == (pytest.approx(0.85), 2.5)
    computed = with_columns(cpu_ns=[80, 70])
    one = timings(computed, run_info({"device": "cpu", "threads": 1}))
    assert one is not None
    assert (one.cpu_share, one.preemptions) == (pytest.approx(0.75), None)


def test_a_language_model_is_measured_in_words() -> None:
    facts = {"workload": {"batch": 20, "time_steps": 35, "vocabulary": 10_000}}
    found = timings(measured([1000, 1000], warmup=0), run_info(facts))
    assert found is not None
    assert found.words_per_s == pytest.approx(20 * 35 / 1e-6)


def test_what_is_unknown_stays_unknown() -> None:
    assert timings(measured([5], warmup=1), run_info({})) is None
    found = timings(measured([5], warmup=0), run_info({}))
    assert found is not None
    assert (found.std_ns, found.samples_per_s, found.words_per_s) == (None, None, None)
    assert (found.inflation_share, found.cpu_energy_j) == (None, None)


def test_slowdown_is_against_the_fastest() -> None:
    assert slowdowns({3: 10.0, 5: 25.0}) == {3: 1.0, 5: 2.5}
    assert slowdowns({}) == {}
