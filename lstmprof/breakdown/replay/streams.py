"""Find when the host enqueued each activity of a step, and what each sync call waited for.

Example: ``cudaStreamSynchronize`` waits for the last activity of a stream. If the profile does not
record this stream, lstmprof guesses the stream.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from lstmprof.breakdown.replay.calls import (
    END,
    EVENT,
    PHASE,
    START,
    THREAD,
    StepRows,
    texts_at,
)
from lstmprof.events.intervals import Ints
from lstmprof.events.schema import Column, schema
from lstmprof.events.table import NONE, UNKNOWN

ACTIVITIES = schema(
    (
        EVENT,
        Column("device", pa.int64(), "", "device number"),
        Column("stream", pa.int64(), "", "stream of the device", "the profile does not say"),
        START,
        END,
        Column(
            "launch_id",
            pa.int64(),
            "",
            "event_id of the launch call",
            "unknown or before the window",
        ),
        Column("launch_thread", pa.int64(), "", "thread of the launch call", "launch_id is null"),
        Column(
            "enqueued_ns",
            pa.int64(),
            "ns",
            "end of the launch call, or start of a launch call that blocks; may be later than "
            "start_ns",
            "launch_id is null",
        ),
        Column("blocks", pa.bool_(), "", "the launch call returned after the activity ended"),
        Column("category", pa.string(), "", "what it is for", "the events have no categories"),
        Column("family", pa.string(), "", "within category rnn", "of another category"),
        PHASE,
        Column("after_id", pa.int64(), "", "activity of another stream it waited for", "none"),
        Column("wait_call_id", pa.int64(), "", "the call that made its stream wait", "none"),
    )
)
SYNCS = schema(
    (
        EVENT,
        THREAD,
        START,
        END,
        Column("scope", pa.string(), "", "device, stream, event or copy"),
        Column("awaited_ids", pa.list_(pa.int64()), "", "activities that it waited for"),
    )
)

_NO_STREAM = 2**32 - 1  # in CUPTI: the call synchronises a whole context


class _Ordered:
    """Finds the last number before a time, or the first number at a time or later."""

    def __init__(self, at_ns: Ints, numbers: Ints) -> None:
        self._at_ns: list[int] = at_ns.tolist()
        self._numbers: list[int] = numbers.tolist()

    def last_before(self, at_ns: int) -> int | None:
        count = bisect_left(self._at_ns, at_ns)
        return self._numbers[count - 1] if count else None

    def first_from(self, at_ns: int) -> int | None:
        count = bisect_left(self._at_ns, at_ns)
        return self._numbers[count] if count < len(self._numbers) else None


class Streams:
    """The activities of a step, with the launch call of each activity."""

    def __init__(self, step: StepRows) -> None:
        self.step, rows = step, step.activities
        self.rows = rows
        self.device = step.events.ints("device", UNKNOWN)[rows]
        self.stream = step.events.ints("stream", UNKNOWN)[rows]
        self.end_ns = np.minimum(step.end_ns[rows], step.window.end_ns)
        self.start_ns = np.maximum(step.start_ns[rows], step.window.start_ns)
        call = step.launch[rows]
        opens = step.window.start_ns
        linked = (call != NONE) & (step.thread[call] >= 0) & (step.start_ns[call] >= opens)
        linked &= (step.start_ns[rows] >= opens) & (step.start_ns[call] < step.window.end_ns)
        self.call = np.where(linked, call, NONE)
        unlinked_ns = np.where(call != NONE, np.iinfo(np.int64).min, self.start_ns)
        self.called_ns = np.where(linked, step.start_ns[self.call], unlinked_ns)
        self.reported = self._reported()
        linked = np.flatnonzero(linked)
        by_call = linked[np.lexsort((self.end_ns[linked], self.called_ns[linked]))]
        self._launched = {
            thread: _Ordered(self.called_ns[indices], indices)
            for (thread,), indices in _split(by_call, step.thread[self.call[by_call]])
        }
        self._called = {
            index: _Ordered(self.called_ns[indices], indices)
            for index, indices in _split(by_call, self.device[by_call], self.stream[by_call])
        }
        self._queued = {
            index: _Ordered(np.maximum.accumulate(self.called_ns[indices]), indices)
            for index, indices in _split(np.arange(len(rows)), self.device, self.stream)
        }
        records = step.calls("EventRecord")
        self._recorded = {
            thread: _Ordered(step.start_ns[calls], step.start_ns[calls])
            for (thread,), calls in _split(records, step.thread[records])
        }
        self._activities_of_call = {
            call: indices for (call,), indices in _split(linked, self.call[linked])
        }

    def _reported(self) -> dict[int, tuple[int, int]]:
        """Return the profile's {correlation id of a waiting call: (device, stream)}."""
        step, events = self.step, self.step.events
        rows = events.rows_of_rank(step.window.rank)
        rows = rows[events.is_kind("device_sync")[rows]]
        device, stream = (events.ints(name, UNKNOWN)[rows] for name in ("device", "stream"))
        stream = np.where(stream == _NO_STREAM, UNKNOWN, stream)
        pairs = zip(device.tolist(), stream.tolist(), strict=True)
        return dict(zip(step.correlation[rows].tolist(), pairs, strict=True))

    def table(self) -> pa.Table:
        step, events, rows = self.step, self.step.events, self.rows
        linked = self.call != NONE
        blocks = step.blocks[rows] & linked
        began = step.start_ns[self.call] if len(rows) else rows
        enqueued = np.where(blocks, began, step.end_ns[self.call])
        everywhere = np.ones(len(rows), dtype=np.bool_)
        after, caller = self._after()
        columns = [
            pa.array(step.event_id[rows]),
            pa.array(self.device),
            pa.array(self.stream, mask=self.stream == UNKNOWN),
            pa.array(self.start_ns),
            pa.array(self.end_ns),
            pa.array(step.event_id[self.call], mask=~linked),
            pa.array(step.thread[self.call], mask=~linked),
            pa.array(enqueued, mask=~linked),
            pa.array(blocks),
            *(texts_at(events, name, rows, everywhere) for name in ("category", "family", "phase")),
            pa.array(step.event_id[rows[after]], mask=after == NONE),
            pa.array(step.event_id[caller], mask=after == NONE),
        ]
        return pa.Table.from_arrays(columns, schema=ACTIVITIES)

    def _after(self) -> tuple[Ints, Ints]:
        """Return each activity's awaited activity (index), and the wait call (row)."""
        step = self.step
        after, caller = np.full((2, len(self.rows)), NONE, dtype=np.int64)
        for call in step.calls("StreamWaitEvent").tolist():
            awaited = self.activity_before_event(int(step.thread[call]), int(step.start_ns[call]))
            blocked = self._first_blocked(call)
            if awaited is None or blocked is None or awaited >= blocked:
                continue
            settled = after[blocked] != NONE and self.end_ns[after[blocked]] >= self.end_ns[awaited]
            if self.end_ns[awaited] <= self.start_ns[blocked] and not settled:
                after[blocked], caller[blocked] = awaited, call
        return after, caller

    def _first_blocked(self, call: int) -> int | None:
        """Return the first activity that ``StreamWaitEvent`` blocks."""
        step = self.step
        index = self.reported.get(int(step.correlation[call]))
        # use the thread's next activity if the profile does not name the stream
        by_thread = self._launched.get(int(step.thread[call]))
        later = self._called.get(index) if index is not None else by_thread
        return None if later is None else later.first_from(int(step.end_ns[call]))

    def activity_before_event(self, thread: int, at_ns: int) -> int | None:
        """Return ``thread``'s last activity before its last CUDA event record before ``at_ns``."""
        records = self._recorded.get(thread)
        last = None if records is None else records.last_before(at_ns)
        return None if last is None else self.launched_last(thread, last)

    def launched_last(self, thread: int, at_ns: int) -> int | None:
        """Return the last activity that ``thread`` had launched at ``at_ns``."""
        launched = self._launched.get(thread)
        return None if launched is None else launched.last_before(at_ns)

    def launched_by(self, call: int) -> list[int]:
        indices: list[int] = self._activities_of_call.get(
            call, np.empty(0, dtype=np.int64)
        ).tolist()
        return indices

    def enqueued_last(self, device: int, stream: int | None, at_ns: int) -> list[int]:
        """Return the last activity enqueued before ``at_ns`` on ``stream`` (None: each)."""
        queues = [
            queue
            for (on, number), queue in self._queued.items()
            if on == device and stream in (None, number)
        ]
        indices = [queue.last_before(at_ns) for queue in queues]
        return [index for index in indices if index is not None]


