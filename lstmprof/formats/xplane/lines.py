"""Read the events of an XPlane line as columns of the events table, and the memory counters.

Events with equal names and stats (except ids) are one *kind*, which ``xplane.events`` describes
once. Memory counters come from allocations and frees.
Source: ``BFCAllocator::AddTraceMe`` in xla/tsl/framework/bfc_allocator.cc.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lstmprof.events.counters import ALLOCATED, BYTES, CHANGE, values_table
from lstmprof.events.intervals import Flags, Ints
from lstmprof.formats import rows
from lstmprof.formats.raw_file import RawFile
from lstmprof.formats.rows import Row
from lstmprof.formats.xplane import schema, wire
from lstmprof.formats.xplane.events import (
    ALLOCATOR_NAME,
    DEVICE_NUMBERS,
    FREE,
    IDS,
    MARKS,
    MEMORY_STATS,
    Instructions,
    PlaneTables,
    activity_row,
    host_row,
    text,
    with_instruction,
)
from lstmprof.formats.xplane.schema import OddError
from lstmprof.formats.xplane.wire import Events, Piece, Stats

_NONE = -1
_SIZES = ("bytes_allocated", "allocation_bytes")
#: Pattern of allocators of GPU memory. Other names show host memory or no device.
_ON_GPU = re.compile(r"GPU_(?:collectivememory_)?(\d{1,9})_bfc", re.ASCII)


def counters_of_messages(tables: PlaneTables, timed: Iterable[tuple[int, Any]]) -> pa.Table | None:
    """Return memory counters from pairs (time in ns, protobuf event)."""
    described = list(_described(tables, timed))
    if not described:
        return None
    time_ns, is_free, stats = zip(*described, strict=True)
    numbers = {
        name: np.array([_natural(event_stats.get(name)) for event_stats in stats], dtype=np.int64)
        for name in MEMORY_STATS
        if name != ALLOCATOR_NAME
    }
    names = [event_stats.get(ALLOCATOR_NAME) for event_stats in stats]
    return _counters(
        np.array(time_ns, dtype=np.int64),
        np.array(is_free, dtype=np.bool_),
        [name if isinstance(name, str) else None for name in names],
        numbers,
    )


def _described(
    tables: PlaneTables, timed: Iterable[tuple[int, Any]]
) -> Iterator[tuple[int, bool, dict[str, Any]]]:
    for time_ns, event in timed:
        name = tables.memory_events.get(event.metadata_id)
        if name is not None:
            memory_stats = (s for s in event.stats if s.metadata_id in tables.memory_stats)
            stats = {tables.memory_stats[s.metadata_id]: tables.value(s) for s in memory_stats}
            yield time_ns, name == FREE, stats


def _natural(value: object) -> int:
    number = rows.natural(value) if isinstance(value, int) else None
    return _NONE if number is None else number


def counters_of_columns(
    tables: PlaneTables, content: bytes, events: Events, time_ns: Ints, is_timed: Flags
) -> pa.Table | None:
    marked = np.isin(events.metadata_id, list(tables.memory_events))
    hits = np.flatnonzero(marked & is_timed)
    if not len(hits):
        return None
    row = np.full(len(marked), _NONE)
    row[hits] = np.arange(len(hits))
    stats = events.stats.only(row[events.stats.event] != _NONE)
    owner = row[stats.event]
    numbers: dict[str, Ints] = {}
    names: list[str | None] = []
    for name in MEMORY_STATS:
        is_it = np.isin(stats.metadata_id, [n for n, s in tables.memory_stats.items() if s == name])
        if name == ALLOCATOR_NAME:
            names = _names(tables, content, owner[is_it], stats.only(is_it), len(hits))
        else:
            numbers[name] = np.full(len(hits), _NONE)
            its = stats.only(is_it)
            numbers[name][owner[is_it]] = np.where(_is_whole(its), its.value, _NONE)
    frees = [number for number, name in tables.memory_events.items() if name == FREE]
    is_free = np.isin(events.metadata_id[hits], frees)
    return _counters(time_ns[hits], is_free, names, numbers)


def _names(
    tables: PlaneTables, content: bytes, owner: Ints, stats: Stats, count: int
) -> list[str | None]:
    names: list[str | None] = [None] * count
    columns = (owner, stats.field, stats.value, stats.length)
    for place, field, value, length in zip(*(c.tolist() for c in columns), strict=True):
        if field == wire.REF:
            names[place] = tables.stat_name(value)
        else:
            is_text = field == wire.TEXT
            names[place] = text(content[value : value + length]) if is_text else None
    return names


def _counters(
    time_ns: Ints, is_free: Flags, allocator: list[str | None], numbers: dict[str, Ints]
) -> pa.Table | None:
    """Return counters: allocated bytes, and their change at an allocation or free."""
    index = np.full(len(time_ns), _NONE)
    for name in DEVICE_NUMBERS:
        index = np.where(numbers[name] >= 0, numbers[name], index)
    allocated, size = (numbers[name] for name in _SIZES)
    named = pa.array(allocator, pa.string()).dictionary_encode()
    codes = named.indices.fill_null(_NONE).to_numpy().astype(np.int64)
    devices = [_device(name) for name in named.dictionary.to_pylist()]
    is_named = codes != _NONE
    # a TPU's runtime writes a device number instead of an allocator's name
    device = np.where(is_named, np.array([*devices, _NONE])[codes], index)
    placed = is_named | (device >= 0)
    # omit changes on a TPU, because a TPU's runtime writes no size for a free
    recorded = (placed & (allocated >= 0), is_named & (size >= 0))
    events = [np.flatnonzero(where) for where in recorded]
    event = np.concatenate(events)
    if not len(event):
        return None
    is_change = np.repeat([0, 1], [len(of) for of in events])
    sizes = allocated, np.where(is_free, -size, size)
    value = np.concatenate([size[of] for size, of in zip(sizes, events, strict=True)])
    order = np.argsort(event, kind="stable")
    event, is_change, value = event[order], is_change[order].astype(np.int32), value[order]
    cleaned = [rows.clean(name) for name in named.dictionary.to_pylist()]
    return values_table(
        time_ns=time_ns[event],
        device=pa.array(device[event], mask=device[event] < 0),
        name=pa.DictionaryArray.from_arrays(is_change, pa.array([ALLOCATED, CHANGE])),
        unit=BYTES,
        value=value.astype(np.float64),
        allocator=pa.DictionaryArray.from_arrays(
            named.indices.take(pa.array(event)), pa.array(cleaned, pa.string())
        ),
    )


def _device(allocator: str) -> int:
    """Return the GPU in an allocator's name: ``GPU_0_bfc`` -> 0; ``_NONE`` if none."""
    named = _ON_GPU.fullmatch(allocator)
    return int(named[1]) if named else _NONE


