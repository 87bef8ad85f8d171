"""The step loop for cuDNN without a framework, with torch.profiler or Nsight Systems.

cuDNN has no automatic differentiation, so each loss also computes its gradient. Each cuDNN call is
an operator in the profile. Source: cuDNN's documentation of cudnnReduceTensor, cudnnOpTensor,
cudnnScaleTensor and cudnnAddTensor.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
from typing import Any, ContextManager, Dict, Iterator, Sequence, Tuple, Union

import numpy as np

from lstmprof import workloads
from lstmprof.base.errors import CaptureError
from lstmprof.capture.request import NSYS, CaptureRequest
from lstmprof.capture.worker import loops
from lstmprof.capture.worker.machine.host import cuda_devices, thread_count
from lstmprof.capture.worker.profiling import Ranges
from lstmprof.implementations import cudnn as api
from lstmprof.implementations.cudnn import Cudnn, _runtime
from lstmprof.implementations.cudnn._runtime import Buffer, Call


def device_of(requested: str) -> str:
    """Return ``cuda:N``, or ``cpu`` if there is no GPU; a later check refuses ``cpu``."""
    shown = cuda_devices()
    if requested == "auto":
        return "cuda:0" if shown else "cpu"
    if requested != "cpu" and int(requested.partition(":")[2]) >= shown:
        raise CaptureError(
            "device {} is not available: the driver shows {} CUDA device(s)".format(
                requested, shown
            ),
            "check whether nvidia-smi lists it",
        )
    return requested


def set_threads(threads: int) -> None:
    """Do nothing, because cuDNN computes only on the GPU."""


class Trainer(loops.Trainer):
    profiler = "torch.profiler"

    def __init__(self, request: CaptureRequest, device: str) -> None:
        if request.steps_to_profile and request.profiler != NSYS:
            _refuse_without_profiler()
        self.device, self.number = device, int(device.partition(":")[2])
        super().__init__(request)
        Cudnn.load().runtime.call("cudaSetDevice", device=self.number)
        training = not self.forward_only
        self.module = self.implementation.build(
            request.workload, training, request.precision == "tf32"
        )
        self.cudnn, self.runtime = self.module.cudnn, self.module.cudnn.runtime
        shared = workloads.weights(request.workload, request.seed)
        self.implementation.load(self.module, shared)
        batch: Any = workloads.batch(request.workload, request.seed)
        self.upload = self.module.inputs.upload(batch.inputs)
        self.computed = loss_of(self.module, training, batch.targets)
        self.update = sgd(self.module)
        self.stopwatch = _runtime.Stopwatch(self.runtime)
        self.synchronize = self.runtime.bound("cudaDeviceSynchronize", {})

    def step(self, ranges: Ranges) -> Loss:
        """Run one step; the next step overwrites the returned loss."""
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

    def loss(self, outcome: Union[Loss, float]) -> float:
        return outcome if isinstance(outcome, float) else outcome.value()

    def device_ns(self) -> int:
        """Return the last step's time, measured by CUDA events (resolution 0.5 µs)."""
        return self.stopwatch.elapsed_ns()

    @contextlib.contextmanager
    def recording(self, folder: str) -> Iterator[Any]:
        import torch  # import late, because timed steps do not need torch

        if not torch.cuda.is_available():
            raise CaptureError(
                "torch {}, whose profiler records cuDNN's calls, is built without CUDA".format(
                    torch.__version__
                ),
                "install a torch built for CUDA, or use --profiler nsys",
            )
        self.cudnn.observer = operator
        try:
            with torch.profiler.profile(activities=self.activities()) as session:
                yield session
        finally:
            self.cudnn.observer = None

    def activities(self) -> Sequence[Any]:
        import torch

        return torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA

    def annotated(self, number: int) -> Ranges:
        import torch

        ranges: Ranges = torch.profiler.record_function
        return ranges

    def copied(self, outcome: Loss) -> float:
        """Return the loss as a number before the next step overwrites the loss's buffer."""
        return outcome.value()

    def written(self, session: Any, folder: str) -> Tuple[str, str]:
        raw = os.path.join(folder, "trace.json")
        session.export_chrome_trace(raw)
        return raw, "cudnn-direct.pt.trace.json"

    def needles(self) -> Sequence[Tuple[str, str]]:
        return loops.torch_needles(self.implementation.KERNELS)

    def facts(self) -> Dict[str, Any]:
        torch = sys.modules.get("torch")
        return {
            "device": self.device,
            "device_name": _runtime.device_name(self.number),
            "device_memory_bytes": self.runtime.memory_bytes(),
            "threads": thread_count(),
            "versions": {
                "cudnn": self.cudnn.version,
                "cuda": self.runtime.version("Runtime"),
                "cuda_driver": self.runtime.version("Driver"),
                "torch": getattr(torch, "__version__", None),
            },
            "backend": "CUDNN_RNN_ALGO_STANDARD",
        }


def _refuse_without_profiler() -> None:
    if importlib.util.find_spec("torch") is None:
        raise CaptureError(
            "torch, whose profiler records cuDNN's calls, is not installed in " + sys.executable,
            "install torch there, or use --profiler nsys",
        )


class Mean:
    """The mean of all outputs as the loss, with a constant gradient."""

    def __init__(self, network: Any, training: bool) -> None:
        outputs = network.outputs
        if training:
            network.d_outputs.set(np.full(outputs.shape, 1 / outputs.size, np.float32))
        self.result = network.buffer((1,))
        self.enqueue, self.buffers = reduction(
            network, api.CUDNN_REDUCE_TENSOR_AVG, outputs.address, outputs.shape, self.result
        )

    def upload(self) -> None:
        """Do nothing: there are no targets."""

    def backward(self) -> None:
        """Do nothing: the gradient is constant."""

    def value(self) -> float:
        """Return the loss of the last step, which the device must have finished."""
        return float(self.result.array()[0])


