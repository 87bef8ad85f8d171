"""Read Perfetto's protobuf traces from ``lstmprof export --perfetto``, rocprofv3 and Kineto.

``packets`` parses the file, ``slices`` finds slices (begin to end) and tracks, and ``writers``
converts slices to events, depending on the program that wrote the trace. A profile that lstmprof
exported keeps its original ``format``, such as ``kineto``.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from lstmprof.base.errors import ForeignFileError, ProfileError, one_line
from lstmprof.events import Profile
from lstmprof.events.counters import NO_COUNTERS, Count, Counters, table_of
from lstmprof.events.schema import ACTIVITY_KINDS
from lstmprof.events.spool import CHUNK_ROWS, Chunks, Spool
from lstmprof.events.table import EventTable
from lstmprof.formats import kineto, rows
from lstmprof.formats.kineto.event_fields import PROFILER_SPAN, kind, row as kineto_row
from lstmprof.formats.perfetto import packets, writers
from lstmprof.formats.perfetto.slices import Outline, Slice, Slices, outline
from lstmprof.formats.raw_file import RawFile, json_value
from lstmprof.formats.rows import Row

_HEAD_BYTES = 4096
_MOST_NAMED = 3
_NO_EVENT = "record a profile with slices, or give a torch.profiler JSON"
_NEXT_STEP = "give a trace of lstmprof export, rocprofv3 or torch.profiler"
_JOINED = ("runtime", *ACTIVITY_KINDS)
#: First correlation id for slices that flows join; larger than the ids of any profiler.
_FIRST_ARROW = 2**48


def recognises(raw: RawFile) -> bool:
    return packets.begins(raw.part(0, _HEAD_BYTES))


def read(raw: RawFile) -> Profile:
    contents = outline(raw)
    names = {track.name: track for track in contents.tracks.values()}
    facts = names.get(writers.FACTS_TRACK)
    if facts and facts.description:
        return _exported(raw, contents, writers.facts(raw.path, facts.description))
    if any(name.startswith(writers.LEDGER) for name in names):
        fault = (
            "is an export of two runs, or an export that an older lstmprof wrote; lstmprof cannot "
            "read such exports"
        )
        raise ProfileError(raw.path, fault, "give the runs themselves")
    return _Foreign(raw, contents).profile()


class _Events:
    """Collects rows in chunks; each chunk is in the order in which its slices began."""

    def __init__(self) -> None:
        self._chunks = Chunks()
        self._rows: list[tuple[int, int | None, Row]] = []
        self.ranks: set[int | None] = set()

    def add(self, number: int, row: Row, rank: int | None = None) -> None:
        self._rows.append((number, rank, row))
        self.ranks.add(rank)
        if len(self._rows) >= CHUNK_ROWS:
            self._flush()

    def _flush(self) -> None:
        self._rows.sort(key=lambda entry: entry[0])
        columns = rows.columns([row for _, _, row in self._rows])
        if self.ranks != {None}:
            ranks = pa.array([rank for _, rank, _ in self._rows], pa.int64())
            columns = columns.append_column("rank", ranks)
        self._chunks.add(columns)
        self._rows = []

    def columns(self) -> pa.Table | Spool | None:
        if self._rows:
            self._flush()
        return self._chunks.columns()


class _Counts:
    """Collects the counters of a trace that lstmprof exported."""

    def __init__(self, owners: Mapping[int, writers.Where]) -> None:
        self._owners = {n: owner for n, owner in owners.items() if owner.counter is not None}
        self._counts: dict[int | None, list[Count]] = defaultdict(list)
        self._tables: dict[int | None, list[pa.Table]] = defaultdict(list)

    def add(self, track: int, at_ns: int, value: float) -> None:
        """Add a counter's value; ignore tracks that are not the profile's own counters."""
        owner = self._owners.get(track)
        if owner is None or abs(at_ns) > rows.MAX_NS:
            return
        counts = self._counts[owner.rank]
        columns = (owner.counter or "", owner.unit, float(value), owner.allocator)
        counts.append(Count(at_ns, owner.pid, owner.device, *columns))
        if len(counts) >= CHUNK_ROWS:
            self._tables[owner.rank].append(table_of(counts))
            counts.clear()

    def counters(self, origin_ns: int) -> Counters:
        """Return all counters, with times counted from ``origin_ns``."""
        total = NO_COUNTERS
        for rank, counts in self._counts.items():
            rank_counters = Counters.of([*self._tables[rank], table_of(counts)])
            total += rank_counters.shifted(-origin_ns, rank)
        return total


def _exported(raw: RawFile, contents: Outline, facts: writers.Facts) -> Profile:
    """Read a trace that lstmprof exported."""
    drawn = {number for number, track in contents.tracks.items() if writers.is_drawn(track)}
    owners = {n: writers.where(track.description) for n, track in contents.tracks.items()}
    counts, collected = _Counts(owners), _Events()
    slices = Slices(raw, contents, drawn, flows=False, counted=counts.add)
    for slice_ in slices:
        owner = owners.get(slice_.track, writers.Where())
        row = writers.row(slice_, owner)
        if row is not None:
            collected.add(slice_.number, row, owner.rank)
    columns = collected.columns()
    if columns is None:
        raise ProfileError(raw.path, "has no event", "export the run again")
    origin_ns = rows.first_ns(columns)
    table = rows.moved(columns, origin_ns)
    if len(collected.ranks) > 1:  # a table on disk has one rank
        table = EventTable(table.arrow)
    return Profile(
        format=facts.format,
        base_ns=rows.base_ns(origin_ns, contents.epoch_ns),
        events=table,
        device_names={
            n: rows.clean(v) for n, v in writers.device_numbers(facts.device_names).items()
        },
        device_facts=writers.device_numbers(facts.device_facts),
        accelerators=tuple(map(rows.clean, facts.accelerators)),
        gpu_complaint=None if facts.gpu_complaint is None else one_line(facts.gpu_complaint),
        notes=(*map(one_line, facts.notes), *_left_out(slices.left_out)),
        metadata=writers.metadata(facts.metadata, -facts.origin_ns - origin_ns),
        counters=counts.counters(origin_ns),
    )


def _left_out(left_out: Counter[str]) -> Iterator[str]:
    for why, count in left_out.items():
        if count:
            yield f"{count} slices were left out because {why}"


class _Foreign:
    """A trace that another program wrote."""

    def __init__(self, raw: RawFile, contents: Outline) -> None:
        self._raw, self._contents = raw, contents
        self._owners = writers.TrackOwners(contents)
        self._slices, self._collected = Slices(raw, contents), _Events()
        self._builder = any(t.process == writers.KINETO for t in contents.tracks.values())
        self._kineto_left = kineto.LeftOut()
        self._rocprof_rows = self._kineto_rows = 0
        self._arrows: dict[int, int] = {}

    def profile(self) -> Profile:
        for slice_ in self._slices:
            row = self._row(slice_)
            if row is not None:
                self._collected.add(slice_.number, row)
        if self._rocprof_rows or self._kineto_rows:
            return self._profile()
        if self._kineto_left.unknown:
            categories = [name for name, _ in self._kineto_left.unknown.most_common(_MOST_NAMED)]
            shown = ", ".join(one_line(name)[:40] or "none" for name in categories)
            what = f"is a Perfetto trace of an unknown profiler (categories: {shown})"
            raise ForeignFileError(self._raw.path, what, _NEXT_STEP)
        raise ProfileError(self._raw.path, "is a Perfetto trace without slices", _NO_EVENT)

    def _row(self, slice_: Slice) -> Row | None:
        if slice_.category in writers.ROCPROF_UNREAD:
            return None
        owner = self._owners.of(slice_.track)
        if slice_.category in writers.ROCPROF:
            self._rocprof_rows += 1
            return writers.rocprof_row(slice_, owner, self._owners)
        event = writers.kineto_event(slice_, owner, self._builder)
        category = event["cat"].lower()
        timed = slice_.start_ns, slice_.dur_ns
        if category == PROFILER_SPAN:
            self._kineto_left.spans.append(timed)
            return None
        if kind(category, "") is None:
            self._kineto_left.unknown[category] += 1
        else:
            self._kineto_rows += 1
        return self._joined(kineto_row(event, *timed), slice_.flows)

    def _joined(self, row: Row, flows: tuple[int, ...]) -> Row:
        """Set the correlation id that the launch and the kernel of a flow share."""
        if row.correlation_id is not None or row.kind not in _JOINED or not flows:
            return row
        numbers = (self._arrows[flow] for flow in flows if flow in self._arrows)
        number = next(numbers, _FIRST_ARROW + len(self._arrows))
        for flow in flows:
            self._arrows.setdefault(flow, number)
        return row._replace(correlation_id=number)

    def _profile(self) -> Profile:
        columns = self._collected.columns()
        if columns is None:
            raise ProfileError(self._raw.path, "has no kernel, copy, call or range", _NO_EVENT)
        self._kineto_left.dropped.update(+self._slices.left_out)
        if self._kineto_rows:
            # pass no counters: lstmprof reads counters only from its own exports
            return kineto.profile(self._header(), columns, self._kineto_left, NO_COUNTERS)
        origin_ns = rows.first_ns(columns)
        base_ns = rows.base_ns(origin_ns, self._contents.epoch_ns)
        devices = {n: f"AMD GPU {n}" for n in self._owners.devices.values()}
        notes = list(_left_out(self._slices.left_out))
        return Profile(
            format="rocprofv3",
            base_ns=base_ns,
            events=rows.moved(columns, origin_ns),
            accelerators=tuple(devices.values()),
            notes=(*([] if base_ns else [rows.NO_DATE]), *notes),
        )

    def _header(self) -> dict[str, Any]:
        """Return a header as in Kineto's JSON, from instants that Kineto's builder wrote."""
        header: dict[str, Any] = {}
        for instant in self._slices.instants:
            if instant.name in _HEADER:
                for key, value in instant.arguments.items():
                    header[_HEADER[instant.name] or key] = _parsed(instant.name, value)
        if self._contents.epoch_ns is not None:
            header.setdefault("baseTimeNanoseconds", self._contents.epoch_ns)
        return header


#: Name of an instant -> key in Kineto's header ("": each argument is a key of the header).
_HEADER = {"trace_metadata": "", "device_properties": "deviceProperties"}


def _parsed(name: str, value: Any) -> Any:
    """Parse an argument as JSON, or keep the text."""
    if not isinstance(value, str):
        return value
    # the list of devices may lack its brackets
    listed = f"[{value}]" if _HEADER[name] and not value.startswith("[") else value
    try:
        return json_value(listed.encode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return value
