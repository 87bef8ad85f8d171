"""The events table: order, nulls, types, and what is read of it as arrays."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from lstmprof.events.schema import SCHEMA
from lstmprof.events.table import UNKNOWN, EventTable, events_table


def test_rows_are_sorted_by_start_the_longer_first_and_numbered() -> None:
    # 0    1    2    3
    # [a--------]
    # [b--]
    #      [c]
    table = events_table(
        {
            "kind": ["op"] * 3,
            "name": ["c", "b", "a"],
            "start_ns": [1, 0, 0],
            "dur_ns": [1, 1, 2],
            "tid": [1, None, 3],
        }
    )
    assert table.schema.equals(SCHEMA)
    assert table.column("name").to_pylist() == ["a", "b", "c"]
    assert table.column("event_id").to_pylist() == [0, 1, 2]
    assert table.column("tid").to_pylist() == [3, None, 1]
    assert table.column("phase").null_count == 3


def test_negative_durations_and_unknown_columns_are_refused() -> None:
    row = {"kind": ["op"], "name": ["a"], "start_ns": [0], "dur_ns": [1]}
    with pytest.raises(ValueError, match="negative"):
        events_table({**row, "dur_ns": [-1]})
    with pytest.raises(ValueError, match="colour"):
        events_table({**row, "colour": ["red"]})


ROW = {"kind": ["op"] * 2, "name": ["a", "b"], "start_ns": [0, 5], "dur_ns": [1, 1]}


def test_columns_are_read_as_numbers_and_codes() -> None:
    table = events_table(ROW).with_columns({"step": [None, 4], "phase": [None, "loss"]})
    assert table.ints("step", -1).tolist() == [-1, 4]
    assert table.ints("step", UNKNOWN).tolist() == [UNKNOWN, 4]
    codes, values = table.texts("phase")
    assert codes.tolist() == [-1, values.index("loss")]
    empty = table.slice(0, 0)
    assert empty.ints("step", -1).dtype == np.int64
    assert empty.texts("phase")[0].size == 0
    assert empty.where("phase", bool).tolist() == []


def test_no_null_is_taken_for_the_last_text() -> None:
    table = events_table({**ROW, "phase": [None, "loss"]})
    assert table.where("phase", lambda phase: phase == "loss").tolist() == [False, True]
    assert table.is_one_of("phase", "loss").tolist() == [False, True]
    assert table.mapped("phase", len, -1).tolist() == [-1, 4]


def test_a_text_is_asked_about_once_however_many_rows_have_it() -> None:
    asked: list[str] = []
    table = events_table({**ROW, "name": ["a", "a"]})
    assert table.where_name(lambda name: asked.append(name) or True).all()
    assert asked == ["a"]


def test_a_text_that_none_of_the_rows_in_question_has_is_not_asked_about() -> None:
    asked: list[str] = []
    row = {**ROW, "kind": ["op"] * 4, "start_ns": [0, 1, 2, 3], "dur_ns": [1] * 4}
    table = events_table({**row, "name": ["a", "b", "a", "c"], "phase": ["loss", None] * 2})

    def length(text: str) -> int:
        asked.append(text)
        return len(text)

    rows = np.array([False, True, True, False])
    assert table.mapped("name", length, -1, rows=rows).tolist() == [-1, 1, 1, -1]
    assert sorted(asked) == ["a", "b"]
    assert table.mapped("phase", length, -1, rows=rows).tolist() == [-1, -1, 4, -1]
    assert table.mapped("name", length, -1, np.int8, np.zeros(4, np.bool_)).tolist() == [-1] * 4


def test_what_is_worked_out_is_kept_and_cannot_be_written_to() -> None:
    table = events_table(ROW).with_columns({"step": [None, 4]})
    step, ends, ops = table.ints("step", -1), table.end_ns, table.is_kind("op")
    assert table.ints("step", -1) is step
    assert table.end_ns is ends
    assert table.is_kind("op") is ops
    for array in (step, ends, ops, table.start_ns, table.texts("name")[0]):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_nothing_is_kept_of_a_column_that_was_replaced() -> None:
    table = events_table(ROW)
    assert table.end_ns.tolist() == [1, 6]
    names = table.texts("name")
    later = table.with_columns({"start_ns": [5, 10]})
    assert later.start_ns.tolist() == [5, 10]
    assert later.end_ns.tolist() == [6, 11]
    assert later.texts("name")[0] is names[0]
    assert table.end_ns.tolist() == [1, 6]


def test_what_reads_other_columns_is_kept_when_one_is_replaced() -> None:
    def rank_and_step(table: EventTable) -> list[int]:
        return [*table.ints("rank", -1).tolist(), *table.ints("step", -1).tolist()]

    table = events_table({**ROW, "rank": [1, 2], "step": [3, 4]})
    of_both = table.once(rank_and_step, "rank", "step")
    assert table.with_columns({"phase": [None, "loss"]}).once(rank_and_step, "rank", "step") is (
        of_both
    )
    later = table.with_columns({"step": [5, 6]})
    assert later.once(rank_and_step, "rank", "step") == [1, 2, 5, 6]
    assert table.once(rank_and_step) is not of_both


def test_nothing_is_kept_of_many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lstmprof.events.table.CACHED_ROWS", 1)
    table = events_table({**ROW, "step": [None, 4]})
    assert table.ints("step", -1) is not table.ints("step", -1)
    whole = table.column("start_ns").chunk(0)
    assert table.start_ns.ctypes.data == whole.buffers()[1].address  # no copy


def test_rows_of_a_rank_are_those_of_none_where_none_is_named() -> None:
    table = events_table({**ROW, "rank": [None, 3]})
    assert table.ranks() == [None, 3]
    assert table.rows_of_rank(None).tolist() == [0]
    assert table.rows_of_rank(3).tolist() == [1]


def test_numbers_are_stored_as_differences_and_come_back(tmp_path: Path) -> None:
    rows = 5000
    extremes = [UNKNOWN, -UNKNOWN - 1, None, 0, -1] * (rows // 5)
    table = events_table(
        {
            **{"kind": ["op"] * rows, "name": [f"op{n % 7}" for n in range(rows)]},
            **{"start_ns": [10**18 + 997 * n for n in range(rows)], "dur_ns": [5] * rows},
            **{"external_id": extremes, "tid": extremes},
        }
    )
    path = tmp_path / "events.parquet"
    table.write_parquet(path)
    assert pq.read_table(path).cast(SCHEMA).equals(table.arrow)
    group = pq.ParquetFile(path).metadata.row_group(0)
    bytes_of = {
        name: group.column(place).total_compressed_size for place, name in enumerate(SCHEMA.names)
    }
    assert bytes_of["event_id"] + bytes_of["start_ns"] < rows  # 8 bytes a row and column before
