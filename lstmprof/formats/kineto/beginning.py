"""Read the first step of a large, uncompressed Kineto file without reading the whole file.

::

  time │      ╱│     ╱│      ╱│  ╱     The file has one block per kind of event: host ops,
       │   ╱   │  ╱   │   ╱   │╱       Python frames, calls, activities. In a block, times
       │╱      │╱     │╱      │         rise, except the times of a few late events.
       └─────────────────────────▶ byte

Samples of events show which parts of the file may contain events of the first step. The reader
reads only these parts and the end of the file.
"""

from __future__ import annotations

import bisect
import math
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lstmprof.base.errors import ProfileError
from lstmprof.events import Profile
from lstmprof.events.annotate.steps import Window, windows
from lstmprof.events.counters import NO_COUNTERS
from lstmprof.events.schema import ACTIVITY_KINDS
from lstmprof.events.table import EventTable
from lstmprof.events.threads import thread_ids
from lstmprof.formats import kineto, rows
from lstmprof.formats.kineto import pieces
from lstmprof.formats.kineto.event_fields import KINDS, ON_DEVICE, PROFILER_SPAN
from lstmprof.formats.kineto.pieces import Piece
from lstmprof.formats.kineto.stream import UnusualError, closings, head_of
from lstmprof.formats.raw_file import OpenFile, json_document, last_border
from lstmprof.formats.rows import MAX_NS

#: Samples: size in bytes, largest number, least distance in bytes.
SAMPLE_BYTES, _MOST_SAMPLES, _LEAST_APART = 2**13, 2**10, 2**15
#: Largest size in bytes to which a sample may grow to contain a whole event.
_MOST_SAMPLE_BYTES = 2**17
#: Largest size in bytes of a range between two samples that no further sample halves.
_SHORT_BYTES = 2**15
#: Largest number of samples that halve ranges.
_MOST_HALVED = 2**10
#: Number of sample pairs to estimate the fastest ns per byte, and a safety factor.
_PACE_PAIRS, _SAFELY = 4, 4
_BORDER = re.compile(rb"\}\s*+,\s*+(?=\{)")
_MOST_TRIES = 4
_NS_PER_US = 1000

Flags = NDArray[np.bool_]
Ints = NDArray[np.int64]


class Sample(NamedTuple):
    """The position and the earliest start of a few neighbouring events in the file."""

    at: int  # position in bytes
    begins_ns: int  # their earliest start; 0 if a file's first events have no time


class _Begun(msgspec.Struct, gc=False, frozen=True):
    ph: str = ""
    cat: str = ""
    ts: float | str | None = None


_DECODER = msgspec.json.Decoder(list[_Begun])


