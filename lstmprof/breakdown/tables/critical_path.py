"""The table of the critical path: the chain of work that must get shorter to end a step earlier.

``breakdown.replay`` simulates the step of median length of each rank.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from lstmprof.events.annotate.steps import Window, median_step
from lstmprof.events.event_types import rows_of_ranks
from lstmprof.events.narrow import Packed
from lstmprof.events.schema import RANK, STEP, Column, schema

COLUMNS = (
    RANK,
    STEP,
    Column.text("state", "busy (something computes or moves data) or idle"),
    Column.text(
        "part",
        "category of the work (such as gemm) if busy, cause of the wait (such as python) if idle",
    ),
    Column.integer("path_ns", "time of this part on the critical path"),
    Column.real("path_share", "path_ns divided by the length of the path"),
    Column.integer(
        "halved_saves_ns",
        "by how much a simulated step is shorter if this part takes half as long",
    ),
    Column.integer("stretches", "number of uninterrupted stretches of this part on the path"),
    Column.text(
        "longest_name",
        "name of the event of this part with the longest time on the path",
        "no event belongs to this part",
    ),
    Column.integer(
        "longest_ns", "time of the event longest_name on the path", "longest_name is null"
    ),
)
SCHEMA = schema(COLUMNS)


def critical_path(packed: Packed, windows: Sequence[Window], reads: Sequence[str]) -> pa.Table:
    """Return the kinds of work and waits on the critical path of each rank's median step."""
    from lstmprof.breakdown.replay.critical_path import critical_path_of

    rows: list[dict[str, Any]] = []
    for rank in dict.fromkeys(window.rank for window in windows):
        events = packed.table(reads, rows_of_ranks(packed, [rank]))
        codes, names = events.texts("name")
        window = median_step([w for w in windows if w.rank == rank])
        path = critical_path_of(events, window)
        parts: dict[tuple[str, str], Counter[int | None]] = defaultdict(Counter)
        counts: Counter[tuple[str, str]] = Counter()
        for interval in path.intervals:
            label = interval.state, interval.part
            parts[label][interval.event_id] += interval.end_ns - interval.start_ns
            counts[label] += 1
        for (state, part), spent in parts.items():
            event_ns = {event: ns for event, ns in spent.items() if event is not None}
            longest = max(event_ns, key=event_ns.__getitem__, default=None)
            row = None if longest is None else int(events.rows_of(np.array([longest]))[0])
            rows.append(
                {
                    "rank": rank,
                    "step": window.step,
                    "state": state,
                    "part": part,
                    "path_ns": spent.total(),
                    "path_share": spent.total() / path.length_ns,
                    "halved_saves_ns": path.saved_ns(part),
                    "stretches": counts[state, part],
                    "longest_name": None if row is None else names[codes[row]],
                    "longest_ns": None if longest is None else event_ns[longest],
                }
            )
    return pa.Table.from_pylist(rows, schema=SCHEMA)
