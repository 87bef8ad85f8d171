"""The first step of a big plain Kineto file, read while the rest is not.

What a step's account needs begins before the step ends: what ran in it, what was still running,
and the calls that launched it. ``samples`` tells in which stretches of the file such events may
stand; these are read as all pieces are. Nothing is given where the samples do not bear that out,
where the stretches are more than a small part of the file, or where no second step marker is found.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from lstmprof.errors import ProfileError
from lstmprof.events import Profile
from lstmprof.events.annotate.steps import Window, windows
from lstmprof.events.counters import NO_COUNTERS
from lstmprof.events.schema import ACTIVITY_KINDS
from lstmprof.events.table import EventTable
from lstmprof.events.threads import thread_ids
from lstmprof.formats import kineto, rows
from lstmprof.formats.kineto import pieces
from lstmprof.formats.kineto.events import KINDS, ON_DEVICE
from lstmprof.formats.kineto.pieces import Piece
from lstmprof.formats.kineto.samples import Samples
from lstmprof.formats.kineto.stream import UnusualError, closings, head_of
from lstmprof.formats.raw_file import OpenFile, json_document

#: No more than this part of a file, and so many bytes, are read for its first step.
MOST_SHARE, _MOST_BYTES = 1 / 32, 2**26
#: Samples in which no events can be made out are at most this part of all.
_MOST_UNREADABLE = 0.1
#: Categories of what runs on a device, and of what is called to have it run there.
_OF_DEVICES = ON_DEVICE | {category for category, kind in KINDS.items() if kind == "runtime"}
#: Shares of the samples before whose times the second marker is looked for; the samples must be
#: where they say of all of them.
_SHARES = (1 / 512, 1 / 256, 1 / 128, 1 / 64, 1 / 32)


@dataclass(frozen=True)
class Beginning:
    """A profile of the events that begin before its first step, called ``name``, ends.

    They are ``read_bytes`` of the ``file_bytes``.
    """

    profile: Profile
    step: Window
    name: str
    read_bytes: int
    file_bytes: int


def beginning(path: Path, least_bytes: int) -> Beginning | None:
    """The beginning of the plain Kineto file at ``path``, None where nothing sure can be said.

    So it is of a file of fewer than ``least_bytes``.
    """
    try:
        if not path.is_file() or path.stat().st_size < least_bytes:
            return None
        with path.open("rb") as opened:
            head, _ = head_of(path, opened)  # which a gzipped file has not
        return _beginning(_File(path, OpenFile(path), head))
    except (OSError, ValueError, ProfileError, UnusualError):  # reading all of it will say why
        return None


@dataclass
class _File:
    """A file, and what has been read of its events: pieces by their first byte."""

    path: Path
    file: OpenFile
    head: bytes
    read: dict[tuple[int, int], Piece] = field(default_factory=dict)

    @property
    def read_bytes(self) -> int:
        """How much of it has been read."""
        return sum(stop - start for start, stop in self.read)

    @property
    def most_bytes(self) -> int:
        """How much of it may be."""
        return min(int(MOST_SHARE * self.file.length), _MOST_BYTES)

    def has_read(self, stretches: list[tuple[int, int]]) -> bool:
        """Read the ``stretches`` that are not yet; False where they are too many, or no events."""
        missing = _joined([s for s in stretches if not self._is_read(s)])
        wanted = self.read_bytes + sum(stop - start for start, stop in missing)
        if wanted > self.most_bytes:
            return False
        for start, stop in missing:
            text = self.file.part(start, stop).rstrip().removesuffix(b",")
            piece = pieces.read(self.path, text)
            if piece is None:
                return False
            self.read[start, stop] = piece
        return True

    def has_read_end(self, start: int) -> bool:
        """Read the last events, from byte ``start`` on; False where the file does not end so."""
        if self.file.length - start > self.most_bytes:
            return False
        text = self.file.part(start, self.file.length)
        for events_end, _ in closings(text):
            piece = pieces.read(self.path, text[:events_end])
            if piece:
                self.read[start, self.file.length] = piece
                return True
        return False

    def _is_read(self, stretch: tuple[int, int]) -> bool:
        return any(start <= stretch[0] and stretch[1] <= stop for start, stop in self.read)

    def profile(self) -> Profile | None:
        """The profile of what has been read; None where it is no Kineto trace."""
        header = json_document(self.path, self.head + b"]}")
        of_file = [self.read[place] for place in sorted(self.read)]
        categories = {category for piece in of_file for category in piece.categories}
        tables = [piece.columns for piece in of_file if piece.rows]
        if not (tables and isinstance(header, dict) and kineto.is_kineto(header, categories)):
            return None
        columns = pa.concat_tables(tables, promote_options="default").unify_dictionaries()
        return kineto.profile(header, columns.combine_chunks(), kineto.LeftOut(), NO_COUNTERS)

    @property
    def origin_ns(self) -> int:
        """When the first event began of those that have been read, which are some."""
        return min(rows.first_ns(p.columns) for p in self.read.values() if p.rows)


def _joined(stretches: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The ``stretches``, in order, those in one that follow each other."""
    joined: list[tuple[int, int]] = []
    for start, stop in stretches:
        if joined and joined[-1][1] == start:
            joined[-1] = (joined[-1][0], stop)
        else:
            joined.append((start, stop))
    return joined


def _beginning(file: _File) -> Beginning | None:
    samples = Samples(file.file, len(file.head))
    if not len(samples) or samples.first_at != len(file.head):
        return None
    if samples.unreadable > _MOST_UNREADABLE * len(samples):
        return None
    begins_ns = samples.begins_ns
    limits = dict.fromkeys(begins_ns[max(1, int(s * len(begins_ns)))] for s in _SHARES)
    if not all(map(samples.told, limits)) or not file.has_read_end(samples.last_at):
        return None
    for limit_ns in limits:
        if not file.has_read(samples.before(limit_ns)):
            return None
        profile = file.profile()
        if profile is None:
            return None
        step = _first_step(profile.events, limit_ns - file.origin_ns)
        if step:
            return _of_step(file, profile, step, samples.categories)
    return None


def _first_step(events: EventTable, until_ns: int) -> Window | None:
    """The first step, if the next one begins by then: all markers before are there."""
    thread = thread_ids(events)
    markers = events.is_kind("step") & (thread >= 0)
    if len(np.unique(thread[markers])) != 1:
        return None
    steps = windows(events, captured=False)
    return steps[0] if len(steps) > 1 and steps[0].end_ns <= until_ns else None


def _of_step(
    file: _File, profile: Profile, step: Window, elsewhere: frozenset[str]
) -> Beginning | None:
    """What began before the end of ``step``; ``elsewhere`` are categories of any events.

    None where devices are used, but not until then: what the host waits for is not known.
    """
    before = int(np.searchsorted(profile.events.start_ns, step.end_ns))
    events = profile.events.slice(0, before)
    uses_devices = bool(profile.accelerators) or not elsewhere.isdisjoint(_OF_DEVICES)
    if uses_devices and not events.has_kind(*ACTIVITY_KINDS):
        return None
    (marker,) = np.flatnonzero(events.is_kind("step") & (events.start_ns == step.start_ns))[:1]
    step = replace(step, thread=int(thread_ids(events)[marker]))  # numbered among these
    name: str = events.column("name")[int(marker)].as_py()
    whole, read = file.file.length, file.read_bytes
    return Beginning(replace(profile, events=events), step, name, read, whole)
