"""The step loop for MXNet (Gluon and Module), with MXNet's own profiler.

MXNet is asynchronous, also on a CPU: a range such as ``forward`` shows when Python enqueued
operators. MXNet's profiler cannot see operators in a bulk, so profiled steps run operators one by
one. The profile's measured overhead includes the extra time. A Module computes the loss in
``forward``.
"""

from __future__ import annotations

import contextlib
import os
import re
from typing import Any, ContextManager, Dict, Iterator, Tuple

import mxnet as mx
import numpy as np

from lstmprof import workloads
from lstmprof.capture.request import CaptureRequest
from lstmprof.capture.worker import loops
from lstmprof.capture.worker.loops import _cpu
from lstmprof.capture.worker.machine.host import cpu_facts
from lstmprof.capture.worker.machine.peaks import Run, faster, numpy_copy, numpy_product
from lstmprof.capture.worker.machine.settings import denormal_numbers, denormals
from lstmprof.capture.worker.profiling import DOMAIN, Ranges
from lstmprof.workloads import Workload

ENGINE = "MXNET_ENGINE_TYPE"
USUAL_ENGINE = "ThreadedEnginePerDevice"
#: Options of MXNet's profiler. ``aggregate_stats`` makes the engine run operators one by one.
RECORDED = ("profile_symbolic", "profile_imperative", "profile_api", "aggregate_stats")
#: Environment variables that, if 0, make a graph's executor run operators one by one.
BULK = ("MXNET_EXEC_BULK_EXEC_TRAIN", "MXNET_EXEC_BULK_EXEC_INFERENCE")
_FIRST_COMMA = re.compile(r'("traceEvents"\s*:\s*\[)\s*,')
copy = numpy_copy
device_of, set_threads = _cpu.device_of, _cpu.set_threads


class Trainer(loops.Trainer):
    profiler = "mx.profiler"

    def __init__(self, request: CaptureRequest, device: str) -> None:
        super().__init__(request)
        module = self.implementation.build(self.workload)
        self.implementation.load(module, workloads.weights(self.workload, request.seed))
        batch: Any = workloads.batch(self.workload, request.seed)
        self.given = given(self.workload, batch, self.implementation.TIME_MAJOR)
        network = ModuleNetwork if hasattr(self.implementation, "apply") else GluonNetwork
        self.network: Any = network(self.implementation, module, self.workload, self.forward_only)
        self.domain = mx.profiler.Domain(DOMAIN)
        self.tasks: Dict[str, TaskRange] = {}

    def step(self, ranges: Ranges) -> Any:
        with ranges("step"):
            with ranges("input"):
                arrays = {name: mx.nd.array(array) for name, array in self.given.items()}
            loss = self.network.step(ranges, arrays)
            mx.nd.waitall()
        return loss

    def loss(self, outcome: Any) -> float:
        return float(outcome.asnumpy().ravel()[0])

    def copied(self, outcome: Any) -> Any:
        """Copy the loss, because the next step overwrites a graph's outputs."""
        return outcome.copy()

    @contextlib.contextmanager
    def recording(self, folder: str) -> Iterator[str]:
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, "profile.json")
        mx.profiler.set_config(
            filename=path,
            continuous_dump=False,
            profile_memory=False,
            **dict.fromkeys(RECORDED, True),
        )
        with self.network.one_by_one():
            mx.nd.waitall()
            mx.profiler.set_state("run")
            try:
                yield path
            finally:
                mx.nd.waitall()
                mx.profiler.set_state("stop")
                mx.profiler.dump()

    def annotated(self, number: int) -> Ranges:
        return self._task

    def _task(self, name: str) -> ContextManager[Any]:
        if name not in self.tasks:
            self.tasks[name] = TaskRange(self.domain.new_task(name))
        return self.tasks[name]

    def written(self, session: str, folder: str) -> Tuple[str, str]:
        with open(session, encoding="utf-8") as file:
            text = file.read()
        with open(session, "w", encoding="utf-8") as file:
            # make the JSON valid: every profile after the first in a process begins with a comma
            file.write(_FIRST_COMMA.sub(r"\1", text, count=1))
        return session, "mxnet.trace.json"

    def settings(self) -> Dict[str, Any]:
        doubled = (mx.nd.array(denormal_numbers()) * 2.0).asnumpy()
        return {
            "onednn": mx.runtime.Features().is_enabled("MKLDNN"),
            "framework_denormals": denormals(doubled),
        }

    def facts(self) -> Dict[str, Any]:
        return {
            **cpu_facts(),
            "versions": {"mxnet": mx.__version__, "cuda": None},
            "backend": os.environ.get(ENGINE, USUAL_ENGINE),
        }


class TaskRange:
    """A range of the profile, which can be entered several times."""

    def __init__(self, task: Any) -> None:
        self.task = task

    def __enter__(self) -> None:
        self.task.start()

    def __exit__(self, *_: object) -> None:
        self.task.stop()


class GluonNetwork:
    """A Block of Gluon, trained by Gluon's Trainer."""

    def __init__(self, file: Any, module: Any, workload: Workload, forward_only: bool) -> None:
        self.workload, self.block, self.time_major = workload, module, file.TIME_MAJOR
        self.forward_only = forward_only
        name, options = optimizer_of(workload)
        parameters = module.collect_params()
        self.trainer = mx.gluon.Trainer(parameters, name, options, kvstore=None)

    def step(self, ranges: Ranges, arrays: Dict[str, Any]) -> Any:
        """Enqueue a step's operators, and return the loss, which may be pending."""
        if self.forward_only:
            return self.loss(ranges, arrays)
        with mx.autograd.record():
            loss = self.loss(ranges, arrays)
        with ranges("backward"):
            loss.backward()
        with ranges("optimizer"):
            self.trainer.step(1)  # the loss is already a mean
        return loss

    def loss(self, ranges: Ranges, arrays: Dict[str, Any]) -> Any:
        lengths = [arrays["lengths"]] if self.workload.variable_length else []
        with ranges("forward"):
            outputs = self.block(arrays["inputs"], *lengths)
        with ranges("loss"):
            return loss_of(mx.nd, self.workload, outputs, arrays, self.time_major)

    def one_by_one(self) -> ContextManager[None]:
        """Change nothing, because MXNet's profiler makes operators run one by one."""
        return contextlib.nullcontext()


