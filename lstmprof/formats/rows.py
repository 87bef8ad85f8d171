"""Define ``Row``, one event of a raw profile, and join rows into an events table.

Example: ``Row("op", "aten::mm", start_ns=5000, dur_ns=300, pid=71, tid=71)``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lstmprof.events import DeviceFacts, EventTable
from lstmprof.events.schema import SCHEMA
from lstmprof.events.spool import Spool
from lstmprof.events.table import events_table

#: Largest valid time; differences of valid times fit into int64.
MAX_NS = 2**61
#: First time that is a date (2001-09-09); earlier times count from the machine's start.
_FIRST_DATE_NS = 10**18
NO_DATE = "the file has no recording date; its times count from its first event"
_MAX_INT64 = 2**63 - 1
_SURROGATE = re.compile("[\ud800-\udfff]")


class Row(NamedTuple):
    """One event, with times as in the file."""

    kind: str
    name: str
    start_ns: int
    dur_ns: int
    pid: int | None = None
    tid: int | None = None
    device: int | None = None
    stream: int | None = None
    correlation_id: int | None = None
    external_id: int | None = None
    graph_node_id: int | None = None
    op_name: str | None = None
    shapes: str | None = None
    dtypes: str | None = None
    bytes: int | None = None
    launch_config: str | None = None
    sequence_number: int | None = None
    forward_thread: int | None = None


def date_ns(origin_ns: int) -> int | None:
    """Return ``origin_ns``, or None if the date would be before 2001-09-09."""
    return origin_ns if origin_ns >= _FIRST_DATE_NS else None


def base_ns(origin_ns: int, added_ns: int | None) -> int | None:
    """Return ``origin_ns`` if this is a date, or else ``origin_ns + added_ns``."""
    if date_ns(origin_ns) is not None:
        return origin_ns
    return None if added_ns is None else positive(added_ns + origin_ns)


def table(rows: Sequence[Row], origin_ns: int, rank: int | None = None) -> EventTable:
    """Make an events table from rows, with times since ``origin_ns``."""
    return moved(columns(rows), origin_ns, rank)


def columns(rows: Sequence[Row]) -> pa.Table:
    return pa.table(
        {
            name: _array([row[place] for row in rows], SCHEMA.field(name).type)
            for place, name in enumerate(Row._fields)
        }
    )


def _array(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(type_):
        return pa.array(values, type_.value_type).dictionary_encode()
    return pa.array(values, type_)


def first_ns(columns: pa.Table | Spool) -> int:
    """Return the first start in ns, as in the file."""
    if isinstance(columns, Spool):
        return columns.first_ns
    start: int = pc.min(columns.column("start_ns")).as_py()
    return start


def moved(columns: pa.Table | Spool, origin_ns: int, rank: int | None = None) -> EventTable:
    """Make an events table from columns, with times since ``origin_ns``."""
    if isinstance(columns, Spool):
        return columns.events(origin_ns, rank)
    arrays = {name: columns.column(name) for name in columns.column_names}
    arrays["start_ns"] = pc.subtract(arrays["start_ns"], origin_ns)
    if rank is not None:
        arrays["rank"] = pa.array(np.full(len(columns), rank))
    return events_table(arrays)


def clean(text: str) -> str:
    """Replace lone surrogates, which are no valid Unicode."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


def int64(value: object) -> int | None:
    """Convert an int or a decimal text. Return None if int64 is too small."""
    if isinstance(value, str):
        digits = value.removeprefix("-")
        if not (digits.isascii() and digits.isdecimal() and len(digits) < 20):
            return None
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) > _MAX_INT64:
        return None
    return value


def natural(value: object) -> int | None:
    """Convert to an int; return None for negative numbers, which mean unknown."""
    number = int64(value)
    return None if number is None or number < 0 else number


def positive(value: object) -> int | None:
    """Convert to an int; return None for 0 and less, which mean no id."""
    return natural(value) or None


def device_facts(
    major: object, minor: object, multiprocessors: object, warp_size: object = None
) -> DeviceFacts:
    """Convert facts about a device; ignore facts that are no numbers."""
    numbers = positive(major), natural(minor)
    return DeviceFacts(
        compute_capability=None if None in numbers else f"{numbers[0]}.{numbers[1]}",
        multiprocessors=positive(multiprocessors),
        warp_size=positive(warp_size),
    )
