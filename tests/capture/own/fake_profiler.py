"""A profiler that records what it was told to do, and writes a profile of its steps."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from lstmprof.capture.worker.profilers import Profiler
from lstmprof.capture.worker.profiling import Ranges


class Recorded(list[dict[str, Any]]):
    """The events of a session, which only Python's collector frees."""

    __hash__ = object.__hash__  # type: ignore[assignment]

    def __init__(self) -> None:
        self.cycle = self


class FakeProfiler(Profiler):
    """Each step of its session is one range and one op, in torch.profiler's layout."""

    profiler = "fake"

    def __init__(self, shapes_s: float | None = None) -> None:
        self.can_record_shapes, self.shapes_s = shapes_s is not None, shapes_s or 0
        self.sessions: list[bool] = []  # whether each is with shapes
        self.calls: list[str] = []
        self.events = Recorded()
        self.fault: Exception | None = None
        self.now_ns = 0  # by a clock of its own, which ops alone move

    def facts(self) -> dict[str, Any]:
        """A CPU and no versions."""
        nothing = {"device_name": None, "device_memory_bytes": None, "versions": {}}
        return {"device": "cpu", "threads": 1, **nothing}

    def wait(self, outcome: Any = None) -> None:
        """Note what is waited for."""
        self.calls.append("wait" if outcome is None else f"wait for {outcome}")

    @contextlib.contextmanager
    def recording(self, folder: str) -> Iterator[Recorded]:
        """A session; it fails where a fault is set."""
        if self.fault:
            raise self.fault
        self.calls.append("start")
        self.sessions.append(self.with_shapes)
        self.events = Recorded()
        try:
            yield self.events
        finally:
            self.calls.append("stop")

    def annotated(self, number: int) -> Ranges:
        """Ranges of the session."""
        return self._range

    @contextlib.contextmanager
    def _range(self, name: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self._event("user_annotation", name, began, time.perf_counter())

    def op(self) -> None:
        """An operator that computes, later where its shapes are recorded."""
        if self.can_record_shapes:
            self.now_ns += round(1e9 * (2e-3 + (self.shapes_s if self.with_shapes else 0)))
        began = time.perf_counter()
        self._event("cpu_op", "aten::mm", began, began + 1e-5)

    def _event(self, category: str, name: str, began: float, ended: float) -> None:
        times = {"ts": began * 1e6, "dur": (ended - began) * 1e6}
        self.events.append({"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1, **times})

    def trivial(self) -> tuple[Callable[[], Any], int] | None:
        """A call without events to speak of."""
        return None

    def written(self, session: Recorded, folder: str) -> tuple[str, str]:
        """The events of the session."""
        raw = Path(folder) / "trace.json"
        raw.write_text(json.dumps({"schemaVersion": 1, "traceEvents": session}))
        return str(raw), "steps.pt.trace.json"
