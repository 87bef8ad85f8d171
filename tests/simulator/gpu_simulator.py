"""A simulator of GPU programs: the profile that they would leave, and what really happened.

Host threads run instructions one after another; streams run what was enqueued on them in order. The
simulator writes the events that a profiler would, and knows by itself, without them and without the
package, what every thread and every device did in each nanosecond. Time is whole nanoseconds.

::

    launch on a stream    call ──call_ns──▶ enqueued ──latency──▶ runs once the stream is free
    blocking copy         enqueued as the call begins; the call returns once the copy has ended
    sync                  returns once what had been enqueued before it has ended
    hand over             another thread runs a body while this one waits in its scope
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from events.rows import Row, row
from simulator.gpu_programs import (
    BlockingCopy,
    Call,
    Gap,
    GraphLaunch,
    HandOver,
    Instruction,
    Launch,
    Machine,
    Record,
    Stream,
    StreamWait,
    Sync,
    Within,
    Work,
)

Account = dict[tuple[str, str], int]

_SCOPE_STATES = {"step": "python", "range": "python", "python": "python", "op": "dispatch"}
#: Compute before collective before copy before memset.
_CLASSES = {"collective": 1, "memcpy": 2, "memset": 3}
_HOST_CLASSES = {"collective": 1, "transfer": 2, "memset": 3}
_MERGED = ("dispatch", "runtime", "alloc", "sync", "profiler", "python", "host")


@dataclass(frozen=True)
class Ran:
    """An activity as it ran, with the call that enqueued it."""

    stream: Stream
    work: Work
    category: str
    correlation: int
    start_ns: int
    end_ns: int
    tid: int
    call_start_ns: int
    call_end_ns: int


@dataclass(frozen=True)
class Stretch:
    """Time that a thread spent in one innermost scope, and when that scope was entered."""

    start_ns: int
    end_ns: int
    state: str
    category: str | None
    entered_ns: int


@dataclass
class Simulation:
    """Run with ``simulated``; afterwards its rows and the truth."""

    machine: Machine
    rows: list[Row] = field(default_factory=list)
    ran: list[Ran] = field(default_factory=list)
    stretches: dict[int, list[Stretch]] = field(default_factory=lambda: defaultdict(list))
    steps: list[tuple[int, int]] = field(default_factory=list)
    now: int = 0
    _free: dict[Stream, int] = field(default_factory=dict)
    _enqueued: dict[Stream, list[int]] = field(default_factory=lambda: defaultdict(list))
    _held: dict[Stream, int] = field(default_factory=dict)
    _events: dict[int, int] = field(default_factory=dict)
    _scopes: dict[int, list[tuple[str, str | None, int]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    _correlation: int = 0

    # -- running ---------------------------------------------------------------------------------

    def flow(self, tid: int, body: tuple[Instruction, ...]) -> Iterator[int]:
        """Runs ``body`` on thread ``tid``; yields each instant at which it wants to go on."""
        for instruction in body:
            match instruction:
                case Gap(ns):
                    yield from self._spend(tid, ns)
                case Call():
                    yield from self._call(tid, instruction)
                case Launch():
                    yield from self._launch(tid, instruction)
                case GraphLaunch():
                    yield from self._graph(tid, instruction)
                case BlockingCopy():
                    yield from self._copy(tid, instruction)
                case Sync():
                    yield from self._sync(tid, instruction)
                case Record(stream, event, ns):
                    self._events[event] = self._free.get(stream, 0)
                    yield from self._call(tid, Call("cudaEventRecord", "runtime", ns))
                case StreamWait(stream, event, ns):
                    ready = self._events.get(event, -self.machine.event_ns) + self.machine.event_ns
                    held = max(self._held.get(stream, 0), ready)
                    self._held[stream] = held
                    self._report("Stream Wait Event", stream, self._correlation + 1)
                    yield from self._call(tid, Call("cudaStreamWaitEvent", "runtime", ns))
                case Within():
                    yield from self._within(tid, instruction)
                case HandOver(other, inner):
                    began = self.now
                    yield from self.flow(other, inner)
                    self._note(tid, began)

    def _spend(self, tid: int, ns: int) -> Iterator[int]:
        began = self.now
        yield self.now + ns
        self._note(tid, began)

    def _note(self, tid: int, began: int) -> None:
        """Thread ``tid`` has been in its innermost scope since ``began``."""
        if self._scopes[tid] and self.now > began:
            self.stretches[tid].append(Stretch(began, self.now, *self._scopes[tid][-1]))

    def _enter(self, tid: int, state: str, category: str | None) -> int:
        self._scopes[tid].append((state, category, self.now))
        return self.now

    def _leave(self, tid: int, kind: str, name: str, began: int, **columns: Any) -> None:
        self._scopes[tid].pop()
        self.rows.append(row(kind, name, began, self.now, pid=1, tid=tid, **columns))

    def _call(self, tid: int, call: Call) -> Iterator[int]:
        correlation = self._next() if call.kind == "runtime" else None
        began = self._enter(tid, call.state, None)
        yield from self._spend(tid, call.ns)
        self._leave(tid, call.kind, call.name, began, correlation_id=correlation)

    def _within(self, tid: int, scope: Within) -> Iterator[int]:
        began = self._enter(tid, _SCOPE_STATES[scope.kind], scope.category)
        yield from self._spend(tid, scope.enter_ns)
        yield from self.flow(tid, scope.body)
        yield from self._spend(tid, scope.exit_ns)
        self._leave(tid, scope.kind, scope.name, began)
        if scope.kind == "step":
            self.steps.append((began, self.now))

    def _launch(self, tid: int, launch: Launch) -> Iterator[int]:
        correlation, name = self._next(), "cudaLaunchKernel"
        if launch.work.kind != "kernel":
            name = {"memcpy": "cudaMemcpyAsync", "memset": "cudaMemsetAsync"}[launch.work.kind]
        began = self._enter(tid, "runtime", None)
        yield from self._spend(tid, launch.call_ns)
        if self.machine.blocks_launches:
            ready = self.now + self.machine.latency_ns
            end = self._run(tid, launch.stream, launch.work, correlation, ready, (began, began))
            yield from self._spend(tid, end + self.machine.return_ns - self.now)
            self._leave(tid, "runtime", name, began, correlation_id=correlation)
            self.ran[-1] = replace(self.ran[-1], call_end_ns=self.now)
            return
        while (room := self._room_at(launch.stream)) > self.now:
            yield from self._spend(tid, room - self.now)
        self._leave(tid, "runtime", name, began, correlation_id=correlation)
        ready = self.now + self.machine.latency_ns
        self._run(tid, launch.stream, launch.work, correlation, ready, (began, self.now))

    def _graph(self, tid: int, graph: GraphLaunch) -> Iterator[int]:
        correlation = self._next()
        began = self._enter(tid, "runtime", None)
        yield from self._spend(tid, graph.call_ns)
        self._leave(tid, "runtime", "cudaGraphLaunch", began, correlation_id=correlation)
        ready = self.now + self.machine.latency_ns
        for node, work in enumerate(graph.nodes, 1):
            self._run(tid, graph.stream, work, correlation, ready, (began, self.now))
            self.rows[-1]["graph_node_id"] = node

    def _room_at(self, stream: Stream) -> int:
        """When the queue of ``stream`` has room for one more."""
        depth, starts = self.machine.queue_depth, self._enqueued[stream]
        return 0 if depth is None or len(starts) < depth else starts[-depth]

    def _copy(self, tid: int, copy: BlockingCopy) -> Iterator[int]:
        correlation = self._next()
        began = self._enter(tid, "sync", None)
        ready = self.now + self.machine.copy_latency_ns
        place = len(self.ran)
        end = self._run(tid, copy.stream, copy.work, correlation, ready, (began, began))
        if copy.waits:
            yield from self._spend(tid, end + self.machine.return_ns - self.now)
        self._leave(tid, "runtime", "cudaMemcpy", began, correlation_id=correlation)
        known = self.ran[place]
        self.ran[place] = Ran(**{**vars(known), "call_end_ns": self.now})

    def _run(
        self,
        tid: int,
        stream: Stream,
        work: Work,
        correlation: int,
        ready: int,
        call: tuple[int, int],
    ) -> int:
        """Enqueues ``work`` and says when it ends: all that it waits for is known by now."""
        start = max(ready, self._held.get(stream, 0))
        if stream in self._free:
            start = max(start, self._free[stream] + self.machine.between_ns)
        end = start + work.ns
        self._free[stream] = end
        self._enqueued[stream].append(start)
        around = [c for _, c, _ in self._scopes[tid] if c is not None]
        category = around[-1] if around and work.kind == "kernel" else work.category
        self.ran.append(Ran(stream, work, category, correlation, start, end, tid, *call))
        place = {"device": stream[0], "stream": stream[1], "correlation_id": correlation}
        self.rows.append(row(work.kind, work.name, start, end, **place))
        return end

    def _sync(self, tid: int, sync: Sync) -> Iterator[int]:
        correlation, scope = self._next(), sync.scope
        name = {"device": "Device", "stream": "Stream", "event": "Event"}[scope]
        began = self._enter(tid, "sync", None)
        end = self.now + sync.call_ns
        for awaited in self._awaited(sync) if sync.waits else ():
            end = max(end, awaited + self.machine.return_ns)
        target = {"device": (sync.target, None), "stream": sync.target, "event": None}[scope]
        said = {"device": "Context", "stream": "Stream", "event": "Event"}[scope]
        self._report(f"{said} Sync", target, correlation)
        yield from self._spend(tid, end - self.now)
        self._leave(tid, "runtime", f"cuda{name}Synchronize", began, correlation_id=correlation)

    def _awaited(self, sync: Sync) -> list[int]:
        if sync.scope == "event":
            return [self._events[sync.target]] if sync.target in self._events else []
        if sync.scope == "stream":
            return [self._free[sync.target]] if sync.target in self._free else []
        return [end for stream, end in self._free.items() if stream[0] == sync.target]

    def _report(self, name: str, target: Any, correlation: int) -> None:
        if self.machine.reports_syncs and target is not None:
            place = {"device": target[0], "stream": target[1], "correlation_id": correlation}
            self.rows.append(row("device_sync", name, self.now, self.now, **place))

    def _next(self) -> int:
        self._correlation += 1
        return self._correlation

    # -- the truth -------------------------------------------------------------------------------

    def windows(self, captured: bool) -> list[tuple[int, int]]:
        """[start, end) of the steps, as docs/ledger.md closes them."""
        if captured:
            return [(a, b) for a, b in self.steps if b > a]
        ends = [a for a, _ in self.steps[1:]]
        ends.append(max([self.steps[-1][1], *(r.end_ns for r in self.ran)]))
        return [(a, b) for (a, _), b in zip(self.steps, ends, strict=True) if b > a]

    def device_account(self, device: int, t0: int, t1: int, step_tid: int) -> Account:
        """(state, part) -> ns of a device in [t0, t1), each nanosecond looked at."""
        mine = [r for r in self.ran if r.stream[0] == device]
        account: Counter[tuple[str, str]] = Counter()
        for t in range(t0, t1):
            running = [r for r in mine if r.start_ns <= t < r.end_ns]
            if running:
                account["busy", min(running, key=_busy_order).category] += 1
            else:
                account["idle", self._cause(mine, t, t1, step_tid)] += 1
        return dict(account)

    def _cause(self, mine: list[Ran], t: int, t1: int, step_tid: int) -> str:
        later = [r for r in mine if t < r.start_ns < t1]
        if not later:
            return "tail:" + self._at(step_tid, t)[0]
        next_one = min(later, key=lambda r: (r.start_ns, r.end_ns, r.correlation))
        if next_one.call_end_ns <= _fell_idle(mine, next_one):
            return "queued"
        if t >= next_one.call_end_ns:
            if self._at(next_one.tid, t)[0] == "sync":
                return "queued"
            # no machine has a latency near the least λ of 100 µs
            return "launch latency" if t < next_one.call_end_ns + 100_000 else "queued"
        if t >= next_one.call_start_ns:
            return "launch call"
        return self._at(next_one.tid, t)[0]

    def _at(self, tid: int, t: int) -> tuple[str, str | None, int]:
        """State, category and start of the innermost scope of a thread."""
        for s in self.stretches[tid]:
            if s.start_ns <= t < s.end_ns:
                return s.state, s.category, s.entered_ns
        return "host", None, 0

    def host_account(self, t0: int, t1: int) -> Account:
        """(state, part) -> ns of a run without a device, its threads merged."""
        account: Counter[tuple[str, str]] = Counter()
        for t in range(t0, t1):
            lanes = [_lane(*self._at(tid, t), tid) for tid in sorted(self.stretches)]
            account[min(lanes, default=(99, 0, 0, "idle", "host"))[-2:]] += 1
        return dict(account)


def _fell_idle(mine: list[Ran], following: Ran) -> float:
    """When the device fell idle before ``following``, the latest end of what had started before."""
    return max((r.end_ns for r in mine if r.start_ns < following.start_ns), default=-math.inf)


def _busy_order(ran: Ran) -> tuple[int, int, int]:
    rank = _CLASSES.get(ran.work.kind, _CLASSES.get(ran.category, 0))
    return (rank, ran.start_ns, ran.correlation)


def _lane(state: str, category: str | None, entered: int, tid: int) -> tuple[Any, ...]:
    if state == "dispatch" and category is not None:
        return (_HOST_CLASSES.get(category, 0), entered, tid, "busy", category)
    return (4 + _MERGED.index(state), 0, 0, "idle", state)


def simulated(
    flows: list[tuple[int, tuple[Instruction, ...]]], machine: Machine | None = None
) -> Simulation:
    """What happens when these threads, (tid, instructions), start together at 0."""
    simulation = Simulation(machine or Machine())
    running = [simulation.flow(tid, body) for tid, body in flows]
    due = [(0, number) for number in range(len(running))]
    heapq.heapify(due)
    while due:
        simulation.now, number = heapq.heappop(due)
        wanted = next(running[number], None)
        if wanted is not None:
            heapq.heappush(due, (wanted, number))
    simulation.rows.sort(key=lambda r: (r["start_ns"], -r["dur_ns"]))
    return simulation
