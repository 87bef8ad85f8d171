"""What a slice of a Perfetto trace is, by who wrote it.

- ``lstmprof export``: as ``own`` says.
- Kineto's builder (pytorch/kineto, ``PerfettoTraceBuilder``): no categories; what its JSON has as
  ``args`` is one argument, ``metadata``, the text of JSON's inside. A device's process has its
  number.
- rocprofv3 (ROCm/rocprofiler-sdk, ``generatePerfetto.cpp``): the categories below; kernels and
  copies on tracks that name agent and stream.
- Anything else whose categories are Kineto's, by name and arguments as in its JSON.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lstmprof.formats import rows
from lstmprof.formats.cuda.names import nvtx_range
from lstmprof.formats.kineto import events as kineto
from lstmprof.formats.perfetto.slices import Slice
from lstmprof.formats.perfetto.tracks import Outline, Track
from lstmprof.formats.raw_file import json_value
from lstmprof.formats.rocprofv3 import COPIES
from lstmprof.formats.rows import Row

#: The process of a trace that Kineto's builder wrote.
KINETO = "Kineto Trace"
#: rocprofv3's categories: those that are read, and those that its JSON's reader leaves out too.
_HIP, _MARKER, _KERNEL, _COPY = "hip_api", "marker_api", "kernel_dispatch", "memory_copy"
ROCPROF = frozenset((_HIP, _MARKER, _KERNEL, _COPY))
ROCPROF_UNREAD = frozenset(
    (
        *("hsa_api", "rccl_api", "memory_allocation", "scratch_memory"),
        *("rocdecode_api", "rocjpeg_api", "openmp"),
    )
)
#: Copies have the track of a thread where the version tells of no streams.
_AGENT = re.compile(
    r"(?:COMPUTE|COPY to) \D*\[(\d{1,9})\] (?:(?:STREAM|QUEUE) \[(\d{1,18})\]|THREAD )"
)
_LAST_NUMBER = re.compile(r"(\d{1,9})\D*$")
_MOST_DIGITS = 64
_GPU_PROCESS = re.compile(r"\[GPU \d+\]$")


@dataclass(frozen=True)
class Place:
    """Where a track lies: the host's thread, or the stream of a device that its names tell."""

    pid: int | None
    tid: int | None
    agent: int | None = None
    stream: int | None = None
    is_gpu: bool = False
    is_process: bool = False


class Places:
    """The places of the tracks of a trace; ``devices`` are the numbers of rocprofv3's GPUs."""

    def __init__(self, outline: Outline) -> None:
        self._outline = outline
        self._known: dict[int, Place] = {}
        pids = {track.pid for track in outline.tracks.values() if track.pid is not None}
        self.only_pid = pids.pop() if len(pids) == 1 else None
        agents = (_AGENT.match(t.name) for t in outline.tracks.values() if "(GPU)" in t.name)
        numbers = sorted({int(named[1]) for named in agents if named})
        self.devices = {agent: device for device, agent in enumerate(numbers)}

    def of(self, track: int) -> Place:
        """Where ``track`` lies."""
        if track not in self._known:
            self._known[track] = _place(list(self._outline.above(track)))
        return self._known[track]


def _place(above: list[Track]) -> Place:
    pid = next((track.pid for track in above if track.pid is not None), None)
    tid = next((track.tid for track in above if track.tid is not None), None)
    named = next((m for m in (_AGENT.match(track.name) for track in above) if m), None)
    return Place(
        pid,
        tid,
        int(named[1]) if named else None,
        rows.natural(named[2]) if named and named[2] else None,
        any("(GPU)" in t.name if named else _GPU_PROCESS.search(t.name) for t in above),
        bool(above) and above[0].process is not None,
    )


def kineto_event(slice_: Slice, place: Place, builder: bool) -> dict[str, Any]:
    """The slice as an event of Kineto's JSON; ``builder``: Kineto's own wrote it."""
    said = _unfolded(slice_.arguments) if builder else slice_.arguments
    category = slice_.category or (_category(slice_.name, said, place) if builder else "")
    if category == "operator" and "correlation_id" in said:  # an op's is the op's own
        said = {**said, "External id": said["correlation_id"], "correlation": None}
    event = {"cat": category, "name": slice_.name, "pid": place.pid, "tid": place.tid}
    return {**event, "args": said}


def _unfolded(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that Kineto's builder folds into one, as in its JSON."""
    said = {name: value for name, value in arguments.items() if name != "metadata"}
    folded = arguments.get("metadata")
    if isinstance(folded, str):
        try:
            inside = json_value(("{" + folded + "}").encode("utf-8", "replace"))
        except (ValueError, RecursionError):
            inside = None
        said |= inside if isinstance(inside, dict) else {}
    if "correlation_id" in said:
        said.setdefault("correlation", said["correlation_id"])
    return said


def _category(name: str, said: Mapping[str, Any], place: Place) -> str:
    """The category that Kineto's JSON has for an event of this name, by what its arguments are."""
    if "grid" in said or "registers per thread" in said:
        return "kernel"
    for beginning, category in (("Memcpy", "gpu_memcpy"), ("Memset", "gpu_memset")):
        if name.startswith(beginning) and "device" in said:
            return category
    if "cbid" in said or "cid" in said:
        return "cuda_runtime"
    if "Python id" in said:
        return "python_function"
    if "wait_on_stream" in said or name.endswith(" Sync"):
        return "cuda_sync"
    if place.is_process:
        return kineto.PROFILER_SPAN
    if place.is_gpu:
        return "gpu_user_annotation"
    return "overhead" if (place.pid or 0) < 0 else "operator"


def rocprof_row(slice_: Slice, place: Place, places: Places) -> Row | None:
    """The row of a slice of rocprofv3; None for what is left out, as by its JSON's reader."""
    said, name = slice_.arguments, slice_.name
    timed = (slice_.start_ns, slice_.dur_ns)
    pid = places.only_pid if place.pid is None else place.pid
    tid = rows.natural(said.get("tid"))
    correlation = rows.positive(said.get("corr_id"))
    if slice_.category == _HIP:
        if name.startswith("__hip"):
            return None
        return Row("runtime", name, *timed, pid=pid, tid=tid, correlation_id=correlation)
    if slice_.category == _MARKER:
        if name.startswith("roctx") or not slice_.dur_ns:
            return None
        told = nvtx_range(name)
        row = Row(told.kind, told.name, *timed, pid=pid, tid=tid)
        return row._replace(external_id=told.external_id, shapes=told.shapes)
    device = places.devices.get(place.agent) if place.agent is not None and place.is_gpu else None
    is_copy = slice_.category == _COPY
    if is_copy and device is None:
        device = _source(said.get("src_agent"), places)
    direction = COPIES.get(name.removeprefix("MEMORY_COPY_"))
    if device is None or (is_copy and direction is None):
        return None
    return Row(
        "memcpy" if is_copy else "kernel",
        f"Memcpy {direction}" if is_copy else name.removesuffix(".kd"),
        *timed,
        pid=pid,
        device=device,
        stream=place.stream,
        correlation_id=correlation,
        bytes=rows.natural(said.get("copy_bytes")) if is_copy else None,
    )


def _source(agent: Any, places: Places) -> int | None:
    """The GPU from which a copy comes: by its agent (``Agent-4``, or 4), or the only one."""
    number = _LAST_NUMBER.search(str(agent)[:_MOST_DIGITS])
    if number and int(number[1]) in places.devices:
        return places.devices[int(number[1])]
    return 0 if len(places.devices) == 1 else None
