"""What a framework's own profiler does, and what the framework tells of itself and its device.

::

    recording ─ annotated ─▶ written        wait, find_device        settings, facts

The loops of a capture drive one around their own steps, ``capture.own`` around a user's. Nsight
Systems (``NsysProfiler``) records from outside and sees NVTX ranges; facts about a framework still
come from that framework's own profiler.
"""

from __future__ import annotations

import contextlib
import glob
import importlib
import os
import sys
from typing import Any, Callable, ContextManager, Dict, Iterator, List, Optional, Tuple

from lstmprof.capture.worker import calibration
from lstmprof.capture.worker.profiling import Ranges, both, domain_ranges, no_ranges
from lstmprof.errors import CaptureError, UsageError, unknown_name


class Profiler:
    """One framework's profiler on one device."""

    profiler = ""
    title = "steps"  # what its file is called
    is_outside = False  # it records from outside, and has no file before the process is over
    tells_shapes = False  # it can record the shapes of ops' inputs, where told ``with_shapes``
    with_shapes = False

    @property
    def starts_late(self) -> bool:
        """Whether a session may lose its first kernels: then an unmarked step comes first."""
        return False

    def find_device(self) -> None:
        """Take the device that this process works on by now."""

    def wait(self, outcome: Any = None) -> None:
        """Wait until the device has done what it was given; ``outcome`` is what a step made."""

    def settings(self) -> Dict[str, Any]:
        """What the framework alone knows of ``settings``, now."""
        return {}

    def facts(self) -> Dict[str, Any]:
        """What run.json says of the framework and the device."""
        raise NotImplementedError

    def recording(self, folder: str) -> ContextManager[Any]:
        """The profiler, on; what it writes by itself lies in ``folder``."""
        raise NotImplementedError

    def annotated(self, number: int) -> Ranges:
        """The ranges of the profiler's own in the step ``number``."""
        raise NotImplementedError

    def written(self, session: Any, folder: str) -> Tuple[str, str]:
        """The profile in a file, and the name to keep it by."""
        raise NotImplementedError

    def trivial(self) -> Optional[Tuple[Callable[[], Any], int]]:
        """A call that computes next to nothing, and the events it records; None: none is known."""
        return None

    def places(self, call: Callable[[], Any]) -> Optional[calibration.EventParts]:
        """Where recording takes its time in ``trivial``; None where the profiler does not tell."""
        return None

    def trivial_readings(self) -> calibration.LoopTimes:
        """Of trivial events, to be taken at the end of a session that is thrown away."""
        annotated = self.annotated(0)
        call, _ = self.trivial() or (calibration.range_call(annotated), 1)
        return calibration.readings(call, both(no_ranges, annotated))

    def recording_cost(self, profiled: calibration.LoopTimes) -> Dict[str, Any]:
        """What run.json says of recording an event, by ``trivial_readings`` and the same without.

        No NVTX range is written in it: another tool that looks on would take them for steps.
        """
        trivial = self.trivial()
        call, events = trivial or (calibration.range_call(self.annotated(0)), 1)
        plain = calibration.readings(call, no_ranges)
        return calibration.facts(profiled, plain, events, self.places(call) if trivial else None)


def xplane_in(folder: str) -> Tuple[str, str]:
    """The XPlane that a session left in ``folder``, and its name."""
    (raw,) = glob.glob(os.path.join(folder, "plugins", "profile", "*", "*.xplane.pb"))
    return raw, os.path.basename(raw)


def keras_version() -> Optional[str]:
    """Of the Keras that a row of Keras took, else of the one that is imported."""
    taken = sys.modules.get("lstmprof.implementations.keras._installed")
    keras = getattr(taken, "keras", None) or sys.modules.get("keras")
    version: Optional[str] = getattr(keras, "__version__", None)
    return version


#: Nsight Systems records from the begin of this range to its end.
NSYS_RANGE = "profile"


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
        with (self._ranges if self._sessions > 1 else no_ranges)(NSYS_RANGE):
            yield

    def annotated(self, number: int) -> Ranges:
        """None: the steps have NVTX ranges in any case."""
        return no_ranges

    def trivial_readings(self) -> calibration.LoopTimes:
        """None: what recording costs is not known of it."""
        return calibration.LoopTimes([], [])

    def recording_cost(self, profiled: calibration.LoopTimes) -> Dict[str, Any]:
        """Not known."""
        return {}


#: Framework -> the module and the class of its profiler.
PROFILERS = {
    "torch": ("lstmprof.capture.worker.profilers.torch", "TorchProfiler"),
    "tensorflow": ("lstmprof.capture.worker.profilers.tensorflow", "TensorflowProfiler"),
    "jax": ("lstmprof.capture.worker.profilers.jax", "JaxProfiler"),
}
KERAS = "keras"


def framework_of(asked: Optional[str] = None) -> str:
    """``asked``, else the one framework that is imported; of Keras its backend.

    Raises:
        UsageError: there is none, there are several, or ``asked`` is not known.
    """
    if asked == KERAS:
        return _checked(str(importlib.import_module(KERAS).config.backend()))
    if asked is not None:
        return _checked(asked)
    imported = _imported()
    keras = sys.modules.get(KERAS)
    if keras is not None and hasattr(keras, "config"):  # Keras 3; it may have imported others too
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


def _imported() -> List[str]:
    """Frameworks that are imported, and not only begun to be."""
    return [name for name in PROFILERS if hasattr(sys.modules.get(name), "__version__")]


def _checked(framework: str) -> str:
    if framework not in PROFILERS:
        raise unknown_name("framework", framework, [*PROFILERS, KERAS])
    return framework


def profiler_of(framework: str) -> Profiler:
    """The profiler of ``framework``, which is imported where it is not yet."""
    module, name = PROFILERS[framework]
    profiler: Profiler = getattr(importlib.import_module(module), name)()
    return profiler
