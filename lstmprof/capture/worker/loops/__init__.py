"""Base of the trainers, one per framework, that run and profile training steps."""

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

#: Modules of frameworks in a subfolder: ``onnxruntime`` -> ``onnx.onnxruntime``.
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
        """Return the loss function; if the file is the user's, add a check of the outputs."""
        if not self.is_users:
            return loss_of
        checking: Callable[..., Any] = self.implementation.checked(loss_of)
        return checking

    def step(self, ranges: Ranges) -> Any:
        """Run one step, wait for the device, and return an outcome for ``loss``."""
        raise NotImplementedError

    def loss(self, outcome: Any) -> float:
        return float(outcome)

    def copied(self, outcome: Any) -> Any:
        """Return the outcome, or a copy if the next step overwrites the outcome."""
        return outcome

    def device_ns(self) -> Optional[int]:
        """Return the last step's time on the device, such as by CUDA events."""
        return None

    def needles(self) -> Sequence[Tuple[str, str]]:
        """Return (text to find in the profile, kernels that ran if the text is there)."""
        names: Sequence[Tuple[str, str]] = self.implementation.KERNELS
        return names

    def profile(self, ranges: Ranges, steps: int, folder: str) -> Profiled:
        """Measure the profiler's cost per event, then profile the steps."""
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
        """Return the input shapes of a step's ops; run one more step if necessary."""
        return ()

    def _recording_cost(self, steps: Iterable[int], folder: str) -> Optional[Dict[str, Any]]:
        """Measure the cost of recording one event, in a session that is thrown away."""
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
        """Profile steps; return (profiler session, wall ns of each step, losses)."""
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
    """Swap the axes time and batch, unless the network is time-major."""
    import numpy as np  # here, because the worker must be able to report that NumPy is missing

    return np.ascontiguousarray(array if time_major else array.swapaxes(0, 1))


def lengths_of(workload: Workload, batch: Any) -> Tuple[Any, ...]:
    """Return ``(lengths,)`` if the layers get the sequences' lengths, else ``()``."""
    return (batch.lengths.astype("int32"),) if workload.variable_length else ()


def targets_of(workload: Workload, batch: Any, time_major: bool) -> Tuple[Any, ...]:
    """Return the loss's targets: ``()``, ``(targets,)`` or CTC's ``(labels, lengths)``."""
    if workload.loss == "mean":
        return ()
    if workload.loss == "ctc":
        return batch.targets.astype("int32"), batch.lengths.astype("int32")
    return (laid(batch.targets, time_major or not workload.each_step),)


def torch_needles(kernels: Sequence[Tuple[str, str]]) -> List[Tuple[str, str]]:
    """Put the names of operators in quotes, as in torch.profiler's JSON."""
    return [('"{}"'.format(operator), words) for operator, words in kernels]


def loop_of(row: Implementation) -> Any:
    """Return the module with the step loop that trains an implementation."""
    name = row.framework
    if name == "tensorflow" and row.library:
        # check the version, because Keras may run on TensorFlow 1
        import tensorflow

        if tensorflow.__version__.startswith("1."):
            name = "tensorflow1"
    return loop_for(name)


def loop_for(framework: str) -> Any:
    return importlib.import_module("{}.{}".format(__name__, PLACES.get(framework, framework)))
