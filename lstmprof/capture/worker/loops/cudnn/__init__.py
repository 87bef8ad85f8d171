"""The one step loop for cuDNN without a framework; torch.profiler, where installed, around it.

A step is the copy of the data, a dozen calls on the default stream and a synchronisation of the
device; CUDA events stand at both ends. Between the two passes nothing differs but the profiler:
torch, which computes nothing here, is imported when the timing is done.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import Any, Dict

from lstmprof import implementations, workloads
from lstmprof.capture.request import CaptureRequest
from lstmprof.capture.worker import (
    cpus,
    host,
    profiling,
)
from lstmprof.capture.worker.loops.cudnn import loss as worker_cudnn_loss
from lstmprof.capture.worker.ranges import Ranges
from lstmprof.errors import CaptureError
from lstmprof.implementations.cudnn import _runtime
from lstmprof.implementations.cudnn._api import Cudnn


def device_of(requested: str) -> str:
    """The device to run on: ``cuda:N``, or ``cpu``, which is refused after.

    Raises:
        CaptureError: the driver does not show it.
    """
    shown = host.cuda_devices()
    if requested == "auto":
        return "cuda:0" if shown else "cpu"
    if requested != "cpu" and int(requested.partition(":")[2]) >= shown:
        raise CaptureError(
            "device {} is not available: the driver shows {} CUDA device(s)".format(
                requested, shown
            ),
            "see whether nvidia-smi shows it",
        )
    return requested


def set_threads(threads: int) -> None:
    """Nothing: the host computes nothing."""


class Trainer:
    """One implementation with its weights, data, loss and optimizer on one device."""

    profiler = "torch.profiler"

    def __init__(self, request: CaptureRequest, device: str) -> None:
        if request.profile_steps:
            _refuse_without_profiler()
        self.device, self.number = device, int(device.partition(":")[2])
        self.forward_only = request.mode == "forward"
        Cudnn.load().runtime.call("cudaSetDevice", device=self.number)
        self.implementation: Any = importlib.import_module(
            implementations.find(request.implementation).module
        )
        training = not self.forward_only
        self.module = self.implementation.build(
            request.workload, training, request.precision == "tf32"
        )
        self.cudnn, self.runtime = self.module.cudnn, self.module.cudnn.runtime
        shared = workloads.weights(request.workload, request.seed)
        self.implementation.load(self.module, shared)
        batch: Any = workloads.batch(request.workload, request.seed)
        self.upload = self.module.inputs.upload(batch.inputs)
        self.computed = worker_cudnn_loss.loss_of(self.module, training, batch.targets)
        self.update = worker_cudnn_loss.sgd(self.module)
        self.stopwatch = _runtime.Stopwatch(self.runtime)
        self.synchronize = self.runtime.bound("cudaDeviceSynchronize", {})

    def step(self, ranges: Ranges) -> worker_cudnn_loss.Loss:
        """One step, synchronised at its end; the loss, which the next step overwrites."""
        with ranges("step"):
            self.stopwatch.start()
            self._phases(ranges)
            self.stopwatch.stop()
            self.synchronize()
        return self.computed

    def _phases(self, ranges: Ranges) -> None:
        with ranges("input"):
            self.upload()
            self.computed.upload()
        with ranges("forward"):
            self.module.forward()
        with ranges("loss"):
            self.computed.enqueue()
        if self.forward_only:
            return
        with ranges("backward"):
            self.computed.backward()
            self.module.backward()
        with ranges("optimizer"):
            self.update()

    def loss(self, outcome: worker_cudnn_loss.Loss) -> float:
        """The number in a step's outcome."""
        return outcome.value()

    def device_ns(self) -> int:
        """Length of the last step by CUDA events (0.5 µs resolution)."""
        return self.stopwatch.elapsed_ns()

    def profile(self, ranges: Ranges, steps: int, folder: str) -> profiling.Profiled:
        """``steps`` profiled steps, after a throwaway session."""
        from lstmprof.capture.worker.loops.cudnn import profile as worker_cudnn_profile

        return worker_cudnn_profile.profiled(self, ranges, steps, folder)

    def facts(self) -> Dict[str, Any]:
        """What run.json says of the libraries and the device."""
        torch = sys.modules.get("torch")
        return {
            "device": self.device,
            "device_name": _runtime.device_name(self.number),
            "device_memory_bytes": self.runtime.memory_bytes(),
            "threads": cpus.thread_count(),
            "versions": {
                "cudnn": self.cudnn.version,
                "cuda": self.runtime.version("Runtime"),
                "cuda_driver": self.runtime.version("Driver"),
                "torch": getattr(torch, "__version__", None),
            },
            "backend": "CUDNN_RNN_ALGO_STANDARD",
        }


def _refuse_without_profiler() -> None:
    """Before anything is timed: torch itself is imported after."""
    if importlib.util.find_spec("torch") is None:
        raise CaptureError(
            "torch, whose profiler records what cuDNN does, is not installed in " + sys.executable,
            "install torch there, or give --profile-steps 0 and ingest a profile of nsys",
        )
