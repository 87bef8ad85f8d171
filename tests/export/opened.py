"""A Perfetto trace read by Perfetto's own messages, its slices put together as it does."""

from __future__ import annotations

import gzip
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackDescriptor, TrackEvent


@dataclass
class Slice:
    """One slice; ``track`` is the name of its track, ``process`` that of the process it is in."""

    track: str
    process: str
    name: str
    category: str
    start_ns: int
    end_ns: int | None = None
    arguments: dict[str, Any] = field(default_factory=dict)
    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)

    @property
    def dur_ns(self) -> int:
        """Its length."""
        assert self.end_ns is not None, f"{self.name} was never ended"
        return self.end_ns - self.start_ns


@dataclass
class Opened:
    """What a trace holds: slices by start, counters by (process, track)."""

    slices: list[Slice]
    counters: dict[tuple[str, str], list[tuple[int, float]]]

    def on(self, *tracks: str) -> list[Slice]:
        """The slices of the tracks of these names."""
        return [one for one in self.slices if one.track in tracks]

    def ledger(self) -> list[Slice]:
        """The slices of the ledgers."""
        return [one for one in self.slices if one.track.startswith("ledger: ")]


class _Texts:
    """What numbers stand for, as a sequence has said so far."""

    KINDS = ("event_categories", "event_names", "debug_annotation_names")

    def __init__(self) -> None:
        self.of: dict[str, dict[int, str]] = defaultdict(dict)

    def read(self, interned: Any) -> None:
        for kind in self.KINDS:
            for one in getattr(interned, kind):
                assert self.of[kind].setdefault(one.iid, one.name) == one.name
        for one in interned.debug_annotation_string_values:
            self.of["values"][one.iid] = one.str.decode()

    def argument(self, said: Any) -> tuple[str, Any]:
        kind = said.WhichOneof("value")
        value = getattr(said, kind)
        name = self.of["debug_annotation_names"][said.name_iid]
        return name, self.of["values"][value] if kind == "string_value_iid" else value


def opened(path: Path) -> Opened:
    """The trace at ``path``."""
    content = path.read_bytes()
    packets = Trace.FromString(gzip.decompress(content) if path.suffix == ".gz" else content).packet
    tracks: dict[int, TrackDescriptor] = {}
    texts = _Texts()
    events: list[tuple[int, TrackEvent, dict[str, Any]]] = []
    for packet in packets:
        assert packet.trusted_packet_sequence_id == 1
        if packet.HasField("interned_data"):
            texts.read(packet.interned_data)
        if packet.HasField("track_descriptor"):
            assert packet.track_descriptor.uuid not in tracks
            tracks[packet.track_descriptor.uuid] = packet.track_descriptor
        if packet.HasField("track_event"):
            event = packet.track_event
            assert event.track_uuid in tracks, "a track is told of before its events"
            said = {
                "name": texts.of["event_names"].get(event.name_iid),
                "category": [texts.of["event_categories"][i] for i in event.category_iids],
                "arguments": dict(map(texts.argument, event.debug_annotations)),
            }
            events.append((packet.timestamp, event, said))
    events.sort(key=lambda event: event[0])  # stable, as trace_processor's
    return _together(tracks, events)


def _together(
    tracks: dict[int, TrackDescriptor], events: list[tuple[int, TrackEvent, dict[str, Any]]]
) -> Opened:
    open_: dict[int, list[Slice]] = defaultdict(list)
    slices: list[Slice] = []
    counters: dict[tuple[str, str], list[tuple[int, float]]] = defaultdict(list)
    drawn_on = {event.track_uuid for _, event, _ in events}
    places = {uuid: (_name(tracks[uuid]), _process(tracks, tracks[uuid])) for uuid in drawn_on}
    for at_ns, event, said in events:
        track, place = tracks[event.track_uuid], places[event.track_uuid]
        if event.type == TrackEvent.TYPE_SLICE_BEGIN:
            (category,) = said["category"]
            arrows = list(event.flow_ids), list(event.terminating_flow_ids)
            one = Slice(*place, said["name"], category, at_ns, None, said["arguments"], *arrows)
            slices.append(one)
            open_[event.track_uuid].append(one)
        elif event.type == TrackEvent.TYPE_SLICE_END:
            open_[event.track_uuid].pop().end_ns = at_ns
        else:
            assert track.HasField("counter")
            kind = str(event.WhichOneof("counter_value_field"))
            counters[place[1], _path(tracks, track)].append((at_ns, getattr(event, kind)))
    assert not any(open_.values())
    return Opened(slices, counters)


def _name(track: TrackDescriptor) -> str:
    return str(track.thread.thread_name if track.HasField("thread") else track.name)


def _path(tracks: dict[int, TrackDescriptor], track: TrackDescriptor) -> str:
    """The name of a track behind that of the group it is in."""
    return f"{tracks[track.parent_uuid].name}: {track.name}"


def _process(tracks: dict[int, TrackDescriptor], track: TrackDescriptor) -> str:
    """The name of the process that ``track`` is in."""
    if track.HasField("thread"):
        names = {t.process.pid: t.process.process_name for t in tracks.values() if _is_one(t)}
        return str(names[track.thread.pid])
    while not track.HasField("process"):
        track = tracks[track.parent_uuid]
    return str(track.process.process_name)


def _is_one(track: TrackDescriptor) -> bool:
    return track.HasField("process")
