"""docs/tables.md is what the code says, and the code says it of all that is written."""

from __future__ import annotations

import dataclasses
import json
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ingested import ingest_profile

from lstmprof.breakdown.clean.timings import COLUMNS, Timings
from lstmprof.breakdown.tables import TABLES
from lstmprof.capture.harness.rounds import capture_run
from lstmprof.capture.request import CaptureRequest
from lstmprof.events.schema import schema
from lstmprof.runs.fields import ITERATIONS
from lstmprof.runs.metadata import facts, facts_table
from lstmprof.runs.run import TIMINGS_SCHEMA
from lstmprof.workloads import Workload

DOCS = Path(__file__).resolve().parents[2] / "docs" / "tables.md"
SCRIPT = runpy.run_path(str(DOCS.with_suffix(".py")))
TINY = Workload("tiny", 1, 4, False, 2, 5, 3, 3, "ce")


def reference() -> str:
    return str(SCRIPT["reference"]())


def test_the_committed_reference_is_todays() -> None:
    assert DOCS.read_text(encoding="utf-8") == reference(), "run make docs"


def test_the_reference_has_every_table_and_column() -> None:
    sections = reference().split("\n## ")
    by_title = {section.partition("\n")[0]: section for section in sections[1:]}
    for name, table in TABLES.items():
        assert all(f"\n| `{column.name}` |" in by_title[name] for column in table.columns)


def test_timings_have_the_columns_that_are_written() -> None:
    assert [(f.name, f.type, f.nullable) for f in schema(ITERATIONS)] == [
        (f.name, f.type, f.nullable) for f in TIMINGS_SCHEMA
    ]
    assert [c.name for c in COLUMNS] == [f.name for f in dataclasses.fields(Timings)]


def test_every_field_that_is_written_is_a_column(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    request = CaptureRequest("torch-nn-lstm", TINY, device="cpu", iterations=2, profile_steps=1)
    captured = capture_run(request, tmp_path, name="captured", rounds=1)
    (tmp_path / "p.json").write_text(
        json.dumps({"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1,
                                     "ts": 1.0, "dur": 2.0}]})
    )  # fmt: skip
    ingested = ingest_profile(tmp_path / "p.json", tmp_path, name="ingested")
    for run in (captured, ingested):
        written = json.loads((run.path / "run.json").read_text())
        (row,) = facts_table([(run.name, run.info)]).to_pylist()
        filled = {fact.field_path for fact in facts() if row[fact.column.name] is not None}
        assert filled >= set(places(written))


def places(written: dict[str, Any]) -> Iterator[str]:
    nested = {fact.field_path.partition(".")[0] for fact in facts() if "." in fact.field_path}
    for name, value in written.items():
        yield from (f"{name}.{inner}" for inner in value) if name in nested else [name]
