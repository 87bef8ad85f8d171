"""One table of ``lstmprof breakdown --table`` as a user and a program see it."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pyarrow as pa
import pytest
from events.rows import row, table

from lstmprof.breakdown import TABLES
from lstmprof.cli import run as lstmprof
from lstmprof.events.annotate import annotated
from lstmprof.runs.metadata import run_info
from lstmprof.runs.run import TIMINGS_SCHEMA, write_tables

HOST = {"pid": 1, "tid": 1}
LONG = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>(int)"
ROWS = [
    row("op", "aten::fill_", 0, 9000, **HOST),
    row("op", "aten::mm", 9000, 9500, **HOST),
    row("runtime", "cudaLaunchKernel", 10, 20, **HOST, correlation_id=1),
    row("kernel", LONG, 5_000_000, 17_345_600, device=0, stream=7, correlation_id=1),
]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "mine").mkdir()
    events = annotated(table(ROWS), captured=False)
    write_tables(tmp_path / "mine", run_info({"name": "mine", "source": "ingest"}), events)
    return tmp_path / "mine"


def shown(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert lstmprof(["breakdown", *map(str, arguments)]) == 0
    return capsys.readouterr().out


def test_a_table_is_shown_in_units_for_reading(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    title, *lines = shown(capsys, run, "--table", "ops").splitlines()
    assert title.startswith("mine, table ops: ")
    assert [re.split(" {2,}", line.strip()) for line in lines if line] == [
        [
            *("device total ms", "device self ms", "host total µs", "host self µs"),
            *("kernels total", "count", "name"),
        ],
        ["12.346", "12.346", "9.0", "9.0", "1", "1", "aten::fill_"],
        ["0.000", "0.000", "0.5", "0.5", "0", "1", "aten::mm"],
    ]
    assert {line.index(".") for line in lines[1:3]} == {lines[0].index("device total ms") + 11}


def test_the_kernel_table_says_the_rule_and_crops_what_is_long(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = shown(capsys, run, "--table", "kernels").splitlines()
    assert "op: element by elem" in lines[2]
    assert lines[2].rstrip().endswith("…")
    assert max(map(len, lines)) <= 100


@pytest.mark.parametrize("name", TABLES)
def test_every_table_is_shown_and_is_rows_with_the_run_in_front(
    name: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert shown(capsys, run, "--table", name).startswith(("mine, ", "mine: "))
    rows = json.loads(shown(capsys, run, "--table", name, "--format", "json"))
    read = list(csv.DictReader(io.StringIO(shown(capsys, run, "--table", name, "--format", "csv"))))
    assert len(read) == len(rows)
    for row_ in rows:
        assert list(row_) == ["run", *(column.name for column in TABLES[name].columns)]
        assert row_["run"] == "mine"


def test_warnings_are_a_list_in_json_and_sentences_in_csv(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    columns: dict[str, list[object]] = {name: [None] for name in TIMINGS_SCHEMA.names}
    columns |= {"iteration": [0], "round": [0], "warmup": [False], "wall_ns": [100_000_000]}
    events = annotated(table(ROWS), captured=True)
    timed = run.parent / "timed"
    timed.mkdir()
    timings = pa.table(columns).cast(TIMINGS_SCHEMA)
    facts = {"name": "timed", "source": "capture", "gpu_throttle_reasons": ["heat", "power"]}
    write_tables(timed, run_info(facts), events, timings)
    (one,) = json.loads(shown(capsys, timed, "--table", "timings", "--format", "json"))
    written = shown(capsys, timed, "--table", "timings", "--format", "csv")
    (read,) = csv.DictReader(io.StringIO(written))
    assert ["heat" in one["warnings"][0], "power" in one["warnings"][1]] == [True, True]
    assert read["warnings"] == "; ".join(one["warnings"])


def test_top_counts_rows_in_every_format(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, run, "--table", "ops", "--top", 1)
    assert "(1 more with --top N)" in " ".join(text.split())
    arguments = ("--table", "ops", "--format", "json")
    assert len(json.loads(shown(capsys, run, *arguments, "--top", 1))) == 1
    assert len(json.loads(shown(capsys, run, *arguments))) == 2
    everything = json.loads(shown(capsys, run, "--format", "json", "--top", 0))
    assert set(everything) == {"lacks", "account", "timings", "ledger", "kernels"}
    assert (everything["kernels"], len(everything["ledger"]) > 0) == ([], True)