class ModuleNetwork:
    """A symbolic graph of network and loss, which an MXNet Module runs and trains."""

    def __init__(self, file: Any, module: Any, workload: Workload, forward_only: bool) -> None:
        self.forward_only, self.arrays = forward_only, module.arrays
        batch: Any = workloads.batch(workload, 0)
        shapes = {n: a.shape for n, a in given(workload, batch, file.TIME_MAJOR).items()}
        symbols = {name: mx.sym.Variable(name) for name in shapes}
        self.outputs = file.apply(module, symbols["inputs"])
        loss = loss_of(mx.sym, workload, self.outputs, symbols, file.TIME_MAJOR)
        self.symbol, self.shapes = mx.sym.MakeLoss(loss), shapes
        self.optimizer = optimizer_of(workload)
        self.module = self._bound(self.arrays)
        self.profiled: Any = None  # a second Module, whose executor runs operators one by one

    def _bound(self, arrays: Dict[str, Any]) -> Any:
        data = [(name, shape) for name, shape in self.shapes.items() if name != "targets"]
        labels = [(name, shape) for name, shape in self.shapes.items() if name == "targets"]
        names = [name for name, _ in data], [name for name, _ in labels] or None
        module = mx.mod.Module(self.symbol, *names, context=mx.cpu())
        module.bind(data, labels or None, for_training=not self.forward_only)
        module.init_params(arg_params=arrays)
        if not self.forward_only:
            name, options = self.optimizer
            module.init_optimizer(None, name, tuple(dict(options, rescale_grad=1.0).items()))
        return module

    def step(self, ranges: Ranges, arrays: Dict[str, Any]) -> Any:
        """Enqueue a step's operators, and return the loss, which may be pending."""
        data = [array for name, array in arrays.items() if name != "targets"]
        labels = [array for name, array in arrays.items() if name == "targets"]
        batch = mx.io.DataBatch(data, labels or None)
        with ranges("forward"):
            self.module.forward(batch, is_train=not self.forward_only)
        if not self.forward_only:
            with ranges("backward"):
                self.module.backward()
            with ranges("optimizer"):
                self.module.update()
        return self.module.get_outputs()[0]

    @contextlib.contextmanager
    def one_by_one(self) -> Iterator[None]:
        """Run operators one by one inside the ``with`` block, by a second Module."""
        if self.profiled is None:
            with _variables(dict.fromkeys(BULK, "0")):
                self.profiled = self._bound(self.module.get_params()[0])
        plain, self.module = self.module, self.profiled
        try:
            yield
        finally:
            self.module = plain


@contextlib.contextmanager
def _variables(values: Dict[str, str]) -> Iterator[None]:
    """Set environment variables inside the ``with`` block."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    yield
    for name, value in before.items():
        os.environ.pop(name)
        os.environ.update({} if value is None else {name: value})


def given(workload: Workload, batch: Any, time_major: bool) -> Dict[str, Any]:
    """Return the arrays of a step by name: ``{"inputs": …, "targets": …}``."""
    arrays = {"inputs": loops.laid(batch.inputs.astype(np.float32), time_major)}
    if workload.variable_length or workload.loss == "ctc":
        arrays["lengths"] = batch.lengths.astype(np.float32)
    if workload.loss != "mean":
        targets = loops.laid(batch.targets, time_major or not workload.each_step)
        arrays["targets"] = targets.astype(np.float32)
    return arrays


def loss_of(
    library: Any, workload: Workload, outputs: Any, arrays: Dict[str, Any], time_major: bool
) -> Any:
    """Return the mean loss, computed with ``library``, which is mx.nd or mx.sym."""
    if workload.loss == "mean":
        return library.mean(outputs)
    if workload.loss == "mse":
        return library.mean(library.square(outputs - arrays["targets"]))
    if workload.loss == "ce":
        scores = library.log_softmax(outputs, axis=-1)
        return -library.mean(library.pick(scores, arrays["targets"], axis=-1))
    steps = outputs if time_major else library.swapaxes(outputs, dim1=0, dim2=1)
    options = {"use_data_lengths": True, "blank_label": "first"}
    each = library.CTCLoss(steps, arrays["targets"], data_lengths=arrays["lengths"], **options)
    return library.mean(each)


def optimizer_of(workload: Workload) -> Tuple[str, Dict[str, Any]]:
    return workload.optimizer, {"learning_rate": workload.learning_rate}


def product(size: int, device: str, dtype: str) -> Run:
    """Return a function that runs MXNet's or NumPy's matmul, whichever is faster."""
    left, right = (mx.nd.ones((size, size), dtype=dtype) for _ in range(2))

    def run(times: int) -> None:
        for _ in range(times):
            mx.nd.dot(left, right)
        mx.nd.waitall()

    return faster(run, numpy_product(size, device, dtype))


def out_of_memory(error: BaseException) -> bool:
    return isinstance(error, mx.base.MXNetError) and "allocate" in str(error)
