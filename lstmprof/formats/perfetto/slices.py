"""Read the tracks, clocks and slices of a Perfetto trace.

A packet depends on earlier packets of the same sequence. For example, a packet contains a number
instead of the name ``aten::mm``, and a time difference instead of a time.
"""

from __future__ import annotations

import json
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from lstmprof.formats import rows
from lstmprof.formats.perfetto import packets
from lstmprof.formats.raw_file import RawFile
from lstmprof.formats.xplane.events import text

#: Numbers of two clocks (BuiltinClock): the default clock of events, and the clock of dates.
BOOTTIME, REALTIME = 6, 1
_DEEPEST_TRACK = 32


@dataclass(frozen=True)
class Track:
    """The description of a track."""

    name: str = ""
    parent: int = 0
    pid: int | None = None
    tid: int | None = None
    process: str | None = None  # name
    thread: str | None = None  # name
    description: str = ""


@dataclass(frozen=True)
class Outline:
    """The tracks of a trace by number, and the date at which the trace's clock starts.

    Some writers make one track per slice, so ``Outline`` stores a plain track as two numbers.
    """

    tracks: dict[int, Track]
    children: array[int]  # tracks without a known field but the parent
    parents: array[int]
    epoch_ns: int | None  # since 1970
    clocks: bool  # the trace has snapshots of several clocks

    @cached_property
    def _sorted(self) -> tuple[Any, Any]:
        children = np.array(self.children, np.uint64)
        order = np.argsort(children, kind="stable")
        return children[order], np.array(self.parents, np.uint64)[order]

    def existing(self, number: int) -> int:
        """Return the track's number, or the number of its nearest ancestor in ``tracks``."""
        children, parents = self._sorted
        for _ in range(_DEEPEST_TRACK):
            if number in self.tracks or number < 0:
                break
            place = int(np.searchsorted(children, np.uint64(number), side="right")) - 1
            if place < 0 or int(children[place]) != number:
                break
            number = int(parents[place])
        return number

    def above(self, number: int) -> Iterator[Track]:
        """Yield a track and its ancestors, nearest first."""
        for _ in range(_DEEPEST_TRACK):
            number = self.existing(number)
            track = self.tracks.get(number)
            if track is None:
                return
            yield track
            number = track.parent


def default_track(sequence: int) -> int:
    return -1 - sequence


def outline(raw: RawFile) -> Outline:
    """Read the tracks and clocks of a trace, without its slices."""
    contents = Outline({}, array("Q"), array("Q"), None, False)
    epoch_ns: int | None = None
    clocks = False
    for packet in packets.packets(raw, packets.outline()):
        packets.refuse_zstd(raw, packet)
        if packet.HasField("track_descriptor"):
            # read all descriptions before any slice: a track's description may follow its events
            _add(contents, packet.track_descriptor)
        if packet.HasField("thread_descriptor"):
            thread = packet.thread_descriptor
            name = rows.clean(text(thread.thread_name))
            contents.tracks[default_track(packet.sequence)] = Track(
                name, pid=thread.pid, tid=thread.tid, thread=name
            )
        if packet.HasField("clocks"):
            clocks = True
            at = {clock.clock_id: clock.timestamp for clock in packet.clocks.clocks}
            if epoch_ns is None and {BOOTTIME, REALTIME} <= at.keys():
                epoch_ns = at[REALTIME] - at[BOOTTIME]
    return replace(contents, epoch_ns=epoch_ns, clocks=clocks)


def _add(contents: Outline, descriptor: Any) -> None:
    name = rows.clean(text(descriptor.name or descriptor.static_name))
    before = contents.tracks.get(descriptor.uuid)
    is_plain = not (
        descriptor.HasField("process") or descriptor.HasField("thread") or descriptor.description
    )
    if (
        before is None
        and is_plain
        and descriptor.parent_uuid
        and descriptor.parent_uuid != descriptor.uuid
    ):
        parent = contents.tracks.get(descriptor.parent_uuid)
        if parent is not None and name in ("", parent.name):
            contents.children.append(descriptor.uuid)
            contents.parents.append(descriptor.parent_uuid)
            return
    track = before or Track()
    track = replace(
        track,
        name=name or track.name,
        parent=descriptor.parent_uuid or track.parent,
        description=rows.clean(text(descriptor.description)) or track.description,
    )
    if descriptor.HasField("process"):
        process = rows.clean(text(descriptor.process.process_name))
        track = replace(
            track, pid=descriptor.process.pid, process=process or track.process or track.name
        )
    if descriptor.HasField("thread"):
        thread = rows.clean(text(descriptor.thread.thread_name))
        track = replace(
            track, pid=descriptor.thread.pid, tid=descriptor.thread.tid, thread=thread or track.name
        )
    contents.tracks[descriptor.uuid] = track


