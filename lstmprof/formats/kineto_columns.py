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

#: The value of an integer field that is not there; a chunk in which it is written is ``OddError``.
_ABSENT = -(2**63)
_NUMBER_BYTES = b"0123456789.\0"
_FS_PER_US, _FS_PER_NS, _NS_PER_US = 10**9, 10**6, 10**3
_RAW = msgspec.Raw(b"")


class OddError(Exception):
    """The chunk holds something that only the plain reader understands."""


class _Args(msgspec.Struct, gc=False, frozen=True):
    correlation: int = _ABSENT
    external: int = msgspec.field(name="External id", default=_ABSENT)
    external_2021: int = msgspec.field(name="external id", default=_ABSENT)
    device: msgspec.Raw = _RAW
    stream: msgspec.Raw = _RAW
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
    cat: msgspec.Raw = _RAW
    name: msgspec.Raw = _RAW
    ts: msgspec.Raw = _RAW
    dur: msgspec.Raw = _RAW
    pid: msgspec.Raw = _RAW
    tid: msgspec.Raw = _RAW
    args: _Args = _NO_ARGS


_DECODER = msgspec.json.Decoder(list[_Event])


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
    if str(_ABSENT).encode() in text:
        raise OddError
    try:
        events = [e for e in _DECODER.decode(b"[" + text + b"]") if e.ph == "X"]
        return _chunk(events)
    except (msgspec.DecodeError, pa.ArrowException, OverflowError, ValueError) as error:
        raise OddError from error
    except RecursionError as error:
        raise OddError from error


def _chunk(events: Sequence[_Event]) -> Chunk:
    cats, categories = _distinct(events, "cat", _category)
    start_ns, dur_ns = _times(events)
    is_span = _flags(categories, frozenset((kineto_events.PROFILER_SPAN,)))[cats]
    spans = list(zip(start_ns[is_span].tolist(), dur_ns[is_span].tolist(), strict=True))
    if spans:
        kept = np.flatnonzero(~is_span)
        events = [events[i] for i in kept.tolist()]
        cats, start_ns, dur_ns = cats[kept], start_ns[kept], dur_ns[kept]
    columns = {"start_ns": pa.array(start_ns), "dur_ns": pa.array(dur_ns)}
    columns |= _what(events, cats, categories)
    return Chunk(pa.table(columns), spans, frozenset(categories))


