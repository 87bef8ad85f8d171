"""Where torch.profiler takes its time in a call, by the events of a short session."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

loop = pytest.importorskip("lstmprof.capture.worker.profilers.torch", exc_type=ImportError)


def event(name: str, start_us: float, end_us: float) -> Any:
    return SimpleNamespace(name=name, time_range=SimpleNamespace(start=start_us, end=end_us))


# aten::item                  |0.0 --------------- 0.9|
#   aten::_local_scalar_dense       |0.5 - 0.7|
def test_nested_calls_tell_what_lies_before_inside_and_after() -> None:
    events = [
        event("aten::item", 0.0, 0.9),
        event("aten::_local_scalar_dense", 0.5, 0.7),
        event("input", 2.0, 9.0),
    ]
    found = loop.cost_parts_of(events)
    assert (found.before_ns, found.inside_ns) == (pytest.approx(500), pytest.approx(200))
    assert (found.after_ns, found.range_ns) == (pytest.approx(200), pytest.approx(7_000))


def test_whole_microseconds_tell_nothing() -> None:
    events = [
        event("aten::item", 0.0, 1.0),
        event("aten::_local_scalar_dense", 0.0, 1.0),
        event("input", 2.0, 9.0),
    ]
    assert loop.cost_parts_of(events) is None
