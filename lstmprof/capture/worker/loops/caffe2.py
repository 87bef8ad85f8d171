"""The step loop for Caffe2, with a clock around its operators.

Caffe2 records no timeline, so profiled steps run each operator as a separate net. The profile's
measured overhead includes the extra time. A RecurrentNetwork is one operator without time steps.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any, Callable, Dict, Iterator, List, Tuple

import numpy as np
import torch
from caffe2.python import core, optimizer, workspace

from lstmprof import workloads
from lstmprof.capture.request import CaptureRequest
from lstmprof.capture.worker.loops import _cpu
from lstmprof.capture.worker.loops._cpu import Readings
from lstmprof.capture.worker.profiling import Ranges
from lstmprof.workloads import Workload

#: Functions for CPUs. NumPy's matmul measures the peak rate, although Caffe2 uses torch's BLAS.
device_of, set_threads, product, copy = _cpu.device_of, _cpu.set_threads, _cpu.product, _cpu.copy


class Trainer(_cpu.ClockedTrainer):
    profiler = "clock around Caffe2's operators"

    def __init__(self, request: CaptureRequest, device: str) -> None:
        super().__init__(request)
        batch: Any = workloads.batch(self.workload, request.seed)
        self.module = self.implementation.build(self.workload)
        self.blobs = given(self.workload, batch)
        self._feed()
        self.net = self.module.model.net
        self.phases = list(phases(self.workload, self.module, self.forward_only))
        workspace.RunNetOnce(self.module.model.param_init_net)
        self.implementation.load(self.module, workloads.weights(self.workload, request.seed))
        workspace.CreateNet(self.net)
        self.run: Callable[[], None] = self._run
        # (net with one operator, the operator's name in the trace)
        self.operators: List[Tuple[str, str]] = []

    def _feed(self) -> None:
        for name, array in self.blobs.items():
            workspace.FeedBlob(name, array)

    def _run(self) -> None:
        workspace.RunNet(self.net.Proto().name)

    def step(self, ranges: Ranges) -> Any:
        with ranges("step"):
            with ranges("input"):
                self._feed()
            with ranges("program"):
                self.run()
        return workspace.FetchBlob(LOSS)

    @contextlib.contextmanager
    def recording(self, folder: str) -> Iterator[Readings]:
        """Run and time the operators one by one."""
        self.operators = self.operators or list(nets_of(self.net))
        self.readings.clear()
        self.run = self._run_one_by_one
        try:
            yield self.readings
        finally:
            self.run = self._run

    def _run_one_by_one(self) -> None:
        clock, keep = time.perf_counter_ns, self.readings.append
        for phase, first, end in self.phases:
            with self.readings.range(phase):
                begin_ns = clock()
                for net, name in self.operators[first:end]:
                    start_ns = clock()
                    workspace.RunNet(net)
                    keep(("cpu_op", name, start_ns, clock(), None))
                keep(("cpu_op", NET, begin_ns, clock(), None))

    def version(self) -> str:
        # return torch's version, because Caffe2 is a part of torch
        return str(torch.__version__)

    def facts(self) -> Dict[str, Any]:
        return dict(super().facts(), backend=self.net.Proto().type or "simple")


LOSS = "loss"
#: Name of the trace's event around all operators of a phase.
NET = "caffe2::Net"


def given(workload: Workload, batch: Any) -> Dict[str, Any]:
    """Return blob name -> array for a step: ``{"inputs": …, "targets": …}``."""
    blobs = {"inputs": np.ascontiguousarray(batch.inputs, np.float32)}
    if workload.loss == "ce":
        blobs["targets"] = batch.targets.astype(np.int32).ravel()
    if workload.loss == "mse":
        blobs["targets"] = np.ascontiguousarray(batch.targets, np.float32)
    return blobs


def phases(workload: Workload, module: Any, forward_only: bool) -> Iterator[Tuple[str, int, int]]:
    """Add loss, gradients and updates to the net; yield (phase, first operator, end)."""
    model, ends = module.model, [0]

    def phase(name: str) -> Tuple[str, int, int]:
        ends.append(len(model.net.Proto().op))
        return (name, ends[-2], ends[-1])  # the first operator, and the first after the phase

    yield phase("forward")
    loss_of(workload, model.net, module.outputs)
    yield phase("loss")
    if forward_only:
        return
    model.AddGradientOperators([core.BlobReference(LOSS)])
    yield phase("backward")
    build = optimizer.build_sgd if workload.optimizer == "sgd" else optimizer.build_adam
    build(model, workload.learning_rate)
    yield phase("optimizer")


def nets_of(net: Any) -> Iterator[Tuple[str, str]]:
    """Create one net per operator; yield (net, operator): ``(…, "caffe2::FC")``."""
    for number, operator in enumerate(net.Proto().op):
        alone = core.Net("operator_{}".format(number))
        alone.Proto().op.extend([operator])
        workspace.CreateNet(alone)
        yield alone.Proto().name, "caffe2::" + operator.type


def loss_of(workload: Workload, net: Any, outputs: Any) -> None:
    """Add the mean loss to the net."""
    if workload.loss == "mean":
        net.AveragedLoss([outputs], [LOSS])
        return
    flat, _ = net.Reshape([outputs], ["scores", "outputs_shape"], shape=[-1, workload.classes])
    if workload.loss == "ce":
        net.SoftmaxWithLoss([flat, "targets"], ["softmax", LOSS])
        return
    targets, _ = net.Reshape(["targets"], ["flat_targets", "old"], shape=[-1, workload.classes])
    # compute half the sum of squares over the classes
    halves = net.SquaredL2Distance([flat, targets], ["halves"])
    net.AveragedLoss([net.Scale([halves], ["squares"], scale=2.0 / workload.classes)], [LOSS])


def out_of_memory(error: BaseException) -> bool:
    return isinstance(error, RuntimeError) and "alloc" in str(error)