#: Values of TrackEvent.Type.
_BEGIN, _END = 1, 2
_INSTANT, _COUNTER = 3, 4
#: Bits of TracePacket.SequenceFlags: the sequence's state was cleared; the packet needs this state.
_CLEARED, _NEEDS_STATE = 1, 2
#: First and last number of clocks that belong to a single sequence of packets.
_FIRST_OWN_CLOCK, _LAST_OWN_CLOCK = 64, 127
_DEEPEST = 16

LOST = "the recorder lost packets that they depend on"
NO_CLOCK = "their clock is not defined"
NO_START = "they have no begin"
NO_END = "they have no end"
NEGATIVE = "their duration is negative"
IMPOSSIBLE = "their time is invalid"


class Slice(NamedTuple):
    """A slice or an instant."""

    number: int  # counts slices in the order in which they begin
    track: int
    name: str
    category: str
    arguments: dict[str, Any]
    flows: tuple[int, ...]
    start_ns: int
    dur_ns: int = 0


@dataclass
class _Clock:
    """A clock that showed ``at`` units when the trace's clock showed ``ns``."""

    at: int
    ns: int
    unit_ns: int = 1
    is_incremental: bool = False

    def time(self, units: int) -> int:
        """Convert a time of this clock to ns; each call advances an incremental clock."""
        if self.is_incremental:
            self.ns += units * self.unit_ns
            return self.ns
        return self.ns + (units - self.at) * self.unit_ns


@dataclass
class _Sequence:
    """State of a packet sequence: texts, defaults and clocks from earlier packets."""

    is_whole: bool = False  # no packet was lost
    texts: dict[str, dict[int, str]] = field(default_factory=dict)
    track: int = 0
    clock: int = 0
    clocks: dict[int, _Clock] = field(default_factory=dict)

    def start(self) -> None:
        """Forget interned texts and defaults, because the writer starts anew."""
        self.is_whole = True
        self.texts, self.track, self.clock = {}, 0, 0

    def add(self, packet: Any) -> None:
        """Add the interned strings and default values that a packet defines."""
        if packet.HasField("interned"):
            for kind in ("categories", "names", "keys", "values"):
                for descriptor in getattr(packet.interned, kind):
                    self.texts.setdefault(kind, {})[descriptor.iid] = rows.clean(
                        text(descriptor.text)
                    )
        if packet.HasField("defaults"):
            self.track = packet.defaults.event.track_uuid
            self.clock = packet.defaults.clock_id

    def text(self, kind: str, iid: int) -> str:
        return self.texts.get(kind, {}).get(iid, "")


