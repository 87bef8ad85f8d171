"""Cut a Kineto trace to some of its steps or to a time range.

::

    |-- before --|======== span ========|-- after --|
            [-- launch --]   [kernel]               whole events that overlap the span
                                [launch]  [kernel]  events linked to overlapping events
          [kernel]                        [kernel]  each device's activity before and after
       value                                        each counter's last value before
                                        [marker of the next step]   ends the last step

The new file has all events that the breakdown of its steps needs. lstmprof reads and writes the
files in pieces, and copies kept events byte for byte.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import msgspec
import numpy as np
import pyarrow as pa
from isal import igzip

from lstmprof.base.errors import ProfileError, RunError, UsageError
from lstmprof.base.numbers import listed
from lstmprof.base.scratch import writing
from lstmprof.events.annotate.steps import Window
from lstmprof.events.counters import Series, by_series
from lstmprof.events.groups import Groups
from lstmprof.events.intervals import Flags, Ints
from lstmprof.events.schema import ACTIVITY_KINDS
from lstmprof.events.table import NONE, UNKNOWN, EventTable
from lstmprof.formats.kineto.event_fields import COUNTER, INSTANT, PROFILER_SPAN, interval
from lstmprof.formats.raw_file import GZIP_MAGIC, last_border

_LINKS = ("launch_id", "op_id", "parent_id", "forward_id")
READS = (
    *("event_id", "kind", "name", "start_ns", "dur_ns", "rank", "device", "correlation_id"),
    *(*_LINKS, "step"),
)
_MOST_LISTED = 12


@dataclass(frozen=True)
class Cut:
    """The events to keep in a shorter trace."""

    span: tuple[int, int]
    windows: tuple[Window, ...]  # the chosen steps, empty for a time range
    rows: Ints  # row numbers of the kept events
    inside: int  # number of events that overlap the span
    crossing: int  # number of events that cross an end of the span
    next_steps: tuple[int, ...]  # kept only by their marker, which ends the step before


def steps_chosen(windows: Sequence[Window], first: int, last: int) -> list[Window]:
    """Return the steps with numbers ``first`` to ``last``, of all ranks."""
    chosen = [w for w in windows if w.step is not None and first <= w.step <= last]
    if not chosen:
        there = list(dict.fromkeys(w.step for w in windows if w.step is not None))
        wanted = f"step {first}" if first == last else f"step from {first} to {last}"
        if not there:
            raise UsageError("the profile has no step markers", "use --range, or --step-range")
        numbers = [str(step) for step in there[:_MOST_LISTED]]
        more = [f"… {there[-1]}"] if len(there) > _MOST_LISTED else []
        raise UsageError(f"the profile has no {wanted}", f"its steps are {listed(numbers + more)}")
    return chosen


def cut_of(events: EventTable, windows: Sequence[Window], span: tuple[int, int] | None) -> Cut:
    """Choose the events to keep for some steps, or for a time range."""
    chosen = () if span else tuple(windows)
    first, until = span or (min(w.start_ns for w in windows), max(w.end_ns for w in windows))
    start, end = events.start_ns, events.end_ns
    inside = (start < until) & ((end > first) | ((start == end) & (start >= first)))
    if not inside.any():
        raise UsageError("the --range contains no event", "choose another --range")
    crossing = inside & ((start < first) | (end > until))
    rows = _linked(events, np.flatnonzero(inside))
    markers = _next_markers(events, chosen)
    rows = np.union1d(rows, np.concatenate([_neighbours(events, first, until), markers]))
    steps = tuple(sorted({*events.ints("step", NONE)[markers].tolist()} - {NONE}))
    return Cut((first, until), chosen, rows, int(inside.sum()), int(crossing.sum()), steps)


def last_before(counters: Iterable[pa.Table], at_ns: int) -> frozenset[int]:
    """Return the time of each counter's last value before ``at_ns``."""
    last: dict[Series, int] = {}
    for rows in counters:
        for series, time_ns, _ in by_series(rows):
            before = int(np.searchsorted(time_ns, at_ns))
            if before:
                last[series] = int(time_ns[before - 1])
    return frozenset(last.values())


