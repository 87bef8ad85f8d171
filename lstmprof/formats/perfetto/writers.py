"""Convert slices of a Perfetto trace to rows, depending on the program that wrote the trace.

``lstmprof export`` writes an event's columns as arguments of the slice. Kineto's builder
(pytorch/kineto, ``PerfettoTraceBuilder``) writes Kineto's ``args`` as one text, ``metadata``.
rocprofv3 (ROCm/rocprofiler-sdk, ``generatePerfetto.cpp``) writes categories, such as ``hip_api``.
If another program writes slices with Kineto's categories, lstmprof reads the slices like Kineto's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from lstmprof.base.errors import ProfileError, one_line
from lstmprof.events import DeviceFacts, launch_config
from lstmprof.events.schema import KINDS
from lstmprof.formats import rows
from lstmprof.formats.cuda.names import nvtx_range
from lstmprof.formats.kineto import event_fields as kineto
from lstmprof.formats.perfetto.slices import Outline, Slice, Track
from lstmprof.formats.raw_file import as_list, json_object
from lstmprof.formats.rocm.rocprofv3 import COPIES
from lstmprof.formats.rows import Row

#: Name of the track that describes the profile.
FACTS_TRACK = "lstmprof"
#: Names of tracks that the export computes; a breakdown's track is ``ledger: `` and the device.
STEPS, PHASES, CRITICAL_PATH, LEDGER = "steps", "phases", "critical path", "ledger: "
DERIVED = (STEPS, PHASES, CRITICAL_PATH)
KIND = "kind"
LAUNCH_CONFIG = "launch_config"
#: Column of the events table -> name of the slice's argument with the column's value.
NUMBERS = {
    "correlation_id": "correlation",
    "external_id": "external id",
    "graph_node_id": "graph node",
    "bytes": "bytes",
    "sequence_number": "sequence number",
    "forward_thread": "forward thread",
    "device": "device",
    "stream": "stream",
    "step": "step",
}
TEXTS = ("shapes", "dtypes", "op_name", LAUNCH_CONFIG, "phase", "family", "rule")
#: Name of the argument with the process id, for events that have no thread.
PID = "process"
#: Columns in which a negative number means unknown.
_NATURAL = ("bytes", "sequence_number", "device", "stream")
#: Arguments of slices to read: (column, name of the argument, check of the value).
_READ = tuple(
    (column, name, rows.natural if column in _NATURAL else rows.int64)
    for column, name in NUMBERS.items()
    if column != "step"
)
_READ_TEXTS = ("op_name", "shapes", "dtypes")
_LAST_RANK = 2**31 - 1
_FORMAT = re.compile(r"[a-z0-9_.]{1,40}")
_NUMBER_LISTS = ("group_sizes",)
_DEEPEST = 4
_SPANS = "profiler_spans_ns"


class Where(msgspec.Struct, omit_defaults=True):
    """The thread, device or counter that a track shows."""

    rank: int | None = None
    pid: int | None = None
    tid: int | None = None
    thread: bool = False
    device: int | None = None
    counter: str | None = None
    unit: str | None = None
    allocator: str | None = None


class Facts(msgspec.Struct, omit_defaults=True):
    """Facts about a whole profile, stored in the trace."""

    format: str
    origin_ns: int = 0  # time of the profile at which the trace begins
    device_names: dict[str, str] = {}
    device_facts: dict[str, DeviceFacts] = {}
    accelerators: list[str] = []
    gpu_complaint: str | None = None
    notes: list[str] = []
    metadata: dict[str, Any] = {}


def facts(path: object, description: str) -> Facts:
    """Parse the facts in a track's description."""
    try:
        written = msgspec.json.decode(description, type=Facts)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        fault = f"its track '{FACTS_TRACK}' is damaged"
        raise ProfileError(path, fault, "export the run again") from error
    if not _FORMAT.fullmatch(written.format) or abs(written.origin_ns) > rows.MAX_NS:
        raise ProfileError(path, f"its track '{FACTS_TRACK}' is damaged", "export the run again")
    return written


def device_numbers(by_text: Mapping[str, Any]) -> dict[int, Any]:
    """Convert the keys of a JSON object to device numbers."""
    numbers = {rows.natural(key): value for key, value in by_text.items()}
    return {number: value for number, value in numbers.items() if number is not None}


def where(description: str) -> Where:
    """Parse the rank, thread or counter from the JSON description of a track."""
    try:
        owner = msgspec.json.decode(description or "{}", type=Where)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return Where()
    is_rank = owner.rank is None or 0 <= owner.rank <= _LAST_RANK
    return Where(
        owner.rank if is_rank else None,
        rows.int64(owner.pid),
        rows.int64(owner.tid),
        owner.thread,
        rows.natural(owner.device),
        *(
            None if text is None else rows.clean(text)
            for text in (owner.counter, owner.unit, owner.allocator)
        ),
    )


