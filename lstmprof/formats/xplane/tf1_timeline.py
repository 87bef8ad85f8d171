"""Read TensorFlow 1's ``timeline.json``: a trace of one ``session.run`` (``client/timeline.py``).

A process of the file is a device or a stream, such as ``/gpu:0/stream:14 Compute``. A thread of
the file is a lane, which is a row of the drawing. Times are whole microseconds since 1970.
Source: ``device_tracer.cc`` of TensorFlow 1.0 to 2.1 and its exporters.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from lstmprof.base.errors import ProfileError
from lstmprof.events import Profile
from lstmprof.events.processes import MOST_PID
from lstmprof.formats import rows
from lstmprof.formats.foreign import consumed, json_events, trace_events
from lstmprof.formats.kineto.event_fields import left_out, timed_events
from lstmprof.formats.raw_file import RawFile, as_object
from lstmprof.formats.rows import Row
from lstmprof.formats.xplane.events import host_kind

#: Category of the steps and ranges that lstmprof's worker adds to TensorFlow's events.
CATEGORY = "lstmprof"
_STEP = "step"

#: (pid, tid) of a lane (a row of the timeline's drawing) -> thread number in the events table.
#: Overlapping events are in different lanes.
Lanes = dict[tuple[int | None, int | None], int]


def ranges(events: Iterable[Any]) -> list[Row]:
    """Return the steps and ranges that lstmprof's worker added to the timeline."""
    listed = []
    for event, timed in timed_events(events, Counter(), lambda e: e.get("cat") == CATEGORY):
        pid = rows.natural(as_object(event.get("args")).get("pid"))
        if pid is not None:
            name = rows.clean(str(event.get("name", "")))
            kind = "step" if name == _STEP else "range"
            # the main thread recorded the ranges, and on Linux its thread number is the pid
            listed.append(Row(kind, name, *timed, pid=pid, tid=pid))
    return listed


def in_one_process(ops: Sequence[Row], pid: int | None) -> tuple[list[Row], Lanes]:
    """Move the host ops to process ``pid``, with one thread number per lane."""
    lanes: Lanes = {}
    moved = []
    for row in ops:
        if row.device is None:
            # choose numbers above MOST_PID, which no thread of the worker's process has
            thread = lanes.setdefault((row.pid, row.tid), MOST_PID + 1 + len(lanes))
            row = row._replace(pid=pid, tid=thread)
        moved.append(row)
    return moved, lanes


_CATEGORY = "Op"
_COMPUTE = " Compute"
_UNKNOWN = "unknown"
#: Name of an executor's first node, which runs once per session run and device.
_SOURCE = "_SOURCE"
#: Pattern of the names of processes (except /host:CPU), without `` Compute`` at the end:
#:
#:   /host:CPU                                     threads of the host
#:   /device:GPU:0                                 a GPU; its threads are streams (from 2.2 on)
#:   /device:GPU:0/stream:14, /gpu:0/stream:14     one stream
#:   /gpu:0/context#0/stream#1:Kernel              one stream (1.14), and the kind of activities
#:   /gpu:0/stream:all, /gpu:0/memcpy              all kernels, and all memcpys, repeated
#:   /device:GPU:0/sync                            the host's calls that wait for the device
#:   /job:localhost/replica:0/task:0/gpu:0         the executor of a device's ops, on the host
_DEVICE = re.compile(
    r"((?:/(?:job|replica|task):[^/]*)*)/(?:device:)?(\w{1,32}):(\d{1,9})(?:/(\S*))?"
)
_STREAM = re.compile(r"(?:^|/)stream[:#](\d{1,18})(?:\D|$)")
#: Prefix that XLA adds to the names of devices. ``XLA_GPU:0`` is the GPU ``GPU:0``.
_XLA = "XLA_"
#: Names of the processes that repeat the kernels, or the copies, of all streams.
_KERNELS, _COPIES = "stream:all", "memcpy"


