"""The schemas of what ``--format json`` writes: as the code has them, and obeyed."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import msgspec
import pytest
from diagnose.made import contributor, profile, span
from diagnose_document import Document

from lstmprof.diagnose.diagnosis import Diagnosis, alone, compare
from lstmprof.diagnose.step_profile import StepProfile

DOCS = Path(__file__).resolve().parents[2] / "docs"
MS = 1_000_000


def timed(name: str, *python_ms: int) -> StepProfile:
    parts = [contributor("busy", "gemm", 10 * MS, "aten::mm")]
    parts += [contributor("idle", "python", ms * MS, "step") for ms in python_ms]
    length = sum(c.ns for c in parts)
    return profile(*parts, name=name, step_ns=length, span=span(length))


def diagnoses() -> dict[str, Diagnosis]:
    fast, slow = timed("fast"), timed("slow", 5)
    unseen = profile(contributor("idle", "unattributed", 9 * MS), device=0)
    return {
        "found": compare(fast, slow),
        "none": compare(fast, timed("like")),
        "unknown": alone(unseen),
    }


SCRIPT = runpy.run_path(str(DOCS / "schema.py"))


@pytest.mark.parametrize("name", SCRIPT["SCHEMAS"])
def test_the_committed_schema_is_that_of_the_code(name: str) -> None:
    text = SCRIPT["text"](SCRIPT["SCHEMAS"][name]())
    assert (DOCS / name).read_text(encoding="utf-8") == text, "run make docs"


@pytest.mark.parametrize("state", ["found", "none", "unknown"])
def test_each_state_obeys_the_schema_and_gives_its_reason(state: str) -> None:
    written = json.dumps([diagnoses()[state].to_dict()])
    (document,) = msgspec.json.decode(written, type=list[Document])
    assert document.state == state
    assert (document.verdict.kind is None) == (document.reason is not None) == (state != "found")


def test_a_field_that_the_schema_has_not_is_refused() -> None:
    written = {**diagnoses()["found"].to_dict(), "verdicts": "fast"}
    with pytest.raises(msgspec.ValidationError, match="verdicts"):
        msgspec.convert(json.loads(json.dumps(written)), Document)


def test_the_documentation_tells_of_it() -> None:
    assert "diagnose.schema.json" in (DOCS / "diagnosis.md").read_text(encoding="utf-8")