def is_drawn(track: Track) -> bool:
    """Return whether lstmprof's export computed the track, such as steps or breakdown."""
    return track.tid is None and (track.name.startswith(LEDGER) or track.name in DERIVED)


def row(slice_: Slice, owner: Where) -> Row | None:
    """Convert a slice of an lstmprof export to a row, if the slice is an event."""
    arguments = slice_.arguments
    kind = arguments.get(KIND)
    if kind not in KINDS:
        return None
    columns: dict[str, Any] = {
        c: meaning(arguments[name]) for c, name, meaning in _READ if name in arguments
    }
    for name in _READ_TEXTS:
        if isinstance(arguments.get(name), str):
            columns[name] = arguments[name]
    launched_with = arguments.get(LAUNCH_CONFIG)
    config = launch_config.read(launched_with) if isinstance(launched_with, str) else None
    if config and kind == "kernel":
        columns[LAUNCH_CONFIG] = launch_config.encoded(config)
    pid = owner.pid if owner.thread else rows.int64(arguments.get(PID))
    return Row(kind, slice_.name, slice_.start_ns, slice_.dur_ns, pid, owner.tid, **columns)


def metadata(fields: Mapping[str, Any], moved_ns: int, depth: int = 0) -> dict[str, Any]:
    """Drop invalid values and deep nesting; move the profiler's spans by ``moved_ns``."""
    cleaned: dict[str, Any] = {}
    for key, value in fields.items():
        if key == _SPANS:
            spans = filter(_is_span, as_list(value))
            cleaned[key] = [[start + moved_ns, end + moved_ns] for start, end in spans]
        elif key in _NUMBER_LISTS:
            cleaned[key] = [number for number in as_list(value) if rows.positive(number)]
        elif isinstance(value, dict):
            if depth < _DEEPEST:
                cleaned[key] = metadata(value, 0, depth + 1)
        elif isinstance(value, list):
            cleaned[key] = [_clean(each) for each in value if _is_plain(each)]
        elif _is_plain(value):
            cleaned[key] = _clean(value)
    return cleaned


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float, str))


def _clean(value: Any) -> Any:
    return one_line(rows.clean(value)) if isinstance(value, str) else value


def _is_span(value: Any) -> bool:
    return len(as_list(value)) == 2 and all(
        isinstance(n, int) and not isinstance(n, bool) and abs(n) <= rows.MAX_NS for n in value
    )


#: Name of the process in traces that Kineto's builder writes.
KINETO = "Kineto Trace"
#: Categories of rocprofv3's events that are read (``ROCPROF``).
_HIP, _MARKER, _KERNEL, _COPY = "hip_api", "marker_api", "kernel_dispatch", "memory_copy"
ROCPROF = frozenset((_HIP, _MARKER, _KERNEL, _COPY))
ROCPROF_UNREAD = frozenset(
    (
        *("hsa_api", "rccl_api", "memory_allocation", "scratch_memory"),
        *("rocdecode_api", "rocjpeg_api", "openmp"),
    )
)
#: Pattern of rocprofv3's kernel and copy tracks: agent, then (by version) stream, queue or thread.
_AGENT = re.compile(
    r"(?:COMPUTE|COPY to) \D*\[(\d{1,9})\] (?:(?:STREAM|QUEUE) \[(\d{1,18})\]|THREAD )"
)
_GPU = re.compile(r"\[(\d{1,9})\] .*\(GPU\)")
_LAST_NUMBER = re.compile(r"(\d{1,9})\D*$")
_MOST_DIGITS = 64
_GPU_PROCESS = re.compile(r"\[GPU \d+\]$")


@dataclass(frozen=True)
class TrackOwner:
    """The owner of a track: a host thread, or a stream of a GPU."""

    pid: int | None
    tid: int | None
    agent: int | None = None  # rocprofv3's number of the GPU
    stream: int | None = None
    is_gpu: bool = False
    is_process: bool = False


class TrackOwners:
    """Finds the thread or GPU of each track."""

    def __init__(self, outline: Outline) -> None:
        self._outline = outline
        self._owner_by_track: dict[int, TrackOwner] = {}
        pids = {track.pid for track in outline.tracks.values() if track.pid is not None}
        self.only_pid = pids.pop() if len(pids) == 1 else None
        agents = (_GPU.search(track.name) for track in outline.tracks.values())
        numbers = sorted({int(named[1]) for named in agents if named})
        # agent number in rocprofv3 -> device number
        self.devices = {agent: device for device, agent in enumerate(numbers)}

    def of(self, track: int) -> TrackOwner:
        if track not in self._owner_by_track:
            self._owner_by_track[track] = _owner_of(list(self._outline.above(track)))
        return self._owner_by_track[track]


