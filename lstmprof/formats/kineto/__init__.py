"""Read Kineto's JSON, which ``torch.profiler`` exports, as written in any year since 2020.

The tests contain the pitfalls of each year with their sources. A runtime call and its activities
have the same ``correlation``. ``External id`` is usually the id of the op that issued the call.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from lstmprof.base.errors import ProfileError, one_line
from lstmprof.events import DeviceFacts, Profile
from lstmprof.events.counters import Count, Counters, table_of
from lstmprof.events.schema import ACTIVITY_KINDS
from lstmprof.events.spool import Spool
from lstmprof.formats import rows
from lstmprof.formats.foreign import trace_events
from lstmprof.formats.kineto.event_fields import KINDS, PROFILER_SPAN, counts, interval, kind, row
from lstmprof.formats.raw_file import RawFile, as_object, objects
from lstmprof.formats.rows import Row

_HEADER_KEYS = frozenset(("schemaVersion", "deviceProperties", "baseTimeNanoseconds"))
_METADATA_KEYS = (
    *("traceName", "schemaVersion", "trace_id"),
    *("record_shapes", "with_stack", "with_flops", "with_modules", "profile_memory"),
    *("cupti_version", "cuda_runtime_version", "cuda_driver_version"),
    *("hip_runtime_version", "hip_driver_version", "roctracer_version"),
)
_LOGGED = ("ERROR", "WARNING")
_MAX_LOGGED = 3
#: Pattern of log messages that explain why no GPU activity was recorded.
_ABOUT_GPU = re.compile(r"(?i)cupti|cuda|gpu|roctracer|rocprof|hip")


def recognises(raw: RawFile) -> bool:
    if not raw.looks_like_json:
        return False
    events = trace_events(raw.json)
    if events is None:
        return False
    categories = {str(e.get("cat")).lower() for e in events if isinstance(e, dict)}
    return is_kineto(raw.json if isinstance(raw.json, dict) else {}, categories)


def is_kineto(header: Mapping[str, Any], categories: Set[str]) -> bool:
    """Return whether the header's keys or the events' categories show a Kineto trace."""
    return bool(_HEADER_KEYS & header.keys()) or not categories.isdisjoint(KINDS)


def may_be_header(text: bytes) -> bool:
    return any(key.encode() in text for key in _HEADER_KEYS)


def read(raw: RawFile) -> Profile:
    header = raw.json if isinstance(raw.json, dict) else {}
    intervals, counts, left_out = decoded_rows(trace_events(raw.json) or ())
    if not intervals:
        raise ProfileError(
            raw.path,
            "the trace has no event with a duration; nothing was recorded",
            "run some steps inside the profiler, then export",
        )
    beside = Counters.of([table_of(counts)])
    return profile(header, rows.columns(intervals), left_out, beside)


@dataclass(frozen=True)
class LeftOut:
    """Events that lstmprof omits from a trace, and counts of unknown categories."""

    # (start, length) in ns of the profiler's own spans, which lstmprof omits
    spans: list[tuple[int, int]] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)  # number of omitted events by reason
    unknown: Counter[str] = field(default_factory=Counter)  # number of ranges by unknown category

    def add(self, other: LeftOut) -> None:
        self.spans.extend(other.spans)
        self.dropped.update(other.dropped)
        self.unknown.update(other.unknown)


def profile(
    header: Mapping[str, Any], columns: pa.Table | Spool, left_out: LeftOut, counters: Counters
) -> Profile:
    origin_ns = rows.first_ns(columns)
    # the driver may give an empty name
    devices = {n: rows.clean(str(device.get("name", ""))) for n, device in _devices(header)}
    distributed = as_object(header.get("distributedInfo"))
    rank = rows.natural(distributed.get("rank"))
    events = rows.moved(columns, origin_ns, rank)
    metadata = {key: header[key] for key in _METADATA_KEYS if key in header}
    metadata |= {k: distributed[k] for k in ("rank", "world_size", "backend") if k in distributed}
    logged = _logged(header)
    silent = not events.has_kind(*ACTIVITY_KINDS)
    complaint = next((line for line in logged if silent and _ABOUT_GPU.search(line)), None)
    if sizes := _group_sizes(distributed):
        metadata["group_sizes"] = sizes
    metadata["profiler_spans_ns"] = [[s - origin_ns, s - origin_ns + d] for s, d in left_out.spans]
    return Profile(
        format="kineto",
        # ``ts`` counts from 1970, or from ``baseTimeNanoseconds`` if the header has this key
        base_ns=rows.base_ns(origin_ns, rows.positive(header.get("baseTimeNanoseconds"))),
        events=events,
        counters=counters.shifted(-origin_ns, rank),
        device_names={number: name for number, name in devices.items() if name},
        device_facts=_device_facts(header),
        accelerators=tuple(dict.fromkeys(n or f"GPU {number}" for number, n in devices.items())),
        gpu_complaint=complaint,
        notes=(
            *_left_out(left_out),
            *(f"the profiler logged: {line}" for line in logged if line != complaint),
        ),
        metadata=metadata,
        process_groups=_process_groups(distributed),
    )


def _process_groups(distributed: Mapping[str, Any]) -> frozenset[frozenset[int]]:
    """Return the process groups of the profile's rank, except the group of all ranks."""
    rank = rows.natural(distributed.get("rank"))
    groups = [group.get("ranks") for group in objects(distributed.get("pg_config"))]
    members = (frozenset(map(rows.natural, group)) for group in groups if isinstance(group, list))
    return frozenset(
        frozenset(each for each in group if each is not None)
        for group in members
        if {None, rank} & group == {rank} and len(group) != distributed.get("world_size")
    )


