"""What TensorFlow's exporters call the processes of their Chrome traces: the devices, no processes.

::

    /host:CPU                                     threads of the host
    /device:GPU:0                                 a GPU; its threads are streams (from 2.2 on)
    /device:GPU:0/stream:14, /gpu:0/stream:14     one stream
    /gpu:0/context#0/stream#1:Kernel              one stream (1.14), and what it holds
    /gpu:0/stream:all, /gpu:0/memcpy              all kernels and all copies once more
    /device:GPU:0/sync                            the host's calls that wait for the device
    /job:localhost/replica:0/task:0/gpu:0         the executor of a device's ops, on the host

TensorFlow 1's timeline puts `` Compute`` or `` Tensors`` behind. Source: ``device_tracer.cc`` of
TensorFlow 1.0 to 2.1 and its exporters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from lstmprof.formats import rows
from lstmprof.formats.rows import Row

_DEVICE = re.compile(
    r"((?:/(?:job|replica|task):[^/]*)*)/(?:device:)?(\w{1,32}):(\d{1,9})(?:/(\S*))?"
)
_STREAM = re.compile(r"(?:^|/)stream[:#](\d{1,18})(?:\D|$)")
#: Lanes that hold the activities of the numbered streams once more.
_KERNELS, _COPIES = "stream:all", "memcpy"


class Device(NamedTuple):
    """A device by the name of its process; ``lane`` is what stands behind it, often nothing."""

    task: str  # /job:worker/replica:0/task:1, often nothing
    type: str  # CPU, GPU, XLA_GPU, TPU …
    number: int
    lane: str

    @property
    def is_gpu(self) -> bool:
        """Whether it is a GPU."""
        return self.type.endswith("GPU")

    @property
    def stream(self) -> int | None:
        """The number of the stream that the process is, None where it is none."""
        found = _STREAM.search(self.lane)
        return int(found[1]) if found else None

    @property
    def is_executor(self) -> bool:
        """Whether the process is the executor of the device's ops, which runs on the host."""
        return not self.lane and (bool(self.task) or self.type.endswith("CPU"))

    @property
    def is_activities(self) -> bool:
        """Whether the process is a GPU or one of its streams."""
        streams = not self.lane or self.stream is not None or self.holds_all
        return self.is_gpu and streams and not self.is_executor

    @property
    def holds_all(self) -> bool:
        """Whether the process holds all kernels, or all copies, of the device."""
        return self.lane in (_KERNELS, _COPIES)

    @property
    def holds_copies(self) -> bool:
        """Whether the process holds nothing but copies."""
        return self.lane == _COPIES or ":memcpy" in self.lane.lower()

    @property
    def key(self) -> tuple[str, int]:
        """(task, number): which GPU it is."""
        return self.task, self.number


def device(process_name: str) -> Device | None:
    """The device that a process stands for, None for the host and what is no device."""
    found = _DEVICE.fullmatch(process_name)
    if found is None or found[2] == "host":
        return None
    return Device(found[1], found[2].upper(), int(found[3]), found[4] or "")


def names(events: Sequence[Any], row: str) -> dict[tuple[int | None, int | None], str]:
    """(pid, tid) to name, as the metadata rows ``row`` give them (``process_name``: tid None)."""
    found: dict[tuple[int | None, int | None], str] = {}
    for event in events:
        if not isinstance(event, dict) or event.get("name") != row:
            continue
        args, pid = event.get("args"), rows.int64(event.get("pid"))
        tid = rows.int64(event.get("tid")) if row == "thread_name" else None
        name = args.get("name") if isinstance(args, dict) else None
        if pid is not None and isinstance(name, str):
            found[pid, tid] = rows.clean(name)
    return found


def gpu_numbers(devices: Iterable[Device]) -> dict[tuple[str, int], int]:
    """``Device.key`` to device number: the GPU's own, counted on where two tasks share one."""
    keys = sorted({one.key for one in devices})
    own = {key: key[1] for key in keys}
    return own if len(set(own.values())) == len(own) else {k: i for i, k in enumerate(keys)}


def copy_or_kernel(name: str) -> str:
    """The kind of an activity by its name: ``MEMCPYHtoD``, ``MemcpyH2D``, ``Memset`` …"""
    low = name[:8].lower()
    if low.startswith("memcpy"):
        return "memcpy"
    return "memset" if low.startswith("memset") else "kernel"


def executor_row(
    on: Device, node: str, timed: tuple[int, int], thread: tuple[int | None, int | None]
) -> Row:
    """An op, ``<node>:<OpType>``, on its device's executor; ``thread`` is (pid, tid).

    The executor of a GPU only enqueues the op's work, so that the GPU stands before its name.
    """
    plain = Row("op", node, *timed, pid=thread[0], tid=thread[1])
    if on.type.endswith("CPU"):
        return plain
    return plain._replace(name=f"{on.type}:{on.number} {node}", op_name=node)
