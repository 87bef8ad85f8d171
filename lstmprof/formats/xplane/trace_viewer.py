"""Read ``*.trace.json.gz``, which TensorFlow's and JAX's profilers write for the trace viewer.

The profilers export this file from an XPlane (``formats.xplane``). A process of the file is a
device or the host, and a thread is a stream or a thread of the host. XLA's modules, the names of
GPUs, log messages, and the events that join the threads of tf.data's iterators are only in the
XPlane.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any

from lstmprof.base.errors import ProfileError
from lstmprof.events import Profile
from lstmprof.formats import rows
from lstmprof.formats.foreign import json_events, trace_events
from lstmprof.formats.kineto.event_fields import femtoseconds, interval, left_out
from lstmprof.formats.raw_file import RawFile, as_object
from lstmprof.formats.rows import Row
from lstmprof.formats.xplane.events import activity_row, host_row, op_name
from lstmprof.formats.xplane.tf1_timeline import (
    Device,
    accelerators,
    copy_or_kernel,
    device_of,
    executor_row,
    gpu_numbers,
    names_of,
)

#: Largest number of events that TensorFlow exports (``xplane_to_trace_container``).
MAX_EVENTS = 1_000_000
_HOST = "/host:"
_NOT_THREADS = ("/host:metadata", "/host:tfstreamz")
_STREAM = re.compile(r"Stream #(\d{1,18})")
_DETAILS = frozenset(("kernel_details", "memcpy_details", "memset_details"))
#: Stats with the full name of an op. Field ``name`` contains only the op's type.
_LONG_NAMES = ("long_name", "long name")
#: Number that ends the name of an event that begins a step, such as 3 in ``train 3``.
_STEP_NUMBER = re.compile(r" \d+$")
_FS_PER_PS = 1000
_GIVE_XPLANE = "give the .xplane.pb of the same run"


@dataclass(frozen=True)
class _Lines:
    """The names of processes by pid, and of threads by (pid, tid)."""

    processes: Mapping[int | None, str]
    threads: Mapping[tuple[int | None, int | None], str]

    @cached_property
    def devices(self) -> dict[int | None, Device]:
        devices = {pid: device_of(name) for pid, name in self.processes.items()}
        return {pid: device for pid, device in devices.items() if device is not None}

    @cached_property
    def gpu_numbers(self) -> dict[tuple[str, int], int]:
        return gpu_numbers(d for d in self.devices.values() if d.is_activities)

    @cached_property
    def streamed(self) -> set[tuple[str, int]]:
        """Return the keys of devices for which the file has one process per stream."""
        return {d.key for d in self.devices.values() if d.stream is not None}

    def is_host(self, pid: int | None) -> bool:
        name = self.processes.get(pid, "")
        return name.startswith(_HOST) and name not in _NOT_THREADS


def recognises(raw: RawFile) -> bool:
    names = names_of(json_events(raw), "process_name").values()
    return any(name.startswith(_HOST) or device_of(name) is not None for name in names)


def read(raw: RawFile) -> Profile:
    events = trace_events(raw.json) or []
    processes = names_of(events, "process_name")
    threads = names_of(events, "thread_name")
    lines = _Lines({pid: name for (pid, _), name in processes.items()}, threads)
    dropped: Counter[str] = Counter()
    intervals = list(_rows(events, lines, dropped))
    if not intervals:
        raise ProfileError(
            raw.path, "no host or GPU event was recorded", "record the profile again"
        )
    origin_ns = min(row.start_ns for row in intervals)
    return Profile(
        format="trace_viewer",
        base_ns=rows.date_ns(origin_ns),
        events=rows.table(intervals, origin_ns),
        accelerators=accelerators(lines.devices.values()),
        notes=tuple(_notes(events, intervals, dropped)),
        metadata={
            "threads": {
                str(tid): name for (pid, tid), name in threads.items() if lines.is_host(pid)
            }
        },
    )


def _rows(events: Sequence[Any], lines: _Lines, dropped: Counter[str]) -> Iterator[Row]:
    for event in events:
        if not isinstance(event, dict) or event.get("ph") != "X":
            continue
        # times are in µs from the beginning of the profile, whatever ``displayTimeUnit`` is
        # an event without a duration has a ``dur`` of 1 ps
        length = _whole_ps(event.get("dur"))
        exact = {"ts": _whole_ps(event.get("ts")), "dur": "0" if length == "0.000001" else length}
        timed = interval(exact)
        if isinstance(timed, str):
            dropped[timed] += 1
            continue
        row = _row(event, timed, lines)
        if row is not None:
            yield row


def _row(event: dict[str, Any], timed: tuple[int, int], lines: _Lines) -> Row | None:
    """Convert an event to a row; return None for a derived or repeated event."""
    pid, tid = rows.int64(event.get("pid")), rows.int64(event.get("tid"))
    name, stats = _described(event)
    device = lines.devices.get(pid)
    if device is None:
        return host_row(name, stats, timed, tid) if lines.is_host(pid) else None
    if device.is_executor:
        return executor_row(device, name, timed, (pid, tid))
    if not device.is_activities:
        return None
    number = lines.gpu_numbers[device.key]
    # TensorFlow 2.0 and 2.1 write one process per stream, without correlation ids
    if device.lane:
        is_repeated = device.holds_all and device.key in lines.streamed
        return None if is_repeated else _step_stats_row(event, name, timed, (number, device.stream))
    stream = _stream(lines.threads.get((pid, tid)), tid, stats)
    if stream is None:
        return None
    return activity_row(name, stats, timed, (number, stream))


def _step_stats_row(
    event: dict[str, Any], name: str, timed: tuple[int, int], device_stream: tuple[int, int | None]
) -> Row:
    """Make an activity's row from ``<node>:<OpType>`` or (from 2.1) ``…@@<kernel>``."""
    label, _, kernel = name.partition("@@")
    op_type = rows.clean(str(event.get("name", "")))
    return Row(
        copy_or_kernel(op_type),
        kernel or op_type,
        *timed,
        device=device_stream[0],
        stream=device_stream[1],
        op_name=op_name({"annotation": label.rpartition("::")[2]}),
    )


