"""Events built in code: a row is written with the few columns that matter, the rest are null."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lstmprof.events.schema import SCHEMA
from lstmprof.events.table import EventTable, events_table

Row = dict[str, Any]


def row(kind: str, name: str, start_ns: int, end_ns: int, **columns: Any) -> Row:
    """One event of [start_ns, end_ns)."""
    blank = dict.fromkeys(SCHEMA.names)
    return {
        **blank,
        "kind": kind,
        "name": name,
        "start_ns": start_ns,
        "dur_ns": end_ns - start_ns,
        **columns,
    }


def table(rows: list[Row]) -> EventTable:
    """The events table of ``rows``, unlinked, with the categories that they have."""
    read = [n for n in SCHEMA.names if n not in ("event_id", "category")]
    marked = {n: [r[n] for r in rows] for n in read}
    marked["shapes"] = [str(i) for i in range(len(rows))]  # finds the row again after sorting
    events = events_table(marked)
    order = [int(i) for i in events.column("shapes").to_pylist()]
    return events.with_columns(
        {
            "category": pa.array([rows[i]["category"] for i in order], pa.string()),
            "shapes": pa.nulls(len(rows), pa.string()),
        },
    )


def nameless(events: EventTable, row_number: int) -> EventTable:
    """``events``, of which one has no name: as a damaged run may say."""
    names = events.column("name").combine_chunks()
    known = pa.array([number != row_number for number in range(len(events))])
    unnamed = pc.if_else(known, names, pa.scalar(None, names.type))
    return EventTable(events.drop_columns(["name"]).append_column("name", unnamed))
