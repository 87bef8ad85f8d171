"""Read a piece of a Kineto trace into columns of the events table.

If the piece contains an unusual value, such as a time as text, the module reads the piece row by
row, which is slower. ``event_fields`` defines the meaning of every field.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lstmprof.base.errors import ProfileError
from lstmprof.events.counters import Count, table_of, write_sorted
from lstmprof.events.spool import write_chunk
from lstmprof.formats import kineto, rows
from lstmprof.formats.kineto import event_fields
from lstmprof.formats.kineto.event_fields import COUNTER, INSTANT, counts, memory_table
from lstmprof.formats.kineto.records import (
    ABSENT,
    NO_LAUNCH,
    NULL,
    Counter,
    Instant,
    Ints,
    OddError,
    Records,
)
from lstmprof.formats.raw_file import json_document, json_value

Flags = NDArray[np.bool_]

_KERNELS = frozenset(category for category, kind in event_fields.KINDS.items() if kind == "kernel")

_FS_PER_US, _FS_PER_NS, _NS_PER_US = 10**9, 10**6, 10**3
_NS_DECIMALS, _MOST_DECIMALS = 3, 9  # of microseconds: down to 1 ns, and to 1 fs
#: Largest number of parsed lists in a cache; largest size of a cached list in bytes.
_CACHED_LISTS, _SHORT_BYTES = 2**14, 2**10


@dataclass(frozen=True)
class Piece:
    """The events and counters that were read from a part of a Kineto trace."""

    columns: pa.Table | Path
    rows: int
    left_out: kineto.LeftOut
    categories: frozenset[str]  # in lower case; of at least all events with a duration
    counters: pa.Table | Path | None = None


def read(label: Path | str, text: bytes, spooled: Path | None = None) -> Piece | None:
    """Read a text of whole events; return None if the text ends within an event."""
    piece: Piece | None
    try:
        piece = read_columns(text)
    except OddError:
        piece = _read_rows(label, text)
    return piece if piece is None or spooled is None else _spooled(piece, spooled)


def _spooled(piece: Piece, path: Path) -> Piece:
    """Move the columns and counters to disk, so that a process can send the piece."""
    if piece.rows:
        write_chunk(path, piece.columns)
        piece = replace(piece, columns=path)
    if piece.counters is not None:
        beside = path.with_name(f"{path.name}-counters")
        write_sorted(beside, piece.counters)
        piece = replace(piece, counters=beside)
    return piece


class Part(NamedTuple):
    """A range of bytes in a file."""

    file: Path
    start: int
    length: int

    @property
    def content(self) -> bytes:
        with self.file.open("rb") as file:
            file.seek(self.start)
            return file.read(self.length)


def read_part(part: bytes | Part, spooled: Path) -> Piece | None:
    """Read a piece from its text, or from its bytes in a file."""
    return read("piece", part if isinstance(part, bytes) else part.content, spooled)


def _read_rows(label: Path | str, text: bytes) -> Piece | None:
    try:
        listed = json_document(label, b"[" + text + b"]")
    except ProfileError:
        return None
    intervals, counts, left_out = kineto.decoded_rows(listed)
    categories = frozenset(str(e.get("cat")).lower() for e in listed if isinstance(e, dict))
    columns = rows.columns(intervals) if intervals else pa.table({})
    beside = table_of(counts) if counts else None
    return Piece(columns, len(intervals), left_out, categories, beside)


def read_columns(text: bytes) -> Piece:
    """Read the events in ``text``, a JSON array without its brackets."""
    try:
        return _columns(Records(text))
    except (msgspec.DecodeError, pa.ArrowException, OverflowError, ValueError) as error:
        raise OddError from error
    except RecursionError as error:
        raise OddError from error


def _columns(records: Records) -> Piece:
    cats, written = records.texts("cat")
    categories = [category.lower() for category in written]
    start_ns, dur_ns = _times(records.numerals("ts"), records.numerals("dur"))
    is_span = _flags(categories, frozenset((event_fields.PROFILER_SPAN,)))[cats]
    spans = list(zip(start_ns[is_span].tolist(), dur_ns[is_span].tolist(), strict=True))
    rest = np.flatnonzero(~is_span)
    columns = {"start_ns": pa.array(start_ns[rest]), "dur_ns": pa.array(dur_ns[rest])}
    columns |= _kinds_and_names(records.only(rest) if spans else records, cats[rest], categories)
    left_out = kineto.LeftOut(spans=spans)
    beside = _counters(records)
    return Piece(pa.table(columns), len(rest), left_out, frozenset(categories), beside)


def _counters(records: Records) -> pa.Table | None:
    """Return the counter values, read by columns if all events are ``[memory]`` events."""
    events = records.counters
    if Counter in set(map(type, events)):
        return _one_by_one(events)
    starts = b"\0".join(map(attrgetter("ts"), events)) + b"\0" * bool(events)
    time_ns, _ = _times(starts, b"0\0" * len(events))
    pid = _pids(list(map(attrgetter("pid"), events)))
    columns = memory_table(time_ns, pid, map(attrgetter("args"), events))
    if columns is None:
        raise OddError
    return columns if len(columns) else None


def _one_by_one(events: Sequence[Instant]) -> pa.Table | None:
    values: list[Count] = []
    for event in events:
        phase = COUNTER if type(event) is Counter else INSTANT
        raws = {name: bytes(getattr(event, name)) for name in ("ts", "args")}
        written = {name: json_value(raw) for name, raw in raws.items() if raw}
        read = counts({"ph": phase, "name": event.name, "pid": event.pid, **written})
        if isinstance(read, str):
            raise OddError  # reading row by row counts such events as omitted
        values += read
    return table_of(values) if values else None


def _pids(written: Sequence[int | str]) -> Ints:
    """Parse process ids; 0 means none."""
    numbers = {pid: rows.positive(pid) or 0 for pid in set(written)}
    return np.fromiter(map(numbers.__getitem__, written), np.int64, len(written))


def _kinds_and_names(records: Records, cats: Ints, categories: list[str]) -> dict[str, pa.Array]:
    names, name_texts = records.texts("name")
    pairs = pa.array(cats * len(name_texts) + names).dictionary_encode()
    kinds = [
        event_fields.kind(categories[p // len(name_texts)], name_texts[p % len(name_texts)])
        for p in pairs.dictionary.to_pylist()
    ]
    if None in kinds:
        raise OddError  # unknown category; reading row by row counts such events
    on_device = _flags(categories, event_fields.ON_DEVICE)[cats]
    correlation, external = records.ints("correlation"), records.either("external", "external_2021")
    correlated = np.array([kind in event_fields.CORRELATED for kind in kinds], bool)
    instead = correlated[pairs.indices.to_numpy()] & (correlation == ABSENT)
    return {
        "kind": _texts(pairs.indices.to_numpy(), kinds),
        "name": _texts(names, name_texts),
        "correlation_id": _positive(np.where(instead, external, correlation)),
        "external_id": _positive(external),
        "launch_config": _launches(records, _flags(categories, _KERNELS)[cats]),
        **_on_device(records, on_device),
        **_on_host(records, ~on_device),
    }


def _launches(records: Records, where: Flags) -> pa.DictionaryArray:
    codes, values = records.launches()
    return _texts(np.where(where, codes, NO_LAUNCH), [_launched_with(*value) for value in values])


_launched_with = lru_cache(_CACHED_LISTS)(event_fields.launched_with)


def _on_device(records: Records, where: Flags) -> dict[str, pa.Array]:
    device = records.numbers("device", rows.natural)
    device = np.where(device == ABSENT, records.numbers("pid", rows.natural), device)
    stream = records.numbers("stream", event_fields.stream)
    stream = np.where(stream == ABSENT, records.numbers("tid", event_fields.stream), stream)
    node, moved = records.ints("graph_node"), records.either("bytes", "bytes_2021")
    return {
        "device": _natural(np.where(where, device, NULL)),
        "stream": _natural(np.where(where, stream, NULL)),
        "graph_node_id": _positive(np.where(where, node, NULL)),
        "bytes": _natural(np.where(where, moved, NULL)),
    }


def _on_host(records: Records, where: Flags) -> dict[str, pa.Array]:
    process, thread = records.numbers("pid", rows.positive), records.numbers("tid", rows.int64)
    is_null = (thread <= NULL) | ((process <= 0) & (thread == 0))
    sequence, forward = records.ints("sequence"), records.ints("forward_thread")
    return {
        "pid": _positive(np.where(where, process, NULL)),
        "tid": pa.array(thread, mask=is_null | ~where),
        "shapes": _lists(records, "shapes", where),
        "dtypes": _lists(records, "dtypes", where),
        "sequence_number": _natural(np.where(where, sequence, NULL)),
        "forward_thread": _positive(np.where(where, forward, NULL)),
    }


def _positive(values: Ints) -> pa.Array:
    return pa.array(values, mask=values <= 0)


def _natural(values: Ints) -> pa.Array:
    return pa.array(values, mask=values < 0)


def _texts(codes: Ints, values: Sequence[str | None]) -> pa.DictionaryArray:
    """Look up texts: codes [1, 0] of ``["a", "b"]`` give ``["b", "a"]``."""
    distinct = pa.array(values, pa.string()).dictionary_encode()
    places = distinct.indices.fill_null(-1).to_numpy()
    indices = places[codes] if len(codes) else np.empty(0, dtype=np.int32)
    return pa.DictionaryArray.from_arrays(
        pa.array(indices, pa.int32(), mask=indices < 0), distinct.dictionary
    )


def _flags(values: list[str], wanted: frozenset[str]) -> Flags:
    return np.array([v in wanted for v in values] or [False], dtype=np.bool_)


def _lists(records: Records, field: str, where: Flags) -> pa.DictionaryArray:
    codes, raws = records.lists(field)
    texts = [_short_list(raw) if len(raw) < _SHORT_BYTES else _list(raw) for raw in raws]
    return _texts(np.where(where, codes, len(texts)), [*texts, None])


def _list(raw: bytes) -> str | None:
    return event_fields.json_list(json_value(raw)) if raw else None


_short_list = lru_cache(_CACHED_LISTS)(_list)


def _times(starts: bytes, lengths: bytes) -> tuple[Ints, Ints]:
    """Convert starts and lengths, null-terminated decimals in µs, to ns."""
    start, start_decimals = _digits(starts)
    dur, dur_decimals = _digits(lengths)
    if max(start_decimals.max(initial=0), dur_decimals.max(initial=0)) > _NS_DECIMALS:
        return _rounded_times(start, start_decimals, dur, dur_decimals)
    start_ns, dur_ns = (
        _within_int64(value, 10 ** (_NS_DECIMALS - decimals))
        for value, decimals in ((start, start_decimals), (dur, dur_decimals))
    )
    if (start_ns + dur_ns).max(initial=0) > rows.MAX_NS:
        raise OddError
    return start_ns, dur_ns


def _within_int64(values: Ints, factor: Ints) -> Ints:
    """Multiply non-negative numbers; raise OddError if a product could exceed MAX_NS."""
    if int(values.max(initial=0)) * int(factor.max(initial=1)) > rows.MAX_NS:
        raise OddError
    return values * factor


def _rounded_times(
    start: Ints, start_decimals: Ints, dur: Ints, dur_decimals: Ints
) -> tuple[Ints, Ints]:
    start_us, start_fs = _microseconds(start, start_decimals)
    dur_us, dur_fs = _microseconds(dur, dur_decimals)
    most_us = rows.MAX_NS // _NS_PER_US - 1
    if max(start_us.max(initial=0), dur_us.max(initial=0)) > most_us:
        raise OddError
    start_ns = start_us * _NS_PER_US + (start_fs + _FS_PER_NS // 2) // _FS_PER_NS
    end_us, end_fs = start_us + dur_us, start_fs + dur_fs
    end_ns = end_us * _NS_PER_US + (end_fs + _FS_PER_NS // 2) // _FS_PER_NS
    if end_ns.max(initial=0) > rows.MAX_NS:
        raise OddError
    return start_ns, end_ns - start_ns


def _microseconds(value: Ints, decimals: Ints) -> tuple[Ints, Ints]:
    """Split 12.5 µs, given as (125, 1 decimal), into 12 µs and 500,000,000 fs."""
    scale = 10**decimals
    return value // scale, value % scale * (_FS_PER_US // scale)


def _digits(numerals: bytes) -> tuple[Ints, Ints]:
    """Parse null-terminated decimals as (digits, number of decimals): ``12.5`` -> 125, 1."""
    text = np.frombuffer(numerals, dtype=np.uint8)
    marks = np.flatnonzero(text - ord("0") > 9)  # unsigned, so characters before "0" count, too
    is_end, is_dot = text[marks] == 0, text[marks] == ord(".")
    twice_dotted = is_dot[1:] & is_dot[:-1]
    if not (is_end | is_dot).all() or twice_dotted.any():
        raise OddError
    ends = np.flatnonzero(is_end)
    dotted = np.append(False, is_dot)[ends]  # whether a dot precedes the end
    decimals = np.where(dotted, marks[ends] - marks[ends - 1] - 1, 0)
    if decimals.max(initial=0) > _MOST_DECIMALS:
        raise OddError
    lengths = np.diff(marks[ends], prepend=-1) - 1 - dotted
    bounds = np.append(0, np.cumsum(lengths)).astype(np.int32)
    digits = pa.py_buffer(numerals.translate(None, b".\0"))
    texts = pa.StringArray.from_buffers(len(ends), pa.py_buffer(bounds), digits)
    return texts.cast(pa.int64()).to_numpy(), decimals
