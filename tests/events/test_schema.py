"""The events table: order, nulls, types."""

import numpy as np
import pytest

from lstmprof.events.schema import SCHEMA, events_table, ints, texts, with_columns


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


def test_columns_are_read_as_numbers_and_codes() -> None:
    row = {"kind": ["op"] * 2, "name": ["a", "b"], "start_ns": [0, 5], "dur_ns": [1, 1]}
    table = with_columns(events_table(row), {"step": [None, 4], "phase": [None, "loss"]})
    assert ints(table, "step", -1).tolist() == [-1, 4]
    codes, values = texts(table, "phase")
    assert codes.tolist() == [-1, values.index("loss")]
    empty = table.slice(0, 0)
    assert ints(empty, "step", -1).dtype == np.int64
    assert texts(empty, "phase")[0].size == 0
