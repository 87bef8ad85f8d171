"""The benchmark of planted causes plants through a real capture: the worker is the shipped one."""

from __future__ import annotations

import dataclasses
import functools
import json
from pathlib import Path
from typing import Any

import pytest

from lstmprof.runs.run import open_run

pytest.importorskip("torch")
DIAGNOSIS = Path(__file__).parents[2] / "benchmarks" / "diagnosis"


def casts(folder: Path, label: str) -> int:
    codes, names = open_run(folder / "runs" / label).events().texts("name")
    return int(sum(codes == names.index("aten::_to_copy")))


def test_a_captured_run_has_what_was_planted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(DIAGNOSIS))
    import planted
    import planted_cases

    tiny = dataclasses.replace(planted_cases.WORKLOAD, hidden=4, batch=2, time_steps=3, features=2)
    monkeypatch.setattr(planted, "ITERATIONS", 3)
    one_round = functools.partial(planted.captured_runs, rounds=1)
    monkeypatch.setattr(planted, "captured_runs", one_round)
    case = planted.Case("torch-lstmcell-basic", (("casts", 0.5),), workload=tiny)
    planted.capture(planted.Sweep("tiny", (case,)), tmp_path, 0)
    log: dict[str, Any] = json.loads((tmp_path / "plans" / "casts.0.log").read_text())
    steps = open_run(tmp_path / "runs" / "casts").info.profiled_wall_ns
    assert steps is not None
    more = casts(tmp_path, "casts") - casts(tmp_path, "clean")
    assert more == 2 * log["counts"]["casts"] * len(steps)
    assert planted.sizes(tmp_path / "plans", "casts")["casts"] > 0
