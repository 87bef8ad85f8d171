"""Every command ends in a line on a damaged run, and goes on with the good one beside it.

A few of the damages; ten rounds of them: ``make damages``.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from attack import damages
from runs.damages import DAMAGES

ROUND = len(DAMAGES)


@pytest.fixture(autouse=True)
def _without_an_alarm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which comes by the clock of a machine that may be busy, or pause."""
    monkeypatch.setattr(damages, "HANG_S", 0)


@pytest.mark.parametrize("seed", [2 * ROUND + 8, 5 * ROUND + 20])
def test_every_command_goes_on_beside_a_damaged_run(seed: int, tmp_path: Path) -> None:
    ends = [*damages.outcomes([seed], tmp_path)]
    assert [end.command for end in ends] == [*damages.COMMANDS]
    assert [end.problem for end in ends if end.problem] == []


@pytest.mark.parametrize(
    ("code", "said", "answer", "problem"),
    [
        (0, "", "rows", ""),
        (1, "left out: a: is damaged; capture it again", "rows", ""),
        (1, "left out: a: is damaged; capture it again", "", "nothing of the good run"),
        (1, "", "rows", "without a word"),
        (70, "Traceback (most recent call last)", "", "it exits 70"),
        (1, "error: a bug in lstmprof", "", "a defect"),
        (1, "error: \x1b[31mred", "", "a control character"),
    ],
)
def test_what_breaks_a_promise_is_told(code: int, said: str, answer: str, problem: str) -> None:
    told = damages.problem_of(code, said, answer)
    assert problem in told
    assert bool(told) == bool(problem)
