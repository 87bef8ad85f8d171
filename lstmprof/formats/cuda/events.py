"""Events on their way from the tables of a database into the events table, column by column.

A ``Batch`` holds the events of one table, ``CudaEvents`` all of them by the part that they play.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from lstmprof.events import DeviceFacts
from lstmprof.events.table import EventTable, events_table
from lstmprof.formats import rows
from lstmprof.formats.cuda.sqlite import UNKNOWN, Database, Ints

_TEXT = pa.dictionary(pa.int32(), pa.string())
_TEXTS = ("kind", "name", "shapes")
_INTS = (
    *("pid", "tid", "device", "stream", "correlation_id", "external_id"),
    *("graph_node_id", "bytes"),
)


@dataclass(frozen=True)
class Batch:
    """Events of one table, all arrays of one length.

    ``ints`` holds ``start_ns``, ``end_ns`` and columns of the events table, ``UNKNOWN`` for null;
    ``texts`` holds ``kind``, ``name`` and, of ops, ``shapes``.
    """

    ints: Mapping[str, Ints]
    texts: Mapping[str, pa.DictionaryArray]

    def __len__(self) -> int:
        return len(self.ints["start_ns"])

    def only(self, wanted: np.ndarray) -> Batch:
        """The events where ``wanted``, a boolean each, is true."""
        mask = pa.array(wanted)
        return Batch(
            {name: values[wanted] for name, values in self.ints.items()},
            {name: values.filter(mask) for name, values in self.texts.items()},
        )

    def with_ints(self, **columns: Ints) -> Batch:
        """The same events with these columns replaced."""
        return replace(self, ints={**self.ints, **columns})


def constant(text: str, length: int) -> pa.DictionaryArray:
    """``length`` times the same text."""
    return pa.DictionaryArray.from_arrays(np.zeros(length, np.int32), [text])


def named(keys: Ints, name_of: Callable[[int], str | None]) -> pa.DictionaryArray:
    """``name_of`` of each key, null for None; it is asked once a distinct key."""
    distinct, codes = np.unique(keys, return_inverse=True)
    texts = pa.array([name_of(key) for key in distinct.tolist()], pa.string())
    return texts.dictionary_encode().take(pa.array(codes))


def natural(values: Ints) -> Ints:
    """``values`` where they number something: 0 or more, and not CUPTI's unsigned −1."""
    return np.where((values >= 0) & (values != 2**32 - 1), values, UNKNOWN)


def positive(values: Ints) -> Ints:
    """``values`` where they are ids: above 0."""
    return np.where(values > 0, values, UNKNOWN)


def _timed(batch: Batch) -> Batch:
    """The events of ``batch`` with a possible start and an end not before it."""
    start, end = batch.ints["start_ns"], batch.ints["end_ns"]
    possible = (start >= -rows.MAX_NS) & (end <= rows.MAX_NS) & (end >= start)
    return batch if possible.all() else batch.only(possible)


def _closed(ranges: Batch, last_ns: int) -> Batch:
    """``ranges`` of which those without an end last until ``last_ns``, or their start."""
    start, end = ranges.ints["start_ns"], ranges.ints["end_ns"]
    return ranges.with_ints(end_ns=np.where(end == UNKNOWN, np.maximum(start, last_ns), end))


def _within(batch: Batch, first_ns: int, last_ns: int) -> Batch:
    """The events of ``batch`` that touch [first_ns, last_ns]."""
    return batch.only((batch.ints["end_ns"] >= first_ns) & (batch.ints["start_ns"] <= last_ns))


def _span(batches: Sequence[Batch]) -> tuple[int, int] | None:
    """(first start, last end) of all events, None where there is none."""
    batches = [batch for batch in batches if len(batch)]
    if not batches:
        return None
    first = min(int(batch.ints["start_ns"].min()) for batch in batches)
    return first, max(int(batch.ints["end_ns"].max()) for batch in batches)


