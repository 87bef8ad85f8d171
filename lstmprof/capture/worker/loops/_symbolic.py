"""The one step loop of Theano and of its heir PyTensor, over what they call differently.

A training step is one compiled function whose updates are the optimizer's. The first step compiles
what the library's own cache (``base_compiledir``) does not have. The host's only range is ``step``:
arrays of NumPy need no transfer, and the phases of the merged graph are those of its Scans.

Both libraries have sums per operator (``profile=True``) and no timeline. Their virtual machine
calls one thunk per operator, within a Scan too. In the profile pass the clock is read before and
after each. That needs the machine written in Python where the libraries' own is C
(``use_cloop=False``), so that the compiled function is another one than the timed; the inflation of
the profile pass says what both cost.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any, Callable, ContextManager, Dict, Iterator, List, NamedTuple, Optional, Tuple

import numpy as np

from lstmprof import workloads
from lstmprof.capture.request import CaptureRequest
from lstmprof.capture.worker.loops import _cpu
from lstmprof.capture.worker.loops._cpu import Readings
from lstmprof.capture.worker.profiling import Ranges
from lstmprof.workloads import Workload

Updates = List[Tuple[Any, Any]]  # (shared variable, its next value)


class Library(NamedTuple):
    """What the loop needs of ``package``, by either library's names."""

    name: str
    title: str
    package: Any
    tensor: Any  # its module of operators
    machine: Any  # its VMLinker
    log_softmax: Callable[[Any], Any]  # of (batch, classes), over the classes
    variable: Callable[[str, str, int], Any]  # by name, dtype and number of dimensions
    mode: Callable[[], Any]  # how the timed function is compiled
    clocked: Callable[[Any], ContextManager[Any]]  # the same with another linker, while entered

    def loss_of(
        self, workload: Workload, outputs: Any, targets: Any, time_major: bool = True
    ) -> Any:
        """The mean loss over the batch; outputs (batch, classes), or with ``each_step`` 3-d.

        ``time_major``: whether outputs of every step are (time, batch, classes), as the targets.
        """
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
        """The symbolic inputs, targets and lengths, as ``workloads.Batch`` has them."""
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
        """The workload's optimizer over ``parameters``."""
        return (Sgd if workload.optimizer == "sgd" else Adam)(self, workload, parameters)


class Trainer(_cpu.ClockedTrainer):
    """One implementation with its weights, data and optimizer; a loop's own has ``library``."""

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
        inputs = batch.inputs
        if not self.time_major:
            inputs = np.ascontiguousarray(inputs.swapaxes(0, 1))
        self.data = (inputs, batch.targets, batch.lengths)
        self.clocked: Any = None
        self.function: Any = None  # the first step compiles it, as elsewhere

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
        """One step; the loss."""
        with ranges("step"):
            if self.function is None:
                self.function = self._compiled(self.library.mode())
            return self.function(*self.data)

    @contextlib.contextmanager
    def recording(self, folder: str) -> Iterator[Readings]:
        """The clocked function in place of the timed one, with no reading yet."""
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
        """The library's."""
        return str(self.library.package.__version__)


#: Adam's decay of the mean and of the square, and its epsilon: the defaults of torch.optim.Adam
MEAN_DECAY, SQUARE_DECAY, EPSILON = np.float32(0.9), np.float32(0.999), np.float32(1e-8)
#: Before NumPy 2 the difference of a Python 1 and a float32 is a float64.
ONE = np.float32(1)


class Sgd:
    """Plain SGD, without momentum."""

    def __init__(self, library: Library, workload: Workload, parameters: Dict[str, Any]) -> None:
        self.library = library
        self.rate, self.parameters = np.float32(workload.learning_rate), parameters

    def updates(self, loss: Any) -> Updates:
        """One step, as torch.optim.SGD computes it."""
        parameters = list(self.parameters.values())
        gradients = self.library.package.grad(loss, parameters)
        return [(p, p - self.rate * gradient) for p, gradient in zip(parameters, gradients)]


class Adam:
    """Adam and its state: D. Kingma, J. Ba, "Adam" (2014), algorithm 1."""

    def __init__(self, library: Library, workload: Workload, parameters: Dict[str, Any]) -> None:
        self.library, shared = library, library.package.shared
        self.rate, self.parameters = np.float32(workload.learning_rate), parameters
        self.count = shared(np.float32(0))
        zeros = {name: np.zeros_like(p.get_value()) for name, p in parameters.items()}
        self.means = {name: shared(array) for name, array in zeros.items()}
        self.squares = {name: shared(array) for name, array in zeros.items()}

    def updates(self, loss: Any) -> Updates:
        """One step, as torch.optim.Adam computes it."""
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


#: Operators whose inputs' shapes are read, at their first call: the products of matrices.
PRODUCTS = ("Dot22", "Dot22Scalar", "Gemm", "Dot", "BatchedDot")


def clocked_linker(machine: Any, library: str, readings: Readings) -> Any:
    """A linker like ``machine``, ``VMLinker`` of ``library``, whose thunks leave ``readings``.

    Its class knows the readings: a library that links another graph, as that within a Scan, makes
    another linker of the class with options of its own.
    """

    class ClockedLinker(machine):  # type: ignore[misc]
        """A machine in Python whose thunks leave readings."""

        def __init__(self, **options: Any) -> None:
            super().__init__(**dict(options, use_cloop=False))

        def make_vm(self, nodes: Any, thunks: Any, *rest: Any, **more: Any) -> Any:
            """The machine, around thunks that are read."""
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
