"""The one step loop for PyTensor, and a clock around its operators.

A training step is one compiled function whose updates are the optimizer's. It runs on PyTensor's C
backend (``CVM``, Theano's own), which calls NumPy's BLAS where PyTensor finds no other; the Numba
backend, since 3.0 the default, is one machine-code function that no profiler sees into, and was as
fast. The first step compiles what PyTensor's own cache (``base_compiledir``) does not have. The
host's only range is ``step``: arrays of NumPy need no transfer, and the phases of the merged graph
are those of its Scans.

PyTensor has sums per operator (``profile=True``) and no timeline. Its virtual machine calls one
thunk an operator, within a Scan too; here each is read before and after. That needs the machine
written in Python where PyTensor's own is C (``use_cloop=False``), so that the compiled function is
another one than the timed: the inflation of the profile pass says what both cost. The trace has
the form of torch.profiler's, which every reader of lstmprof and Perfetto knows.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from typing import Any, Dict, Iterator, List, Optional, Tuple, Union

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytensor.tensor.special
from pytensor.compile.mode import Mode, get_mode
from pytensor.link.vm import VMLinker

from lstmprof import workloads
from lstmprof.capture.request import CaptureRequest
from lstmprof.capture.worker import loops
from lstmprof.capture.worker.host import thread_count
from lstmprof.capture.worker.peaks import numpy_copy, numpy_product
from lstmprof.capture.worker.profiling import Ranges
from lstmprof.errors import CaptureError
from lstmprof.workloads import Workload

BACKEND = "CVM"
#: PyTensor leaves both to NumPy.
product, copy = numpy_product, numpy_copy


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


class Trainer(loops.Trainer):
    """One implementation with its weights, data and optimizer."""

    profiler = "clock around PyTensor's thunks"

    def __init__(self, request: CaptureRequest, device: str) -> None:
        pytensor.config.floatX = "float32"
        super().__init__(request)
        self.readings: Optional[Readings] = None
        self.module = self.implementation.build(self.workload)
        self.implementation.load(self.module, workloads.weights(self.workload, request.seed))
        parameters = self.implementation.parameters(self.module)
        self.optimizer = optimizer_of(self.workload, parameters)
        batch: Any = workloads.batch(self.workload, request.seed)
        self.data = (batch.inputs, batch.targets, batch.lengths)
        self.clocked: Any = None
        self.function: Any = None  # the first step compiles it, as elsewhere

    def _compiled(self, mode: Any) -> Any:
        inputs, targets, lengths = symbols(self.workload)
        true_lengths = (lengths,) if self.workload.variable_length else ()
        outputs = self.implementation.apply(self.module, inputs, mode, *true_lengths)
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

    @contextlib.contextmanager
    def recording(self, folder: str) -> Iterator[Readings]:
        """The clocked function in place of the timed one, with no reading yet."""
        if self.readings is None:
            self.readings = Readings()
            linker = ClockedLinker(self.readings)
            self.clocked = self._compiled(Mode(linker, get_mode(BACKEND).optimizer))
        self.readings.clear()
        plain, self.function = self.function, self.clocked
        try:
            yield self.readings
        finally:
            self.function = plain

    def annotated(self, number: int) -> Ranges:
        """Ranges among the readings."""
        assert self.readings is not None
        return self.readings.range

    def written(self, session: Readings, folder: str) -> Tuple[str, str]:
        """The readings as a trace."""
        raw = os.path.join(folder, "trace.json")
        session.write(raw)
        return raw, "pytensor.trace.json"

    def facts(self) -> Dict[str, Any]:
        """What run.json says of the framework and the device."""
        return {
            "device": "cpu",
            "device_name": None,
            "device_memory_bytes": None,
            "threads": thread_count(),
            "versions": {"pytensor": pytensor.__version__, "cuda": None},
            "backend": BACKEND,
        }


def out_of_memory(error: BaseException) -> bool:
    """Whether ``error`` says so: PyTensor raises MemoryError, which is known."""
    return False


#: Adam's decay of the mean and of the square, and its epsilon: the defaults of torch.optim.Adam
MEAN_DECAY, SQUARE_DECAY, EPSILON = np.float32(0.9), np.float32(0.999), np.float32(1e-8)

Updates = List[Tuple[Any, Any]]  # (shared variable, its next value)


class Sgd:
    """Plain SGD, without momentum."""

    def __init__(self, workload: Workload, parameters: Dict[str, Any]) -> None:
        self.rate, self.parameters = np.float32(workload.learning_rate), parameters

    def updates(self, loss: Any) -> Updates:
        """One step, as torch.optim.SGD computes it."""
        parameters = list(self.parameters.values())
        gradients = pytensor.grad(loss, parameters)
        return [(p, p - self.rate * gradient) for p, gradient in zip(parameters, gradients)]


class Adam:
    """Adam and its state: D. Kingma, J. Ba, "Adam" (2014), algorithm 1."""

    def __init__(self, workload: Workload, parameters: Dict[str, Any]) -> None:
        self.rate, self.parameters = np.float32(workload.learning_rate), parameters
        self.count = pytensor.shared(np.float32(0))
        zeros = {name: np.zeros_like(p.get_value()) for name, p in parameters.items()}
        self.means = {name: pytensor.shared(array) for name, array in zeros.items()}
        self.squares = {name: pytensor.shared(array) for name, array in zeros.items()}

    def updates(self, loss: Any) -> Updates:
        """One step, as torch.optim.Adam computes it."""
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


def optimizer_of(workload: Workload, parameters: Dict[str, Any]) -> Union[Adam, Sgd]:
    """The workload's optimizer over ``parameters``.

    Raises:
        CaptureError: the optimizer is neither Adam nor SGD.
    """
    if workload.optimizer == "sgd":
        return Sgd(workload, parameters)
    if workload.optimizer != "adam":
        raise CaptureError("unknown optimizer '{}'".format(workload.optimizer), "use adam or sgd")
    return Adam(workload, parameters)


#: (category in the trace, name, start, end, arguments), of time.perf_counter_ns
Reading = Tuple[str, str, int, int, Optional[Dict[str, Any]]]

#: Operators whose inputs' shapes are read, at their first call: the products of matrices.
PRODUCTS = ("Dot22", "Gemm", "Dot", "BatchedDot")


class Readings(List[Reading]):
    """What was read, in the order in which it ended."""

    @contextlib.contextmanager
    def range(self, name: str) -> Iterator[None]:
        """A range of this name."""
        start_ns = time.perf_counter_ns()
        yield
        self.append(("user_annotation", name, start_ns, time.perf_counter_ns(), None))

    def write(self, path: str) -> None:
        """The trace as JSON, dated."""
        base_ns = min(reading[2] for reading in self)
        since_epoch_ns = time.time_ns() - time.perf_counter_ns()
        events = [
            dict(
                *({"ph": "X", "cat": category, "name": name},),
                pid=os.getpid(),
                tid=os.getpid(),
                ts=(start_ns - base_ns) / 1000,
                dur=(end_ns - start_ns) / 1000,
                **({} if args is None else {"args": args}),
            )
            for category, name, start_ns, end_ns, args in self
        ]
        header = {"schemaVersion": 1, "baseTimeNanoseconds": base_ns + since_epoch_ns}
        with open(path, "w", encoding="utf-8") as file:
            json.dump(dict(header, traceEvents=events), file)


class ClockedLinker(VMLinker):  # type: ignore[misc]
    """A machine in Python whose thunks leave ``readings``."""

    def __init__(self, readings: Readings, **options: Any) -> None:
        super().__init__(**dict(options, use_cloop=False))
        self.readings = readings

    def clone(self, allow_gc: Any = None) -> "ClockedLinker":
        """Another with the same readings: PyTensor clones the linker of a Scan's mode."""
        return ClockedLinker(self.readings, allow_gc=allow_gc)

    def make_vm(self, nodes: Any, thunks: Any, *rest: Any, **more: Any) -> Any:
        """The machine, around thunks that are read."""
        clocked = [_clocked(node, thunk, self.readings) for node, thunk in zip(nodes, thunks)]
        return super().make_vm(nodes, clocked, *rest, **more)


def _clocked(node: Any, thunk: Any, readings: Readings) -> Any:
    name = "pytensor::{}".format(node.op)
    clock, keep = time.perf_counter_ns, readings.append
    is_product = type(node.op).__name__ in PRODUCTS
    args: Optional[Dict[str, Any]] = None

    def run() -> Any:
        nonlocal args
        if is_product and args is None:
            args = {
                "Input Dims": [list(np.shape(cell[0])) for cell in thunk.inputs],
                "Input type": [str(each.type.dtype) for each in node.inputs],
            }
        start_ns = clock()
        answer = thunk()
        keep(("cpu_op", name, start_ns, clock(), args))
        return answer

    run.__dict__.update(thunk.__dict__)
    return run
