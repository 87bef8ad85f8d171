"""A history: which runs are a series, in which order, and where its level changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from diagnose.made import contributor, profile, span

from lstmprof.diagnose.history import COLUMNS, history, table
from lstmprof.diagnose.step_profile import StepProfile

MS = 1_000_000


def ran(number: int, ms: float, error: float = 0.005, **facts: Any) -> StepProfile:
    """A run five seconds after the one before it, whose step may be off by ``error``."""
    length = round(ms * MS)
    given = {"implementation": "lstm", "started_at": f"2026-11-02T10:00:{5 * number:02}Z", **facts}
    return profile(
        contributor("busy", "gemm", length, "mm"),
        name=f"run-{number}",
        facts=given,
        step_ns=length,
        span=span(length, error),
    )


def changes(*runs: StepProfile) -> list[tuple[str, str | None]]:
    (series,) = history(runs)
    return [(point.profile.name, point.change) for point in series.points if point.change]


def test_a_step_is_where_a_run_is_certain_to_differ_from_the_level_before_it() -> None:
    level = [ran(number, ms) for number, ms in enumerate([10, 10.1, 9.9, 10, 12, 12.1, 9, 9.05], 1)]
    assert changes(*level) == [("run-5", "slower"), ("run-7", "faster")]
    assert changes(*reversed(level)) == changes(*level)


def test_noise_and_what_is_below_the_floor_are_no_step() -> None:
    assert changes(ran(1, 10), ran(2, 10.15), ran(3, 10)) == []
    assert changes(ran(1, 10), ran(2, 13, error=0.4), ran(3, 10)) == []


def test_a_slow_drift_adds_up_to_a_step() -> None:
    # the floor and the errors are 2.7 % together: the third run that is 1 % longer tells. The
    # first run of a level has the narrowest interval, and stands for it
    drift = [ran(n, 10 * 1.01**n, error=0.005 + n / 10_000) for n in range(1, 8)]
    assert changes(*drift) == [("run-4", "slower"), ("run-7", "slower")]


def test_a_run_that_takes_no_time_is_shown_and_is_no_level() -> None:
    (series,) = history([ran(1, 10), ran(2, 0), ran(3, 10)])
    assert [point.ratio is None for point in series.points] == [True, True, False]
    assert series.changes == ()


def test_runs_that_cannot_be_compared_are_series_of_their_own() -> None:
    runs = [ran(1, 10), ran(2, 20, precision="tf32"), ran(3, 30, implementation="gru")]
    titles = [series.title for series in history(runs)]
    assert titles == ["lstm", "lstm, precision tf32", "gru"]


def test_what_says_no_implementation_is_a_series_a_framework() -> None:
    torch, jax, other = (
        ran(number, 10, implementation=None, framework=framework)
        for number, framework in enumerate(("torch", "jax", None), 1)
    )
    titles = [series.title for series in history([torch, jax, other])]
    assert titles == ["torch profiles", "jax profiles", "profiles"]


def test_the_sentence_says_where_and_how_much() -> None:
    (series,) = history([ran(1, 10, label="aaa"), ran(2, 12, label="bbb")])
    assert [(point.profile.name, point.change) for point in series.changes] == [("run-2", "slower")]
    for part in ("lstm", "2 runs", "1.20×", "bbb", "12.00 ms"):
        assert part in series.sentence


def test_the_table_has_what_the_documentation_says() -> None:
    rows = table(history([ran(1, 10), ran(2, 12)])).rows()
    assert rows[0]["against"] is rows[0]["ratio"] is rows[0]["change"] is None
    assert rows[1]["against"] == "run-1"
    assert rows[1]["ratio"] == pytest.approx(1.2)
    text = (Path(__file__).parents[2] / "docs" / "history.md").read_text(encoding="utf-8")
    for column in COLUMNS:
        assert f"| `{column.name}` | {column.unit} | {column.meaning}" in text
