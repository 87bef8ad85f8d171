"""What a framework's own profiler does, and what the framework tells of itself and its device.

::

    recording ─ annotated ─▶ written        wait, find_device        settings, facts

The loops of a capture drive one around their own steps, ``capture.own`` around a user's.
"""

from __future__ import annotations

import glob
import os
import sys
from typing import Any, Callable, ContextManager, Dict, Optional, Tuple

from lstmprof.capture.worker import calibration
from lstmprof.capture.worker.profiling import Ranges, both, no_ranges


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

    def places(self, call: Callable[[], Any]) -> Optional[calibration.Places]:
        """Where recording takes its time in ``trivial``; None where the profiler does not tell."""
        return None

    def trivial_readings(self) -> calibration.Readings:
        """Of trivial events, to be taken at the end of a session that is thrown away."""
        annotated = self.annotated(0)
        call, _ = self.trivial() or (calibration.range_call(annotated), 1)
        return calibration.readings(call, both(no_ranges, annotated))

    def recording_cost(self, profiled: calibration.Readings) -> Dict[str, Any]:
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