def _table(batches: Sequence[Batch], origin_ns: int) -> EventTable:
    """The events table of all events, their times counted from ``origin_ns``."""
    start = np.concatenate([batch.ints["start_ns"] for batch in batches])
    end = np.concatenate([batch.ints["end_ns"] for batch in batches])
    columns = {"start_ns": start - origin_ns, "dur_ns": end - start}
    for name in _INTS:
        values = np.concatenate(
            [batch.ints.get(name, np.full(len(batch), UNKNOWN)) for batch in batches]
        )
        columns[name] = pa.array(values, mask=values == UNKNOWN)
    return events_table({**columns, **{name: _joined(batches, name) for name in _TEXTS}})


def _joined(batches: Sequence[Batch], name: str) -> pa.Array:
    parts = [batch.texts.get(name, pa.nulls(len(batch), _TEXT)).cast(_TEXT) for batch in batches]
    return pa.chunked_array(parts, _TEXT).unify_dictionaries().combine_chunks()


@dataclass(frozen=True)
class CudaEvents:
    """All events with a possible time, and how many were mended or left out.

    ``busy`` are activities, ``calls`` of the runtime and driver, ``ranges`` NVTX; ``others`` are
    waits on the device and overheads while the program ran: the profiler's own start and end are
    no part of any step.
    """

    busy: Sequence[Batch]
    calls: Sequence[Batch]
    ranges: Sequence[Batch]
    others: Sequence[Batch]
    untimed: int
    open_ranges: int

    @property
    def origin_ns(self) -> int | None:
        """The first start of any event, None where the program has none."""
        span = _span([*self.busy, *self.calls, *self.ranges])
        return None if span is None else min(span, _span(self.others) or span)[0]

    def table(self, origin_ns: int) -> EventTable:
        """The events table, its times counted from ``origin_ns``."""
        batches = [*self.busy, *self.calls, *self.ranges, *self.others]
        return _table(batches, origin_ns)

    @property
    def activities(self) -> int:
        """How many activities there are."""
        return sum(map(len, self.busy))

    def notes(self) -> Iterator[str]:
        """What the user must be told of any such profile."""
        if self.untimed:
            yield f"{self.untimed} events were left out because they have no possible time"
        if self.open_ranges:
            yield (
                f"{self.open_ranges} NVTX ranges were open when the capture ended: they last until"
                " its last event"
            )


def gathered(
    busy: Sequence[Batch], calls: Sequence[Batch], ranges: Sequence[Batch], others: Sequence[Batch]
) -> CudaEvents:
    """The events that have a possible time; a range without an end lasts until the last of them."""
    everything = [*busy, *calls, *ranges, *others]
    last_ns = max((_last_ns(batch) for batch in everything), default=UNKNOWN)
    open_ranges = sum(int((batch.ints["end_ns"] == UNKNOWN).sum()) for batch in ranges)
    ranges = [_closed(batch, last_ns) for batch in ranges]
    parts = [[_timed(b) for b in part] for part in (busy, calls, ranges, others)]
    timed = sum(len(batch) for part in parts for batch in part)
    program = _span([batch for part in parts[:3] for batch in part])
    return CudaEvents(
        parts[0],
        parts[1],
        parts[2],
        [] if program is None else [_within(batch, *program) for batch in parts[3]],
        untimed=sum(map(len, everything)) - timed,
        open_ranges=open_ranges,
    )


def _last_ns(batch: Batch) -> int:
    """The latest possible time in ``batch``, ``UNKNOWN`` where there is none."""
    times = np.concatenate([batch.ints["start_ns"], batch.ints["end_ns"]])
    return int(times[times <= rows.MAX_NS].max(initial=UNKNOWN))


def device_facts(
    database: Database, table: str, columns: tuple[str, str, str, str]
) -> dict[int, DeviceFacts]:
    """What a ``table`` of devices says, by ``id``; none where the database has no such table.

    ``columns`` are compute capability before and after the point, multiprocessors, threads a warp.
    """
    if table not in database.columns:
        return {}
    read = database.ints(table, "id", *columns)
    values = [[None if v == UNKNOWN else v for v in read[name].tolist()] for name in columns]
    facts = {
        number: rows.device_facts(*of_device)
        for number, *of_device in zip(read["id"].tolist(), *values, strict=True)
    }
    return {number: of_device for number, of_device in facts.items() if of_device and number >= 0}
