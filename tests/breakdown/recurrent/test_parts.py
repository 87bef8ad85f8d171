"""Profiles of more rows than a table keeps are read in parts of whole steps."""

from __future__ import annotations

import dataclasses

import pytest
from breakdown.recurrent.rows import HOST, Timeline
from breakdown.recurrent.test_torch_loops import cell
from events.rows import row

from lstmprof.breakdown.recurrent import profiles
from lstmprof.events.annotate import annotated
from lstmprof.events.schema import SCHEMA
from lstmprof.events.table import EventTable, events_table


def steps_of_two_layers() -> EventTable:
    """Five steps, each of an LSTM in one op and of a loop of cells."""
    timeline = Timeline()
    for number in range(5):
        began = timeline.now
        timeline.op("aten::lstm", [[9, 6, 10], [[1, 6, 16], [1, 6, 16]]])
        for _ in range(4):
            cell(timeline, 6, 10, 16)
        timeline.rows.append(row("step", f"step#{number}", began, timeline.now, **HOST))
    columns = [name for name in SCHEMA.names if name != "event_id"]
    table = events_table({name: [r[name] for r in timeline.rows] for name in columns})
    return annotated(table, captured=False)


def test_parts_hold_the_calls_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    events = steps_of_two_layers()
    whole = profiles.recurrent_calls(events)
    assert len(whole) == 10
    for rows in (1, 120, 200):
        monkeypatch.setattr(profiles, "CACHED_ROWS", rows)
        parts = profiles.recurrent_calls(events)
        assert sorted(map(str, map(dataclasses.astuple, parts))) == sorted(
            map(str, map(dataclasses.astuple, whole))
        )
