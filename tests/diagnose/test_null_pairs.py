"""The benchmark of identical code: what is captured when, and shares with their own intervals.

::

    quiet:  apart 1 A │ near 1 A B │ apart 2 A │ near 2 A B │ … │ apart 1 B │ …
    then:   with a process on each core, A B of each pair
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

DIAGNOSIS = Path(__file__).parents[2] / "benchmarks" / "diagnosis"


@pytest.fixture
def null_pairs(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(DIAGNOSIS))
    return importlib.import_module("null_pairs")


def test_captures_of_other_pairs_run_while_a_pair_lies_apart(null_pairs: Any) -> None:
    pairs = null_pairs.planned(51, ["torch-nn-lstm", "jax-scan"])
    captures = null_pairs.schedule(pairs)
    assert len(captures) == len(set(captures)) == 102
    places = {(c.pair.number, c.label): place for place, c in enumerate(captures)}
    between = {
        condition: {
            places[p.number, "B"] - places[p.number, "A"] for p in pairs if p.condition == condition
        }
        for condition in null_pairs.CONDITIONS
    }
    assert between[null_pairs.BACK_TO_BACK] == between[null_pairs.SPINNING] == {1}
    assert min(between[null_pairs.APART]) > null_pairs.BLOCKS_APART
    spinning = [c.pair.condition == null_pairs.SPINNING for c in captures]
    assert spinning == sorted(spinning)


def test_what_is_there_is_not_captured_again(
    null_pairs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []

    def run(command: list[str], **_: Any) -> None:
        commands.append(command)
        Path(command[-1]).mkdir()

    monkeypatch.setattr(subprocess, "run", run)
    (pair,) = null_pairs.planned(1, ["torch-nn-lstm"])
    wanted = null_pairs.Capture(pair, "A")
    for _ in range(2):
        null_pairs.capture(wanted, tmp_path, ["--rounds", "3"])
    (command,) = commands
    assert command[:4] == [sys.executable, "-m", "lstmprof", "capture"]
    assert json.loads((tmp_path / "000-A" / null_pairs.NOTED).read_text())["load"] >= 0


@pytest.mark.parametrize(
    ("hits", "of", "low", "high"), [(0, 51, 0.0, 0.070), (95, 100, 0.888, 0.978)]
)
def test_a_share_has_its_own_interval(
    null_pairs: Any, hits: int, of: int, low: float, high: float
) -> None:
    # for 0 of n the upper end is z² over n + z²: 3.84 over 54.84
    assert null_pairs.wilson(hits, of) == pytest.approx((low, high), abs=0.001)
