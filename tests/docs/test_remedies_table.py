"""docs/diagnosis.md has every remedy as the code has it."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from lstmprof.diagnose.remedies import TABLE

SCRIPT = runpy.run_path(str(Path(__file__).resolve().parents[2] / "docs" / "remedies.py"))
PAGE: Path = SCRIPT["PAGE"]


def test_the_committed_table_is_todays() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert SCRIPT["with_remedies"](page) == page, "run make docs"
    assert all(f"\n| {remedy.name} | {remedy.condition} |" in page for remedy in TABLE)


def test_a_page_without_its_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="has no"):
        SCRIPT["with_remedies"]("# Diagnosis\n")