class Device(NamedTuple):
    """The name of a process in the file, split into its parts."""

    task: str  # /job:worker/replica:0/task:1, often empty
    type: str  # CPU, GPU, XLA_GPU, TPU …
    number: int
    lane: str  # after the device, such as ``stream:14``

    @property
    def is_gpu(self) -> bool:
        return self.type.endswith("GPU")

    @property
    def stream(self) -> int | None:
        """Return the stream's number, if the process shows one stream."""
        match = _STREAM.search(self.lane)
        return int(match[1]) if match else None

    @property
    def is_executor(self) -> bool:
        """Return whether the process is the device's executor on the host."""
        return not self.lane and (bool(self.task) or self.type.endswith("CPU"))

    @property
    def is_activities(self) -> bool:
        """Return whether the process contains activities of a GPU."""
        streams = not self.lane or self.stream is not None or self.holds_all
        return self.is_gpu and streams and not self.is_executor

    @property
    def holds_all(self) -> bool:
        """Return whether the process repeats the kernels or copies of all streams."""
        return self.lane in (_KERNELS, _COPIES)

    @property
    def holds_copies(self) -> bool:
        return self.lane == _COPIES or ":memcpy" in self.lane.lower()

    @property
    def key(self) -> tuple[str, int]:
        """Return (task, number), which identifies a device within its type."""
        return self.task, self.number


class _Event(NamedTuple):
    """An op on the host, or an activity on a GPU."""

    process: str  # name of its process in the file
    pid: int | None
    tid: int | None
    node: str
    op: str
    kernel: str | None
    start_ns: int
    dur_ns: int


def recognises(raw: RawFile) -> bool:
    if not any(event.get("cat") == _CATEGORY for event in json_events(raw)):
        return False
    return any(n.endswith(_COMPUTE) for n in names_of(json_events(raw), "process_name").values())


def read(raw: RawFile) -> Profile:
    events = trace_events(raw.json) or []
    processes = {
        pid: name.removesuffix(_COMPUTE)
        for (pid, _), name in names_of(events, "process_name").items()
        if name.endswith(_COMPUTE)
    }
    dropped: Counter[str] = Counter()
    devices = {name: device_of(name) for name in processes.values()}
    steps = ranges(events)
    ops = _without_twins(list(_ops(consumed(events), processes, dropped)), devices)
    intervals = list(_rows(ops, devices))
    if not intervals:
        raise ProfileError(
            raw.path,
            "the timeline has no op with a time; nothing was recorded",
            "run the session with RunOptions(trace_level=FULL_TRACE)",
        )
    metadata: dict[str, Any] = {"processes": {str(pid): name for pid, name in processes.items()}}
    if steps:
        intervals, lanes = in_one_process(intervals, steps[0].pid)
        intervals += steps
        metadata["threads"] = {
            str(thread): f"{processes.get(pid, 'host').rpartition('device:')[2]}, lane {tid}"
            for (pid, tid), thread in lanes.items()
        }
    origin_ns = min(row.start_ns for row in intervals)
    return Profile(
        format="tf1_timeline",
        base_ns=rows.positive(origin_ns),
        events=rows.table(intervals, origin_ns),
        accelerators=accelerators(d for d in devices.values() if d is not None),
        notes=tuple(_notes(ops, dropped, merged=not steps)),
        metadata=metadata,
    )


def _without_twins(ops: Sequence[_Event], devices: Mapping[str, Device | None]) -> list[_Event]:
    """Omit events of ``/host:CPU`` that repeat an executor's event (TensorFlow 1.15)."""
    on_executors = {
        _label(op)
        for op in ops
        if (device := devices[op.process]) is not None and device.is_executor
    }
    return [
        op
        for op in ops
        if devices[op.process] is not None or op.op != _UNKNOWN or op.node not in on_executors
    ]


def _ops(
    events: Iterable[Any], processes: Mapping[int | None, str], dropped: Counter[str]
) -> Iterator[_Event]:
    def is_read(event: dict[str, Any]) -> bool:
        named = event.get("cat") == _CATEGORY and rows.int64(event.get("pid")) in processes
        dropped["their process has no name"] += event.get("cat") == _CATEGORY and not named
        return named

    for event, timed in timed_events(events, dropped, is_read):
        pid = rows.int64(event.get("pid"))
        yield _event(event, processes[pid], pid, timed)


def _event(event: dict[str, Any], process: str, pid: int | None, timed: tuple[int, int]) -> _Event:
    args = as_object(event.get("args"))
    texts = {key: rows.clean(value) for key, value in args.items() if isinstance(value, str)}
    op = texts.get("op") or rows.clean(str(event.get("name", "")))
    tid = rows.int64(event.get("tid"))
    return _Event(process, pid, tid, texts.get("name", ""), op, texts.get("kernel"), *timed)


