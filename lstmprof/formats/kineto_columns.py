"""Events of a Kineto trace, a chunk of its JSON at a time, straight into columns.

The twin of ``kineto_events``, which says what every field means and makes a row an event: here a
chunk of events is decoded into typed records (msgspec) and each field of all of them at once
becomes a column. What is written in a way that the records do not provide for (a number as text, a
negative time, a broken escape) raises ``OddError``, and the caller reads that chunk row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lstmprof.formats import json_text, kineto_events, rows

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

#: The value of an integer field that is not there; a chunk in which it is written is ``OddError``.
_ABSENT = -(2**63)
#: A value that means nothing.
_NULL = _ABSENT + 1
_UNUSED = str(_ABSENT)[:-2].encode()  # how both are written
_NUMBER_BYTES = b"0123456789.\0"
_FS_PER_US, _FS_PER_NS, _NS_PER_US = 10**9, 10**6, 10**3
_RAW = msgspec.Raw(b"")


class OddError(Exception):
    """The chunk holds something that only the plain reader understands."""


class _Args(msgspec.Struct, gc=False, frozen=True):
    correlation: int = _ABSENT
    external: int = msgspec.field(name="External id", default=_ABSENT)
    external_2021: int = msgspec.field(name="external id", default=_ABSENT)
    device: int | str = _ABSENT
    stream: int | str = _ABSENT
    graph_node: int = msgspec.field(name="graph node id", default=_ABSENT)
    bytes: int = _ABSENT
    bytes_2021: int = msgspec.field(name="Bytes", default=_ABSENT)
    shapes: msgspec.Raw = msgspec.field(name="Input Dims", default=_RAW)
    shapes_2021: msgspec.Raw = msgspec.field(name="Input dims", default=_RAW)
    dtypes: msgspec.Raw = msgspec.field(name="Input type", default=_RAW)
    dtypes_2021: msgspec.Raw = msgspec.field(name="Input Type", default=_RAW)
    sequence: int = msgspec.field(name="Sequence number", default=_ABSENT)
    forward_thread: int = msgspec.field(name="Fwd thread id", default=_ABSENT)


_NO_ARGS = _Args()


class _Event(msgspec.Struct, gc=False, frozen=True):
    ph: str = ""
    cat: str = "none"
    name: str = ""
    ts: msgspec.Raw = _RAW
    dur: msgspec.Raw = _RAW
    pid: int | str = _ABSENT
    tid: int | str = _ABSENT
    args: _Args = _NO_ARGS


_DECODER = msgspec.json.Decoder(list[_Event])


class _Records:
    """The events of a chunk and their arguments, a field of all of them at a time."""

    def __init__(self, events: Sequence[_Event]) -> None:
        self.events = events
        self._args = list(map(attrgetter("args"), events))

    def of_events(self, field: str) -> list[Any]:
        """``field`` of each event."""
        return list(map(attrgetter(field), self.events))

    def of_args(self, field: str) -> list[Any]:
        """``field`` of each event's arguments."""
        return list(map(attrgetter(field), self._args))

    def ints(self, field: str) -> Ints:
        """An integer argument of each event, ``_ABSENT`` where it is not there."""
        return np.array(self.of_args(field), dtype=np.int64)

    def either(self, field: str, older: str) -> Ints:
        """The argument ``field``, where it is not there ``older``."""
        found = self.ints(field)
        return np.where(found == _ABSENT, self.ints(older), found)


@dataclass(frozen=True)
class Chunk:
    """The events of a chunk: columns of the events table, times not yet moved to ``base_ns``."""

    columns: pa.Table
    spans: Sequence[tuple[int, int]]  # of the profiler itself: (start, length)
    categories: frozenset[str]


def chunk(text: bytes) -> Chunk:
    """The events in ``text``, the elements of a JSON array without its brackets.

    Raises:
        OddError: ``text`` is no such elements, or one is written in an unusual way.
    """
    if _UNUSED in text:
        raise OddError
    try:
        events = [e for e in _DECODER.decode(b"[" + text + b"]") if e.ph == "X"]
        return _chunk(events)
    except (msgspec.DecodeError, pa.ArrowException, OverflowError, ValueError) as error:
        raise OddError from error
    except RecursionError as error:
        raise OddError from error