def _owner_of(above: list[Track]) -> TrackOwner:
    pid = next((track.pid for track in above if track.pid is not None), None)
    tid = next((track.tid for track in above if track.tid is not None), None)
    named = next((m for m in (_AGENT.match(track.name) for track in above) if m), None)
    return TrackOwner(
        pid,
        tid,
        int(named[1]) if named else None,
        rows.natural(named[2]) if named and named[2] else None,
        any("(GPU)" in t.name if named else _GPU_PROCESS.search(t.name) for t in above),
        bool(above) and above[0].process is not None,
    )


def kineto_event(slice_: Slice, owner: TrackOwner, builder: bool) -> dict[str, Any]:
    """Convert a slice to an event of Kineto's JSON (``builder``: Kineto wrote the slice)."""
    arguments = _unfolded(slice_.arguments) if builder else slice_.arguments
    category = slice_.category or (_category(slice_.name, arguments, owner) if builder else "")
    # rename an op's id to ``External id``, because an op's id is not the id of a launch
    if category == "operator" and "correlation_id" in arguments:
        arguments = {**arguments, "External id": arguments["correlation_id"], "correlation": None}
    # pass the pid: in Kineto's traces, the pid of a device's process is the device's number
    event = {"cat": category, "name": slice_.name, "pid": owner.pid, "tid": owner.tid}
    return {**event, "args": arguments}


def _unfolded(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Unpack ``metadata``, in which Kineto's builder stores the other arguments."""
    unfolded = {name: value for name, value in arguments.items() if name != "metadata"}
    folded = arguments.get("metadata")
    if isinstance(folded, str):
        # add braces, which Kineto's builder omits
        unfolded |= json_object("{" + folded + "}")
    if "correlation_id" in unfolded:
        unfolded.setdefault("correlation", unfolded["correlation_id"])
    return unfolded


def _category(name: str, arguments: Mapping[str, Any], owner: TrackOwner) -> str:
    """Infer a slice's category in Kineto's JSON, which Kineto's builder does not write."""
    if "grid" in arguments or "registers per thread" in arguments:
        return "kernel"
    for beginning, category in (("Memcpy", "gpu_memcpy"), ("Memset", "gpu_memset")):
        if name.startswith(beginning) and "device" in arguments:
            return category
    if "cbid" in arguments or "cid" in arguments:
        return "cuda_runtime"
    if "Python id" in arguments:
        return "python_function"
    if "wait_on_stream" in arguments or name.endswith(" Sync"):
        return "cuda_sync"
    if owner.is_process:
        return kineto.PROFILER_SPAN
    if owner.is_gpu:
        return "gpu_user_annotation"
    return "overhead" if (owner.pid or 0) < 0 else "operator"


def rocprof_row(slice_: Slice, owner: TrackOwner, owners: TrackOwners) -> Row | None:
    """Convert a call, range, kernel or copy of rocprofv3 to a row."""
    arguments, name = slice_.arguments, slice_.name
    timed = (slice_.start_ns, slice_.dur_ns)
    pid = owners.only_pid if owner.pid is None else owner.pid
    tid = rows.natural(arguments.get("tid"))
    correlation = rows.positive(arguments.get("corr_id"))
    if slice_.category == _HIP:
        if name.startswith("__hip"):
            return None
        return Row("runtime", name, *timed, pid=pid, tid=tid, correlation_id=correlation)
    if slice_.category == _MARKER:
        if name.startswith("roctx") or not slice_.dur_ns:
            return None
        parsed = nvtx_range(name)
        row = Row(parsed.kind, parsed.name, *timed, pid=pid, tid=tid)
        return row._replace(external_id=parsed.external_id, shapes=parsed.shapes)
    device = owners.devices.get(owner.agent) if owner.agent is not None and owner.is_gpu else None
    is_copy = slice_.category == _COPY
    if device is None:
        agents = ("dst_agent", "src_agent") if is_copy else ("agent",)
        devices = (_device_of(arguments.get(agent), owners) for agent in agents)
        device = next((number for number in devices if number is not None), None)
    stream = rows.natural(arguments.get("stream_ID")) if owner.stream is None else owner.stream
    direction = COPIES.get(name.removeprefix("MEMORY_COPY_"))
    if device is None or (is_copy and direction is None):
        return None
    return Row(
        "memcpy" if is_copy else "kernel",
        f"Memcpy {direction}" if is_copy else name.removesuffix(".kd"),
        *timed,
        pid=pid,
        device=device,
        stream=stream,
        correlation_id=correlation,
        bytes=rows.natural(arguments.get("copy_bytes")) if is_copy else None,
    )


def _device_of(agent: Any, owners: TrackOwners) -> int | None:
    """Return the device number of an agent (``Agent-4``), else of the only GPU."""
    number = _LAST_NUMBER.search(str(agent)[:_MOST_DIGITS])
    if number and int(number[1]) in owners.devices:
        return owners.devices[int(number[1])]
    return 0 if len(owners.devices) == 1 else None
