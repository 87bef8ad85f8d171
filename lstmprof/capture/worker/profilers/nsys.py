"""Nsight Systems as the profiler of a session: it looks on from outside, and is told by NVTX.

What a framework tells of itself and its device is still asked of that framework's own.
"""

from __future__ import annotations

import contextlib
from typing import Any, Dict, Iterator

from lstmprof.capture.worker import calibration
from lstmprof.capture.worker.profilers import Profiler
from lstmprof.capture.worker.profiling import Ranges, domain_ranges, no_ranges
from lstmprof.errors import CaptureError

#: From its begin to its end Nsight Systems records.
RANGE = "profile"


class NsysProfiler(Profiler):
    """Ranges that Nsight Systems records; all else is ``framework``'s."""

    profiler = "nsys"
    is_outside = True

    def __init__(self, framework: Profiler) -> None:
        self._framework = framework
        ranges = domain_ranges()
        if ranges is None:
            raise CaptureError(
                "the Python package nvtx is not installed where the steps run",
                "pip install nvtx there; nsys finds the steps through it",
            )
        self._ranges: Ranges = ranges
        self._sessions = 0

    def find_device(self) -> None:
        """As the framework does."""
        self._framework.find_device()

    def wait(self, outcome: Any = None) -> None:
        """As the framework does."""
        self._framework.wait(outcome)

    def settings(self) -> Dict[str, Any]:
        """The framework's."""
        return self._framework.settings()

    def facts(self) -> Dict[str, Any]:
        """The framework's."""
        return self._framework.facts()

    @contextlib.contextmanager
    def recording(self, folder: str) -> Iterator[None]:
        """The range in which it records; the session to throw away has none."""
        self._sessions += 1
        with (self._ranges if self._sessions > 1 else no_ranges)(RANGE):
            yield

    def annotated(self, number: int) -> Ranges:
        """None: the steps have NVTX ranges in any case."""
        return no_ranges

    def trivial_readings(self) -> calibration.Readings:
        """None: what recording costs is not known of it."""
        return calibration.Readings([], [])

    def recording_cost(self, profiled: calibration.Readings) -> Dict[str, Any]:
        """Not known."""
        return {}
