"""Each chart draws from the columns that its file names, and no bar is of two runs."""

from __future__ import annotations

import dataclasses
import importlib
import json
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
from lstmprof.report.charts import (
    CHARTS,
    alone,
    casts,
    figures,
    launch_gaps,
    ledger,
    times,
    versions,
    waterfall,
)
from lstmprof.report.model import Pair, Report
from lstmprof.report.palette import WHOLE


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


def test_a_chart_outside_the_page_has_no_controls_and_says_what_ran(report: Report) -> None:
    for figure in figures(report):
        spec = alone(figure)
        assert "bind" not in json.dumps(spec)
        ran = spec["title"]["subtitle"][-1]
        assert all(part in ran for part in figure.ran.split(" · "))


def test_runs_of_one_label_in_two_groups_have_a_bar_of_casts_each() -> None:
    rows = [{"run": run, **CAST} for run in ("fp32", "amp")]
    values = casts.chart(rows).to_dict()["data"]["values"]
    assert [(row["label"], row["percent"]) for row in values] == [("fp32", 25.0), ("amp", 25.0)]


def test_runs_that_cast_less_than_one_per_cent_are_not_drawn() -> None:
    rows = [{"run": "amp", **CAST}, {"run": "fp32", **CAST, "label": "b", "share": 0.002}]
    assert [row["run"] for row in casts.drawn(rows)] == ["amp"]
    assert casts.drawn(rows[1:]) == []


def test_parts_of_less_than_one_per_cent_are_one_piece_of_a_bar() -> None:
    of_run = {"run": "one", "label": "one", "lane": "", "steps": 2, "of": "clean"}
    parts = (("busy", "gemm", 2_000), ("idle", "tail:python", 100), ("idle", "python", 100))
    small = (("busy", "cast", 20), ("busy", "memset", 10))
    rows = [{**of_run, "state": s, "part": p, "total_ns": ns} for s, p, ns in (*parts, *small)]
    pieces = [(bar["words"], bar["total_ns"]) for bar in ledger.bars(rows)]
    assert pieces == [("matmul", 2_000), ("Python", 200), (WHOLE.shown, 30)]


def test_runs_of_one_version_have_one_label_that_spans_them() -> None:
    row = {"run": "r", "implementation": "a", "of_first": 1.0, "low_ns": 1, "high_ns": 2}
    rows = [
        {**row, "version": version, "place": place, "step_ns": ms * 1_000_000}
        for version, place, ms in (("1", 0, 20), ("2", 1, 12), ("2", 1, 10))
    ]
    values = versions.chart(rows).to_dict()["data"]["values"]
    assert [value["said"] for value in values] == ["20.0", "10.0 to 12.0", ""]


def test_a_copy_is_no_kernel_that_waited(tmp_path: Path) -> None:
    copy, kernel = "Memcpy HtoD (Pageable -> Device)", "ampere_sgemm_128x64_nn"
    run = runs.run(tmp_path, "one", implementation="a", kernels=6, names=(copy, kernel))
    drawn = report_of([break_down(run, None, TABLES)])
    assert {row["name"] for row in drawn.launch_gaps} == {kernel}
    (figure,) = launch_gaps.figures(drawn)
    count = sum(row["count"] for row in drawn.launch_gaps)
    assert f" of {count}" in figure.sentence
    assert "1 kernel name" in figure.caption
    assert "names" not in figure.caption


@pytest.mark.parametrize(
    ("gap_ns", "said"),
    [(4, "No kernel"), (9, "3 of 3)")],
)
def test_kernels_that_wait_longer_than_they_run_are_counted(gap_ns: int, said: str) -> None:
    row = {"count": 3, "dur_p50_ns": 5, "gap_p50_ns": gap_ns}
    assert said in launch_gaps.sentence([row])


def test_a_waterfall_is_in_the_order_of_the_findings_without_small_ones() -> None:
    rows = [
        {"kind": "matmul", "fast_ns": 1_000, "slow_ns": 3_000},
        {"kind": "elementwise", "fast_ns": 0, "slow_ns": 1},
        {"kind": "cast", "fast_ns": 1_000, "slow_ns": 100},
    ]
    bars = waterfall.bars(rows, "a", "b")
    assert [bar["label"] for bar in bars] == ["a", "matmul", "cast", "b"]
    assert [bar["end_ns"] for bar in bars] == [2_000, 4_000, 3_100, 3_101]


@pytest.mark.parametrize(("slow_ns", "said"), [(20_000, "2.00× as long"), (10_100, "within noise")])
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
    old = {**row, "step_ns": 10, "low_ns": 9, "high_ns": 11}
    new = {**row, "step_ns": 20, "low_ns": low_ns, "high_ns": 31}
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
    assert "within noise" in said["near"]
    assert "matmuls" in said["far"]