def _what(events: Sequence[_Event], cats: Ints, categories: list[str]) -> dict[str, pa.Array]:
    names, name_texts = _distinct(events, "name", _name)
    pairs = pa.array(cats * len(name_texts) + names).dictionary_encode()
    kinds = [
        kineto_events.kind(categories[p // len(name_texts)], name_texts[p % len(name_texts)])
        for p in pairs.dictionary.to_pylist()
    ]
    if None in kinds:
        raise OddError  # of an unknown category, which the plain reader counts
    on_device = _flags(categories, kineto_events.ON_DEVICE)[cats]
    args = list(map(attrgetter("args"), events))
    external = _ints(args, "external")
    external = np.where(external == _ABSENT, _ints(args, "external_2021"), external)
    return {
        "kind": _texts(pairs.indices.to_numpy(), kinds),
        "name": _texts(names, name_texts),
        "correlation_id": _positive(_ints(args, "correlation")),
        "external_id": _positive(external),
        **_on_device(events, args, on_device),
        **_on_host(events, args, ~on_device),
    }


def _on_device(
    events: Sequence[_Event], args: Sequence[_Args], where: NDArray[np.bool_]
) -> dict[str, pa.Array]:
    moved = _ints(args, "bytes")
    moved = np.where(moved == _ABSENT, _ints(args, "bytes_2021"), moved)
    device = _either(_numbers(args, "device", rows.natural), _numbers(events, "pid", rows.natural))
    stream = kineto_events.stream
    stream_of = _either(_numbers(args, "stream", stream), _numbers(events, "tid", stream))
    return {
        "device": pa.array(device.value, mask=device.null | ~where),
        "stream": pa.array(stream_of.value, mask=stream_of.null | ~where),
        "graph_node_id": _positive(np.where(where, _ints(args, "graph_node"), _ABSENT)),
        "bytes": _natural(np.where(where, moved, _ABSENT)),
    }


def _on_host(
    events: Sequence[_Event], args: Sequence[_Args], where: NDArray[np.bool_]
) -> dict[str, pa.Array]:
    pid, tid = _numbers(events, "pid", rows.positive), _numbers(events, "tid", rows.int64)
    nowhere = pid.null & (tid.null | (tid.value == 0))
    return {
        "pid": pa.array(pid.value, mask=pid.null | ~where),
        "tid": pa.array(tid.value, mask=tid.null | nowhere | ~where),
        "shapes": _lists(args, "shapes", "shapes_2021", where),
        "dtypes": _lists(args, "dtypes", "dtypes_2021", where),
        "sequence_number": _natural(np.where(where, _ints(args, "sequence"), _ABSENT)),
        "forward_thread": _positive(np.where(where, _ints(args, "forward_thread"), _ABSENT)),
    }


def _ints(records: Sequence[Any], field: str) -> Ints:
    return np.array(list(map(attrgetter(field), records)), dtype=np.int64)


def _positive(values: Ints) -> pa.Array:
    return pa.array(values, mask=values <= 0)


def _natural(values: Ints) -> pa.Array:
    return pa.array(values, mask=values < 0)


def _texts(codes: Ints, values: list[str | None]) -> pa.DictionaryArray:
    """The texts of ``codes``; a value may be there twice, or be None."""
    distinct = pa.array(values, pa.string()).dictionary_encode()
    places = distinct.indices.fill_null(-1).to_numpy()
    indices = places[codes] if len(codes) else np.empty(0, dtype=np.int32)
    return pa.DictionaryArray.from_arrays(
        pa.array(indices, pa.int32(), mask=indices < 0), distinct.dictionary
    )


def _distinct(
    records: Sequence[Any], field: str, meaning: Callable[[Any], Any]
) -> tuple[Ints, list[Any]]:
    """(codes, values): ``meaning`` of the JSON in ``field``, None where it is not there."""
    raws = list(map(attrgetter(field), records))
    encoded = _binary(raws).dictionary_encode()
    values = [meaning(raw) for raw in encoded.dictionary.to_pylist()]
    return encoded.indices.to_numpy().astype(np.int64), values


def _binary(raws: Sequence[msgspec.Raw]) -> pa.BinaryArray:
    """The bytes of each; JSON holds no null byte, which so keeps them apart."""
    joined = b"\0".join(raws) + b"\0" if raws else b""
    ends = np.flatnonzero(np.frombuffer(joined, dtype=np.uint8) == 0)
    if len(ends) != len(raws):
        raise OddError
    bounds = np.concatenate([[0], ends - np.arange(len(ends))]).astype(np.int32)
    whole = pa.py_buffer(joined.replace(b"\0", b""))
    return pa.BinaryArray.from_buffers(pa.binary(), len(raws), [None, pa.py_buffer(bounds), whole])


def _category(raw: bytes) -> str:
    return str(json_text.value(raw) if raw else None).lower()


def _name(raw: bytes) -> str:
    return rows.clean(str(json_text.value(raw))) if raw else ""


def _flags(values: list[str], wanted: frozenset[str]) -> NDArray[np.bool_]:
    return np.array([v in wanted for v in values] or [False], dtype=np.bool_)


@dataclass(frozen=True)
class _Numbers:
    value: Ints
    null: NDArray[np.bool_]
    absent: NDArray[np.bool_]  # not written at all


def _numbers(
    records: Sequence[Any], field: str, meaning: Callable[[object], int | None]
) -> _Numbers:
    codes, values = _distinct(records, field, lambda raw: raw)
    found = [meaning(json_text.value(raw)) if raw else None for raw in values] or [None]
    value = np.array([0 if n is None else n for n in found], dtype=np.int64)
    null = np.array([n is None for n in found])
    absent = np.array([raw == b"" for raw in values] or [True])
    return _Numbers(value[codes], null[codes], absent[codes])


def _either(first: _Numbers, second: _Numbers) -> _Numbers:
    """``first`` where it is written, else ``second``."""
    return _Numbers(
        np.where(first.absent, second.value, first.value),
        np.where(first.absent, second.null, first.null),
        first.absent & second.absent,
    )


def _lists(
    args: Sequence[_Args], field: str, field_2021: str, where: NDArray[np.bool_]
) -> pa.DictionaryArray:
    codes, values = _distinct(args, field, lambda raw: raw)
    if b"" in values:
        older, older_values = _distinct(args, field_2021, lambda raw: raw)
        absent = codes == values.index(b"")
        codes, values = np.where(absent, older + len(values), codes), [*values, *older_values]
    texts = [kineto_events.json_list(json_text.value(raw)) if raw else None for raw in values]
    return _texts(np.where(where, codes, len(texts)), [*texts, None])


def _times(events: Sequence[_Event]) -> tuple[Ints, Ints]:
    """(start, length) in whole ns, each end rounded from the exact time."""
    start_us, start_fs = _microseconds(list(map(attrgetter("ts"), events)))
    dur_us, dur_fs = _microseconds(list(map(attrgetter("dur"), events)))
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