class SquaredError:
    """The mean of (outputs − targets)² as the loss."""

    def __init__(self, network: Any, training: bool, targets: Any) -> None:
        self.targets = network.buffer(targets.shape)
        self.upload = self.targets.upload(targets)
        self.result = network.buffer((1,))
        buffer = network.d_outputs if training else network.buffer(network.outputs.shape)
        # skip the outputs of earlier time steps if only the last has a target; their gradient is 0
        unseen = network.outputs.bytes - self.targets.bytes
        difference, shape = buffer.address + unseen, self.targets.shape
        self._subtract = subtraction(
            network, network.outputs.address + unseen, self.targets.address, difference, shape
        )
        norm = api.CUDNN_REDUCE_TENSOR_NORM2
        self._reduce, space = reduction(network, norm, difference, shape, self.result)
        self.buffers = buffer, space
        # scale the differences in place, to get the gradients
        self.backward = network.cudnn.bound(
            "cudnnScaleTensor",
            {
                "handle": network.handle,
                "yDesc": network.cudnn.tensor(four(shape)),
                "y": difference,
                "alpha": api.scalar(2 / self.targets.size),
            },
        )

    def enqueue(self) -> None:
        self._subtract()
        self._reduce()

    def value(self) -> float:
        """Return the loss of the last step, which the device must have finished."""
        norm, count = float(self.result.array()[0]), int(self.targets.size)
        return norm * norm / count


Loss = Union[Mean, SquaredError]


def loss_of(network: Any, training: bool, targets: Any) -> Loss:
    if network.workload.loss == "mean":
        return Mean(network, training)
    return SquaredError(network, training, targets)


def sgd(network: Any) -> Call:
    """Return a function that updates all weights: w − rate · gradient."""
    described = network.cudnn.tensor(four(network.weights.shape))
    call: Call = network.cudnn.bound(
        "cudnnAddTensor",
        {
            "handle": network.handle,
            "alpha": api.scalar(-network.workload.learning_rate),
            **{"aDesc": described, "A": network.gradients.address},
            "beta": api.scalar(1),
            **{"cDesc": described, "C": network.weights.address},
        },
    )
    return call


def four(shape: Tuple[int, ...]) -> Tuple[int, ...]:
    """Pad a shape to cuDNN's four dimensions: ``(3, 5)`` -> ``(1, 1, 3, 5)``."""
    return (1,) * (4 - len(shape)) + shape


def subtraction(network: Any, a: int, b: int, into: int, shape: Tuple[int, ...]) -> Call:
    """Return a function that writes a − b to ``into``; all three are addresses."""
    operation = network.cudnn.created("OpTensorDescriptor")
    network.cudnn.call(
        "cudnnSetOpTensorDescriptor",
        opTensorDesc=operation,
        opTensorOp=api.CUDNN_OP_TENSOR_ADD,
        opTensorCompType=api.CUDNN_DATA_FLOAT,
        opTensorNanOpt=api.CUDNN_PROPAGATE_NAN,
    )
    described = network.cudnn.tensor(four(shape))
    call: Call = network.cudnn.bound(
        "cudnnOpTensor",
        {
            **{"handle": network.handle, "opTensorDesc": operation},
            **{"alpha1": api.scalar(1), "aDesc": described, "A": a},
            **{"alpha2": api.scalar(-1), "bDesc": described, "B": b},
            **{"beta": api.scalar(0), "cDesc": described, "C": into},
        },
    )
    return call


def reduction(
    network: Any, operation: int, a: int, shape: Tuple[int, ...], into: Buffer
) -> Tuple[Call, Buffer]:
    """Return (a function that reduces a tensor to one number, its workspace)."""
    cudnn = network.cudnn
    descriptor = cudnn.created("ReduceTensorDescriptor")
    cudnn.call(
        "cudnnSetReduceTensorDescriptor",
        reduceTensorDesc=descriptor,
        reduceTensorOp=operation,
        reduceTensorCompType=api.CUDNN_DATA_FLOAT,
        reduceTensorNanOpt=api.CUDNN_PROPAGATE_NAN,
        reduceTensorIndices=api.CUDNN_REDUCE_TENSOR_NO_INDICES,
        reduceTensorIndicesType=api.CUDNN_32BIT_INDICES,
    )
    arguments = {
        **{"handle": network.handle, "reduceTensorDesc": descriptor},
        **{"indices": None, "indicesSizeInBytes": 0},
        **{"alpha": api.scalar(1), "aDesc": cudnn.tensor(four(shape)), "A": a},
        **{"beta": api.scalar(0), "cDesc": cudnn.tensor(four((1,))), "C": into.address},
    }
    size = cudnn.read_size("cudnnGetReductionWorkspaceSize", "sizeInBytes", arguments)
    space = network.buffer((size,), np.uint8)
    spaced = dict(arguments, workspace=space.address, workspaceSizeInBytes=space.bytes)
    return cudnn.bound("cudnnReduceTensor", spaced), space


def operator(function: str) -> ContextManager[Any]:
    """Return a context that records a cuDNN call as an operator of the profile."""
    import torch

    name = function.replace("cudnn", "cudnn::", 1)
    # prefer torch's fast recorder, which is private and exists since torch 2.1
    recorder = getattr(torch._C._profiler, "_RecordFunctionFast", torch.profiler.record_function)
    context: ContextManager[Any] = recorder(name)
    return context