def _chunk(events: Sequence[_Event]) -> Chunk:
    records = _Records(events)
    cats, written = _encoded(records.of_events("cat"))
    categories = [category.lower() for category in written]
    start_ns, dur_ns = _times(records)
    is_span = _flags(categories, frozenset((kineto_events.PROFILER_SPAN,)))[cats]
    spans = list(zip(start_ns[is_span].tolist(), dur_ns[is_span].tolist(), strict=True))
    if spans:
        kept = np.flatnonzero(~is_span)
        records = _Records([events[i] for i in kept.tolist()])
        cats, start_ns, dur_ns = cats[kept], start_ns[kept], dur_ns[kept]
    columns = {"start_ns": pa.array(start_ns), "dur_ns": pa.array(dur_ns)}
    columns |= _what(records, cats, categories)
    return Chunk(pa.table(columns), spans, frozenset(categories))


def _what(records: _Records, cats: Ints, categories: list[str]) -> dict[str, pa.Array]:
    names, name_texts = _encoded(records.of_events("name"))
    pairs = pa.array(cats * len(name_texts) + names).dictionary_encode()
    kinds = [
        kineto_events.kind(categories[p // len(name_texts)], name_texts[p % len(name_texts)])
        for p in pairs.dictionary.to_pylist()
    ]
    if None in kinds:
        raise OddError  # of an unknown category, which the plain reader counts
    on_device = _flags(categories, kineto_events.ON_DEVICE)[cats]
    pid, tid = records.of_events("pid"), records.of_events("tid")
    return {
        "kind": _texts(pairs.indices.to_numpy(), kinds),
        "name": _texts(names, name_texts),
        "correlation_id": _positive(records.ints("correlation")),
        "external_id": _positive(records.either("external", "external_2021")),
        **_on_device(records, pid, tid, on_device),
        **_on_host(records, pid, tid, ~on_device),
    }


def _on_device(
    records: _Records, pid: list[Any], tid: list[Any], where: Flags
) -> dict[str, pa.Array]:
    device = _numbers(records.of_args("device"), rows.natural)
    device = np.where(device == _ABSENT, _numbers(pid, rows.natural), device)
    stream = _numbers(records.of_args("stream"), kineto_events.stream)
    stream = np.where(stream == _ABSENT, _numbers(tid, kineto_events.stream), stream)
    node, moved = records.ints("graph_node"), records.either("bytes", "bytes_2021")
    return {
        "device": _natural(np.where(where, device, _NULL)),
        "stream": _natural(np.where(where, stream, _NULL)),
        "graph_node_id": _positive(np.where(where, node, _NULL)),
        "bytes": _natural(np.where(where, moved, _NULL)),
    }


def _on_host(
    records: _Records, pid: list[Any], tid: list[Any], where: Flags
) -> dict[str, pa.Array]:
    process, thread = _numbers(pid, rows.positive), _numbers(tid, rows.int64)
    is_null = (thread <= _NULL) | ((process <= 0) & (thread == 0))
    sequence, forward = records.ints("sequence"), records.ints("forward_thread")
    return {
        "pid": _positive(np.where(where, process, _NULL)),
        "tid": pa.array(thread, mask=is_null | ~where),
        "shapes": _lists(records, "shapes", "shapes_2021", where),
        "dtypes": _lists(records, "dtypes", "dtypes_2021", where),
        "sequence_number": _natural(np.where(where, sequence, _NULL)),
        "forward_thread": _positive(np.where(where, forward, _NULL)),
    }


def _positive(values: Ints) -> pa.Array:
    return pa.array(values, mask=values <= 0)


def _natural(values: Ints) -> pa.Array:
    return pa.array(values, mask=values < 0)


def _texts(codes: Ints, values: Sequence[str | None]) -> pa.DictionaryArray:
    """The texts of ``codes``; a value may be there twice, or be None."""
    distinct = pa.array(values, pa.string()).dictionary_encode()
    places = distinct.indices.fill_null(-1).to_numpy()
    indices = places[codes] if len(codes) else np.empty(0, dtype=np.int32)
    return pa.DictionaryArray.from_arrays(
        pa.array(indices, pa.int32(), mask=indices < 0), distinct.dictionary
    )


def _encoded(values: list[str]) -> tuple[Ints, list[str]]:
    """(codes, distinct texts) of ``values``."""
    encoded = pa.array(values, pa.string()).dictionary_encode()
    return encoded.indices.to_numpy().astype(np.int64), encoded.dictionary.to_pylist()


def _flags(values: list[str], wanted: frozenset[str]) -> Flags:
    return np.array([v in wanted for v in values] or [False], dtype=np.bool_)


def _numbers(values: list[Any], meaning: Callable[[object], int | None]) -> Ints:
    """What each of ``values`` means: ``_NULL`` for None, ``_ABSENT`` where there is no value."""
    means = {value: meaning(value) for value in set(values)}
    codes = {value: _NULL if number is None else number for value, number in means.items()}
    if _ABSENT in codes:
        codes[_ABSENT] = _ABSENT
    return np.array(list(map(codes.__getitem__, values)), dtype=np.int64)


def _lists(records: _Records, field: str, older: str, where: Flags) -> pa.DictionaryArray:
    raws, older_raws = records.of_args(field), records.of_args(older)
    if older_raws.count(_RAW) < len(older_raws):
        raws = [old if new is _RAW else new for new, old in zip(raws, older_raws, strict=True)]
    encoded = _binary(raws).dictionary_encode()
    texts = [
        kineto_events.json_list(json_text.value(raw)) if raw else None
        for raw in encoded.dictionary.to_pylist()
    ]
    return _texts(np.where(where, encoded.indices.to_numpy(), len(texts)), [*texts, None])


def _binary(raws: Sequence[msgspec.Raw]) -> pa.BinaryArray:
    """The bytes of each; JSON holds no null byte, which so keeps them apart."""
    joined = b"\0".join(raws) + b"\0" if raws else b""
    ends = np.flatnonzero(np.frombuffer(joined, dtype=np.uint8) == 0)
    if len(ends) != len(raws):
        raise OddError
    bounds = np.concatenate([[0], ends - np.arange(len(ends))]).astype(np.int32)
    whole = pa.py_buffer(joined.replace(b"\0", b""))
    return pa.BinaryArray.from_buffers(pa.binary(), len(raws), [None, pa.py_buffer(bounds), whole])


def _times(records: _Records) -> tuple[Ints, Ints]:
    """(start, length) in whole ns, each end rounded from the exact time."""
    start_us, start_fs = _microseconds(records.of_events("ts"))
    dur_us, dur_fs = _microseconds(records.of_events("dur"))
    most_us = rows.MAX_NS // _NS_PER_US - 1
    if max(start_us.max(initial=0), dur_us.max(initial=0)) > most_us:
        raise OddError
    start_ns = start_us * _NS_PER_US + (start_fs + _FS_PER_NS // 2) // _FS_PER_NS
    end_us, end_fs = start_us + dur_us, start_fs + dur_fs
    end_ns = end_us * _NS_PER_US + (end_fs + _FS_PER_NS // 2) // _FS_PER_NS
    if end_ns.max(initial=0) > rows.MAX_NS:
        raise OddError
    return start_ns, end_ns - start_ns


def _microseconds(raws: Sequence[msgspec.Raw]) -> tuple[Ints, Ints]:
    """(whole µs, femtoseconds beyond) of decimal numbers of at most 9 decimals and no sign."""
    joined = b"\0".join(raws) + b"\0" if raws else b""
    if joined.translate(None, _NUMBER_BYTES):
        raise OddError
    text = np.frombuffer(joined, dtype=np.uint8)
    ends, dots = np.flatnonzero(text == 0), np.flatnonzero(text == ord("."))
    decimals = np.zeros(len(raws), dtype=np.int64)
    owner = np.searchsorted(ends, dots)
    decimals[owner] = ends[owner] - dots - 1
    dotted = np.bincount(owner, minlength=len(raws))
    if dotted.max(initial=0) > 1 or decimals.max(initial=0) > 9:
        raise OddError
    digits = np.cumsum(np.diff(ends, prepend=-1) - 1 - dotted)
    bounds = np.concatenate([[0], digits]).astype(np.int32)
    stripped = pa.py_buffer(joined.translate(None, b".\0"))
    found = pa.StringArray.from_buffers(len(raws), pa.py_buffer(bounds), stripped)
    value = found.cast(pa.int64()).to_numpy()
    scale = 10**decimals
    return value // scale, value % scale * (_FS_PER_US // scale)