#: Smallest number of events that are read by columns instead of one by one.
_FEW_EVENTS = 300
_PS_PER_NS = 1000
#: Largest time, in ps or ns, that is read by columns; larger times may overflow int64.
_LARGEST_TIME = 2**61
_TEXTS = ("kind", "name", "op_name", "shapes", "dtypes", "launch_config")
_NUMBERS = ("tid", "device", "stream", "correlation_id", "graph_node_id", "bytes")
_ID_COLUMNS = dict(zip(IDS, ("correlation_id", "graph_node_id"), strict=True))


@dataclass(frozen=True)
class Line:
    """An XPlane line (host thread or GPU stream), and the tables to read its events."""

    tables: PlaneTables
    instructions: Instructions
    start_ns: int  # times of its events count from here
    tid: int
    gpu_stream: tuple[int, int] | None

    def row(self, event: Any, timed: tuple[int, int]) -> Row | None:
        """Convert an event to a row; ``timed`` is (start, length) in ns."""
        name, stats = self.tables.described(event)
        stats = with_instruction(stats, self.instructions)
        if self.gpu_stream:
            return activity_row(name, stats, timed, self.gpu_stream)
        return host_row(name, stats, timed, self.tid)


@dataclass(frozen=True)
class LineEvents:
    """The events and memory counters of a line."""

    columns: pa.Table | None
    untimed: int  # events without a possible time
    counters: pa.Table | None = None


def read_events(raw: RawFile, line: Line, pieces: Iterable[Piece]) -> Iterator[LineEvents]:
    """Read the events of a line by columns, or else one by one."""
    for piece in pieces:
        content = raw.part(piece.start, piece.stop)
        try:
            if len(piece) < _FEW_EVENTS:
                raise OddError
            yield by_columns(line, content, piece)
        except OddError:
            message = schema.message("XLine").FromString(content)
            yield from one_by_one(line, message.events)


