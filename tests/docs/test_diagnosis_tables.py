"""docs/diagnosis.md has every kind of time, docs/causes.md every cause, as the code has them."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from lstmprof.diagnose.findings.causes import KINDS, RULES
from lstmprof.diagnose.remedies import TABLE

DOCS = Path(__file__).resolve().parents[2] / "docs"
SCRIPT = runpy.run_path(str(DOCS / "diagnosis.py"))
PAGE: Path = SCRIPT["PAGE"]
CATALOGUE = runpy.run_path(str(DOCS / "causes.py"))


def test_the_committed_tables_are_todays() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert SCRIPT["with_tables"](page) == page, "run make docs"
    assert all(f" | {words} |" in page for words in KINDS.values())


def test_every_kind_has_a_rule() -> None:
    assert {rule.kind for rule in RULES} == set(KINDS)


def test_a_page_without_its_marks_is_refused() -> None:
    page = PAGE.read_text(encoding="utf-8").replace("<!-- end of causes -->", "")
    with pytest.raises(ValueError, match="has no '<!-- causes"):
        SCRIPT["with_tables"](page)


def test_the_committed_catalogue_is_todays() -> None:
    page = CATALOGUE["PAGE"].read_text(encoding="utf-8")
    assert CATALOGUE["text"]() == page, "run make docs"


def test_every_cause_is_in_the_catalogue_with_its_evidence_and_sources() -> None:
    page = CATALOGUE["text"]()
    for row in TABLE:
        _, _, entry = page.partition(f"\n## {row.name}\n")
        entry = entry.partition("\n## ")[0]
        assert entry.startswith(f"\n- **Cause:** {CATALOGUE['_capitalised'](row.cause)}.\n")
        assert f"**Fix:** {row.fix}." in entry
        assert f"**Condition:** {CATALOGUE['_capitalised'](row.condition)}." in entry
        assert all(f"({address})" in entry for address in row.sources)
        assert CATALOGUE["NOTES"].get(row.name, {}).get("example", {}).get("seen", "") in entry


def test_a_thread_has_the_name_that_people_use() -> None:
    link = CATALOGUE["_link"]("https://github.com/pytorch/pytorch/issues/149194")
    assert link == "[pytorch#149194](https://github.com/pytorch/pytorch/issues/149194)"
    assert CATALOGUE["_link"]("https://arxiv.org/abs/1604.01946").startswith("[arxiv.org/abs/")


def test_code_and_names_keep_their_letters_at_the_beginning_of_a_sentence() -> None:
    names = ("the layer", "cuDNN runs", "x[t] in", "flatten_parameters() copies")
    assert [CATALOGUE["_capitalised"](name) for name in names] == ["The layer", *names[1:]]
