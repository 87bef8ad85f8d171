"""docs/diagnosis.md has every kind of cause and every remedy as the code has them."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from lstmprof.diagnose.causes import KINDS, RULES
from lstmprof.diagnose.remedies import TABLE

SCRIPT = runpy.run_path(str(Path(__file__).resolve().parents[2] / "docs" / "diagnosis.py"))
PAGE: Path = SCRIPT["PAGE"]


def test_the_committed_tables_are_todays() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert SCRIPT["with_tables"](page) == page, "run make docs"
    assert all(f"\n| {kind} | {words} |" in page for kind, words in KINDS.items())
    assert all(f"\n| {remedy.name} | {remedy.condition} |" in page for remedy in TABLE)


def test_every_kind_has_a_rule() -> None:
    assert {rule.kind for rule in RULES} == set(KINDS)


@pytest.mark.parametrize("name", ["causes", "remedies"])
def test_a_page_without_its_marks_is_refused(name: str) -> None:
    page = PAGE.read_text(encoding="utf-8").replace(f"<!-- end of {name} -->", "")
    with pytest.raises(ValueError, match=f"has no '<!-- {name}"):
        SCRIPT["with_tables"](page)
