"""How fast two runs' machines were, by what was timed beside them."""

from __future__ import annotations

import math
from typing import Any

import pytest

from lstmprof.breakdown import yardsticks
from lstmprof.breakdown.yardsticks import SORTS
from lstmprof.runs.metadata import RunInfo, run_info


def ran(*readings_ms: tuple[float, float], cpu_share: float = 1.0, **facts: Any) -> RunInfo:
    """A run on one thread of a CPU whose rounds began and ended with these yardsticks."""
    sides = [
        [
            {f"{sort}_ns": round(1e6 * ms / cpu_share) for sort in SORTS}
            | {f"{sort}_cpu_ns": round(1e6 * ms) for sort in SORTS}
            for ms in pair
        ]
        for pair in readings_ms
    ]
    pairs = [{"before": before, "after": after} for before, after in sides]
    return run_info({"yardsticks": pairs, "device": "cpu", "threads": 1, **facts})


def test_the_speed_of_two_machines_is_the_ratio_of_their_yardsticks() -> None:
    speed = yardsticks.speed(ran(*[(4, 4)] * 3), ran(*[(5, 5)] * 3))
    assert speed is not None
    assert speed.log == pytest.approx(math.log(5 / 4))
    assert 0 < speed.error < 0.05
    assert speed.sentence == "a fixed product took 5.0 against 4.0 ms"


def test_without_yardsticks_or_of_other_versions_nothing_is_told() -> None:
    assert yardsticks.speed(ran(), ran((5, 5))) is None
    assert yardsticks.speed(ran((4, 4), versions={"python": "3.11"}), ran((5, 5))) is None


def test_the_loop_of_one_thread_tells_how_much_of_the_cpu_it_had() -> None:
    assert yardsticks.cpu_share(ran((4, 4), cpu_share=0.8)) == pytest.approx(0.8)
    assert yardsticks.cpu_share(ran()) is None
    assert yardsticks.cpu_share(run_info({})) is None


def test_the_change_of_a_round_is_that_of_its_end_against_its_beginning() -> None:
    change = yardsticks.change_of_rounds(ran((4, 5), (4, 4)))
    assert change == pytest.approx(math.log(5 / 4) / 2)
    assert yardsticks.change_of_rounds(ran()) is None
