"""Common code of all frameworks' step loops: the trainer, and its profile pass."""

from __future__ import annotations

import importlib
import os
import shutil
import time
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple

from lstmprof.capture.request import NSYS, CaptureRequest
from lstmprof.capture.worker import users_file
from lstmprof.capture.worker.profilers import NsysProfiler, Profiler, calibration
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
from lstmprof.workloads import Workload

#: Framework -> subfolder with the framework's module.
PLACES = {
    **{name: "onnx." + name for name in ("onnxruntime", "openvino")},
    **{name: "symbolic." + name for name in ("pytensor", "theano")},
}


class Trainer(Profiler):
    """One implementation with its data and optimizer on a device."""

    def __init__(self, request: CaptureRequest) -> None:
        self.row = request.row
        self.title = self.row.name
        self.workload, self.forward_only = request.workload, request.mode == "forward"
        self.implementation: Any = users_file.implementation_of(request)
        self.is_users = request.file is not None
        self.recorder: Profiler = NsysProfiler(self) if request.profiler == NSYS else self

    def checked(self, loss_of: Callable[..., Any]) -> Callable[..., Any]:
        """Let the loss function also check the outputs of a user's network."""
        if not self.is_users:
            return loss_of
        checking: Callable[..., Any] = self.implementation.checked(loss_of)
        return checking

    def step(self, ranges: Ranges) -> Any:
        """Run one step and wait for the device; return what ``loss`` reads."""
        raise NotImplementedError

    def loss(self, outcome: Any) -> float:
        return float(outcome)

    def copied(self, outcome: Any) -> Any:
        """Copy a step's outcome, if the next step overwrites it."""
        return outcome

    def device_ns(self) -> Optional[int]:
        """Return the last step's time on the device, such as by CUDA events."""
        return None

    def needles(self) -> Sequence[Tuple[str, str]]:
        """Return pairs: a text, and the kernels that ran if the profile contains the text."""
        names: Sequence[Tuple[str, str]] = self.implementation.KERNELS
        return names

    def profile(self, ranges: Ranges, steps: int, folder: str) -> Profiled:
        """Profile some steps, after a throwaway session."""
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
        """Return the input shapes of one more step's ops."""
        return ()

    def _recording_cost(self, steps: Iterable[int], folder: str) -> Optional[Dict[str, Any]]:
        """Run a throwaway session; return the cost of recording an event."""
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
        """Record steps; return (session, wall ns of each step, losses)."""
        walls_ns, outcomes = [], []
        with self.recorder.recording(folder) as session:
            if self.recorder.starts_late:
                self.step(no_ranges)
            for number in steps:
                seen = both(ranges, self.recorder.annotated(number))
                start_ns = time.perf_counter_ns()
                outcome = self.step(seen)
                walls_ns.append(time.perf_counter_ns() - start_ns)
                outcomes.append(self.copied(outcome))
            at_end()
        return session, walls_ns, [self.loss(outcome) for outcome in outcomes]


def laid(array: Any, time_major: bool) -> Any:
    """Swap time and batch, unless the network is time-major."""
    import numpy as np  # here, because the worker must be able to report that NumPy is missing

    return np.ascontiguousarray(array if time_major else array.swapaxes(0, 1))


def lengths_of(workload: Workload, batch: Any) -> Tuple[Any, ...]:
    """Return ``(lengths,)`` if the layers get the sequences' lengths, else ``()``."""
    return (batch.lengths.astype("int32"),) if workload.variable_length else ()


def targets_of(workload: Workload, batch: Any, time_major: bool) -> Tuple[Any, ...]:
    """Return the targets: none, or CTC's (labels, lengths), or one array."""
    if workload.loss == "mean":
        return ()
    if workload.loss == "ctc":
        return batch.targets.astype("int32"), batch.lengths.astype("int32")
    return (laid(batch.targets, time_major or not workload.each_step),)


def torch_needles(kernels: Sequence[Tuple[str, str]]) -> List[Tuple[str, str]]:
    """Put operators in quotes, to search for them in torch.profiler's JSON."""
    return [('"{}"'.format(operator), words) for operator, words in kernels]


def loop_of(row: Implementation) -> Any:
    """Return the module that trains an implementation."""
    name = row.framework
    if name == "tensorflow" and row.library:
        # check the version, because Keras may run on TensorFlow 1
        import tensorflow

        if tensorflow.__version__.startswith("1."):
            name = "tensorflow1"
    return loop_for(name)


def loop_for(framework: str) -> Any:
    return importlib.import_module("{}.{}".format(__name__, PLACES.get(framework, framework)))
