"""docs/diagnosis.md has every kind of cause as the code has it."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from lstmprof.diagnose.causes import KINDS, RULES

SCRIPT = runpy.run_path(str(Path(__file__).resolve().parents[2] / "docs" / "causes.py"))
PAGE: Path = SCRIPT["PAGE"]


def test_the_committed_table_is_todays() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert SCRIPT["with_causes"](page) == page, "run make docs"
    assert all(f"\n| {kind} | {words} |" in page for kind, words in KINDS.items())


def test_every_kind_has_a_rule() -> None:
    assert {rule.kind for rule in RULES} == set(KINDS)


def test_a_page_without_its_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="has no"):
        SCRIPT["with_causes"]("# Diagnosis\n")
