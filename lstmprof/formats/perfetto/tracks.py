"""The tracks of a Perfetto trace and its clocks: what is read of it before any event.

A track may be told of after its events, and its name again and again; the last one counts. Some
writers make a track for every slice: one that is only its parent's child is kept as two numbers.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from lstmprof.formats import rows
from lstmprof.formats.perfetto import packets, schema
from lstmprof.formats.raw_file import RawFile
from lstmprof.formats.xplane.events import text

#: BuiltinClock: the clock of events where nothing else is said, and that of dates.
BOOTTIME, REALTIME = 6, 1
_DEEPEST = 32


@dataclass(frozen=True)
class Track:
    """What is said of a track; ``process`` and ``thread`` are the names of such."""

    name: str = ""
    parent: int = 0
    pid: int | None = None
    tid: int | None = None
    process: str | None = None
    thread: str | None = None
    description: str = ""


@dataclass(frozen=True)
class Outline:
    """What a trace says of its tracks, by number, and when in 1970's nanoseconds its clock began.

    ``children`` and ``parents`` are tracks that say nothing else. A thread that is told of by its
    sequence alone has the number ``of_sequence``.
    """

    tracks: dict[int, Track]
    children: array[int]
    parents: array[int]
    epoch_ns: int | None
    clocks: bool  # whether the trace says how any clocks relate

    @cached_property
    def _sorted(self) -> tuple[Any, Any]:
        children = np.array(self.children, np.uint64)
        order = np.argsort(children, kind="stable")
        return children[order], np.array(self.parents, np.uint64)[order]

    def own(self, number: int) -> int:
        """The track that ``number`` stands for: itself, or its parent where it is only a child."""
        children, parents = self._sorted
        for _ in range(_DEEPEST):
            if number in self.tracks or number < 0:
                break
            place = int(np.searchsorted(children, np.uint64(number), side="right")) - 1
            if place < 0 or int(children[place]) != number:
                break
            number = int(parents[place])
        return number

    def above(self, number: int) -> Iterator[Track]:
        """The track and those that it is in, inside out."""
        for _ in range(_DEEPEST):
            number = self.own(number)
            track = self.tracks.get(number)
            if track is None:
                return
            yield track
            number = track.parent


def of_sequence(sequence: int) -> int:
    """The number of the track of a sequence whose events name none."""
    return -1 - sequence


def outline(raw: RawFile) -> Outline:
    """The outline of ``raw``.

    Raises:
        ProfileError: it is cut short or damaged.
    """
    found = Outline({}, array("Q"), array("Q"), None, False)
    epoch_ns: int | None = None
    clocks = False
    for packet in packets.packets(raw, schema.outline()):
        packets.refuse_zstd(raw, packet)
        if packet.HasField("track_descriptor"):
            _add(found, packet.track_descriptor)
        if packet.HasField("thread_descriptor"):
            thread = packet.thread_descriptor
            name = rows.clean(text(thread.thread_name))
            found.tracks[of_sequence(packet.sequence)] = Track(
                name, pid=thread.pid, tid=thread.tid, thread=name
            )
        if packet.HasField("clocks"):
            clocks = True
            at = {clock.clock_id: clock.timestamp for clock in packet.clocks.clocks}
            if epoch_ns is None and {BOOTTIME, REALTIME} <= at.keys():
                epoch_ns = at[REALTIME] - at[BOOTTIME]
    return replace(found, epoch_ns=epoch_ns, clocks=clocks)


def _add(found: Outline, said: Any) -> None:
    name = rows.clean(text(said.name or said.static_name))
    before = found.tracks.get(said.uuid)
    is_plain = not (said.HasField("process") or said.HasField("thread") or said.description)
    if before is None and is_plain and said.parent_uuid and said.parent_uuid != said.uuid:
        parent = found.tracks.get(said.parent_uuid)
        if parent is not None and name in ("", parent.name):
            found.children.append(said.uuid)
            found.parents.append(said.parent_uuid)
            return
    track = before or Track()
    track = replace(
        track,
        name=name or track.name,
        parent=said.parent_uuid or track.parent,
        description=rows.clean(text(said.description)) or track.description,
    )
    if said.HasField("process"):
        process = rows.clean(text(said.process.process_name))
        track = replace(track, pid=said.process.pid, process=process or track.process or track.name)
    if said.HasField("thread"):
        thread = rows.clean(text(said.thread.thread_name))
        track = replace(
            track, pid=said.thread.pid, tid=said.thread.tid, thread=thread or track.name
        )
    found.tracks[said.uuid] = track
