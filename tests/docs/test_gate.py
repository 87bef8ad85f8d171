"""docs/gate.md: its conditions can be meant, and its statuses are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

from lstmprof.diagnose.gate import EXIT_STATUS, limits

TEXT = (Path(__file__).parents[2] / "docs" / "gate.md").read_text(encoding="utf-8")


def test_every_condition_can_be_meant() -> None:
    conditions = re.findall(r"--fail-if '([^']+)'|^\| `([^`]+)` \|", TEXT, re.MULTILINE)
    assert len(conditions) > 5
    for given, part in conditions:
        assert limits(given or part)


def test_the_statuses_are_those_of_the_code() -> None:
    rows = re.findall(r"^\| (\d) \| (\w+) \|", TEXT, re.MULTILINE)
    assert {state: int(status) for status, state in rows} == EXIT_STATUS
