"""NVTX where the package is older than domains as objects, or is not there at all."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from lstmprof.base.errors import CaptureError
from lstmprof.capture.worker import profiling
from lstmprof.capture.worker.profilers import NsysProfiler, Profiler


class Recorder:
    """Says what it was called with."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def called(self, name: str) -> Any:
        return lambda *args, **options: self.calls.append((name, *args, *options.values()))


def entered(ranges: profiling.Ranges) -> None:
    with ranges("step"), ranges("forward"):
        pass


def test_an_nvtx_without_get_domain_still_marks_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Recorder()

    class Annotate:
        def __init__(self, message: str, domain: str) -> None:
            self.message, self.domain = message, domain

        def __enter__(self) -> None:
            seen.calls.append(("push", self.message, self.domain))

        def __exit__(self, *_: object) -> None:
            seen.calls.append(("pop", self.domain))

    monkeypatch.setitem(sys.modules, "nvtx", SimpleNamespace(annotate=Annotate))
    ranges = profiling.nvtx_ranges()
    assert ranges is not None
    entered(ranges)
    assert seen.calls == [
        ("push", "step", "lstmprof"),
        ("push", "forward", "lstmprof"),
        ("pop", "lstmprof"),
        ("pop", "lstmprof"),
    ]


def test_without_the_package_torch_marks_them(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Recorder()
    nvtx = SimpleNamespace(
        range_push=seen.called("push"), range_pop=seen.called("pop"), _nvtx=object()
    )
    monkeypatch.setitem(sys.modules, "nvtx", None)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=SimpleNamespace(nvtx=nvtx)))
    ranges = profiling.nvtx_ranges()
    assert ranges is not None
    assert seen.calls == []
    entered(ranges)
    assert seen.calls == [("push", "step"), ("push", "forward"), ("pop",), ("pop",)]
    # Nsight Systems is told to begin at a range of the package's domain, which torch has not
    with pytest.raises(CaptureError, match="nvtx is not installed"):
        NsysProfiler(Profiler())


def test_where_neither_has_them_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nvtx", None)
    stand_in = SimpleNamespace(_nvtx=SimpleNamespace(_fail=None))
    torch = SimpleNamespace(cuda=SimpleNamespace(nvtx=stand_in))
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert profiling.nvtx_ranges() is None
    monkeypatch.delitem(sys.modules, "torch")
    assert profiling.nvtx_ranges() is None
