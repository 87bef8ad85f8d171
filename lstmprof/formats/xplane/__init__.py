"""Read XPlane files (``*.xplane.pb``), which TensorFlow's and JAX's profilers write.

A file (XSpace) contains planes, such as ``/device:GPU:0``. A plane contains lines, such as
``Stream #14`` or a host thread. An event of a line starts ``line.timestamp_ns`` +
``event.offset_ps`` / 1000 ns after the ``profile_start_time`` of plane ``Task Environment``.
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
#: Number of events that a file may have beyond one per 12 bytes, or per 2 bytes if gzipped.
#: A real event takes at least 16 bytes, or 3 bytes if gzipped.
_FREE_EVENTS = 2**20
_MAX_NOTES = 3


def recognises(raw: RawFile) -> bool:
    """Return whether the file is an XPlane file, even if the file is damaged."""
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
            # skip lines such as ``XLA Modules``, which the profiler derives from streams
            # skip planes of TPUs, because a TPU has no streams
            if tables is None or (gpu and not stream):
                lines.check(raw, own_pieces)
                continue
            gpu_stream = (int(gpu[1]), int(stream[1])) if gpu and stream else None
            # a host line's id is a thread id in old files, and a hash in new files
            # AMD's profiler writes launches on separate lines, ``Host Threads/<tid>``,
            # so only ``op_name`` joins such a launch with its op
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
    # XPlane calls the number of multiprocessors ``core_count``
    return rows.device_facts(
        stats.get("compute_cap_major"), stats.get("compute_cap_minor"), stats.get("core_count")
    )


def _accelerators(
    planes: list[tuple[str, Any]], gpus: Mapping[int, Mapping[str, Any]]
) -> tuple[str, ...]:
    """Return the names of GPUs (models, else ``GPU 0``) and of TPUs (``TPU 0``)."""
    models = [(n, stats.get("device_type_string")) for n, stats in gpus.items()]
    names = [rows.clean(m) if isinstance(m, str) else f"GPU {n}" for n, m in models]
    tpus = [f"TPU {m[1]}" for name, _ in planes if (m := _TPU.match(name))]
    return tuple(dict.fromkeys([*names, *tpus]))


def _notes(complaints: list[str], untimed: int) -> Iterator[str]:
    if untimed:
        yield f"{untimed} events were left out because their time is invalid"
    yield from complaints[:_MAX_NOTES]
