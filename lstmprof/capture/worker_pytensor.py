"""The one step loop for PyTensor, and a clock around its operators.

A training step is one compiled function whose updates are Adam's. It runs on PyTensor's C backend
(``CVM``, Theano's own), which calls NumPy's BLAS where PyTensor finds no other; the Numba backend,
since 3.0 the default, is one machine-code function that no profiler sees into, and was as fast. The
first step compiles what PyTensor's own cache (``base_compiledir``) does not have. The host's only
range is ``step``: arrays of NumPy need no transfer, and the phases of the merged graph are those of
its Scans.
"""

from __future__ import annotations

import importlib
import os
import time
from typing import Any, Dict, Iterable, List, Optional, Tuple

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytensor.tensor.special
from pytensor.compile.mode import Mode, get_mode

from lstmprof import implementations, workloads
from lstmprof.capture import worker_cpus, worker_profile, worker_ranges
from lstmprof.capture.worker_pytensor_thunks import ClockedLinker, Readings
from lstmprof.capture.worker_ranges import Ranges
from lstmprof.capture.worker_request import CaptureRequest
from lstmprof.workloads import Workload

BACKEND = "CVM"
#: Adam's decay of the mean and of the square, and its epsilon: the defaults of torch.optim.Adam
MEAN_DECAY, SQUARE_DECAY, EPSILON = np.float32(0.9), np.float32(0.999), np.float32(1e-8)


def loss_of(workload: Workload, outputs: Any, targets: Any) -> Any:
    """The mean loss over the batch; outputs (batch, classes)."""
    if workload.loss == "mse":
        return pt.mean(pt.sqr(outputs - targets))
    scores = pytensor.tensor.special.log_softmax(outputs, axis=1)
    return -pt.mean(scores[pt.arange(targets.shape[0]), targets])


def symbols(workload: Workload) -> Tuple[Any, Any]:
    """The symbolic inputs and targets."""
    return pt.ftensor3("inputs"), pt.fmatrix("targets") if workload.loss == "mse" else pt.lvector()


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
        self.adam = Adam(self.workload, self.implementation.parameters(self.module))
        batch: Any = workloads.batch(self.workload, request.seed)
        self.data = (batch.inputs, batch.targets)
        self.function: Any = None  # the first step compiles it, as elsewhere

    def _compiled(self, mode: Any) -> Any:
        inputs, targets = symbols(self.workload)
        outputs = self.implementation.apply(self.module, inputs, mode)
        loss = loss_of(self.workload, outputs, targets)
        updates = [] if self.forward_only else self.adam.updates(loss)
        return pytensor.function([inputs, targets], loss, updates=updates, mode=mode)

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

    def profile(self, ranges: Ranges, steps: int, folder: str) -> worker_profile.Profiled:
        """``steps`` profiled steps of the clocked function, after some that are thrown away."""
        readings = Readings()
        linker = ClockedLinker(readings)
        self.function = self._compiled(Mode(linker, get_mode(BACKEND).optimizer))
        throwaway = worker_profile.throwaway_steps(steps, time.perf_counter_ns)
        self._session(worker_ranges.no_ranges, throwaway)
        readings.clear()
        seen = worker_ranges.both(ranges, readings.range)
        walls_ns, losses = self._session(seen, range(steps))
        raw = os.path.join(folder, "trace.json")
        readings.write(raw)
        kernels = worker_profile.first_found(raw, self.implementation.KERNELS)
        packed = worker_profile.compressed(raw, os.path.join(folder, "pytensor.trace.json.gz"))
        return worker_profile.Profiled(walls_ns, losses, [packed], kernels)

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
            "threads": worker_cpus.thread_count(),
            "versions": {"pytensor": pytensor.__version__, "cuda": None},
            "backend": BACKEND,
        }


class Adam:
    """Adam's state, and its step as updates: D. Kingma, J. Ba, "Adam" (2014), algorithm 1."""

    def __init__(self, workload: Workload, parameters: Dict[str, Any]) -> None:
        self.rate, self.parameters = np.float32(workload.learning_rate), parameters
        self.count = pytensor.shared(np.float32(0))
        zeros = {name: np.zeros_like(p.get_value()) for name, p in parameters.items()}
        self.means = {name: pytensor.shared(array) for name, array in zeros.items()}
        self.squares = {name: pytensor.shared(array) for name, array in zeros.items()}

    def updates(self, loss: Any) -> List[Tuple[Any, Any]]:
        """(shared variable, its next value), as torch.optim.Adam computes it."""
        count = self.count + np.float32(1)
        updates = [(self.count, count)]
        gradients = pytensor.grad(loss, list(self.parameters.values()))
        for (name, parameter), gradient in zip(self.parameters.items(), gradients):
            mean = MEAN_DECAY * self.means[name] + (1 - MEAN_DECAY) * gradient
            square = SQUARE_DECAY * self.squares[name] + (1 - SQUARE_DECAY) * pt.sqr(gradient)
            root = pt.sqrt(square / (1 - SQUARE_DECAY**count))
            change = self.rate * mean / (1 - MEAN_DECAY**count) / (root + EPSILON)
            updates += [(self.means[name], mean), (self.squares[name], square)]
            updates.append((parameter, parameter - change))
        return updates


def out_of_memory(error: BaseException) -> bool:
    """Whether ``error`` says so: PyTensor raises MemoryError, which is known."""
    return False