def _split(numbers: Ints, *keys: Ints) -> Iterator[tuple[tuple[int, ...], Ints]]:
    """Group the indices ``numbers`` by ``keys``; yield each key with its indices."""
    if not len(numbers):
        return
    order = np.lexsort(keys[::-1])
    changes = np.any([np.diff(key[order]) != 0 for key in keys], axis=0)
    for group in np.split(order, np.flatnonzero(changes) + 1):
        yield tuple(int(key[group[0]]) for key in keys), numbers[group]


def syncs(step: StepRows, streams: Streams) -> pa.Table:
    rows = step.calls("Synchronize")
    rows = np.append(rows, step.host[step.blocks[step.host]])
    rows = rows[np.lexsort((step.end_ns[rows], step.start_ns[rows]))]
    waits = [_awaited(step, streams, row) for row in rows.tolist()]
    scopes, awaited = zip(*waits, strict=True) if waits else ((), ())
    columns = [
        pa.array(step.event_id[rows]),
        pa.array(step.thread[rows]),
        pa.array(step.within(step.start_ns[rows])),
        pa.array(step.within(step.end_ns[rows])),
        pa.array(scopes, pa.string()),
        pa.array([step.event_id[step.activities[a]].tolist() for a in awaited], SYNCS[-1].type),
    ]
    return pa.Table.from_arrays(columns, schema=SYNCS)


def _awaited(step: StepRows, streams: Streams, row: int) -> tuple[str, list[int]]:
    """Return the scope of a call's wait, such as ``stream``, and awaited activities."""
    began, ended = int(step.start_ns[row]), min(int(step.end_ns[row]), step.window.end_ns)
    if step.blocks[row]:
        return "copy", list(_ended(streams, streams.launched_by(row), ended))
    names, values = step.events.texts("name")
    name, thread = values[names[row]], int(step.thread[row])
    if "Event" in name:
        event = streams.activity_before_event(thread, began)
        return "event", list(_ended(streams, [] if event is None else [event], ended))
    device, stream = streams.reported.get(int(step.correlation[row]), (UNKNOWN, UNKNOWN))
    if device == UNKNOWN:
        # assume the device on which the thread launched last
        last = streams.launched_last(thread, began)
        device = UNKNOWN if last is None else int(streams.device[last])
    if "Stream" not in name:
        return "device", list(_ended(streams, streams.enqueued_last(device, None, began), ended))
    # assume the stream whose work ended last if the stream is unknown
    number = None if stream == UNKNOWN else stream
    indices = list(_ended(streams, streams.enqueued_last(device, number, began), ended))
    return "stream", sorted(indices, key=lambda index: int(streams.end_ns[index]))[-1:]


def _ended(streams: Streams, indices: list[int], at_ns: int) -> Iterator[int]:
    return (index for index in indices if streams.end_ns[index] <= at_ns)
