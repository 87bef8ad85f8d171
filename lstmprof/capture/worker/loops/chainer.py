"""The step loop for Chainer, with a clock around its functions.

Chainer records no timeline. In profiled steps, a FunctionHook times Chainer's functions, and a
clock times the optimizer's update rules. Chainer computes with NumPy on a CPU.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import chainer
import numpy as np
from chainer import functions
from chainer.function import FunctionAdapter

from lstmprof import workloads
from lstmprof.capture.request import CaptureRequest
from lstmprof.capture.worker import loops
from lstmprof.capture.worker.loops import _cpu
from lstmprof.capture.worker.loops._cpu import Readings
from lstmprof.capture.worker.profiling import Ranges
from lstmprof.workloads import Workload

device_of, set_threads, product, copy = _cpu.device_of, _cpu.set_threads, _cpu.product, _cpu.copy

#: Names of matmul functions. The profile has input shapes only of matmuls.
PRODUCTS = ("LinearFunction", "LinearGradData", "LinearGradWeight", "MatMul")


class Trainer(_cpu.ClockedTrainer):
    profiler = "clock in a FunctionHook of Chainer"

    def __init__(self, request: CaptureRequest, device: str) -> None:
        super().__init__(request)
        chainer.config.train = not self.forward_only
        chainer.config.enable_backprop = not self.forward_only
        self.module = self.implementation.build(self.workload)
        self.implementation.load(self.module, workloads.weights(self.workload, request.seed))
        self.optimizer = optimizer_of(self.workload, self.module)
        batch: Any = workloads.batch(self.workload, request.seed)
        self.inputs = loops.laid(batch.inputs, self.implementation.TIME_MAJOR)
        self.targets = batch.targets
        self.lengths = batch.lengths
        self.known_lengths = (self.lengths,) if self.workload.variable_length else ()

    def step(self, ranges: Ranges) -> Any:
        with ranges("step"):
            loss = self._loss(ranges)
            if not self.forward_only:
                with ranges("backward"):
                    self.module.cleargrads()
                    loss.backward()
                with ranges("optimizer"):
                    self.optimizer.update()
        return loss.array

    def _loss(self, ranges: Ranges) -> Any:
        with ranges("forward"):
            outputs = self.module(self.inputs, *self.known_lengths)
        with ranges("loss"):
            time_major = self.implementation.TIME_MAJOR
            return loss_of(self.workload, outputs, self.targets, self.lengths, time_major)

    @contextlib.contextmanager
    def recording(self, folder: str) -> Iterator[Readings]:
        """Time functions with a hook, and the optimizer's update rules with a clock."""
        self.readings.clear()
        rules = [parameter.update_rule for parameter in self.module.params()]
        for rule in rules:
            rule.update_core = _clocked(rule, self.readings)
        try:
            with ClockedFunctions(self.readings):
                yield self.readings
        finally:
            for rule in rules:
                del rule.update_core

    def trivial(self) -> Tuple[Callable[[], Any], int]:
        """Return (a function that reshapes one element, number of events per call)."""
        array = np.zeros((1,), np.float32)
        return lambda: functions.reshape(array, (1, 1)), 1

    def version(self) -> str:
        return str(chainer.__version__)

    def facts(self) -> Dict[str, Any]:
        return dict(super().facts(), backend="NumPy")


class ClockedFunctions(chainer.FunctionHook):  # type: ignore[misc]
    """A hook that times the forward and backward pass of each function."""

    name = "lstmprof"

    def __init__(self, readings: Readings) -> None:
        self.readings = readings
        self.starts: List[int] = []  # start times of running functions, outermost first

    def forward_preprocess(self, function: Any, in_data: Any) -> None:
        self.starts.append(time.perf_counter_ns())

    def forward_postprocess(self, function: Any, in_data: Any) -> None:
        """Record the function's time and, for a matmul, the input shapes."""
        end_ns, label = time.perf_counter_ns(), function.label
        args: Optional[Dict[str, Any]] = None
        if label in PRODUCTS:
            args = {
                "Input Dims": [list(np.shape(array)) for array in in_data],
                "Input type": [str(array.dtype) for array in in_data],
            }
        self.readings.append(("cpu_op", "chainer::" + label, self.starts.pop(), end_ns, args))

    def backward_preprocess(self, function: Any, in_data: Any, out_grad: Any) -> None:
        self.starts.append(time.perf_counter_ns())

    def backward_postprocess(self, function: Any, in_data: Any, out_grad: Any) -> None:
        end_ns = time.perf_counter_ns()
        # Grad: an old-style function computes its gradient itself
        # Backward: a new-style gradient calls other functions, which have events of their own
        ending = "Grad" if isinstance(function, FunctionAdapter) else "Backward"
        name = "chainer::{}{}".format(function.label, ending)
        self.readings.append(("cpu_op", name, self.starts.pop(), end_ns, None))


def _clocked(rule: Any, readings: Readings) -> Callable[[Any], None]:
    update, name = rule.update_core, "chainer::" + type(rule).__name__

    def run(parameter: Any) -> None:
        start_ns = time.perf_counter_ns()
        update(parameter)
        readings.append(("cpu_op", name, start_ns, time.perf_counter_ns(), None))

    return run


def loss_of(workload: Workload, outputs: Any, targets: Any, lengths: Any, time_major: bool) -> Any:
    if workload.loss == "mean":
        return functions.mean(outputs)
    # transpose the targets, which are always time-major
    if workload.each_step and not time_major:
        targets = targets.swapaxes(0, 1)
    if workload.loss == "mse":
        return functions.mean_squared_error(outputs, targets)
    if workload.loss == "ce":
        flat = functions.reshape(outputs, (-1, workload.classes)) if workload.each_step else outputs
        return functions.softmax_cross_entropy(flat, targets.astype(np.int32).ravel())
    steps: List[Any] = list(functions.separate(outputs, axis=0 if time_major else 1))
    spelled = np.full(len(lengths), targets.shape[1], np.int32)
    return functions.connectionist_temporal_classification(
        steps, targets.astype(np.int32), 0, lengths.astype(np.int32), spelled
    )


def optimizer_of(workload: Workload, module: Any) -> Any:
    name = "SGD" if workload.optimizer == "sgd" else "Adam"
    return getattr(chainer.optimizers, name)(workload.learning_rate).setup(module)
