"""What the loops of all frameworks share: the implementation under test, and its profile pass."""

from __future__ import annotations

import importlib
import os
import shutil
import time
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple

from lstmprof.capture.request import NSYS, CaptureRequest
from lstmprof.capture.worker import calibration, users_file
from lstmprof.capture.worker.profilers import NsysProfiler, Profiler
from lstmprof.capture.worker.profiling import (
    Profiled,
    Ranges,
    both,
    compressed,
    first_found,
    no_ranges,
    throwaway_steps,
)
from lstmprof.capture.worker.shapes import FILE, OpInputs, written
from lstmprof.implementations import Implementation


class Trainer(Profiler):
    """One implementation with its weights, data and optimizer on one device.

    A loop's own has ``step(ranges)`` and what a ``Profiler`` has.
    """

    def __init__(self, request: CaptureRequest) -> None:
        self.row = request.row
        self.title = self.row.name
        self.workload, self.forward_only = request.workload, request.mode == "forward"
        self.implementation: Any = users_file.implementation_of(request)
        self.is_users = request.file is not None
        self.recorder: Profiler = NsysProfiler(self) if request.profiler == NSYS else self

    def checked(self, loss_of: Callable[..., Any]) -> Callable[..., Any]:
        """``loss_of``; of a user's file one that refuses outputs of another shape."""
        if not self.is_users:
            return loss_of
        checking: Callable[..., Any] = self.implementation.checked(loss_of)
        return checking

    def step(self, ranges: Ranges) -> Any:
        """One step, synchronised at its end; its outcome, which ``loss`` reads."""
        raise NotImplementedError

    def loss(self, outcome: Any) -> float:
        """The number in a step's outcome."""
        return float(outcome)

    def kept(self, outcome: Any) -> Any:
        """``outcome`` so that the next step does not overwrite it."""
        return outcome

    def device_ns(self) -> Optional[int]:
        """Length of the last step by the device's own events; None where there are none."""
        return None

    def needles(self) -> Sequence[Tuple[str, str]]:
        """(text in the profile, which kernels then really ran, in words)."""
        names: Sequence[Tuple[str, str]] = self.implementation.KERNELS
        return names

    def profile(self, ranges: Ranges, steps: int, folder: str) -> Profiled:
        """``steps`` profiled steps, after a throwaway session; the profile lies in ``folder``.

        But where it is recorded from outside: then it is there once this process is over.
        """
        logs = os.path.join(folder, "logs")
        cost = self._recording_cost(throwaway_steps(steps, time.perf_counter_ns), logs)
        shutil.rmtree(logs, ignore_errors=True)
        session, walls_ns, losses = self._session(ranges, range(steps), logs)
        files: List[str] = []
        kernels = None
        if not self.recorder.is_outside:
            raw, name = self.written(session, logs if os.path.isdir(logs) else folder)
            kernels = first_found(raw, self.needles())
            files = [compressed(raw, os.path.join(folder, name + ".gz"))]
        shutil.rmtree(logs, ignore_errors=True)
        shapes = written(self.shapes(folder), os.path.join(os.path.dirname(folder), FILE))
        return Profiled(walls_ns, losses, files, kernels, cost, shapes)

    def shapes(self, folder: str) -> Iterable[OpInputs]:
        """The inputs of the ops of one more step, in order; none where the framework tells none.

        They are apart from the profile because recording them slows a step of many small ops.
        """
        return ()

    def _recording_cost(self, steps: Iterable[int], folder: str) -> Optional[Dict[str, Any]]:
        """The session to throw away, and what run.json says of recording an event in it."""
        profiled: List[calibration.LoopTimes] = []
        trivial = self.recorder.trivial_readings
        self._session(no_ranges, steps, folder, lambda: profiled.append(trivial()))
        return self.recorder.recording_cost(profiled[0])

    def _session(
        self,
        ranges: Ranges,
        steps: Iterable[int],
        folder: str,
        at_end: Callable[[], None] = lambda: None,
    ) -> Tuple[Any, List[int], List[float]]:
        """A finished session, and each step's wall time and loss; ``at_end`` is its last."""
        walls_ns, outcomes = [], []
        with self.recorder.recording(folder) as session:
            if self.recorder.starts_late:
                self.step(no_ranges)
            for number in steps:
                seen = both(ranges, self.recorder.annotated(number))
                start_ns = time.perf_counter_ns()
                outcome = self.step(seen)
                walls_ns.append(time.perf_counter_ns() - start_ns)
                outcomes.append(self.kept(outcome))
            at_end()
        return session, walls_ns, [self.loss(outcome) for outcome in outcomes]


def torch_needles(kernels: Sequence[Tuple[str, str]]) -> List[Tuple[str, str]]:
    """``kernels`` of an implementation's row as torch.profiler writes an operator's name."""
    return [('"{}"'.format(operator), words) for operator, words in kernels]


def loop_of(row: Implementation) -> Any:
    """The module of this folder that runs ``row``: that of TensorFlow 1 for Keras on it."""
    name = row.framework
    if name == "tensorflow" and row.library:
        import tensorflow

        if tensorflow.__version__.startswith("1."):
            name = "tensorflow1"
    return importlib.import_module("{}.{}".format(__name__, name))
