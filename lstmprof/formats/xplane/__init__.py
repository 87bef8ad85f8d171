"""Read XPlane files (``*.xplane.pb``), which TensorFlow's and JAX's profilers write.

A file (XSpace) has planes (a device, or all threads of the host). A plane has lines (a stream, a
thread), and a line has events. Time = ``line.timestamp_ns`` + ``event.offset_ps`` / 1000, counted
from the ``profile_start_time`` of plane ``Task Environment``. To know when reading the events:

- Activities are the events on lines ``Stream #n`` of planes ``/device:GPU:N``. The reader omits the
  other lines of these planes (``Steps``, ``TensorFlow Ops``, ``XLA Modules``, ``Framework Name
  Scope``, ``Source code``…), because the profiler derives them from the streams. It also omits the
  planes of TPUs, which have no streams.
- A host event's ``tid`` is its line's id: a thread id in old files, a hash in new ones. There is no
  pid. On AMD the launches of a thread have a line of their own (``Host Threads/<tid>``), apart from
  its TraceMe events, so only ``op_name`` joins a launch with its op.
- Allocations and frees are instants on host lines; they become memory counters (``lines``).
- ``external_id`` is always null, because ``op_name`` names the op of an activity.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from lstmprof.base.errors import ProfileError, one_line
from lstmprof.events import DeviceFacts, Profile
from lstmprof.events.counters import Collected
from lstmprof.events.schema import ACTIVITY_KINDS
from lstmprof.events.spool import Chunks
from lstmprof.formats import rows
from lstmprof.formats.raw_file import RawFile
from lstmprof.formats.xplane import lines, schema
from lstmprof.formats.xplane.events import HLO_PLANE, PlaneTables, hlo_instructions, text
from lstmprof.formats.xplane.lines import Line, LineEvents
from lstmprof.formats.xplane.schema import OddError
from lstmprof.formats.xplane.wire import Outline, Piece, outline, plane_names

_GPU = re.compile(r"/device:GPU:(\d{1,9})")
_TPU = re.compile(r"/device:TPU:(\d{1,9})")
_STREAM = re.compile(r"Stream #(\d{1,18})")
_ENVIRONMENT = "Task Environment"
_PLANE_NAMES = ("/host:", "/device:", _ENVIRONMENT)
_NOT_THREADS = (HLO_PLANE, "/host:tfstreamz")
#: Most events of a small file; a real event takes at least 16 bytes, or 3 bytes if gzipped.
_FREE_EVENTS = 2**20
_MAX_NOTES = 3


def recognises(raw: RawFile) -> bool:
    """Return whether the protobuf has planes, even if it is damaged."""
    if raw.looks_like_json or raw.part(0, 1) not in schema.FIRST_BYTES:
        return False
    try:
        names = plane_names(raw)
    except OddError:
        names = []
    if any(text(name).startswith(_PLANE_NAMES) for name in names):
        return True
    space = schema.parsed(raw.content)
    if space is None:
        return any(name.encode() in raw.content for name in _PLANE_NAMES)
    return any(text(plane.name).startswith(_PLANE_NAMES) for plane in space.planes)


def read(raw: RawFile) -> Profile:
    """Read an XSpace."""
    from google.protobuf.message import DecodeError

    try:
        outlined = outline(raw)
        count = sum(len(piece) for plane in outlined.pieces for line in plane for piece in line)
        size, event_bytes = (raw.length, 12) if raw.packed_bytes is None else (raw.packed_bytes, 2)
        if count > _FREE_EVENTS + size // event_bytes:  # an event takes 560 bytes of memory
            fault = f"has {count:,} events in {size:,} bytes, more than a real profile"
            raise ProfileError(raw.path, fault, "profile fewer steps")
        return _profile(raw, outlined)
    except (OddError, DecodeError):
        pass
    space = schema.parsed(raw.content)
    if space is None:
        raise ProfileError(raw.path, schema.damage(raw.content), "copy or record the profile again")
    return _profile(raw, Outline(space, [[[] for _ in plane.lines] for plane in space.planes]))


def _profile(raw: RawFile, outlined: Outline) -> Profile:
    space = outlined.space
    planes = [(text(plane.name), plane) for plane in space.planes]
    chunks, counted, untimed = Chunks(), Collected(), 0
    for part in _parts(raw, planes, outlined.pieces):
        untimed += part.untimed
        if part.columns is not None:
            chunks.add(part.columns)
        if part.counters is not None:
            counted.add(part.counters)
    columns = chunks.columns()
    complaints = [one_line(text(line))[:200] for line in (*space.errors, *space.warnings)]
    if columns is None:
        why = f": {complaints[0]}" if complaints else ""
        raise ProfileError(
            raw.path, f"no host or GPU event was recorded{why}", "record the profile again"
        )
    origin_ns = rows.first_ns(columns)
    events = rows.moved(columns, origin_ns)
    environment = _plane_stats(planes, _ENVIRONMENT)
    names = {int(m[1]): name for name, _ in planes if (m := _GPU.match(name))}
    gpus = {number: _plane_stats(planes, name) for number, name in names.items()}
    silent = not events.has_kind(*ACTIVITY_KINDS)
    threads = [ln for name, plane in planes if name.startswith("/host:") for ln in plane.lines]
    return Profile(
        format="xplane",
        base_ns=rows.base_ns(origin_ns, rows.positive(environment.get("profile_start_time"))),
        events=events,
        device_names={
            number: rows.clean(stats["device_type_string"])
            for number, stats in gpus.items()
            if isinstance(stats.get("device_type_string"), str)
        },
        device_facts={n: facts for n, stats in gpus.items() if (facts := _facts(stats))},
        accelerators=_accelerators(planes, gpus),
        gpu_complaint=next(iter(complaints), None) if silent else None,
        notes=tuple(_notes(complaints[1:] if silent else complaints, untimed)),
        metadata={
            "hostnames": [text(name) for name in space.hostnames],
            "devices": {str(number): _plain(stats) for number, stats in gpus.items()},
            "threads": {str(ln.id): text(ln.display_name) or text(ln.name) for ln in threads},
        },
        counters=counted.counters().shifted(-origin_ns),
    )


def _parts(
    raw: RawFile, planes: list[tuple[str, Any]], pieces: list[list[list[Piece]]]
) -> Iterator[LineEvents]:
    """Yield the events of host threads and streams."""
    instructions = hlo_instructions(planes)
    for (name, plane), line_pieces in zip(planes, pieces, strict=True):
        gpu = _GPU.match(name)
        is_host = name.startswith("/host:") and name not in _NOT_THREADS
        tables = PlaneTables(plane) if gpu or is_host else None
        for message, own_pieces in zip(plane.lines, line_pieces, strict=True):
            stream = _STREAM.match(text(message.name) or text(message.display_name))
            if tables is None or (gpu and not stream):
                lines.check(raw, own_pieces)
                continue
            gpu_stream = (int(gpu[1]), int(stream[1])) if gpu and stream else None
            line = Line(tables, instructions, message.timestamp_ns, message.id, gpu_stream)
            yield from lines.one_by_one(line, message.events)
            yield from lines.read_events(raw, line, own_pieces)


def _plane_stats(planes: list[tuple[str, Any]], name: str) -> dict[str, Any]:
    for plane_name, plane in planes:
        if plane_name == name:
            return PlaneTables(plane).all_stats(plane.stats)
    return {}


def _plain(stats: dict[str, Any]) -> dict[str, Any]:
    return {rows.clean(k): v for k, v in stats.items() if isinstance(v, (int, float, str))}


def _facts(stats: dict[str, Any]) -> DeviceFacts:
    """Return facts about a GPU from XPlane's stats."""
    # pass ``core_count`` as the number of multiprocessors
    return rows.device_facts(
        stats.get("compute_cap_major"), stats.get("compute_cap_minor"), stats.get("core_count")
    )


def _accelerators(
    planes: list[tuple[str, Any]], gpus: Mapping[int, Mapping[str, Any]]
) -> tuple[str, ...]:
    """Name the GPUs (by model, or ``GPU 0``) and the TPUs (``TPU 0``)."""
    models = [(n, stats.get("device_type_string")) for n, stats in gpus.items()]
    names = [rows.clean(m) if isinstance(m, str) else f"GPU {n}" for n, m in models]
    tpus = [f"TPU {m[1]}" for name, _ in planes if (m := _TPU.match(name))]
    return tuple(dict.fromkeys([*names, *tpus]))


def _notes(complaints: list[str], untimed: int) -> Iterator[str]:
    if untimed:
        yield f"{untimed} events were left out because their time is invalid"
    yield from complaints[:_MAX_NOTES]