def _linked(events: EventTable, rows: Ints) -> Ints:
    """Add the activities that ``rows`` launched, and all events to which rows link."""
    inside = np.zeros(len(events), dtype=np.bool_)
    inside[rows] = True
    launch = events.rows_named("launch_id")
    inside[(launch != NONE) & inside[launch]] = True
    links = [events.rows_named(name) for name in _LINKS]
    # skip step markers, because a marker would be a step of the new file
    marker = events.is_kind("step")
    new = np.flatnonzero(inside)
    while len(new):
        named = np.unique(np.concatenate([link[new] for link in links]))
        named = named[named != NONE]
        new = named[~inside[named] & ~marker[named]]
        inside[new] = True
    return np.flatnonzero(inside)


def _neighbours(events: EventTable, first: int, until: int) -> Ints:
    """Return the rows of each device's nearest activities around the span."""
    rows = np.flatnonzero(events.is_kind(*ACTIVITY_KINDS) & (events.dur_ns > 0))
    beside: list[int] = []
    if len(rows):
        lanes = Groups(*(events.ints(name, UNKNOWN)[rows] for name in ("rank", "device")))
        for members in lanes.members():
            own = rows[members]
            before: Flags = events.end_ns[own] <= first
            after: Flags = events.start_ns[own] >= until
            if before.any():
                beside.append(int(own[before][events.end_ns[own[before]].argmax()]))
            if after.any():
                beside.append(int(own[after][events.start_ns[own[after]].argmin()]))
    return np.array(beside, dtype=np.int64)


def _next_markers(events: EventTable, windows: Sequence[Window]) -> Ints:
    """Return the markers of the next steps, which end the chosen steps."""
    ends = {(w.rank, w.end_ns) for w in windows} - {(w.rank, w.start_ns) for w in windows}
    rows = np.flatnonzero(events.is_kind("step"))
    ranks = events.ints("rank", UNKNOWN)[rows].tolist()
    places = zip(rows.tolist(), ranks, events.start_ns[rows].tolist(), strict=True)
    markers = [r for r, rank, at in places if (None if rank == UNKNOWN else rank, at) in ends]
    return np.array(markers, dtype=np.int64)


PIECE_BYTES = 2**22
#: Largest size in bytes of one event, or of the text around the events, that can be cut.
_MOST_AROUND = 2**26
_OPENING = re.compile(rb'"traceEvents"\s*+:\s*+\[\s*+')
_CLOSING = re.compile(rb"\}\s*+\]")
_BOM = b"\xef\xbb\xbf"
_FLOWS = ("s", "t", "f")


class _Args(msgspec.Struct):
    correlation: Any = None


class _Event(msgspec.Struct):
    """The fields that decide whether lstmprof keeps an event of the file."""

    ph: str = ""
    cat: Any = None
    ts: msgspec.Raw = msgspec.Raw(b"null")
    dur: msgspec.Raw = msgspec.Raw(b"null")
    id: Any = None

    @property
    def interval(self) -> tuple[int, int] | None:
        """Return (start, length) in ns, or None if a time is invalid."""
        timed = interval({"ts": _value(self.ts), "dur": _value(self.dur)})
        return None if isinstance(timed, str) else timed

    @property
    def is_timed(self) -> bool:
        """Return whether the event is a row of the events table if its time is valid."""
        return self.ph == "X" and str(self.cat).lower() != PROFILER_SPAN


def _value(raw: msgspec.Raw) -> str | int | None:
    text = bytes(raw).decode("ascii", "replace").strip('"')
    if text == "null":
        return None
    return int(text) if text.lstrip("-").isdigit() and len(text) < 20 else text


_decode_raw = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode_events = msgspec.json.Decoder(list[_Event], strict=False).decode


@dataclass(frozen=True)
class Written:
    """How many events the trace has, how many were kept, and the size of the new file."""

    kept: int
    events: int
    size_bytes: int


def write(
    events: EventTable, cut: Cut, source: Path, path: Path, values_ns: Set[int] = frozenset()
) -> Written:
    """Write the kept events of the Kineto trace ``source`` to ``path``."""
    origin_ns = _origin_ns(source)
    # also keep the counter values at ``values_ns``, the last values before the span
    chosen = _Chosen(events, cut, origin_ns, values_ns)
    count = total = 0
    try:
        with _opened_to_write(path) as out:
            for part in _parts(source):
                if isinstance(part, bytes):
                    out.write(part)
                    continue
                for raw, event in part:
                    total += 1
                    if chosen.has(event):
                        out.write(b",\n" if count else b"\n")
                        out.write(raw)
                        count += 1
    except OSError as fault:
        raise RunError(f"{path}: {fault.strerror}", "choose a writable -o") from fault
    return Written(count, total, path.stat().st_size)