def _group_sizes(distributed: Mapping[str, Any]) -> list[int]:
    sizes = [group.get("pg_size") for group in objects(distributed.get("pg_config"))]
    return sorted({size for size in map(rows.positive, sizes) if size is not None})


def decoded_rows(events: Iterable[Any]) -> tuple[list[Row], list[Count], LeftOut]:
    """Convert parsed JSON events to rows and counter values."""
    intervals: list[Row] = []
    values: list[Count] = []
    left_out = LeftOut()
    for event in events:
        if not isinstance(event, dict):
            continue
        if event.get("ph") != "X":
            read = counts(event)
            if isinstance(read, str):
                left_out.dropped[read] += 1
            else:
                values += read
            continue
        timed = interval(event)
        category = str(event.get("cat")).lower()
        if isinstance(timed, str):
            left_out.dropped[timed] += 1
        elif category == PROFILER_SPAN:
            left_out.spans.append(timed)
        else:
            intervals.append(row(event, *timed))
            if kind(category, "") is None:
                left_out.unknown[category] += 1
    return intervals, values, left_out


def _left_out(left_out: LeftOut) -> list[str]:
    notes = [f"{n:,} events were left out because {why}" for why, n in left_out.dropped.items()]
    return notes + [
        f"{n:,} events of unknown category '{one_line(c)[:40]}' are treated as ranges"
        for c, n in left_out.unknown.most_common(_MAX_LOGGED)
    ]


def _device_facts(header: Mapping[str, Any]) -> dict[int, DeviceFacts]:
    facts = {
        number: rows.device_facts(
            device.get("computeMajor"),
            device.get("computeMinor"),
            device.get("numSms"),
            device.get("warpSize"),
        )
        for number, device in _devices(header)
    }
    return {number: of_device for number, of_device in facts.items() if of_device}


def _devices(header: Mapping[str, Any]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for device in objects(header.get("deviceProperties")):
        number = rows.natural(device.get("id"))
        if number is not None:
            yield number, device


def _logged(header: Mapping[str, Any]) -> list[str]:
    """Return the profiler's first errors and warnings in the header."""
    lists = [(level, header.get(level)) for level in _LOGGED]
    lines = [(level, line) for level, lines in lists if isinstance(lines, list) for line in lines]
    return [one_line(rows.clean(str(line)))[:200] for _, line in lines[:_MAX_LOGGED]]
