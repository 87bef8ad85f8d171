"""Each chart draws from the columns that its file names, and no bar is of two runs."""

from __future__ import annotations

import dataclasses
import importlib
from pathlib import Path
from typing import Any

import altair as alt
import pytest
from altair.utils import schemapi
from diagnose.made import contributor, profile, span
from diagnose.made_job import breakdown_of
from report import runs, test_ranks

from lstmprof.breakdown import break_down
from lstmprof.diagnose.findings import waterfall as steps
from lstmprof.report import TABLES, report_of
from lstmprof.report.charts import CHARTS, casts, figures, launch_gaps, times, versions, waterfall
from lstmprof.report.model import Pair, Report


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    folder = tmp_path_factory.mktemp("runs")
    cast = ("unrolled_elementwise_kernel<direct_copy_kernel_cuda::LoadWithCast<1>>",)
    made = [
        runs.run(folder, "small", implementation="a", walls_ns=runs.walls(30_000), names=cast),
        runs.run(folder, "large", implementation="a", hidden=64, walls_ns=runs.walls(40_000)),
        runs.run(folder, "slow", implementation="b", kernels=9, walls_ns=runs.walls(90_000)),
        runs.run(
            *(folder, "older"),
            implementation="a",
            walls_ns=runs.walls(35_000),
            facts={"versions": {"torch": "1.8.1"}},
        ),
    ]
    job = breakdown_of(folder / "job", test_ranks.rows())
    return report_of([*(break_down(run, None, TABLES) for run in made), job])


CAST: dict[str, Any] = {
    **{"label": "a", "group": 0, "op": "aten::to", "within": None, "from_dtype": "float"},
    **{"to_dtype": "c10::Half", "per_step": 1.0, "total_ns": 5, "share": 0.25},
}


@pytest.mark.parametrize("name", CHARTS)
def test_a_chart_reads_no_column_but_those_it_names(report: Report, name: str) -> None:
    module = importlib.import_module(f"lstmprof.report.charts.{name}")
    rows = getattr(report, name) or [{"run": "one", **CAST}]
    columns = [{column: row[column] for column in module.COLUMNS} for row in rows]
    assert columns
    assert module.chart(columns).to_dict() == module.chart(rows).to_dict()


