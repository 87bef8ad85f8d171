"""What host threads tell a device to do: the instructions that ``gpu_simulator`` runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Stream = tuple[int, int]  # device, number


@dataclass(frozen=True)
class Gap:
    """Host time in whatever scope is open."""

    ns: int


@dataclass(frozen=True)
class Call:
    """A call of no effect on the device, or overhead of the profiler."""

    name: str
    state: str
    ns: int
    kind: str = "runtime"


@dataclass(frozen=True)
class Work:
    """What a stream runs; ``category`` where no op around its launch has one."""

    kind: str
    name: str
    category: str
    ns: int


@dataclass(frozen=True)
class Launch:
    stream: Stream
    work: Work
    call_ns: int


@dataclass(frozen=True)
class GraphLaunch:
    """One call that enqueues the nodes of a CUDA graph, numbered from 1."""

    stream: Stream
    nodes: tuple[Work, ...]
    call_ns: int


@dataclass(frozen=True)
class BlockingCopy:
    stream: Stream
    work: Work
    waits: bool = True


@dataclass(frozen=True)
class Sync:
    """Waits for a stream, for an event's number, or for all streams of a device."""

    scope: str
    target: Any
    call_ns: int
    waits: bool = True


@dataclass(frozen=True)
class Record:
    stream: Stream
    event: int
    call_ns: int


@dataclass(frozen=True)
class StreamWait:
    stream: Stream
    event: int
    call_ns: int


@dataclass(frozen=True)
class Within:
    """An op, range, frame or step; ``category`` of an op that computes or whose launches do."""

    kind: str
    name: str
    enter_ns: int
    body: tuple[Instruction, ...]
    exit_ns: int
    category: str | None = None


@dataclass(frozen=True)
class HandOver:
    """Thread ``tid`` runs ``body`` while this one waits."""

    tid: int
    body: tuple[Instruction, ...]


Instruction = (
    Gap
    | Call
    | Launch
    | GraphLaunch
    | BlockingCopy
    | Sync
    | Record
    | StreamWait
    | Within
    | HandOver
)


@dataclass(frozen=True)
class Machine:
    latency_ns: int = 0
    copy_latency_ns: int = 0
    between_ns: int = 0  # from one activity of a stream to the next
    return_ns: int = 0  # from the end of the awaited work to the return of a sync
    queue_depth: int | None = None  # activities of a stream that wait; a launch beyond blocks
    reports_syncs: bool = True  # the profiler names the stream of a sync
    blocks_launches: bool = False  # a launch returns once its work has ended
    event_ns: int = 0  # from the end of an event's work to what waits for it on another stream
