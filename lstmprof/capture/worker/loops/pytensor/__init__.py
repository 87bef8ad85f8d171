"""The one step loop for PyTensor, and a clock around its operators.

A training step is one compiled function whose updates are the optimizer's. It runs on PyTensor's C
backend (``CVM``, Theano's own), which calls NumPy's BLAS where PyTensor finds no other; the Numba
backend, since 3.0 the default, is one machine-code function that no profiler sees into, and was as
fast. The first step compiles what PyTensor's own cache (``base_compiledir``) does not have. The
host's only range is ``step``: arrays of NumPy need no transfer, and the phases of the merged graph
are those of its Scans.
"""

from __future__ import annotations

import importlib
import os
import time
from typing import Any, Dict, Iterable, List, Optional, Tuple

import pytensor
import pytensor.tensor as pt
import pytensor.tensor.special
from pytensor.compile.mode import Mode, get_mode

from lstmprof import implementations, workloads
from lstmprof.capture.request import CaptureRequest
from lstmprof.capture.worker import (
    cpus,
    profiling,
    ranges as worker_ranges,
)
from lstmprof.capture.worker.loops.pytensor import optimizer
from lstmprof.capture.worker.loops.pytensor.thunks import ClockedLinker, Readings
from lstmprof.capture.worker.ranges import Ranges
from lstmprof.workloads import Workload

BACKEND = "CVM"


def loss_of(workload: Workload, outputs: Any, targets: Any) -> Any:
    """The mean loss over the batch; outputs (batch, classes), or (time, batch, classes)."""
    if workload.loss == "mean":
        return pt.mean(outputs)
    if workload.loss == "mse":
        return pt.mean(pt.sqr(outputs - targets))
    if workload.each_step:
        outputs, targets = outputs.reshape((-1, workload.classes)), targets.flatten()
    scores = pytensor.tensor.special.log_softmax(outputs, axis=1)
    return -pt.mean(scores[pt.arange(targets.shape[0]), targets])


def symbols(workload: Workload) -> Tuple[Any, Any, Any]:
    """The symbolic inputs, targets and lengths, as ``workloads.Batch`` has them."""
    inputs = pt.lmatrix("inputs") if workload.vocabulary else pt.ftensor3("inputs")
    dtype = "int64" if workload.loss == "ce" else "float32"
    dimensions = {"ce": 1, "mse": 2, "mean": 1}[workload.loss] + int(workload.each_step)
    targets = pt.tensor("targets", dtype=dtype, shape=(None,) * dimensions)
    return inputs, targets, pt.lvector("lengths")


def device_of(requested: str) -> str:
    """``cpu``, the only device; ``cuda`` is refused before."""
    return "cpu"


def set_threads(threads: int) -> None:
    """Nothing: its operators have one thread, its BLAS reads the environment."""


class Trainer:
    """One implementation with its weights, data and optimizer."""

    profiler = "clock around PyTensor's thunks"

    def __init__(self, request: CaptureRequest, device: str) -> None:
        pytensor.config.floatX = "float32"
        self.workload, self.forward_only = request.workload, request.mode == "forward"
        self.implementation: Any = importlib.import_module(
            implementations.find(request.implementation).module
        )
        self.module = self.implementation.build(self.workload)
        self.implementation.load(self.module, workloads.weights(self.workload, request.seed))
        parameters = self.implementation.parameters(self.module)
        self.optimizer = optimizer.optimizer_of(self.workload, parameters)
        batch: Any = workloads.batch(self.workload, request.seed)
        self.data = (batch.inputs, batch.targets, batch.lengths)
        self.function: Any = None  # the first step compiles it, as elsewhere

    def _compiled(self, mode: Any) -> Any:
        inputs, targets, lengths = symbols(self.workload)
        known = (lengths,) if self.workload.variable_length else ()
        outputs = self.implementation.apply(self.module, inputs, mode, *known)
        loss = loss_of(self.workload, outputs, targets)
        updates = [] if self.forward_only else self.optimizer.updates(loss)
        taken = [inputs, targets, lengths]
        return pytensor.function(taken, loss, updates=updates, mode=mode, on_unused_input="ignore")

    def step(self, ranges: Ranges) -> Any:
        """One step; the loss."""
        with ranges("step"):
            if self.function is None:
                self.function = self._compiled(get_mode(BACKEND))
            return self.function(*self.data)

    def loss(self, outcome: Any) -> float:
        """The number in a step's outcome."""
        return float(outcome)

    def device_ns(self) -> Optional[int]:
        """There is no device: always None."""
        return None

    def profile(self, ranges: Ranges, steps: int, folder: str) -> profiling.Profiled:
        """``steps`` profiled steps of the clocked function, after some that are thrown away."""
        readings = Readings()
        linker = ClockedLinker(readings)
        self.function = self._compiled(Mode(linker, get_mode(BACKEND).optimizer))
        throwaway = profiling.throwaway_steps(steps, time.perf_counter_ns)
        self._session(worker_ranges.no_ranges, throwaway)
        readings.clear()
        seen = worker_ranges.both(ranges, readings.range)
        walls_ns, losses = self._session(seen, range(steps))
        raw = os.path.join(folder, "trace.json")
        readings.write(raw)
        kernels = profiling.first_found(raw, self.implementation.KERNELS)
        packed = profiling.compressed(raw, os.path.join(folder, "pytensor.trace.json.gz"))
        return profiling.Profiled(walls_ns, losses, [packed], kernels)

    def _session(self, ranges: Ranges, steps: Iterable[int]) -> Tuple[List[int], List[float]]:
        walls_ns, losses = [], []
        for _ in steps:
            start_ns = time.perf_counter_ns()
            loss = self.step(ranges)
            walls_ns.append(time.perf_counter_ns() - start_ns)
            losses.append(self.loss(loss))
        return walls_ns, losses

    def facts(self) -> Dict[str, Any]:
        """What run.json says of the framework and the device."""
        return {
            "device": "cpu",
            "device_name": None,
            "device_memory_bytes": None,
            "threads": cpus.thread_count(),
            "versions": {"pytensor": pytensor.__version__, "cuda": None},
            "backend": BACKEND,
        }


def out_of_memory(error: BaseException) -> bool:
    """Whether ``error`` says so: PyTensor raises MemoryError, which is known."""
    return False
