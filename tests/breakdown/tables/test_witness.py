"""Samples beside the ledger: shares, their error, the difference, and lines that no event shows.

::

    samples   gemm 60   python 30 (20 in a hook, 10 elsewhere)   dispatch 10   waiting 50
    ledger    gemm 700  python 100  dispatch 200
"""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest

from lstmprof.breakdown.mean_step import MeanStep
from lstmprof.breakdown.tables.witness import witness
from lstmprof.runs.run import SAMPLES_SCHEMA

HOOK, LOOP = "hook (mine.py:7)", "forward (mine.py:3)"


def _samples(*rows: tuple[str, str | None, int]) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {
                "round": 0,
                "thread": "MainThread",
                "part": part,
                "rule": "",
                "line": line,
                "count": count,
                "frames": [line or "native (libx.so)"] + (["native (x)"] if part == "gemm" else []),
            }
            for part, line, count in rows
        ],
        schema=SAMPLES_SCHEMA,
    )


def _ledger(device: int | None = None, **parts: int) -> list[MeanStep]:
    rows = tuple(("busy", part, ns) for part, ns in parts.items())
    besides = ("profiler", "further effect", -100)
    return [MeanStep(None, device, 1, sum(parts.values()) - 100, (*rows, besides))]


SAMPLES = _samples(
    ("gemm", LOOP, 60),
    ("python", HOOK, 20),
    ("python", LOOP, 10),
    ("dispatch", None, 10),
    ("waiting", LOOP, 50),
)
LEDGER = _ledger(gemm=700, python=100, dispatch=200)


def _rows(samples: pa.Table | None, ledger: list[MeanStep], kind: str) -> dict[str, dict[str, Any]]:
    rows = witness(samples, ledger).to_pylist()
    return {row["name"]: row for row in rows if row["kind"] == kind}


def test_shares_are_of_samples_that_did_not_wait() -> None:
    parts = _rows(SAMPLES, LEDGER, "part")

    assert {name: row["share"] for name, row in parts.items()} == {
        "gemm": 0.6,
        "python": 0.3,
        "dispatch": 0.1,
    }
    assert parts["python"]["ledger_share"] == pytest.approx(0.1)
    assert parts["python"]["difference_points"] == pytest.approx(20)
    assert parts["gemm"]["error"] == pytest.approx(1.96 * math.sqrt(0.6 * 0.4 / 100))


def test_lines_are_those_in_no_op() -> None:
    lines = _rows(SAMPLES, LEDGER, "line")

    assert {name: row["samples"] for name, row in lines.items()} == {HOOK: 20, LOOP: 10}


def test_line_of_less_than_one_per_cent_is_not_named() -> None:
    assert _rows(_samples(("gemm", LOOP, 99), ("python", HOOK, 1)), LEDGER, "line") == {}


def test_garbage_collector_is_named_within_an_op_too() -> None:
    samples = _samples(("gemm", "garbage collector", 50), ("gemm", LOOP, 50))

    assert list(_rows(samples, LEDGER, "line")) == ["garbage collector"]


def test_python_within_the_framework_is_named() -> None:
    assert list(_rows(_samples(("dispatch", HOOK, 50)), LEDGER, "line")) == [HOOK]


def test_ledger_of_devices_is_not_compared_with_samples_of_the_host() -> None:
    parts = _rows(SAMPLES, _ledger(device=0, gemm=700, python=300), "part")

    assert parts["gemm"]["ledger_share"] is None
    assert parts["gemm"]["difference_points"] is None


def test_part_that_nobody_sampled_is_there_with_the_whole_difference() -> None:
    parts = _rows(_samples(("gemm", LOOP, 10)), _ledger(gemm=900, layout=100), "part")

    assert parts["layout"]["difference_points"] == pytest.approx(-10)


def test_what_is_unknown_is_compared_with_nothing() -> None:
    unknown = _rows(_samples(("unknown", None, 10)), LEDGER, "part")["unknown"]

    assert unknown["ledger_share"] is None


def test_generated_code_is_compared_with_all_that_it_may_be() -> None:
    samples = _samples(("compiled", None, 30), ("layout", None, 10), ("gemm", None, 60))
    parts = _rows(samples, _ledger(gemm=600, pointwise=250, layout=100, reduction=50), "part")

    assert set(parts) == {"gemm", "compiled"}
    assert parts["compiled"]["difference_points"] == pytest.approx(0)


def test_without_samples_there_are_no_rows() -> None:
    assert witness(None, LEDGER).num_rows == 0