def _described(event: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return an event's full name and its stats."""
    stats = {
        key: rows.clean(value) if isinstance(value, str) else value
        for key, value in as_object(event.get("args")).items()
    }
    names = [*(stats.get(key) for key in _LONG_NAMES), rows.clean(str(event.get("name", "")))]
    name = next((name for name in names if isinstance(name, str) and name), "")
    return (_STEP_NUMBER.sub("", name) if name == stats.get("step_name") else name), stats


def _whole_ps(microseconds: object) -> str | None:
    """Round a time in µs to whole ps, the exact part of a float64; return text in µs."""
    exact_fs = femtoseconds(microseconds)
    if exact_fs is None:
        return None
    return f"{Decimal((exact_fs + _FS_PER_PS // 2) // _FS_PER_PS).scaleb(-6):f}"


def _stream(line: str | None, tid: int | None, stats: Mapping[str, Any]) -> int | None:
    """Return the number of the stream that a GPU's line shows; None for other lines."""
    # a kernel or a copy shows that a line without a name is a stream
    if line is None:
        return tid if _DETAILS & stats.keys() else None
    match = _STREAM.match(line)
    return int(match[1]) if match else None


def _notes(events: Sequence[Any], intervals: list[Row], dropped: Counter[str]) -> Iterator[str]:
    yield from left_out(dropped)
    if sum(isinstance(e, dict) and e.get("ph") == "X" for e in events) >= MAX_EVENTS:
        yield (
            f"the file has {MAX_EVENTS} events, the exporter's limit, so later events are missing;"
            f" {_GIVE_XPLANE}, or profile fewer steps"
        )
    if any(row.kind == "op" and row.op_name == row.name for row in intervals):
        yield (f"XLA instructions have no paths and shapes, so phases are unknown; {_GIVE_XPLANE}")
