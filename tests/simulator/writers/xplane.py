"""The XSpace of TensorFlow's profiler (2.15 and later), in the messages of ``xplane.proto``.

Planes: the GPU with a line a stream and one derived from them, the host's threads, the task. Names
of events and stats, and texts that repeat, stand in the plane's tables; times are picoseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from events.rows import Row
from simulator.recording import Recording

from lstmprof.formats.xplane import schema

_START_NS = 237_916_000
_DETAILS = {
    "kernel": "regs:38 static_shared:0 dynamic_shared:0 grid:160,1,1 block:256,1,1 occ_pct:50",
    "memcpy": "kind_src:pageable kind_dst:device size:163840 dest:0 async:1",
    "memset": "kind:device size:163840 async:1",
}
#: TensorFlow calls the driver.
CALLS = {
    "cudaLaunchKernel": "cuLaunchKernel",
    "cudaMemcpyAsync": "cuMemcpyAsync",
    "cudaMemsetAsync": "cuMemsetD32Async",
    "cudaStreamSynchronize": "cuStreamSynchronize",
    "cudaStreamWaitEvent": "cuStreamWaitEvent",
    "cudaEventRecord": "cuEventRecord",
    "cudaMalloc": "cuMemAlloc_v2",
}
_THREADS = ("python3", "tf_Compute/{0}")


class _Plane:
    """A plane under construction."""

    def __init__(self, space: Any, number: int, name: str) -> None:
        self.message = space.planes.add(id=number, name=name.encode())
        self._events: dict[str, int] = {}
        self._stats: dict[str, int] = {}

    def line(self, number: int, name: str) -> Any:
        return self.message.lines.add(id=number, name=name.encode(), timestamp_ns=_START_NS)

    def event(self, line: Any, name: str, row: Row, stats: Mapping[str, int | str]) -> None:
        key = self._events.setdefault(name, len(self._events) + 1)
        if key > len(self.message.event_metadata):
            self.message.event_metadata.add(key=key, value={"id": key, "name": name.encode()})
        times = {"offset_ps": row["start_ns"] * 1000, "duration_ps": row["dur_ns"] * 1000}
        self.describe(line.events.add(metadata_id=key, **times), stats)

    def describe(self, owner: Any, stats: Mapping[str, int | str]) -> None:
        for name, value in stats.items():
            stat = owner.stats.add(metadata_id=self._stat(name))
            if isinstance(value, int):
                stat.uint64_value = value
            else:
                stat.ref_value = self._stat(value)

    def _stat(self, name: str) -> int:
        key = self._stats.setdefault(name, len(self._stats) + 1)
        if key > len(self.message.stat_metadata):
            self.message.stat_metadata.add(key=key, value={"id": key, "name": name.encode()})
        return key


def of_tensorflow(recording: Recording) -> bytes:
    """The ``*.xplane.pb``."""
    return _written(recording, recording.rows)


def of_jax(recording: Recording) -> bytes:
    """The ``*.xplane.pb`` of JAX, whose host has no op of a path: only the kernels name theirs."""
    return _written(recording, [row for row in recording.rows if "/" not in row["name"]])


def _written(recording: Recording, on_host: Sequence[Row]) -> bytes:
    space = schema.xspace()(hostnames=[b"trainer-0"])
    _device(_Plane(space, 0, "/device:GPU:0"), recording)
    _host(_Plane(space, 1, "/host:CPU"), on_host)
    _Plane(space, 2, "/host:metadata")
    task = _Plane(space, 3, "Task Environment")
    task.describe(task.message, {"profile_start_time": 1_779_266_702_889_805_563})
    content: bytes = space.SerializeToString(deterministic=True)
    return content


def _device(plane: _Plane, recording: Recording) -> None:
    hardware = {"clock_rate": 1_980_000, "core_count": 132, "memory_size": 84_929_347_584}
    plane.describe(plane.message, {"device_type_string": "Nvidia GPU (Hopper)", **hardware})
    ops = _ops(recording)
    lines: dict[int, Any] = {}
    derived = plane.line(2**32, "TensorFlow Ops")
    for row, op_id in zip(recording.rows, recording.op_ids, strict=True):
        if row["kind"] not in _DETAILS:
            continue
        name = f"Stream #{row['stream']}(Compute)"
        line = lines.setdefault(row["stream"], None) or plane.line(row["stream"], name)
        lines[row["stream"]] = line
        stats: dict[str, int | str] = {
            **{"correlation_id": row["correlation_id"], "context_id": "$$1"},
            f"{row['kind']}_details": _DETAILS[row["kind"]],
        }
        op = None if op_id is None else ops[op_id]
        plane.event(line, row["name"], row, stats if op is None else {**stats, "tf_op": op})
        if op is not None:
            plane.event(derived, op, row, {})


def _ops(recording: Recording) -> dict[int | None, str]:
    numbered = zip(recording.rows, recording.op_ids, strict=True)
    return {number: row["name"] for row, number in numbered if row["kind"] == "op"}


def _host(plane: _Plane, rows: Sequence[Row]) -> None:
    lines: dict[int, Any] = {}
    for row in rows:
        tid = row["tid"]
        if tid is None:
            continue
        if tid not in lines:
            lines[tid] = plane.line(tid, _THREADS[min(len(lines), 1)].format(tid))
        name, _, number = row["name"].partition("#")
        stats = {"step_num": int(number), "_r": 1} if number else {}
        if row["kind"] == "runtime":
            stats = {"correlation_id": row["correlation_id"]}
        plane.event(lines[tid], CALLS.get(name, name), row, stats)