def check(raw: RawFile, pieces: Iterable[Piece]) -> None:
    """Raise DecodeError if the events are damaged."""
    for piece in pieces:
        schema.message("XLine").FromString(raw.part(piece.start, piece.stop))


def one_by_one(line: Line, events: Iterable[Any]) -> Iterator[LineEvents]:
    """Read protobuf events in batches of bounded size."""
    remaining = iter(events)
    while batch := list(itertools.islice(remaining, wire.PIECE_EVENTS)):
        timed = [(_interval(line.start_ns, event), event) for event in batch]
        described = [line.row(event, interval) for interval, event in timed if interval is not None]
        listed = [row for row in described if row is not None]
        starts = ((interval[0], event) for interval, event in timed if interval is not None)
        counters = None if line.gpu_stream else counters_of_messages(line.tables, starts)
        columns = rows.columns(listed) if listed else None
        yield LineEvents(columns, len(timed) - len(described), counters)


def _interval(line_ns: int, event: Any) -> tuple[int, int] | None:
    """Return (start, length) in ns; None if the time is missing or impossible."""
    if event.WhichOneof("value") == "num_occurrences" or event.duration_ps < 0:
        return None  # a count of events, or damage
    start_ps = line_ns * _PS_PER_NS + event.offset_ps
    start_ns = (start_ps + _PS_PER_NS // 2) // _PS_PER_NS
    end_ns = (start_ps + event.duration_ps + _PS_PER_NS // 2) // _PS_PER_NS
    if max(abs(start_ns), abs(end_ns)) > rows.MAX_NS:
        return None
    return start_ns, end_ns - start_ns


def by_columns(line: Line, content: bytes, piece: Piece) -> LineEvents:
    """Read a piece of a line with array operations, describing each kind once."""
    starts, stops = piece.bounds(content)
    events = wire.events(content, starts, stops)
    start_ns, end_ns = _times(line.start_ns, events)
    is_timed = ~events.counted & (events.duration_ps >= 0)
    is_timed &= (abs(start_ns) <= rows.MAX_NS) & (abs(end_ns) <= rows.MAX_NS)
    counters = None
    if not line.gpu_stream:
        counters = counters_of_columns(line.tables, content, events, start_ns, is_timed)
    wanted = sorted(line.tables.wanted)
    stats = events.stats.only(np.isin(events.stats.metadata_id, wanted))
    names = [line.tables.wanted[number] for number in wanted]
    place = np.searchsorted(wanted, stats.metadata_id)
    ids = _ids(stats, place, names)
    kinds, first = _kinds(events, stats, _stat_codes(content, stats, place, names))
    message = schema.message("XEvent")
    spans = zip(starts[first].tolist(), stops[first].tolist(), strict=True)
    described = [line.row(message.FromString(content[a:b]), (0, 0)) for a, b in spans]
    is_work = np.array([row is not None for row in described])
    chosen = np.flatnonzero(is_timed & is_work[kinds])
    number = np.cumsum(is_work) - 1
    columns = _columns_of_kinds(
        [row for row in described if row is not None], number[kinds[chosen]]
    )
    dur_ns = end_ns - start_ns
    columns |= {"start_ns": pa.array(start_ns[chosen]), "dur_ns": pa.array(dur_ns[chosen])}
    for name, (owner, value) in ids.items():
        if line.gpu_stream or name != "graph_node_id":  # only a device event has a graph node
            columns[name] = _replaced(columns[name], chosen, owner, value, len(start_ns))
    untimed = len(is_timed) - int(is_timed.sum())
    return LineEvents(pa.table(columns) if len(chosen) else None, untimed, counters)


def _times(line_ns: int, events: Events) -> tuple[Ints, Ints]:
    """Return (starts, ends) of events in ns, with the rounding of ``_interval``."""
    offset_ps, duration_ps = events.offset_ps, events.duration_ps
    times = (offset_ps, duration_ps, np.array([line_ns]))
    if any(((time > _LARGEST_TIME) | (time < -_LARGEST_TIME)).any() for time in times):
        raise OddError
    half = _PS_PER_NS // 2
    start_ns = line_ns + (offset_ps + half) // _PS_PER_NS
    return start_ns, line_ns + (offset_ps + duration_ps + half) // _PS_PER_NS


def _ids(stats: Stats, place: Ints, names: list[str]) -> dict[str, tuple[Ints, Ints]]:
    """Return column -> (event numbers, ids) for the columns that contain ids."""
    ids = {}
    for stat, column in _ID_COLUMNS.items():
        hit = np.isin(place, [i for i, name in enumerate(names) if name == stat])
        owner = stats.event[hit]
        if (np.diff(owner) == 0).any():
            raise OddError  # an event has two values; read one by one, the last one counts
        whole = hit & _is_whole(stats)
        ids[column] = (stats.event[whole], stats.value[whole])
    return ids


def _is_whole(stats: Stats) -> Any:
    return (stats.field == wire.UINT64) | (stats.field == wire.INT64)


def _stat_codes(content: bytes, stats: Stats, place: Ints, names: list[str]) -> Ints:
    """Return a code per stat; equal stats have equal codes, whatever their ids are."""
    is_id = np.isin(place, [i for i, name in enumerate(names) if name in IDS])
    is_mark = np.isin(place, [i for i, name in enumerate(names) if name in MARKS])
    is_text = (stats.field == wire.TEXT) | (stats.field == wire.BYTES)
    value = stats.value.copy()
    value[is_text & ~is_mark] = _text_codes(content, stats.only(is_text & ~is_mark))
    alike = is_mark | (is_id & _is_whole(stats))
    value[alike] = 0
    field = np.where(is_mark, 0, stats.field)
    return _codes((place * 8 + field) << 32 | _codes(value))


def _text_codes(content: bytes, texts: Stats) -> Ints:
    """Return a code per text; equal texts have equal codes."""
    if not len(texts.value):
        return texts.value
    # avoid a copy: Arrow splits ``content`` at all bounds, and ``take`` keeps only the texts
    bounds = np.stack([texts.value, texts.value + texts.length], axis=1).ravel()
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(content)]
    parts = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(bounds) - 1, buffers)
    return _arrow_codes(parts.take(pa.array(np.arange(0, len(bounds) - 1, 2))))