class _Chosen:
    """Decides whether to keep an event of the file, by its times or correlation id."""

    def __init__(self, events: EventTable, cut: Cut, origin_ns: int, values_ns: Set[int]) -> None:
        self._values = {ns + origin_ns for ns in values_ns}
        start, dur = events.start_ns[cut.rows] + origin_ns, events.dur_ns[cut.rows]
        self._timed = set(zip(start.tolist(), dur.tolist(), strict=True))
        self._span = tuple(edge + origin_ns for edge in cut.span)
        ids = events.ints("correlation_id", 0)[cut.rows]
        self._correlations = set(np.unique(ids[ids > 0]).tolist())

    def has(self, event: _Event) -> bool:
        if event.is_timed:
            return event.interval in self._timed
        if event.ph in _FLOWS and event.id in self._correlations:
            return True
        timed = interval({"ts": _value(event.ts), "dur": 0})
        if event.ph in ("M", "X") or isinstance(timed, str):
            return True
        if event.ph in (INSTANT, COUNTER) and timed[0] in self._values:
            return True
        return self._span[0] <= timed[0] < self._span[1]


def _origin_ns(source: Path) -> int:
    """Return the earliest start of an event in ns, which is time 0 in the run."""
    least: int | None = None
    for part in _parts(source):
        for _, event in part if not isinstance(part, bytes) else ():
            timed = event.interval if event.is_timed else None
            if timed and (least is None or timed[0] < least):
                least = timed[0]
    return least or 0


_Pairs = list[tuple[msgspec.Raw, _Event]]


def _parts(source: Path) -> Iterator[bytes | _Pairs]:
    """Yield the file's text before the events, the events, and the final text."""
    try:
        with _opened(source) as file:
            yield from _parts_of(source, file)
    except (OSError, EOFError, igzip.isal_zlib.error) as fault:
        raise ProfileError(source, f"cannot be read ({fault})", "copy it again") from fault


def _parts_of(source: Path, file: BinaryIO) -> Iterator[bytes | _Pairs]:
    head, text = _head(source, file)
    yield head
    at_end = False
    while not at_end:
        read = file.read(PIECE_BYTES)
        at_end, text = not read, text + read
        border = last_border(text)
        pairs = _pairs(text[:border]) if border else None
        if pairs is not None:
            yield pairs
            text = text[border + 1 :]
        elif len(text) > _MOST_AROUND:
            break
    for closing in _CLOSING.finditer(text):
        pairs = _pairs(text[: closing.start() + 1])
        if pairs is not None:
            yield pairs
            yield b"\n" + text[closing.end() - 1 :]
            return
    if text.lstrip().startswith(b"]"):
        yield text
        return
    raise _unusual(source)


def _head(source: Path, file: BinaryIO) -> tuple[bytes, bytes]:
    """Return the text before the first event, and the bytes read after this text."""
    text = b""
    while len(text) < _MOST_AROUND:
        read = file.read(PIECE_BYTES)
        text += read
        if not text.lstrip().startswith((b"{", _BOM)):
            break  # for example an archive of traces
        opening = _OPENING.search(text)
        if opening and opening.end() < len(text):
            return text[: opening.end()].rstrip(), text[opening.end() :]
        if not read:
            break
    raise _unusual(source)


def _unusual(source: Path) -> ProfileError:
    fault = "is not in torch.profiler's layout, so it cannot be cut to .json"
    return ProfileError(source, fault, "use -o FILE.pftrace instead")


def _pairs(text: bytes) -> _Pairs | None:
    """Parse comma-separated JSON events; return None if the text ends inside an event."""
    listed = b"[" + text + b"]"
    try:
        return list(zip(_decode_raw(listed), _decode_events(listed), strict=True))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


@contextmanager
def _opened(source: Path) -> Iterator[BinaryIO]:
    with source.open("rb") as file:
        magic = file.read(len(GZIP_MAGIC))
        file.seek(0)
        yield igzip.open(file, "rb") if magic == GZIP_MAGIC else file


@contextmanager
def _opened_to_write(path: Path) -> Iterator[BinaryIO]:
    with writing(path) as file:
        if path.suffix != ".gz":
            yield file
            return
        with igzip.IGzipFile("", "wb", fileobj=file, compresslevel=2, mtime=0) as packed:
            yield cast(BinaryIO, packed)
