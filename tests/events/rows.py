"""Events built in code: a row is written with the few columns that matter, the rest are null."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from lstmprof.events.schema import SCHEMA, events_table, with_columns

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


def table(rows: list[Row]) -> pa.Table:
    """The events table of ``rows``, unlinked, with the categories that they have."""
    read = [n for n in SCHEMA.names if n not in ("event_id", "category")]
    marked = {n: [r[n] for r in rows] for n in read}
    marked["shapes"] = [str(i) for i in range(len(rows))]  # finds the row again after sorting
    events = events_table(marked)
    order = [int(i) for i in events.column("shapes").to_pylist()]
    return with_columns(
        events,
        {
            "category": pa.array([rows[i]["category"] for i in order], pa.string()),
            "shapes": pa.nulls(len(rows), pa.string()),
        },
    )
