"""XPlane: the ``*.xplane.pb`` of TensorFlow's and JAX's profilers.

An XSpace holds planes (a device, or all threads of the host), a plane holds lines (a stream, a
thread), a line holds events. Time = ``line.timestamp_ns`` + ``event.offset_ps`` / 1000, counted
from the ``profile_start_time`` of plane ``Task Environment``. To know when reading the events:

- Only the lines ``Stream #n`` of planes ``/device:GPU:N`` are activities. The others there
  (``Steps``, ``TensorFlow Ops``, ``XLA Modules``, ``Framework Name Scope``, ``Source code``…) are
  derived from them and left out. TPU planes have no streams and are left out, with a note.
- A host event's ``tid`` is its line's id: a thread id in old files, a hash in new ones. There is no
  pid. On AMD the launches have lines of their own (``Host Threads/<tid>``), apart from the same
  thread's TraceMe line, so that launches and ops meet through ``op_name`` only.
- ``external_id`` is always null; ``op_name`` names the op of an activity directly.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from lstmprof.errors import ProfileError, one_line
from lstmprof.events import ACTIVITY_KINDS, Profile
from lstmprof.formats import rows, xplane_events, xplane_hlo, xplane_schema
from lstmprof.formats.raw_file import RawFile
from lstmprof.formats.rows import Row
from lstmprof.formats.xplane_plane import PlaneTables, text

_GPU = re.compile(r"/device:GPU:(\d{1,9})")
_STREAM = re.compile(r"Stream #(\d{1,18})")
_ENVIRONMENT = "Task Environment"
_PLANE_NAMES = ("/host:", "/device:", _ENVIRONMENT)
_NOT_THREADS = (xplane_hlo.PLANE, "/host:tfstreamz")
#: Nanoseconds since 1970 on 2001-09-09: some TensorFlow 2 versions date their lines.
_EPOCH_FLOOR_NS = 10**18
_PS_PER_NS = 1000
_LET_CUPTI_RUN = (
    "let the framework find libcupti (LD_LIBRARY_PATH), allow users to profile"
    " (NVreg_RestrictProfilingToAdminUsers=0), and record again"
)
_MAX_NOTES = 3


def recognises(raw: RawFile) -> bool:
    """Whether ``raw`` is protobuf with planes, or was: a damaged one is recognised by its names."""
    if raw.looks_like_json or raw.part(0, 1) not in xplane_schema.FIRST_BYTES:
        return False
    space = xplane_schema.parsed(raw.content)
    if space is None:
        return any(name.encode() in raw.content for name in _PLANE_NAMES)
    return any(text(plane.name).startswith(_PLANE_NAMES) for plane in space.planes)


def read(raw: RawFile) -> Profile:
    """The profile in an XSpace.

    Raises:
        ProfileError: it is damaged, or holds no event of a host thread or of a GPU.
    """
    space = xplane_schema.parsed(raw.content)
    if space is None:
        raise ProfileError(
            raw.path, xplane_schema.damage(raw.content), "copy or record the profile again"
        )
    planes = [(text(plane.name), plane) for plane in space.planes]
    untimed: list[str] = []
    paths = xplane_hlo.paths(planes)
    found = [row for name, plane in planes for row in _rows(name, plane, paths, untimed)]
    complaints = [one_line(text(line))[:200] for line in (*space.errors, *space.warnings)]
    if not found:
        why = f": {complaints[0]}" if complaints else ""
        raise ProfileError(
            raw.path, f"no host or GPU event was recorded{why}", "record the profile again"
        )
    origin_ns = min(row.start_ns for row in found)
    environment = _plane_stats(planes, _ENVIRONMENT)
    names = {int(m[1]): name for name, _ in planes if (m := _GPU.match(name))}
    gpus = {number: _plane_stats(planes, name) for number, name in names.items()}
    return Profile(
        format="xplane",
        base_ns=_base_ns(environment, origin_ns),
        events=rows.table(found, origin_ns),
        device_names={
            number: rows.clean(stats["device_type_string"])
            for number, stats in gpus.items()
            if isinstance(stats.get("device_type_string"), str)
        },
        notes=tuple(_notes(planes, found, complaints, len(untimed))),
        metadata={
            "hostnames": [text(name) for name in space.hostnames],
            "devices": {str(number): _plain(stats) for number, stats in gpus.items()},
            "threads": _threads(planes),
        },
    )


def _rows(
    plane_name: str, plane: Any, paths: xplane_hlo.Paths, untimed: list[str]
) -> Iterator[Row]:
    gpu = _GPU.match(plane_name)
    is_host = plane_name.startswith("/host:") and plane_name not in _NOT_THREADS
    if not gpu and not is_host:
        return
    tables = PlaneTables(plane)
    for line in plane.lines:
        stream = _STREAM.match(text(line.name) or text(line.display_name))
        if gpu and not stream:
            continue
        for event in line.events:
            timed = _interval(line.timestamp_ns, event)
            name, stats = tables.described(event)
            stats = xplane_events.with_path(stats, paths)
            if timed is None:
                untimed.append(name)
                continue
            if gpu and stream:
                place = (int(gpu[1]), int(stream[1]))
                row = xplane_events.activity_row(name, stats, timed, place)
            else:
                row = xplane_events.host_row(name, stats, timed, line.id)
            if row is not None:
                yield row


def _interval(line_ns: int, event: Any) -> tuple[int, int] | None:
    """(start, length) in whole ns, each end rounded from exact ps; None if it is no interval."""
    if event.WhichOneof("value") == "num_occurrences" or event.duration_ps < 0:
        return None  # a count of events, or damage
    start_ps = line_ns * _PS_PER_NS + event.offset_ps
    start_ns = (start_ps + _PS_PER_NS // 2) // _PS_PER_NS
    end_ns = (start_ps + event.duration_ps + _PS_PER_NS // 2) // _PS_PER_NS
    if max(abs(start_ns), abs(end_ns)) > rows.MAX_NS:
        return None
    return start_ns, end_ns - start_ns


def _plane_stats(planes: list[tuple[str, Any]], name: str) -> dict[str, Any]:
    for plane_name, plane in planes:
        if plane_name == name:
            return PlaneTables(plane).all_stats(plane.stats)
    return {}


def _plain(stats: dict[str, Any]) -> dict[str, Any]:
    return {rows.clean(k): v for k, v in stats.items() if isinstance(v, (int, float, str))}


def _threads(planes: list[tuple[str, Any]]) -> dict[str, str]:
    """The name of each host thread, by tid."""
    lines = [ln for name, plane in planes if name.startswith("/host:") for ln in plane.lines]
    return {str(ln.id): text(ln.display_name) or text(ln.name) for ln in lines}


def _base_ns(environment: dict[str, Any], origin_ns: int) -> int | None:
    if origin_ns >= _EPOCH_FLOOR_NS:
        return origin_ns
    started_ns = rows.positive(environment.get("profile_start_time"))
    return None if started_ns is None else rows.positive(started_ns + origin_ns)


def _notes(
    planes: list[tuple[str, Any]], found: list[Row], complaints: list[str], untimed: int
) -> Iterator[str]:
    if untimed:
        yield f"{untimed} events were left out because they have no possible time of their own"
    if any(name.startswith("/device:TPU:") for name, _ in planes):
        yield "TPU planes are not read: these are the host's events only"
    has_activities = any(row.kind in ACTIVITY_KINDS for row in found)
    has_gpus = any(_GPU.match(name) for name, _ in planes)
    if has_gpus and not has_activities:
        why = complaints[0] if complaints else "the profile does not say why"
        yield f"no GPU activity was recorded: {why}; {_LET_CUPTI_RUN}"
        complaints = complaints[1:]
    yield from complaints[:_MAX_NOTES]
    if not any(row.device is None for row in found):
        yield "GPU activities were recorded but no host event"