def _kinds(events: Events, stats: Stats, codes: Ints) -> tuple[Ints, Ints]:
    """Return the kind of each event, and the first event of each kind."""
    kinds = _codes(events.metadata_id)
    begins = np.searchsorted(stats.event, stats.event)
    rank = np.arange(len(stats.event)) - begins
    most = int(codes.max(initial=0)) + 2
    for number in range(int(rank.max(initial=-1)) + 1):
        stated = np.zeros(len(kinds), np.int64)
        hit = rank == number
        stated[stats.event[hit]] = codes[hit] + 1
        kinds = _codes(kinds * most + stated)
    first = np.zeros(int(kinds.max()) + 1, np.int64)
    first[kinds[::-1]] = np.arange(len(kinds))[::-1]
    return kinds, first


def _codes(values: Ints) -> Ints:
    """Return each value's number among the distinct values: [7, 7, 3] -> [0, 0, 1]."""
    return _arrow_codes(pa.array(values))


def _arrow_codes(values: pa.Array) -> Ints:
    codes: Ints = values.dictionary_encode().indices.to_numpy().astype(np.int64)
    return codes


def _columns_of_kinds(described: list[Row], kinds: Ints) -> dict[str, pa.Array]:
    """Return the columns of all events, from one row per kind."""
    columns = {}
    for name in _TEXTS:
        texts = pa.array([getattr(row, name) for row in described], pa.string())
        columns[name] = texts.dictionary_encode().take(pa.array(kinds))
    for name in _NUMBERS:
        numbers = pa.array([getattr(row, name) for row in described], pa.int64())
        columns[name] = numbers.take(pa.array(kinds))
    return columns


def _replaced(column: pa.Array, chosen: Ints, owner: Ints, ids: Ints, events: int) -> pa.Array:
    """Return ``column`` with the ids of events instead of the ids of their kinds."""
    replaced = np.zeros(events, bool)
    value = np.zeros(events, np.int64)
    replaced[owner], value[owner] = True, ids
    replaced, value = replaced[chosen], value[chosen]
    ours = pa.array(value, mask=value <= 0)
    return pc.if_else(pa.array(replaced), ours, column)
