"""What SQL answered, as a terminal and JSON show it."""

from __future__ import annotations

import math
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from commands.written_runs import step, write_run

from lstmprof.base.errors import LstmprofError
from lstmprof.base.numbers import UNKNOWN
from lstmprof.breakdown import sql
from lstmprof.breakdown.sql import Answer, _Query
from lstmprof.cli import run as lstmprof


def answer(**columns: tuple[str, Any]) -> Answer:
    """One row of columns with a type and a value."""
    types = [type_ for type_, _ in columns.values()]
    return Answer([*columns], types, iter([[value for _, value in columns.values()]]))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.1 + 0.2, "0.3"),
        (999_999.4, "999999"),
        (1e6, "1000000.0"),
        (-1e6, "-1000000.0"),
        (12_345_678.25, "12345678.2"),
        (None, UNKNOWN),
        (7, "7"),
        ("a", "a"),
    ],
)
def test_a_number_is_shown_without_an_exponent_and_nothing_as_unknown(
    value: object, text: str
) -> None:
    assert [*answer(a=("DOUBLE", value)).texts()] == [[text]]


def test_numbers_are_aligned_to_the_right_and_texts_may_be_cut() -> None:
    found = answer(
        name=("VARCHAR", "a"), ns=("BIGINT", 1), share=("DECIMAL(18,3)", 0), all=("BIGINT[]", [1])
    )
    assert found.headings() == ["name", ">ns", ">share", "all"]
    assert found.long() == ["name", "all"]


def test_columns_of_one_name_get_numbers() -> None:
    found = Answer(["a", "b", "a", "a", "a_2"], ["BIGINT"] * 5, iter([[1, 2, 3, 4, 5]]))
    assert found.columns == ["a", "b", "a_2", "a_3", "a_2_2"]
    assert [*found.records()] == [{"a": 1, "b": 2, "a_2": 3, "a_3": 4, "a_2_2": 5}]


def test_json_has_no_nan_and_no_type_of_pythons_own() -> None:
    found = answer(
        nan=("DOUBLE", math.nan),
        inf=("DOUBLE", -math.inf),
        whole=("HUGEINT", Decimal("12")),
        part=("DECIMAL(3,1)", Decimal("1.5")),
        flag=("BOOLEAN", True),
        all=("DECIMAL(3,1)[]", [Decimal("2"), None, math.nan]),
        by=("MAP", {1: (Decimal("0.5"),)}),
    )
    (row,) = found.records()
    assert row == {
        **{"nan": None, "inf": None, "whole": 12, "part": 1.5, "flag": True},
        **{"all": [2, None, None], "by": {"1": [0.5]}},
    }
    assert type(row["whole"]) is int


class SlowToBegin:
    """A database whose query begins after the first interrupt, which is lost, and then has no end.

    ::

        interrupt   interrupt
           | query -----|
    """

    def __init__(self) -> None:
        self.begun, self.ended = threading.Event(), threading.Event()

    def interrupt(self) -> None:
        (self.ended if self.begun.is_set() else self.begun).set()

    def query(self) -> bool:
        return self.begun.wait(60) and self.ended.wait(60)


def test_a_query_that_begins_when_its_time_is_over_already_is_ended_all_the_same() -> None:
    database: Any = SlowToBegin()
    with ThreadPoolExecutor(1) as thread:
        query = _Query(database, thread, 0.01)
        with pytest.raises(LstmprofError, match=r"took longer than --timeout 0\.01 seconds"):
            query.waited_for(database.query)
        assert database.ended.is_set()


class Interrupting:
    """A table; a signal comes while DuckDB asks for it."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        signal.raise_signal(signal.SIGINT)
        return self.table.__arrow_c_stream__(requested_schema)


def test_a_signal_within_the_database_is_no_fault_of_the_query(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = pa.table({"run": ["a"]})
    monkeypatch.setattr(sql, "facts_table", lambda facts: Interrupting(table))
    for _ in range(30):  # it comes a little sooner or later each time
        with pytest.raises(KeyboardInterrupt), sql.answer("SELECT 1", []):
            pass


@pytest.fixture
def damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run beside a good one; DuckDB cannot read its footer, which Arrow is thought to read."""
    for name in ("damaged", "good"):
        write_run(tmp_path, name, step(("aten::mm", 9)), 10)
    (tmp_path / "damaged" / "events.parquet").write_bytes(b"PAR1" + bytes(32) + b"PAR1")
    check = sql.check_file
    unseen = lambda path, columns: [] if "damaged" in str(path) else check(path, columns)  # noqa: E731
    monkeypatch.setattr(sql, "check_file", unseen)
    return tmp_path


def test_a_file_that_duckdb_alone_cannot_read_is_damaged(
    damaged: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = damaged / "damaged/events.parquet"
    assert lstmprof(["query", "SELECT count(*) FROM events", str(damaged), "--format", "csv"]) == 1
    said = capsys.readouterr()
    assert said.out == "count_star()\r\n2\r\n"
    assert f"left out: {file}: is damaged" in said.err
