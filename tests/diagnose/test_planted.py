"""The benchmark of planted causes: what it takes for right, for wrong and for the planted size.

::

    a step's log   [recorded, wall, cpu, {plant: [wall, cpu]}]
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

DIAGNOSIS = Path(__file__).parents[2] / "benchmarks" / "diagnosis"
MS = 1_000_000


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(DIAGNOSIS))
    import planted

    return planted


def outcome(planted: Any, **changed: Any) -> Any:
    case = planted.Case("torch-nn-lstm", (("casts", 0.5), ("sleep", 0.2)))
    given = {
        "case": case,
        "clean_ns": 4.0 * MS,
        "planted_ns": 2.0 * MS,
        "difference_ns": 2.0 * MS,
        "slow": case.label,
        "state": "found",
        "cause": "cast",
        "found_ns": 1.9 * MS,
        "sentence": "it is cast",
    }
    return planted.Outcome(**{**given, **changed})


def test_right_is_the_kind_of_the_largest_cause_of_the_planted_run(planted: Any) -> None:
    right = outcome(planted)
    assert (right.verdict, right.error) == ("right", pytest.approx(-0.05))
    assert outcome(planted, cause="Python").verdict == "wrong"
    assert outcome(planted, slow="clean").verdict == "wrong"


@pytest.mark.parametrize("state", ["unknown", "none"])
def test_what_is_not_told_is_neither_right_nor_wrong(planted: Any, state: str) -> None:
    silent = outcome(planted, state=state, cause=None)
    assert (silent.verdict, silent.error) == ("not told", None)


def test_a_setting_is_named_by_its_word_whatever_the_kind(planted: Any) -> None:
    case = planted.Case("torch-nn-lstm", setting="denormals")
    asked = {"case": case, "slow": "denormals", "cause": "slower calls"}
    assert outcome(planted, **asked, sentence="it did not flush denormal numbers").verdict == (
        "right"
    )
    assert outcome(planted, **asked, sentence="the profiles do not show why").verdict == "wrong"


def test_sizes_are_those_of_steps_that_little_disturbs_without_a_profiler(
    planted: Any, tmp_path: Path
) -> None:
    # 20 steps of 5 ms and more, of which the 10th percentile lies between the third and the fourth
    walls_ns = [[5 * MS, 5 * MS, 5 * MS, *range(6 * MS, 13 * MS, MS)], [20 * MS] * 10]
    for number, some in enumerate(walls_ns):
        steps = [[False, ns, 4 * MS, {"sleep": [ns - 3 * MS, MS]}] for ns in some]
        steps.append([True, 1, 1, {"sleep": [1, 1]}])
        path = tmp_path / f"sleep.{number}.log"
        path.write_text(json.dumps({"counts": {"sleep": 10}, "steps": steps}))
    assert planted.sizes(tmp_path, "sleep") == {"step": 5 * MS, "sleep": 2 * MS}


def test_cases_have_labels_of_their_own_in_small_sweeps(planted: Any) -> None:
    cases = planted.CASES
    assert len({case.name for case in cases}) == len(cases) >= 30
    swept = list(planted.sweeps(cases))
    assert sorted(case.name for sweep in swept for case in sweep.cases) == sorted(
        case.name for case in cases
    )
    assert all(len({case.workload for case in sweep.cases}) == 1 for sweep in swept)


def test_other_processes_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "clean.json").write_text("{}")
    environment = {"PYTHONPATH": str(DIAGNOSIS / "planting"), "PLANTED": str(tmp_path)}
    command = [sys.executable, "-c", "import sys; print(len(sys.meta_path))"]
    plain, beside = (
        subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout
        for env in ({}, environment)
    )
    assert plain == beside