class Samples:
    """Finds the parts of a file that may have early events, by sampling the file."""

    def __init__(self, file: OpenFile, start: int) -> None:
        self._file = file
        apart = max(_LEAST_APART, (file.length - start) // _MOST_SAMPLES)
        bytes_ = range(start, max(file.length - SAMPLE_BYTES, start + 1), apart)
        self._samples: list[Sample] = []
        self._categories: set[str] = set()
        self.unreadable = 0  # places without a readable event
        for number, byte in enumerate(bytes_):
            self._add(byte, is_first=not number)
        self._first = np.array(self._samples, dtype=np.int64).reshape(-1, 2)
        self._most = 2 * len(bytes_) + _MOST_HALVED

    def __len__(self) -> int:
        return len(self._samples)

    @property
    def begins_ns(self) -> list[int]:
        """Return the sorted starts in ns of the evenly spaced samples."""
        earliest: list[int] = sorted(self._first[:, 1].tolist())
        return earliest

    @property
    def categories(self) -> frozenset[str]:
        """Return the lower-case categories of the sampled events."""
        return frozenset(self._categories)

    @property
    def first_at(self) -> int:
        return self._samples[0].at

    @property
    def last_at(self) -> int:
        return self._samples[-1].at

    def before(self, until_ns: int) -> list[tuple[int, int]]:
        """Return the byte ranges in which events may begin before ``until_ns``."""
        while True:
            at, begins_ns = np.array(self._samples, dtype=np.int64).T
            early = _may_begin(at, begins_ns, until_ns)
            wholly = (begins_ns[:-1] < until_ns) & (begins_ns[1:] < until_ns)
            long = np.flatnonzero(early & ~wholly & (np.diff(at) > _SHORT_BYTES))
            halved = long.tolist() if len(at) + len(long) < self._most else []
            if not sum(self._add(int(at[n] + at[n + 1]) // 2) for n in halved):
                return [(int(at[n]), int(at[n + 1])) for n in np.flatnonzero(early).tolist()]

    def predictable(self, until_ns: int) -> bool:
        """Return whether sampling can find the events before ``until_ns``."""
        at, begins_ns = self._first.T
        if len(at) < 2 * _PACE_PAIRS:
            return False
        # predict from every second sample which ranges are early; check this with the other samples
        early = _may_begin(at[::2], begins_ns[::2], until_ns)
        others = np.flatnonzero(begins_ns[1 : 2 * len(early) : 2] < until_ns)
        return bool(early[others].all())

    def _add(self, byte: int, *, is_first: bool = False) -> bool:
        """Sample the file at ``byte``; return whether a new sample was added."""
        sample = self._sample(byte, is_first=is_first)
        if sample is None:
            return False
        number = bisect.bisect(self._samples, (sample.at, -math.inf))
        if number < len(self._samples) and self._samples[number].at == sample.at:
            return False
        self._samples.insert(number, sample)
        return True

    def _sample(self, byte: int, *, is_first: bool) -> Sample | None:
        length = SAMPLE_BYTES
        while length <= _MOST_SAMPLE_BYTES:
            text = self._file.part(byte, byte + length)
            borders = [0] if is_first else [m.end() for m in _BORDER.finditer(text)][:_MOST_TRIES]
            for border in borders:
                events = _timed(text[border : last_border(text)])
                if events:
                    self._categories |= {category for category, _ in events}
                    return Sample(byte + border, min(begins_ns for _, begins_ns in events))
                if events is not None:  # only flows, counters, thread names
                    return Sample(byte, 0) if is_first else None
            length *= 4
        self.unreadable += 1
        return None


def _may_begin(at: Ints, begins_ns: Ints, until_ns: int) -> Flags:
    """Return which ranges between samples may have events before ``until_ns``."""
    before, after = begins_ns[:-1], begins_ns[1:]
    length = np.diff(at)
    pace = np.append(np.abs(after - before) / length, np.zeros(_PACE_PAIRS))
    fastest = np.max([pace[n : n + len(length)] for n in range(_PACE_PAIRS)], axis=0)
    began = after - _SAFELY * fastest * length
    return np.asarray((before < until_ns) | (began < until_ns), dtype=np.bool_)


def _timed(text: bytes) -> list[tuple[str, int]] | None:
    """Return (category, start in ns) of events with a duration; None if parsing fails."""
    try:
        events = _DECODER.decode(b"[" + text + b"]")
    except (msgspec.DecodeError, RecursionError):
        return None
    timed = [(e.cat.lower(), _begins_ns(e.ts)) for e in events if e.ph == "X"]
    program_events = [(c, ns) for c, ns in timed if ns is not None and c != PROFILER_SPAN]
    return program_events if events else None


def _begins_ns(ts_us: float | str | None) -> int | None:
    """Convert an event's start in µs to ns, rounded down to whole µs."""
    if ts_us is None:
        return None
    try:
        whole_ns = math.floor(float(ts_us)) * _NS_PER_US
    except (ValueError, OverflowError):
        return None
    return whole_ns if abs(whole_ns) <= MAX_NS else None


#: Largest share of the file, and largest number of bytes, to read for the first step.
MOST_SHARE, _MOST_BYTES = 1 / 32, 2**26
#: Largest ratio of unreadable samples to readable samples.
_MOST_UNREADABLE = 0.1
#: Categories of device activities, and of runtime calls, which may launch activities.
_DEVICE_CATEGORIES = ON_DEVICE | {category for category, kind in KINDS.items() if kind == "runtime"}
#: Shares of samples, in order of time, up to which events are read to find two steps.
_SHARES = (1 / 512, 1 / 256, 1 / 128, 1 / 64, 1 / 32)


@dataclass(frozen=True)
class Beginning:
    """The events before the first step's end, and how many bytes of the file were read."""

    profile: Profile
    step: Window
    name: str
    read_bytes: int
    file_bytes: int


def beginning(path: Path, least_bytes: int) -> Beginning | None:
    """Return the first step of a large file, if samples of the file show where the step is."""
    try:
        if not path.is_file() or path.stat().st_size < least_bytes:
            return None
        with path.open("rb") as opened:
            head, _ = head_of(path, opened)  # gzipped files have no such head
        return _beginning(_File(path, OpenFile(path), head))
    # return None, because the caller then reads the whole file and raises the error
    except (OSError, ValueError, ProfileError, UnusualError):
        return None


@dataclass
class _File:
    """A Kineto file, and all pieces that the reader has read."""

    path: Path
    file: OpenFile
    head: bytes  # text before the events
    read: dict[tuple[int, int], Piece] = field(default_factory=dict)  # byte range -> piece

    @property
    def read_bytes(self) -> int:
        return sum(stop - start for start, stop in self.read)

    @property
    def most_bytes(self) -> int:
        return min(int(MOST_SHARE * self.file.length), _MOST_BYTES)

    def has_read(self, needed: list[tuple[int, int]]) -> bool:
        """Try to read byte ranges. Return whether all ranges are now in memory."""
        missing = _joined([s for s in needed if not self._is_read(s)])
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
        """Read from ``start`` to the file's end; return False if too long or unreadable."""
        if self.file.length - start > self.most_bytes:
            return False
        text = self.file.part(start, self.file.length)
        for events_end, _ in closings(text):
            piece = pieces.read(self.path, text[:events_end])
            if piece:
                self.read[start, self.file.length] = piece
                return True
        return False

    def _is_read(self, range_: tuple[int, int]) -> bool:
        return any(start <= range_[0] and range_[1] <= stop for start, stop in self.read)

    def profile(self) -> Profile | None:
        """Make a Kineto profile from the pieces read so far."""
        header = json_document(self.path, self.head + b"]}")
        pieces_read = [self.read[byte] for byte in sorted(self.read)]
        categories = {category for piece in pieces_read for category in piece.categories}
        tables = [piece.columns for piece in pieces_read if piece.rows]
        if not (tables and isinstance(header, dict) and kineto.is_kineto(header, categories)):
            return None
        columns = pa.concat_tables(tables, promote_options="default").unify_dictionaries()
        return kineto.profile(header, columns.combine_chunks(), kineto.LeftOut(), NO_COUNTERS)

    @property
    def origin_ns(self) -> int:
        return min(rows.first_ns(p.columns) for p in self.read.values() if p.rows)


def _joined(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join sorted byte ranges that follow each other directly."""
    joined: list[tuple[int, int]] = []
    for start, stop in ranges:
        if joined and joined[-1][1] == start:
            joined[-1] = (joined[-1][0], stop)
        else:
            joined.append((start, stop))
    return joined


def _beginning(file: _File) -> Beginning | None:
    samples = Samples(file.file, len(file.head))
    if not len(samples) or samples.first_at != len(file.head):
        return None
    # give up if too many samples contain no readable event
    if samples.unreadable > _MOST_UNREADABLE * len(samples):
        return None
    begins_ns = samples.begins_ns
    limits = dict.fromkeys(begins_ns[max(1, int(s * len(begins_ns)))] for s in _SHARES)
    # give up if the samples do not predict each other, or if the file's last part is too long
    if not all(map(samples.predictable, limits)) or not file.has_read_end(samples.last_at):
        return None
    for limit_ns in limits:
        # give up if the needed ranges are too large or unreadable
        if not file.has_read(samples.before(limit_ns)):
            return None
        profile = file.profile()
        if profile is None:
            return None
        step = _first_step(profile.events, limit_ns - file.origin_ns)
        if step:
            return _beginning_of_step(file, profile, step, samples.categories)
    return None


def _first_step(events: EventTable, until_ns: int) -> Window | None:
    """Return the first of several steps, or None if the step ends after ``until_ns``."""
    thread = thread_ids(events)
    markers = events.is_kind("step") & (thread >= 0)
    if len(np.unique(thread[markers])) != 1:
        return None
    steps = windows(events, captured=False)
    # require a second step marker, which ends the first step
    return steps[0] if len(steps) > 1 and steps[0].end_ns <= until_ns else None


def _beginning_of_step(
    file: _File, profile: Profile, step: Window, elsewhere: frozenset[str]
) -> Beginning | None:
    """Keep the events before the step's end; return None if its activities are missing."""
    before = int(np.searchsorted(profile.events.start_ns, step.end_ns))
    events = profile.events.slice(0, before)
    uses_devices = bool(profile.accelerators) or not elsewhere.isdisjoint(_DEVICE_CATEGORIES)
    # return None if the step's activities are in a part of the file that was not read
    if uses_devices and not events.has_kind(*ACTIVITY_KINDS):
        return None
    (marker,) = np.flatnonzero(events.is_kind("step") & (events.start_ns == step.start_ns))[:1]
    step = replace(step, thread=int(thread_ids(events)[marker]))  # thread number in ``events``
    name: str = events.column("name")[int(marker)].as_py()
    whole, read = file.file.length, file.read_bytes
    return Beginning(replace(profile, events=events), step, name, read, whole)
