"""Runs of one implementation in several versions: as the table and the chart have them."""

from __future__ import annotations

from pathlib import Path

import pytest
from report import runs

from lstmprof.breakdown import Breakdown, break_down, versions as module
from lstmprof.breakdown.versions import by_version
from lstmprof.commands.terminal import breakdown as terminal
from lstmprof.report import report_of
from lstmprof.report.charts import versions as chart
from lstmprof.runs.run import Run


def run(folder: Path, name: str, implementation: str, ms: int, **versions: str) -> Run:
    told = {"python": "3.7.16", "numpy": "1.21.6", **versions}
    walls = runs.walls(ms * 1_000_000)
    return runs.run(
        folder,
        name,
        implementation=implementation,
        step_ns=ms * 1_000_000,
        walls_ns=walls,
        facts={"versions": told},
    )


@pytest.fixture
def breakdowns(tmp_path: Path) -> list[Breakdown]:
    made = [
        run(tmp_path, "new", "torch-nn-lstm", 2, torch="2.13.0+cpu", python="3.11.7"),
        run(tmp_path, "middle", "torch-nn-lstm", 3, torch="1.13.1"),
        run(tmp_path, "old", "torch-nn-lstm", 6, torch="1.8.1"),
        run(tmp_path, "keras", "keras-lstm", 9, tensorflow="2.20.0", keras="3.1.0"),
        run(tmp_path, "keras2", "keras-lstm", 5, tensorflow="2.20.0", keras="3.12.0"),
        run(tmp_path, "alone", "jax-scan", 1, jax="0.9"),
    ]
    return [break_down(one) for one in made]


def test_versions_stand_in_their_order_and_only_what_differs_is_told(
    breakdowns: list[Breakdown],
) -> None:
    (group,) = by_version(breakdowns)
    assert [(row.implementation, row.version) for row in group] == [
        ("torch-nn-lstm", "torch 1.8.1"),
        ("torch-nn-lstm", "torch 1.13.1"),
        ("torch-nn-lstm", "torch 2.13.0+cpu"),
        ("keras-lstm", "keras 3.1.0"),
        ("keras-lstm", "keras 3.12.0"),
    ]
    assert [row.of_first for row in group[:3]] == pytest.approx([1, 1 / 2, 1 / 3], rel=0.05)


def test_a_run_that_cannot_be_compared_has_no_ratio(
    breakdowns: list[Breakdown], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "compared", lambda runs: {0: 1.0, 1: 1.5})
    (group,) = by_version(breakdowns[:3])
    assert [row.of_first for row in group] == [None, None, None]
    monkeypatch.setattr(module, "compared", lambda runs: {0: 1.0, 2: 3.0})
    (group,) = by_version(breakdowns[:3])
    assert [row.of_first for row in group] == [1, None, pytest.approx(1 / 3)]


def test_another_python_or_numpy_is_no_version_of_a_framework(tmp_path: Path) -> None:
    made = [
        run(tmp_path, "one", "torch-nn-lstm", 2, torch="2.13.0", python="3.11.7"),
        run(tmp_path, "two", "torch-nn-lstm", 3, torch="2.13.0", numpy="2.0.0"),
    ]
    assert by_version([break_down(one) for one in made]) == []


def test_the_table_and_the_chart_show_them(
    breakdowns: list[Breakdown], capsys: pytest.CaptureFixture[str]
) -> None:
    terminal.show_table(breakdowns, "timings", 0)
    shown = capsys.readouterr().out
    lines = [line.split() for line in shown[shown.index("by version") :].splitlines()]
    (old,) = [line for line in lines if "1.8.1" in line]
    assert old[:3] == ["torch-nn-lstm", "torch", "1.8.1"]
    assert old[-1] == "1.00×"
    (figure,) = chart.figures(report_of(breakdowns))
    assert all(part in figure.sentence for part in ("6.0 ms", "torch 1.8.1"))
    values = figure.spec["data"]["values"]
    assert [v["version"] for v in sorted(values, key=lambda v: v["place"])] == [
        *("keras 3.1.0", "keras 3.12.0"),
        *("torch 1.8.1", "torch 1.13.1", "torch 2.13.0+cpu"),
    ]
