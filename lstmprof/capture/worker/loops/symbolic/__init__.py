"""The step loop that Theano and PyTensor share.

A training step is one compiled function. Profiled steps run in the library's virtual machine in
Python, with a clock around each operator. The profile's measured overhead includes the extra time.
Only names of Scans (loops) show whether an operator belongs to the forward or the backward pass.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any, Callable, ContextManager, Dict, Iterator, List, NamedTuple, Optional, Tuple

import numpy as np

from lstmprof import workloads
from lstmprof.capture.request import CaptureRequest
from lstmprof.capture.worker import loops
from lstmprof.capture.worker.loops import _cpu
from lstmprof.capture.worker.loops._cpu import Readings
from lstmprof.capture.worker.profiling import Ranges
from lstmprof.workloads import Workload

Updates = List[Tuple[Any, Any]]  # (shared variable, its next value)


class Library(NamedTuple):
    """The functions of Theano or PyTensor that this loop needs, under common names."""

    name: str
    title: str
    package: Any
    tensor: Any  # module of operators
    machine: Any  # its VMLinker
    log_softmax: Callable[[Any], Any]  # of (batch, classes), over the classes
    # makes a symbolic variable from (name, dtype, number of dimensions)
    variable: Callable[[str, str, int], Any]
    mode: Callable[[], Any]  # compilation mode of the timed function
    # makes a context from a linker; the context yields a compilation mode with the linker
    clocked: Callable[[Any], ContextManager[Any]]

    def loss_of(
        self, workload: Workload, outputs: Any, targets: Any, time_major: bool = True
    ) -> Any:
        """Return the mean loss; ``targets`` are always time-major."""
        tensor = self.tensor
        if workload.loss == "mean":
            return tensor.mean(outputs)
        if workload.each_step and not time_major:
            outputs = outputs.dimshuffle(1, 0, 2)
        if workload.loss == "mse":
            return tensor.mean(tensor.sqr(outputs - targets))
        if workload.each_step:
            outputs, targets = outputs.reshape((-1, workload.classes)), targets.flatten()
        scores = self.log_softmax(outputs)
        return -tensor.mean(scores[tensor.arange(targets.shape[0]), targets])

    def symbols(self, workload: Workload) -> Tuple[Any, Any, Any]:
        """Return symbolic variables: (inputs, targets, lengths)."""
        tokens = bool(workload.vocabulary)
        inputs = self.variable("inputs", "int64" if tokens else "float32", 2 if tokens else 3)
        dtype = "int64" if workload.loss == "ce" else "float32"
        dimensions = {"ce": 1, "mse": 2, "mean": 1}[workload.loss] + int(workload.each_step)
        return (
            inputs,
            self.variable("targets", dtype, dimensions),
            self.variable("lengths", "int64", 1),
        )

    def optimizer_of(self, workload: Workload, parameters: Dict[str, Any]) -> Any:
        return (Sgd if workload.optimizer == "sgd" else Adam)(self, workload, parameters)


class Trainer(_cpu.ClockedTrainer):
    library: Library

    def __init__(self, request: CaptureRequest, device: str) -> None:
        self.library.package.config.floatX = "float32"
        self.profiler = "clock around {}'s thunks".format(self.library.title)
        super().__init__(request)
        self.module = self.implementation.build(self.workload)
        self.implementation.load(self.module, workloads.weights(self.workload, request.seed))
        parameters = self.implementation.parameters(self.module)
        self.optimizer = self.library.optimizer_of(self.workload, parameters)
        batch: Any = workloads.batch(self.workload, request.seed)
        self.time_major: bool = self.implementation.TIME_MAJOR
        inputs = loops.laid(batch.inputs, self.time_major)
        self.data = (inputs, batch.targets, batch.lengths)
        self.clocked: Any = None
        self.function: Any = None  # the first step compiles it, as in other loops

    def _compiled(self, mode: Any) -> Any:
        inputs, targets, lengths = self.library.symbols(self.workload)
        true_lengths = (lengths,) if self.workload.variable_length else ()
        outputs = self.implementation.apply(self.module, inputs, mode, *true_lengths)
        loss = self.library.loss_of(self.workload, outputs, targets, self.time_major)
        updates = [] if self.forward_only else self.optimizer.updates(loss)
        return self.library.package.function(
            [inputs, targets, lengths],
            loss,
            updates=updates,
            mode=mode,
            on_unused_input="ignore",
        )

    def step(self, ranges: Ranges) -> Any:
        with ranges("step"):
            if self.function is None:
                self.function = self._compiled(self.library.mode())
            return self.function(*self.data)

    @contextlib.contextmanager
    def recording(self, folder: str) -> Iterator[Readings]:
        """Run steps with a clock around each operator."""
        if self.clocked is None:
            linker = clocked_linker(self.library.machine, self.library.name, self.readings)
            with self.library.clocked(linker) as mode:
                self.clocked = self._compiled(mode)
        self.readings.clear()
        plain, self.function = self.function, self.clocked
        try:
            yield self.readings
        finally:
            self.function = plain

    def version(self) -> str:
        return str(self.library.package.__version__)


#: Adam's decays of the gradients' mean and mean square, and epsilon, as in torch.optim.Adam.
MEAN_DECAY, SQUARE_DECAY, EPSILON = np.float32(0.9), np.float32(0.999), np.float32(1e-8)
#: The number 1 in float32, because before NumPy 2 a Python 1 minus a float32 is a float64.
ONE = np.float32(1)


class Sgd:
    def __init__(self, library: Library, workload: Workload, parameters: Dict[str, Any]) -> None:
        self.library = library
        self.rate, self.parameters = np.float32(workload.learning_rate), parameters

    def updates(self, loss: Any) -> Updates:
        parameters = list(self.parameters.values())
        gradients = self.library.package.grad(loss, parameters)
        return [(p, p - self.rate * gradient) for p, gradient in zip(parameters, gradients)]


class Adam:
    """Adam (Kingma and Ba, 2014, algorithm 1)."""

    def __init__(self, library: Library, workload: Workload, parameters: Dict[str, Any]) -> None:
        self.library, shared = library, library.package.shared
        self.rate, self.parameters = np.float32(workload.learning_rate), parameters
        self.count = shared(np.float32(0))
        zeros = {name: np.zeros_like(p.get_value()) for name, p in parameters.items()}
        self.means = {name: shared(array) for name, array in zeros.items()}
        self.squares = {name: shared(array) for name, array in zeros.items()}

    def updates(self, loss: Any) -> Updates:
        tensor, count = self.library.tensor, self.count + ONE
        updates = [(self.count, count)]
        gradients = self.library.package.grad(loss, list(self.parameters.values()))
        for (name, parameter), gradient in zip(self.parameters.items(), gradients):
            mean = MEAN_DECAY * self.means[name] + (ONE - MEAN_DECAY) * gradient
            square = SQUARE_DECAY * self.squares[name] + (ONE - SQUARE_DECAY) * tensor.sqr(gradient)
            root = tensor.sqrt(square / (ONE - SQUARE_DECAY**count))
            change = self.rate * mean / (ONE - MEAN_DECAY**count) / (root + EPSILON)
            updates += [(self.means[name], mean), (self.squares[name], square)]
            updates.append((parameter, parameter - change))
        return updates


#: Names of matmul ops. The profile has input shapes only of matmuls.
PRODUCTS = ("Dot22", "Dot22Scalar", "Gemm", "Dot", "BatchedDot")


def clocked_linker(machine: Any, library: str, readings: Readings) -> Any:
    """Return a linker that puts a clock around each operator of a function."""

    # define the class here, because libraries create more of its linkers (for a Scan) themselves
    class ClockedLinker(machine):  # type: ignore[misc]
        def __init__(self, **options: Any) -> None:
            super().__init__(**dict(options, use_cloop=False))

        def make_vm(self, nodes: Any, thunks: Any, *rest: Any, **more: Any) -> Any:
            clocked = [_clocked(node, run, library, readings) for node, run in zip(nodes, thunks)]
            return super().make_vm(nodes, clocked, *rest, **more)

    return ClockedLinker()


def _clocked(node: Any, thunk: Any, library: str, readings: Readings) -> Any:
    name = "{}::{}".format(library, node.op)
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
