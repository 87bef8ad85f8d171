"""One piece of a Kineto trace, whole elements of its array, read: by columns, or row by row.

What is found is small enough to be sent between processes where the columns are spooled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from lstmprof.errors import ProfileError
from lstmprof.events.spool import write_columns
from lstmprof.formats import json_text, kineto, rows
from lstmprof.formats.kineto import columns as kineto_columns


@dataclass(frozen=True)
class Piece:
    """What a piece holds: columns of the events table, in memory or in a file for a ``Spool``."""

    columns: pa.Table | Path
    rows: int
    left_out: kineto.LeftOut
    categories: frozenset[str]  # of some events at least


def read(label: Path | str, text: bytes, spooled: Path | None = None) -> Piece | None:
    """The events in ``text``, None where it is no whole elements; columns in ``spooled`` if given.

    Raises:
        ProfileError: there is no room for ``spooled``.
    """
    try:
        chunk = kineto_columns.chunk(text)
    except kineto_columns.OddError:
        found = _read_rows(label, text)
    else:
        left_out = kineto.LeftOut(spans=list(chunk.spans))
        found = Piece(chunk.columns, len(chunk.columns), left_out, chunk.categories)
    if found is None or spooled is None:
        return found
    write_columns(spooled, found.columns)
    return Piece(spooled, found.rows, found.left_out, found.categories)


def _read_rows(label: Path | str, text: bytes) -> Piece | None:
    try:
        events = json_text.document(label, b"[" + text + b"]")
    except ProfileError:
        return None
    found, left_out = kineto.found_rows(events)
    categories = frozenset(str(e.get("cat")).lower() for e in events if isinstance(e, dict))
    columns = rows.columns(found) if found else pa.table({})
    return Piece(columns, len(found), left_out, categories)


def as_json(piece: Piece | None) -> Any:
    """What ``json.dumps`` writes, for ``of_json``; without the columns."""
    return piece and {
        "rows": piece.rows,
        "spans": piece.left_out.spans,
        "dropped": piece.left_out.dropped,
        "unknown": piece.left_out.unknown,
        "categories": sorted(piece.categories),
    }


def of_json(said: Mapping[str, Any] | None, spooled: Path) -> Piece | None:
    """The piece whose columns are in ``spooled``."""
    if said is None:
        return None
    spans: Sequence[Sequence[int]] = said["spans"]
    left_out = kineto.LeftOut(
        [(start, length) for start, length in spans],
        Counter(said["dropped"]),
        Counter(said["unknown"]),
    )
    return Piece(spooled, said["rows"], left_out, frozenset(said["categories"]))