def _rows(ops: list[_Event], devices: Mapping[str, Device | None]) -> Iterator[Row]:
    used = [device for name in {op.process for op in ops} if (device := devices[name])]
    streamed = {device.key for device in used if device.stream is not None}
    numbers = gpu_numbers(d for d in used if d.stream is not None or d.holds_all)
    # find copies by process, because a copy inside an op has the name of the op
    copies = {_identity(op, d) for op in ops if (d := devices[op.process]) and d.holds_copies}
    for op in ops:
        device = devices[op.process]
        if device is None or not (device.stream is not None or device.holds_all):
            yield _host_row(op, device)
        elif not device.holds_all or device.key not in streamed:
            is_copy = device.holds_copies or _identity(op, device) in copies
            yield _activity(op, device.stream, numbers[device.key], is_copy)


def _identity(op: _Event, device: Device) -> tuple[object, ...]:
    """Return a key that is equal for an activity and its repetition in the file."""
    return (device.key, op.node, op.op, op.start_ns, op.dur_ns)


def _activity(op: _Event, stream: int | None, number: int, is_copy: bool) -> Row:
    kind = copy_or_kernel(op.op)
    # expect the name of the activity's op, but on ROCm the name of the kernel
    named = op.op if op.op != _UNKNOWN else op.node or op.op
    return Row(
        "memcpy" if is_copy and kind == "kernel" else kind,
        op.kernel or named,
        op.start_ns,
        op.dur_ns,
        device=number,
        stream=stream,
        op_name=_label(op),  # names the op, because a timeline has no correlation ids
    )


def _label(op: _Event) -> str | None:
    return f"{op.node}:{op.op}" if op.node and op.op != _UNKNOWN else None


def _host_row(op: _Event, device: Device | None) -> Row:
    timed, thread = (op.start_ns, op.dur_ns), (op.pid, op.tid)
    if device and not device.lane:
        return executor_row(device, _label(op) or op.node or op.op, timed, thread)
    name = op.node or op.op
    kind = host_kind(name, {}) or "op"
    return Row(kind, name, *timed, pid=op.pid, tid=op.tid)


def _notes(ops: list[_Event], dropped: Counter[str], merged: bool) -> Iterator[str]:
    yield from left_out(+dropped)
    runs = max(Counter(op.process for op in ops if op.node == _SOURCE).values(), default=0)
    if merged and runs > 1:
        yield (
            f"{runs} calls of session.run count as one step; process names come from the first call"
            " and may be wrong for later calls"
        )


def accelerators(devices: Iterable[Device]) -> tuple[str, ...]:
    """Return the names of GPUs and TPUs, such as ``GPU 0``."""
    types = ((d.type.removeprefix(_XLA), d.number) for d in devices if d.is_gpu or d.type == "TPU")
    return tuple(dict.fromkeys(f"{type_} {number}" for type_, number in types))


def device_of(process_name: str) -> Device | None:
    """Parse the name of a process; return None if the process is no device."""
    match = _DEVICE.fullmatch(process_name)
    if match is None or match[2] == "host":
        return None
    return Device(match[1], match[2].upper(), int(match[3]), match[4] or "")


def names_of(events: Iterable[Any], row: str) -> dict[tuple[int | None, int | None], str]:
    """Return the names of processes or threads, by (pid, tid)."""
    names: dict[tuple[int | None, int | None], str] = {}
    for event in events:
        if not isinstance(event, dict) or event.get("name") != row:
            continue
        pid = rows.int64(event.get("pid"))
        tid = rows.int64(event.get("tid")) if row == "thread_name" else None
        name = as_object(event.get("args")).get("name")
        if pid is not None and isinstance(name, str):
            names[pid, tid] = rows.clean(name)
    return names


def gpu_numbers(devices: Iterable[Device]) -> dict[tuple[str, int], int]:
    """Return each GPU's number in the file, or 0, 1, 2 … if two GPUs share one."""
    keys = sorted({device.key for device in devices})
    ids = {key: key[1] for key in keys}
    return ids if len(set(ids.values())) == len(ids) else {k: i for i, k in enumerate(keys)}


def copy_or_kernel(name: str) -> str:
    """Return ``memcpy``, ``memset`` or ``kernel``: ``MemcpyH2D`` -> ``memcpy``."""
    low = name[:8].lower()
    if low.startswith("memcpy"):
        return "memcpy"
    return "memset" if low.startswith("memset") else "kernel"


def executor_row(
    on: Device, node: str, timed: tuple[int, int], thread: tuple[int | None, int | None]
) -> Row:
    """Make a row for an op ``<node>:<OpType>`` on the executor of a device."""
    plain = Row("op", node, *timed, pid=thread[0], tid=thread[1])
    if on.type.endswith("CPU"):
        return plain
    # add the device to the name, because its executor only enqueues work on the device
    return plain._replace(name=f"{on.type}:{on.number} {node}", op_name=node)