class Slices:
    """Reads the slices of a trace, except the slices of tracks in ``skipped``."""

    def __init__(
        self,
        raw: RawFile,
        outline: Outline,
        skipped: Set[int] = frozenset(),
        flows: bool = True,
        counted: Callable[[int, int, float], None] | None = None,
    ) -> None:
        self._raw, self._outline, self._skipped, self._flows = raw, outline, skipped, flows
        self._counted = counted
        self._sequences: dict[int, _Sequence] = {}
        self._clocks: dict[int, _Clock] = {}
        self._open: dict[int, list[Slice]] = {}
        self._count = 0
        # reason -> number of slices that were omitted for this reason
        self.left_out: Counter[str] = Counter()
        self.instants: list[Slice] = []

    def __iter__(self) -> Iterator[Slice]:
        """Yield the slices that have an end, in the order of end events."""
        for packet in packets.packets(self._raw, packets.packet()):
            sequence = self._sequences.get(packet.sequence)
            if sequence is None:
                sequence = self._sequences[packet.sequence] = _Sequence()
            if packet.previous_dropped:
                sequence.is_whole = False
            if packet.flags & _CLEARED or packet.state_cleared:
                sequence.start()
            # omit events until the sequence starts again, because packets were lost
            if packet.flags & _NEEDS_STATE and not sequence.is_whole:
                self.left_out[LOST] += packet.HasField("event")
                continue
            sequence.add(packet)
            if packet.HasField("clocks"):
                self._set_clocks(packet.clocks.clocks, sequence)
                continue
            # read every packet's time, because the next packet may store only a difference
            at_ns = self._time(packet, sequence)
            ended = packet.HasField("event") and self._event(packet, at_ns, sequence)
            if ended:
                yield ended
        self.left_out[NO_END] += sum(map(len, self._open.values()))

    def _event(self, packet: Any, at_ns: int | None, sequence: _Sequence) -> Slice | None:
        """Record an event; return the finished slice if the event ends a slice."""
        event = packet.event
        number = event.track_uuid or sequence.track or default_track(packet.sequence)
        if event.type == _COUNTER and self._counted and at_ns is not None:
            self._counted(number, at_ns, event.double_counter_value or event.counter_value)
        if event.type not in (_BEGIN, _END, _INSTANT):
            return None
        if number in self._skipped:
            return None
        if event.type == _END:
            return self._end(number, at_ns)
        arguments = {}
        keys = sequence.texts.get("keys", {})
        for descriptor in event.annotations:
            name = keys.get(descriptor.name_iid) or _argument_name(descriptor, sequence)
            arguments[name] = _value(descriptor, sequence, 0)
        begun = Slice(
            self._count,
            self._outline.existing(number),
            self._name(event, sequence),
            self._category(event, sequence),
            arguments,
            _flows(event) if self._flows else (),
            0 if at_ns is None else at_ns,
        )
        if event.type == _INSTANT:
            # keep instants only for Kineto's header; an instant does not become an event
            if len(self.instants) < _MOST_INSTANTS:
                self.instants.append(begun)
            return None
        self._count += 1
        self._open.setdefault(number, []).append(
            begun if at_ns is not None else begun._replace(dur_ns=-1)
        )
        return None

    def _end(self, number: int, at_ns: int | None) -> Slice | None:
        stack = self._open.get(number)
        if not stack:
            self.left_out[NO_START] += 1
            return None
        begun = stack.pop()
        if not stack:
            del self._open[number]
        if at_ns is None or begun.dur_ns:
            self.left_out[NO_CLOCK] += 1
        elif at_ns < begun.start_ns:
            self.left_out[NEGATIVE] += 1
        elif max(abs(at_ns), abs(begun.start_ns)) > rows.MAX_NS:
            self.left_out[IMPOSSIBLE] += 1
        else:
            return begun._replace(dur_ns=at_ns - begun.start_ns)
        return None

    def _set_clocks(self, clocks: Any, sequence: _Sequence) -> None:
        """Set all clocks from a snapshot of one moment."""
        by_id = {clock.clock_id: clock for clock in clocks}
        existing = by_id.get(BOOTTIME)
        now_ns = (
            existing.timestamp * (existing.unit_multiplier_ns or 1)
            if existing is not None
            else None
        )
        for number, clock in by_id.items():
            unit_ns = clock.unit_multiplier_ns or 1
            ns = clock.timestamp * unit_ns if now_ns is None else now_ns
            if _FIRST_OWN_CLOCK <= number <= _LAST_OWN_CLOCK:
                known = _Clock(clock.timestamp, ns, unit_ns, clock.is_incremental)
                sequence.clocks[number] = known
            elif now_ns is not None:
                self._clocks[number] = _Clock(clock.timestamp, ns, unit_ns)

    def _time(self, packet: Any, sequence: _Sequence) -> int | None:
        """Return a packet's time on the trace's clock in ns."""
        number = packet.clock_id or sequence.clock or BOOTTIME
        units: int = packet.timestamp
        if _FIRST_OWN_CLOCK <= number <= _LAST_OWN_CLOCK:
            clock = sequence.clocks.get(number)
            return clock.time(units) if clock else None
        if number == BOOTTIME or not self._outline.clocks:
            return units
        clock = self._clocks.get(number)
        return clock.time(units) if clock else None

    @staticmethod
    def _name(event: Any, sequence: _Sequence) -> str:
        if event.name_iid:
            return sequence.text("names", event.name_iid)
        return rows.clean(text(event.name))

    @staticmethod
    def _category(event: Any, sequence: _Sequence) -> str:
        """Return the first category of an event, or an empty text."""
        if event.category_iids:
            return sequence.text("categories", event.category_iids[0])
        return rows.clean(text(event.categories[0])) if event.categories else ""


#: Largest number of instants to keep; the needed instants, about the whole trace, come first.
_MOST_INSTANTS = 1000


def _flows(event: Any) -> tuple[int, ...]:
    """Return the ids of the flows that begin or end at a slice."""
    kinds = (event.flow_ids, event.terminating_flow_ids, event.old_flow_ids)
    return tuple(flow for ids in (*kinds, event.old_terminating_flow_ids) for flow in ids)


def _argument_name(descriptor: Any, sequence: _Sequence) -> str:
    return (
        sequence.text("keys", descriptor.name_iid)
        if descriptor.name_iid
        else rows.clean(text(descriptor.name))
    )


def _value(descriptor: Any, sequence: _Sequence, depth: int) -> Any:
    kind = descriptor.WhichOneof("value")
    if kind == "int_value":
        return descriptor.int_value
    if kind in ("uint_value", "pointer_value", "bool_value"):
        return getattr(descriptor, kind)
    if kind == "string_value_iid":
        return sequence.text("values", descriptor.string_value_iid)
    if kind in ("string_value", "legacy_json_value"):
        return rows.clean(text(getattr(descriptor, kind)))
    if kind == "double_value":
        return json.dumps(
            descriptor.double_value
        )  # a float is its text, as in ``raw_file.json_document``
    if depth > _DEEPEST:
        return None
    if descriptor.array_values:
        return [_value(each, sequence, depth + 1) for each in descriptor.array_values]
    return {
        _argument_name(each, sequence): _value(each, sequence, depth + 1)
        for each in descriptor.dict_entries
    }
