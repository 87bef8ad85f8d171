"""Start each framework's profiler, and read facts about framework and device.

A subclass of ``Profiler`` wraps one profiler, such as torch.profiler or nsys. A capture calls
``recording``, then ``annotated`` for each step, and ``written`` at the end.
"""

from __future__ import annotations

import contextlib
import glob
import importlib
import os
import sys
from typing import Any, Callable, ContextManager, Dict, Iterator, Optional, Tuple

from lstmprof.base.errors import CaptureError, UsageError, unknown_name
from lstmprof.capture.worker.profilers import calibration
from lstmprof.capture.worker.profiling import Ranges, both, domain_ranges, no_ranges


class Profiler:
    profiler = ""
    title = "steps"  # of the profile's file
    # whether another process (nsys) records, and writes the profile when this process has ended
    is_outside = False
    has_known_cost = True  # the cost of recording an event can be measured
    can_record_shapes = False  # has the option ``with_shapes``
    with_shapes = False

    @property
    def starts_late(self) -> bool:
        """Return whether a session's first step is too slow or incomplete to profile."""
        return False

    def find_device(self) -> None:
        """Store the device that this process uses now."""

    def wait(self, outcome: Any = None) -> None:
        """Wait until the device has finished a step."""

    def settings(self) -> Dict[str, Any]:
        """Return the framework's settings, such as its matmul precision."""
        return {}

    def facts(self) -> Dict[str, Any]:
        """Return what run.json says about framework and device."""
        raise NotImplementedError

    def recording(self, folder: str) -> ContextManager[Any]:
        """Run the profiler inside the ``with`` block."""
        raise NotImplementedError

    def annotated(self, number: int) -> Ranges:
        """Return a function that marks a named range of step ``number``."""
        raise NotImplementedError

    def written(self, session: Any, folder: str) -> Tuple[str, str]:
        """Write a session's profile; return (temporary path, file name in the run)."""
        raise NotImplementedError

    def trivial(self) -> Optional[Tuple[Callable[[], Any], int]]:
        """Return (a function with almost no work, number of events that a call records)."""
        return None

    def cost_parts(self, call: Callable[[], Any]) -> Optional[calibration.EventParts]:
        """Measure the parts of an event that contains another event."""
        return None

    def trivial_readings(self) -> calibration.LoopTimes:
        """Time trivial calls under the profiler."""
        if not self.has_known_cost:
            return calibration.LoopTimes([], [])
        annotated = self.annotated(0)
        call, _ = self.trivial() or (calibration.range_call(annotated), 1)
        return calibration.readings(call, both(no_ranges, annotated))

    def recording_cost(self, profiled: calibration.LoopTimes) -> Dict[str, Any]:
        """Return an event's cost: trivial calls with the profiler minus without."""
        if not self.has_known_cost:
            return {}
        trivial = self.trivial()
        call, events = trivial or (calibration.range_call(self.annotated(0)), 1)
        # open no NVTX range, because a tool that records NVTX would count the range as a step
        plain = calibration.readings(call, no_ranges)
        return calibration.facts(
            profiled, plain, events, self.cost_parts(call) if trivial else None
        )


def xplane_in(folder: str) -> Tuple[str, str]:
    """Return (path, name) of the XPlane file that a profiler session wrote."""
    (raw,) = glob.glob(os.path.join(folder, "plugins", "profile", "*", "*.xplane.pb"))
    return raw, os.path.basename(raw)


def keras_version() -> Optional[str]:
    """Return the version of Keras that runs the layers."""
    taken = sys.modules.get("lstmprof.implementations.keras._installed")
    keras = getattr(taken, "keras", None) or sys.modules.get("keras")
    version: Optional[str] = getattr(keras, "__version__", None)
    return version


#: Name of the NVTX range that Nsight Systems records.
NSYS_RANGE = "profile"


class NsysProfiler(Profiler):
    """Opens the NVTX range that nsys records, from another process."""

    profiler = "nsys"
    is_outside = True
    has_known_cost = False

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
        self._framework.find_device()

    def wait(self, outcome: Any = None) -> None:
        self._framework.wait(outcome)

    def settings(self) -> Dict[str, Any]:
        return self._framework.settings()

    def facts(self) -> Dict[str, Any]:
        return self._framework.facts()

    @contextlib.contextmanager
    def recording(self, folder: str) -> Iterator[None]:
        """Open the NVTX range that nsys records, but not in the first session."""
        self._sessions += 1  # the first session is discarded
        with (self._ranges if self._sessions > 1 else no_ranges)(NSYS_RANGE):
            yield

    def annotated(self, number: int) -> Ranges:
        """Return a function that opens nothing: nsys sees the steps' NVTX ranges."""
        return no_ranges


#: Framework -> module and class of the framework's profiler.
PROFILERS = {
    "torch": ("lstmprof.capture.worker.profilers.torch", "TorchProfiler"),
    "tensorflow": ("lstmprof.capture.worker.profilers.tensorflow", "TensorflowProfiler"),
    "jax": ("lstmprof.capture.worker.profilers.jax", "JaxProfiler"),
}
KERAS = "keras"


def framework_of(name: Optional[str] = None) -> str:
    """Return the framework that runs the steps; ``name`` overrides the imports."""
    if name == KERAS:
        return _checked(str(importlib.import_module(KERAS).config.backend()))
    if name is not None:
        return _checked(name)
    imported = [name for name in PROFILERS if hasattr(sys.modules.get(name), "__version__")]
    keras = sys.modules.get(KERAS)
    # use the backend of Keras 3, because the script may have imported several frameworks
    if keras is not None and hasattr(keras, "config"):
        return _checked(str(keras.config.backend()))
    if len(imported) == 1:
        return imported[0]
    if not imported:
        raise UsageError(
            "no framework is imported yet",
            "import torch, tensorflow or jax first, or pass framework=",
        )
    raise UsageError(
        "several frameworks are imported: {}".format(", ".join(imported)),
        f"pass the one that runs the steps: framework='{imported[0]}'",
    )


def _checked(framework: str) -> str:
    if framework not in PROFILERS:
        raise unknown_name("framework", framework, [*PROFILERS, KERAS])
    return framework


def profiler_of(framework: str) -> Profiler:
    module, name = PROFILERS[framework]
    profiler: Profiler = getattr(importlib.import_module(module), name)()
    return profiler