def test_every_specification_is_vega_lite_though_none_is_looked_through(
    report: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_through: list[object] = []
    validate = schemapi.validate_jsonschema

    def watched(spec: object, *rest: Any, **named: Any) -> Any:
        looked_through.append(spec)
        return validate(spec, *rest, **named)

    monkeypatch.setattr(schemapi, "validate_jsonschema", watched)
    specs = [figure.spec for figure in figures(report)]
    assert looked_through  # what a chart is made of is
    objects = [spec for spec in looked_through if isinstance(spec, dict)]
    assert not [spec for spec in objects if "data" in spec or spec.get("name") == "rows"]
    for spec in specs:
        validate(spec, alt.Root._schema, alt.Root._rootschema)


def test_runs_of_one_label_in_two_groups_have_a_bar_of_casts_each() -> None:
    rows = [{"run": run, **CAST} for run in ("fp32", "amp")]
    values = casts.chart(rows).to_dict()["data"]["values"]
    assert [(row["label"], row["percent"]) for row in values] == [("fp32", 25.0), ("amp", 25.0)]


def test_of_runs_that_hardly_cast_it_is_said_and_no_bar_is_drawn() -> None:
    rows = [{"run": "amp", **CAST}, {"run": "fp32", **CAST, "label": "b", "share": 0.002}]
    values = casts.chart(rows).to_dict()["data"]["values"]
    assert [row["label"] for row in values] == ["a"]
    assert casts.sentence(rows).endswith("; one other spends at most 0.2 % and is not drawn.")
    assert "drawn" not in casts.sentence(rows[1:])


def test_runs_of_one_version_have_one_label_that_spans_them() -> None:
    row = {"run": "r", "implementation": "a", "of_first": 1.0, "step_low_ns": 1, "step_high_ns": 2}
    rows = [
        {**row, "version": version, "place": place, "step_ns": ms * 1_000_000}
        for version, place, ms in (("1", 0, 20), ("2", 1, 12), ("2", 1, 10))
    ]
    values = versions.chart(rows).to_dict()["data"]["values"]
    assert [value["said"] for value in values] == ["20.0", "10.0…12.0", ""]


def test_a_copy_is_no_kernel_that_waited(tmp_path: Path) -> None:
    copy, kernel = "Memcpy HtoD (Pageable -> Device)", "ampere_sgemm_128x64_nn"
    run = runs.run(tmp_path, "one", implementation="a", kernels=6, names=(copy, kernel))
    drawn = report_of([break_down(run, None, TABLES)])
    assert {row["name"] for row in drawn.launch_gaps} == {kernel}
    (figure,) = launch_gaps.figures(drawn)
    count = sum(row["count"] for row in drawn.launch_gaps)
    assert f" of {count} kernels" in figure.sentence
    assert "1 kernel name" in figure.caption
    assert "names" not in figure.caption


@pytest.mark.parametrize(
    ("gap_ns", "said"),
    [(4, "No kernel waited longer than it ran, in the median."), (9, "3 of 3 kernels (100 %)")],
)
def test_kernels_that_wait_longer_than_they_run_are_counted(gap_ns: int, said: str) -> None:
    row = {"count": 3, "dur_p50_ns": 5, "gap_p50_ns": gap_ns}
    assert launch_gaps.sentence([row]).startswith(said)


def test_a_waterfall_is_in_the_order_of_the_findings_and_small_ones_are_one() -> None:
    rows = [
        {"kind": "matmul", "fast_ns": 1_000, "slow_ns": 3_000},
        {"kind": "elementwise", "fast_ns": 0, "slow_ns": 1},
        {"kind": "cast", "fast_ns": 1_000, "slow_ns": 100},
    ]
    labels = [bar["label"] for bar in waterfall.bars(rows)]
    assert labels[1:-1] == ["matmul", "cast", "1 smaller part"]
    assert [bar["end_ns"] for bar in waterfall.bars(rows)] == [2_000, 4_000, 3_100, 3_101, 3_101]


@pytest.mark.parametrize(("slow_ns", "said"), [(20_000, "2.00× as long"), (10_100, "told apart")])
def test_times_are_not_compared_in_words_where_the_verdict_does_not(
    slow_ns: int, said: str, tmp_path: Path
) -> None:
    made = [
        runs.run(tmp_path, name, implementation=name, walls_ns=runs.walls(ns))
        for name, ns in (("fast", 10_000), ("slow", slow_ns))
    ]
    (figure,) = times.figures(report_of([break_down(run, None, TABLES) for run in made]))
    assert said in figure.sentence


@pytest.mark.parametrize(("low_ns", "said"), [(15, "2.00× as long."), (9, "overlap.")])
def test_versions_whose_intervals_overlap_are_not_compared_in_words(low_ns: int, said: str) -> None:
    row = {"implementation": "a", "version": "1", "place": 0}
    old = {**row, "step_ns": 10, "step_low_ns": 9, "step_high_ns": 11}
    new = {**row, "step_ns": 20, "step_low_ns": low_ns, "step_high_ns": 31}
    assert versions.sentence([old, new]).endswith(said)


def test_a_way_between_two_runs_that_cannot_be_told_apart_names_no_cause() -> None:
    fast, near, far = (
        profile(
            contributor("busy", "gemm", ns, "aten::mm"),
            name=name,
            step_ns=ns,
            span=span(ns, 0.1),
        )
        for name, ns in (("fast", 10_000_000), ("near", 11_000_000), ("far", 30_000_000))
    )
    said = {
        slow.name: waterfall.sentence(
            Pair(fast, slow, [dataclasses.asdict(row) for row in steps(fast, slow)])
        )
        for slow in (near, far)
    }
    assert said["near"].endswith("which cannot be told apart.")
    assert "matmuls" in said["far"]
