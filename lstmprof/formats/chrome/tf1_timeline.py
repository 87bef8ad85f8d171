"""The ``timeline.json`` of TensorFlow 1: one ``session.run`` as ``client/timeline.py`` draws it.

To know when reading the events:

- Times are whole microseconds since 1970; a kernel takes at least one.
- A process is a device or one of its streams (``tf_processes``), a thread only a lane: an event
  that overlaps another lies on the next lane. ``pid`` and ``tid`` are these numbers.
- The executor of a GPU enqueues on the host what the GPU's streams then run. Nothing joins the
  two: there are no correlation ids.
- An activity has the name of its op, with ``op_name`` ``<node>:<OpType>``; ROCm adds the kernel's.
  A copy that an op makes itself has the op's name too, and is known by the process ``memcpy``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from lstmprof.errors import ProfileError
from lstmprof.events import Profile
from lstmprof.events.schema import ACTIVITY_KINDS
from lstmprof.formats import rows
from lstmprof.formats.chrome import tf_processes
from lstmprof.formats.chrome.tf_processes import Device
from lstmprof.formats.foreign import trace_events
from lstmprof.formats.kineto import events as kineto_events
from lstmprof.formats.raw_file import RawFile
from lstmprof.formats.rows import Row
from lstmprof.formats.xplane import events as xplane_events

_CATEGORY = "Op"
_COMPUTE = " Compute"
_UNKNOWN = "unknown"
#: The node with which an executor begins: one a run and device.
_SOURCE = "_SOURCE"


class _Event(NamedTuple):
    """An op or an activity as it is written; ``process`` is the name of its process."""

    process: str
    pid: int | None
    tid: int | None
    node: str
    op: str
    kernel: str | None
    start_ns: int
    dur_ns: int


def recognises(raw: RawFile) -> bool:
    """Whether ``raw`` is a Chrome trace with events of category ``Op`` in ``… Compute``."""
    if not raw.looks_like_json:
        return False
    events = trace_events(raw.json) or []
    if not any(isinstance(e, dict) and e.get("cat") == _CATEGORY for e in events):
        return False
    return any(n.endswith(_COMPUTE) for n in tf_processes.names(events, "process_name").values())


def read(raw: RawFile) -> Profile:
    """The profile in a timeline.

    Raises:
        ProfileError: the timeline holds no op and no activity with a time.
    """
    events = trace_events(raw.json) or []
    processes = {
        pid: name.removesuffix(_COMPUTE)
        for (pid, _), name in tf_processes.names(events, "process_name").items()
        if name.endswith(_COMPUTE)
    }
    dropped: Counter[str] = Counter()
    ops = list(_ops(events, processes, dropped))
    devices = {name: tf_processes.device(name) for name in processes.values()}
    found = list(_rows(ops, devices))
    if not found:
        raise ProfileError(
            raw.path,
            "the timeline holds no op with a time: nothing was recorded",
            "run the session with RunOptions(trace_level=FULL_TRACE)",
        )
    origin_ns = min(row.start_ns for row in found)
    return Profile(
        format="tf1_timeline",
        base_ns=rows.positive(origin_ns),
        events=rows.table(found, origin_ns),
        notes=tuple(_notes(ops, found, devices.values(), dropped)),
        metadata={"processes": {str(pid): name for pid, name in processes.items()}},
    )


def _ops(
    events: Iterable[Any], processes: Mapping[int | None, str], dropped: Counter[str]
) -> Iterator[_Event]:
    for event in events:
        if not isinstance(event, dict) or event.get("ph") != "X" or event.get("cat") != _CATEGORY:
            continue
        pid = rows.int64(event.get("pid"))
        process = processes.get(pid)
        interval = kineto_events.interval(event)
        if process is None:
            dropped["their process is not named"] += 1
        elif isinstance(interval, str):
            dropped[interval] += 1
        else:
            yield _event(event, process, pid, interval)


def _event(
    event: dict[str, Any], process: str, pid: int | None, interval: tuple[int, int]
) -> _Event:
    args = event.get("args")
    args = args if isinstance(args, dict) else {}
    texts = {key: rows.clean(value) for key, value in args.items() if isinstance(value, str)}
    op = texts.get("op") or rows.clean(str(event.get("name", "")))
    tid = rows.int64(event.get("tid"))
    return _Event(process, pid, tid, texts.get("name", ""), op, texts.get("kernel"), *interval)


def _rows(ops: list[_Event], devices: Mapping[str, Device | None]) -> Iterator[Row]:
    used = [device for name in {op.process for op in ops} if (device := devices[name])]
    streamed = {device.key for device in used if device.stream is not None}
    numbers = tf_processes.gpu_numbers(d for d in used if d.stream is not None or d.holds_all)
    copies = {_identity(op, d) for op in ops if (d := devices[op.process]) and d.holds_copies}
    for op in ops:
        device = devices[op.process]
        if device is None or not (device.stream is not None or device.holds_all):
            yield _host_row(op, device)
        elif not device.holds_all or device.key not in streamed:
            is_copy = device.holds_copies or _identity(op, device) in copies
            yield _activity(op, device.stream, numbers[device.key], is_copy)


def _identity(op: _Event, device: Device) -> tuple[object, ...]:
    """The same for an activity on its stream and for its repetition."""
    return (device.key, op.node, op.op, op.start_ns, op.dur_ns)


def _activity(op: _Event, stream: int | None, number: int, is_copy: bool) -> Row:
    kind = tf_processes.copy_or_kernel(op.op)
    named = op.op if op.op != _UNKNOWN else op.node or op.op
    return Row(
        "memcpy" if is_copy and kind == "kernel" else kind,
        op.kernel or named,
        op.start_ns,
        op.dur_ns,
        device=number,
        stream=stream,
        op_name=_label(op),
    )


def _label(op: _Event) -> str | None:
    return f"{op.node}:{op.op}" if op.node and op.op != _UNKNOWN else None


def _host_row(op: _Event, device: Device | None) -> Row:
    """An op on its executor; of the host itself, or in a lane beside a device, a call."""
    timed, thread = (op.start_ns, op.dur_ns), (op.pid, op.tid)
    if device and not device.lane:
        return tf_processes.executor_row(device, _label(op) or op.node or op.op, timed, thread)
    name = op.node or op.op
    kind = xplane_events.host_kind(name, {}) or "op"
    return Row(kind, name, *timed, pid=op.pid, tid=op.tid)


def _notes(
    ops: list[_Event], found: list[Row], devices: Iterable[Device | None], dropped: Counter[str]
) -> Iterator[str]:
    for why, count in dropped.items():
        yield f"{count} events were left out because {why}"
    runs = max(Counter(op.process for op in ops if op.node == _SOURCE).values(), default=0)
    if runs > 1:
        yield (
            f"{runs} runs of the session are merged here into one window; only the first one's"
            " names of processes are left, and a later run may have numbered its own differently"
        )
    if any(row.kind in ACTIVITY_KINDS for row in found):
        yield (
            "a TensorFlow 1 timeline has no correlation ids, so that idle time stays unattributed,"
            " and times in whole µs; nsys profile of the same program records both"
        )
    elif any(device and device.is_gpu for device in devices):
        yield (
            "no GPU activity was recorded, only the host's work for the GPU: let TensorFlow find"
            " libcupti, with RunOptions(trace_level=FULL_TRACE)"
        )
