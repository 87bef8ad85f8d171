"""``lstmprof query``: SQL over the tables of runs, and over nothing else."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from events.rows import row, table

from lstmprof.base.errors import LstmprofError
from lstmprof.breakdown import TABLES, break_down
from lstmprof.breakdown.sql import answer
from lstmprof.cli import run as lstmprof
from lstmprof.events.annotate import annotated
from lstmprof.events.schema import VERSION_KEY
from lstmprof.runs.metadata import run_info
from lstmprof.runs.run import TIMINGS_SCHEMA, Run, open_run, write_tables

HOST = {"pid": 1, "tid": 1}
STRANGE = "it's a [1] *?"


def write(folder: Path, name: str, dur_ns: int) -> Path:
    rows = [
        row("step", "ProfilerStep#1", 0, 50, **HOST),
        row("op", "aten::mm", 1, 9, **HOST),
        row("runtime", "cudaLaunchKernel", 2, 3, **HOST, correlation_id=1),
        row("kernel", "sgemm", 20, 20 + dur_ns, device=0, stream=7, correlation_id=1),
    ]
    timings = [
        {"round": 0, "iteration": i, "warmup": i == 0, "wall_ns": w, "device_ns": None, "loss": 0.5}
        for i, w in enumerate((900, 10 * dur_ns, 12 * dur_ns))
    ]
    facts = {"name": name, "source": "ingest", "workload": {"name": "net", "hidden": 320}}
    (folder / name).mkdir(parents=True)
    measured = pa.Table.from_pylist(timings, schema=TIMINGS_SCHEMA)
    write_tables(folder / name, run_info(facts), annotated(table(rows), captured=False), measured)
    return folder / name


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    write(tmp_path / "runs", "a", 5)
    write(tmp_path / "runs", STRANGE, 7)
    return tmp_path / "runs"


@pytest.fixture
def ask(runs: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    def asked(sql: str) -> list[dict[str, Any]]:
        assert lstmprof(["query", sql, str(runs), "--format", "json"]) == 0
        found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
        return found

    return asked


def test_timings_of_an_older_run_are_answered_beside_newer_ones(runs: Path, ask: Any) -> None:
    path = runs / "a" / "timings.parquet"
    columns = ["round", "iteration", "warmup", "wall_ns", "device_ns", "loss"]
    older = pq.read_table(path).select(columns).replace_schema_metadata({VERSION_KEY: b"3"})
    pq.write_table(older, path)
    rows = ask("SELECT * FROM timings WHERE iteration = 1 ORDER BY run")
    found = [(r["run"], r["wall_ns"], r["after_profile"], r["cpu_ns"], r["loss"]) for r in rows]
    assert found == [("a", 50, None, None, 0.5), (STRANGE, 70, None, None, 0.5)]


def test_events_timings_and_facts_of_all_runs_are_tables(ask: Any) -> None:
    assert ask(
        "SELECT run, sum(dur_ns) AS ns FROM Events WHERE kind = 'kernel' GROUP BY run ORDER BY 2"
    ) == [
        {"run": "a", "ns": 5},
        {"run": STRANGE, "ns": 7},
    ]
    sql = """SELECT workload, hidden, median(wall_ns) AS ns
             FROM timings JOIN runs USING (run)
             WHERE NOT warmup GROUP BY run, workload, hidden ORDER BY ns"""
    assert ask(sql) == [
        {"workload": "net", "hidden": 320, "ns": 55.0},
        {"workload": "net", "hidden": 320, "ns": 77.0},
    ]


@pytest.mark.parametrize("name", TABLES)
def test_every_table_of_a_breakdown_has_the_run_in_front(name: str, runs: Path, ask: Any) -> None:
    made = break_down(open_run(runs / "a")).table(name)
    found = ask(f"FROM {name} WHERE run = 'a'")
    assert found == [{"run": "a", **row_} for row_ in made.to_pylist()]
    described = ask(f"DESCRIBE {name}")
    assert [r["column_name"] for r in described] == ["run", *made.schema.names]


def test_every_table_is_listed(ask: Any) -> None:
    assert {r["name"] for r in ask("SHOW TABLES")} == {
        *("runs", "samples", "timings", "counters", "events"),
        *TABLES,
    }


def test_text_and_csv_say_what_json_says(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sql = "SELECT run, name, total_ns, NULL AS gone, 'nan'::DOUBLE AS n FROM kernels ORDER BY 3"
    assert lstmprof(["query", sql, str(runs)]) == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()][:2] == [
        ["run", "name", "total_ns", "gone", "n"],
        ["a", "sgemm", "5", "–", "nan"],
    ]
    assert lstmprof(["query", sql, str(runs), "--format", "csv"]) == 0
    read = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert read[1] == {"run": STRANGE, "name": "sgemm", "total_ns": "7", "gone": "", "n": ""}


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT 1::DECIMAL(4,2) AS a, 1.5::DECIMAL(4,2) AS b", {"a": 1, "b": 1.5}),
        ("SELECT 1 AS a, 2 AS a", {"a": 1, "a_2": 2}),
        ("SELECT [1, NULL] AS a, {'b': 'c'} AS d", {"a": [1, None], "d": {"b": "c"}}),
        ("SELECT DATE '2026-01-02' AS a, true AS b", {"a": "2026-01-02", "b": True}),
    ],
)
def test_every_value_is_json(sql: str, expected: dict[str, Any], ask: Any) -> None:
    assert ask(sql) == [expected]


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT nosuch FROM ops", "nosuch"),
        ("SELECT * FROM nosuch", "nosuch"),
        ("SELEC 1", "syntax error"),
        ("", "one SELECT"),
        ("SELECT 1; SELECT 2", "one SELECT"),
        ("CREATE TABLE x AS SELECT 1", "one SELECT"),
        ("COPY ops TO '{folder}/x.csv'", "one SELECT"),
        ("COPY ops TO '{folder}/runs/a/events.parquet'", "one SELECT"),
        ("EXPLAIN ANALYZE COPY ops TO '{folder}/x.csv'", "one SELECT"),
        ("EXPORT DATABASE '{folder}/x'", "one SELECT"),
        ("ATTACH '{folder}/x.db'", "one SELECT"),
        ("INSTALL httpfs", "one SELECT"),
        ("LOAD httpfs", "one SELECT"),
        ("SET enable_external_access=true", "one SELECT"),
        ("SELECT * FROM read_text('{folder}/secret')", "disabled"),
        ("SELECT * FROM read_csv('{folder}/secret')", "disabled"),
        ("SELECT * FROM read_json('{folder}/runs/a/run.json')", "disabled"),
        ("SELECT * FROM glob('{folder}/*')", "disabled"),
        ("SELECT * FROM '{folder}/secret'", "not exist"),
        ("SELECT * FROM read_parquet('https://example.com/x.parquet')", "disabled"),
        ("SELECT * FROM runs_of_python", "not exist"),
    ],
)
def test_what_is_no_query_of_the_tables_is_one_line_that_names_them(
    sql: str, said: str, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (runs.parent / "secret").write_text("secret,secret\n")
    before = {p: p.stat().st_mtime_ns for p in runs.parent.rglob("*")}
    assert lstmprof(["query", sql.format(folder=runs.parent), str(runs)]) == 2
    shown = capsys.readouterr()
    assert (shown.out, len(shown.err.splitlines())) == ("", 1)
    assert said in shown.err
    assert "tables: runs, timings, events, counters, samples, ledger" in shown.err
    assert {p: p.stat().st_mtime_ns for p in runs.parent.rglob("*")} == before


def test_a_file_of_another_schema_is_refused(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged = runs / "a" / "events.parquet"
    damaged.write_bytes(damaged.read_bytes()[:-9])
    assert lstmprof(["query", "SELECT 1 FROM events", str(runs)]) == 1
    assert "events.parquet" in capsys.readouterr().err
    assert lstmprof(["query", "SELECT count(*) FROM runs", str(runs)]) == 0


def test_without_a_path_and_without_traces_it_is_asked_for_a_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert lstmprof(["query", "SELECT 1"]) == 2
    assert (
        "no PATH was given, and the default folder traces does not exist" in capsys.readouterr().err
    )


def test_the_runs_are_those_in_traces_where_none_are_given(tmp_path: Path) -> None:
    write(tmp_path / "traces", "a", 5)
    command = [sys.executable, "-m", "lstmprof", "query", "SELECT run FROM runs", "--format", "csv"]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert found.stdout.splitlines() == ["run", "a"]


@pytest.mark.parametrize(("how", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_query_without_end_ends_when_it_is_told_to(
    how: signal.Signals, code: int, runs: Path, tmp_path: Path
) -> None:
    endless = "SELECT count(*) FROM range(1000000) a, range(1000000) b, range(1000000) c"
    spill = tmp_path / "spill"
    spill.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "lstmprof", "query", endless, str(runs)],
        env={**os.environ, "TMPDIR": str(spill)},
        stderr=subprocess.PIPE,
        text=True,
    )
    while not list(spill.iterdir()):  # made just before the query begins
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(how)
    said = process.communicate(timeout=300)[1].split("\n")
    assert process.returncode == code
    assert [line for line in said if line] == [
        "lstmprof: error: interrupted; no partial output was left"
    ]
    assert list(spill.iterdir()) == []


@pytest.mark.parametrize(("limit", "rows"), [([], 1000), (["--limit", "3"], 3)])
def test_a_table_shows_the_first_rows_and_says_so(
    limit: list[str], rows: int, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sql = "SELECT range AS n FROM range(1001)"
    assert lstmprof(["query", sql, str(runs), *limit]) == 0
    shown = capsys.readouterr()
    assert shown.out.split() == ["n", *map(str, range(rows))]
    assert shown.err == (
        f"showing the first {rows:,} rows; --limit N shows more, --format csv shows all\n"
    )
    assert lstmprof(["query", sql, str(runs), "--limit", "1001"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("limit", "rows"), [([], 5000), (["--limit", "7"], 7)])
def test_a_program_gets_all_rows_or_as_many_as_it_asks_for(
    limit: list[str], rows: int, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sql = "SELECT range AS n FROM range(5000)"
    assert lstmprof(["query", sql, str(runs), "--format", "csv", *limit]) == 0
    assert capsys.readouterr().out.split() == ["n", *map(str, range(rows))]
    assert lstmprof(["query", sql, str(runs), "--format", "json", *limit]) == 0
    assert json.loads(capsys.readouterr().out) == [{"n": n} for n in range(rows)]


@pytest.mark.parametrize(
    ("sql", "hint"),
    [
        ("SELECT * FROM kernel", 'Did you mean "kernels"?'),
        ("SELECT nam FROM kernels", 'Candidate bindings: "name"'),
        ("SELECT medan(total_ns) FROM kernels", 'Did you mean "median"?'),
        ("SELECT name, count(*) FROM kernels", "Either add it to the GROUP BY list"),
        ("SELECT * FROM qqqq", "not exist!; tables: runs, timings, events"),
    ],
)
def test_what_duckdb_thinks_was_meant_is_kept_in_the_line(
    sql: str, hint: str, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert lstmprof(["query", sql, str(runs)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert hint in line
    assert "tables: runs" in line


def test_an_answer_without_rows_is_empty(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert lstmprof(["query", "SELECT 1 WHERE false", str(runs), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_rows_are_written_as_they_come(runs: Path) -> None:
    """The answer has more rows than any memory; its reader leaves after the first."""
    sql = "SELECT range FROM range(1000000000000000)"
    command = [sys.executable, "-m", "lstmprof", "query", sql, str(runs), "--format"]
    for format_, first in (("csv", b"range\r\n"), ("json", b"[\n")):
        with subprocess.Popen([*command, format_], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == first
            assert process.stdout.readline()
            process.stdout.close()
            assert process.wait(timeout=120) != 0


@pytest.mark.parametrize("format_", ["table", "json", "csv"])
def test_a_query_that_takes_too_long_is_stopped(
    format_: str, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    endless = "SELECT count(*) FROM range(1000000) a, range(1000000) b, range(1000000) c"
    command = ["query", endless, str(runs), "--timeout", "0.3", "--format", format_]
    assert lstmprof(command) == 1
    assert capsys.readouterr().err == (
        "lstmprof: error: the query took longer than --timeout 0.3 seconds; narrow it with "
        "WHERE or LIMIT, or raise --timeout\n"
    )


def test_the_time_counts_while_rows_are_looked_for(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sql = "SELECT range FROM range(1000000000000000) WHERE range < 0"
    assert lstmprof(["query", sql, str(runs), "--timeout", "1", "--format", "csv"]) == 1
    assert "took longer than --timeout 1 seconds" in capsys.readouterr().err


@pytest.mark.parametrize("table", ["kernels", "runs"])
def test_the_time_counts_while_tables_are_computed(
    table: str, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert lstmprof(["query", f"FROM {table}", str(runs), "--timeout", "0.000001"]) == 1
    assert "took longer than --timeout 1e-06 seconds" in capsys.readouterr().err


def test_the_time_counts_until_the_last_row_is_read(runs: Path) -> None:
    sql = "SELECT range FROM range(100000)"
    with answer(sql, [open_run(runs / "a")], 20) as found:
        assert len(list(found.rows)) == 100_000
    with answer(sql, [open_run(runs / "a")], 2) as found:
        next(found.rows)
        time.sleep(2)
        with pytest.raises(LstmprofError, match="took longer than --timeout 2 seconds"):
            list(found.rows)


def test_a_query_of_no_table_of_events_looks_through_none(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Run, "events_file", property(lambda run: pytest.fail("looked through")))
    with answer("SELECT count(*) FROM timings, runs", [open_run(runs / "a")]) as found:
        assert [tuple(row) for row in found.rows] == [(3,)]


def test_without_duckdb_it_is_said(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    assert lstmprof(["query", "SELECT 1", str(runs)]) == 1


def test_help_imports_neither_duckdb_nor_pyarrow() -> None:
    code = (
        "import sys\nfrom lstmprof import cli\ncli.run(['query', '--help'])\n"
        "cli.run(['breakdown', '--help'])\n"
        "print([m for m in ('duckdb', 'pyarrow', 'numpy') if m in sys.modules], file=sys.stderr)"
    )
    command = [sys.executable, "-c", code]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stderr == "[]\n"


def test_a_query_that_needs_too_much_memory_is_one_line(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert lstmprof(["query", "SELECT length(repeat('x', 4000000000))", str(runs)]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    fault = "the query needs more than 1 GiB of memory; narrow it with WHERE or LIMIT"
    assert printed.err == f"lstmprof: error: {fault}\n"
    assert lstmprof(["query", "SELECT length(repeat('x', 400))", str(runs)]) == 0
