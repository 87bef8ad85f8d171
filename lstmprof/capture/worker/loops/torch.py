"""The step loop for PyTorch, with torch.profiler.

Weights and optimizer state are always float32. ``amp-*`` uses torch.autocast, and ``amp-fp16`` also
a gradient scaler, which may skip the first steps. Sources: PyTorch's "Automatic Mixed Precision
examples", and "CUDA semantics", section "CUDA Graphs", whole-network capture.
"""

from __future__ import annotations

import contextlib
import functools
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

import torch

from lstmprof import workloads
from lstmprof.capture.request import CaptureRequest
from lstmprof.capture.worker import loops, shapes
from lstmprof.capture.worker.loops._torch_modes import autocast, scaler, set_switches, set_tf32
from lstmprof.capture.worker.machine import driver
from lstmprof.capture.worker.machine.peaks import Run, faster
from lstmprof.capture.worker.profilers import torch as profilers
from lstmprof.capture.worker.profiling import Ranges, no_ranges
from lstmprof.capture.worker.users_file import SEED, Arrays, Step, UsersFile
from lstmprof.workloads import Workload

#: Number of warm-up steps before a CUDA graph is captured, as in PyTorch's documentation.
GRAPH_WARMUP = 3


def device_of(requested: str) -> str:
    return driver.chosen(requested, driver.torch_sees)


def set_threads(threads: int) -> None:
    torch.set_num_threads(threads)


class Trainer(profilers.TorchProfiler, loops.Trainer):
    def __init__(self, request: CaptureRequest, device: str) -> None:
        super().__init__(request)
        self.device = torch.device(device)
        set_switches(request)
        set_tf32(request.precision)
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
        module = self.implementation.build(self.workload)
        self.implementation.load(module, workloads.weights(self.workload, request.seed))
        self.module = module.to(self.device).train(not self.forward_only)
        self.optimizer = optimizer_of(self.workload, self.module, request.cuda_graph)
        self.autocast = autocast(request.precision, self.device.type)
        self.scaler: Any = None
        if not self.forward_only:
            self.scaler = scaler(request.precision, self.device.type)
        self.cuda_graph, self.warmup = request.cuda_graph, request.warmup_iterations
        self.is_profiled = request.steps_to_profile > 0
        self.graphed: Optional[GraphedWork] = None
        batch: Any = workloads.batch(self.workload, request.seed)
        self.inputs = loops.laid(batch.inputs, self.implementation.TIME_MAJOR)
        self.targets = batch.targets
        self.lengths = torch.from_numpy(batch.lengths)
        self.known_lengths = (self.lengths,) if self.workload.variable_length else ()
        self.loss_of = functools.partial(
            self.checked(loss_of), self.workload, time_major=self.implementation.TIME_MAJOR
        )
        self.events: Optional[Tuple[Any, Any]] = None
        if self.device.type == "cuda":
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            self.events = (start, end)

    def step(self, ranges: Ranges) -> torch.Tensor:
        if self.events is None:
            with ranges("step"):
                return self._phases(ranges)
        with ranges("step"):
            self.events[0].record()
            loss = self._phases(ranges)
            self.events[1].record()
            torch.cuda.synchronize(self.device)
        return loss

    def _phases(self, ranges: Ranges) -> torch.Tensor:
        with ranges("input"):
            inputs, targets = self._on_device()
        if self.cuda_graph:
            return self._replayed(ranges, inputs, targets)
        return self._computed(ranges, inputs, targets)

    def _on_device(self) -> Tuple[torch.Tensor, torch.Tensor]:
        """Copy inputs and targets to the device, or into the CUDA graph's buffers."""
        inputs, targets = torch.from_numpy(self.inputs), torch.from_numpy(self.targets)
        if self.graphed is None:
            return inputs.to(self.device), targets.to(self.device)
        return self.buffers[0].copy_(inputs), self.buffers[1].copy_(targets)

    def _replayed(
        self, ranges: Ranges, inputs: torch.Tensor, targets: torch.Tensor
    ) -> torch.Tensor:
        """Replay the step as a CUDA graph, which the first call captures."""
        if self.graphed is None:
            self._attach_profiler()
            self.buffers = inputs, targets
            # with a scaler, omit the optimizer: the scaler reads a value from the device
            work = self._computed if self.scaler is None else self._gradients
            captured = functools.partial(work, no_ranges, inputs, targets)
            self.graphed = GraphedWork(
                captured, self.module, self.optimizer, max(self.warmup, GRAPH_WARMUP)
            )
        loss = self.graphed.replay()
        if self.scaler is not None:
            self._update(ranges)
        return loss

    def _attach_profiler(self) -> None:
        """Run an empty session before the CUDA graph is captured: CUPTI then sees its kernels."""
        profilers.keep_profiler_attached()
        if self.recorder is self and profilers.HAS_KINETO and self.is_profiled:
            with self.recording(""):
                pass

    def _computed(
        self, ranges: Ranges, inputs: torch.Tensor, targets: torch.Tensor
    ) -> torch.Tensor:
        """Compute all phases after ``input``."""
        loss = self._gradients(ranges, inputs, targets)
        if not self.forward_only:
            self._update(ranges)
        return loss

    def _gradients(
        self, ranges: Ranges, inputs: torch.Tensor, targets: torch.Tensor
    ) -> torch.Tensor:
        if self.forward_only:
            with torch.no_grad():
                return self._loss(ranges, inputs, targets)
        loss = self._loss(ranges, inputs, targets)
        with ranges("backward"):
            (loss if self.scaler is None else self.scaler.scale(loss)).backward()
        return loss

    def _update(self, ranges: Ranges) -> None:
        with ranges("optimizer"):
            if self.scaler is None:
                self.optimizer.step()
            else:
                self.scaler.step(self.optimizer)
                self.scaler.update()
            if self.graphed is None:  # a CUDA graph overwrites the gradients itself
                self.optimizer.zero_grad()

    def _loss(self, ranges: Ranges, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        with self.autocast():
            with ranges("forward"):
                outputs = self.module(inputs, *self.known_lengths)
            with ranges("loss"):
                return self.loss_of(outputs, targets, self.lengths)

    def loss(self, outcome: torch.Tensor) -> float:
        return float(outcome.detach())

    def device_ns(self) -> Optional[int]:
        """Return the last step's time, measured by CUDA events (resolution 0.5 µs)."""
        if self.events is None:
            return None
        length_ms: float = self.events[0].elapsed_time(self.events[1])
        return round(length_ms * 1e6)

    def copied(self, outcome: torch.Tensor) -> torch.Tensor:
        """Copy the loss of a CUDA graph, because the next replay overwrites the loss."""
        return outcome.detach().clone() if self.cuda_graph else outcome

    def shapes(self, folder: str) -> List[shapes.OpInputs]:
        """Run one more step to record its ops' input shapes; a CUDA graph has no ops."""
        if self.cuda_graph:
            return []
        with self.recording_shapes(folder) as inputs:
            self.step(no_ranges)
        op_inputs = getattr(self.implementation, "op_inputs", None)
        return inputs if op_inputs is None else [*inputs, *op_inputs(self.module)]

    def needles(self) -> Sequence[Tuple[str, str]]:
        needles = loops.torch_needles(self.implementation.KERNELS)
        if profilers.HAS_KINETO:
            return needles
        # also search for names without ``aten::``, which an old torch writes
        return needles + [(needle.replace("aten::", ""), words) for needle, words in needles]

    def settings(self) -> Dict[str, Any]:
        return dict(super().settings(), grad_mode=not self.forward_only)


def optimizer_of(
    workload: Workload, module: torch.nn.Module, capturable: bool = False
) -> torch.optim.Optimizer:
    if workload.optimizer == "sgd":
        return torch.optim.SGD(module.parameters(), lr=workload.learning_rate)
    # capturable: keep Adam's step count on the device, as a CUDA graph requires
    options = {"capturable": True} if capturable else {}
    return torch.optim.Adam(module.parameters(), lr=workload.learning_rate, **options)


def product(size: int, device: str, dtype: str) -> Run:
    """Return a function that runs torch's matmul, or on a CPU oneDNN's if faster."""
    left, right = (
        torch.rand(size, size, device=device).to(getattr(torch, dtype)) for _ in range(2)
    )
    output = torch.empty_like(left)
    run = _repeated(lambda: torch.mm(left, right, out=output), device)
    if (device, dtype) != ("cpu", "float32") or not hasattr(torch.backends, "mkldnn"):
        return run  # PyTorch 1.0 has no oneDNN tensors
    if not torch.backends.mkldnn.is_available():
        return run
    # also time oneDNN, which nn.LSTM uses: MKL is half as fast on CPUs not made by Intel
    packed = left.to_mkldnn(), right.to_mkldnn()
    try:
        torch.nn.functional.linear(*packed)
    except RuntimeError:  # an older torch cannot multiply oneDNN tensors
        return run
    return faster(run, _repeated(lambda: torch.nn.functional.linear(*packed), device))


def copy(buffer: int, device: str) -> Run:
    source = torch.ones(buffer, dtype=torch.int8, device=device)
    target = torch.empty_like(source)
    return _repeated(lambda: target.copy_(source), device)


def _repeated(work: Callable[[], Any], device: str) -> Run:
    def run(times: int) -> None:
        for _ in range(times):
            work()
        if device != "cpu":
            torch.cuda.synchronize(device)

    return run


def out_of_memory(error: BaseException) -> bool:
    return isinstance(error, RuntimeError) and (
        "out of memory" in str(error) or "can't allocate memory" in str(error)
    )


def loss_of(
    workload: Workload,
    outputs: torch.Tensor,
    targets: torch.Tensor,
    lengths: torch.Tensor,
    time_major: bool,
) -> torch.Tensor:
    """Return the mean loss; ``targets`` are time-major if each step has a target."""
    if workload.each_step and not time_major:
        targets = targets.transpose(0, 1)
    if workload.loss == "ce":
        return torch.nn.functional.cross_entropy(outputs.flatten(0, -2), targets.flatten())
    if workload.loss == "mean":
        return outputs.mean()
    if workload.loss == "mse":
        return torch.nn.functional.mse_loss(outputs, targets)
    # create lengths on the host, so that torch does not wait for the device to read lengths
    spelled = torch.full((len(lengths),), targets.shape[1], dtype=torch.int64)
    scores = (outputs if time_major else outputs.transpose(0, 1)).log_softmax(2)
    # average without ``reduction="mean"``, which also divides by the target lengths
    each = torch.nn.functional.ctc_loss(scores, targets, lengths, spelled, reduction="none")
    return each.mean()


@contextlib.contextmanager
def weights_kept(module: torch.nn.Module, optimizer: Any) -> Iterator[None]:
    """Restore the weights, and zero the optimizer's state, after the ``with`` block."""
    copied = [p.detach().clone() for p in module.parameters()]
    yield
    with torch.no_grad():
        for parameter, value in zip(module.parameters(), copied):
            parameter.copy_(value)
        for state in optimizer.state.values():
            for value in state.values():
                value.zero_()


class GraphedWork:
    """A step captured as a CUDA graph; the capture changes no weights."""

    def __init__(
        self,
        work: Callable[[], torch.Tensor],
        module: torch.nn.Module,
        optimizer: Any,
        warmup: int,
    ) -> None:
        with weights_kept(module, optimizer):
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(warmup):
                    optimizer.zero_grad(set_to_none=True)
                    work()
            torch.cuda.current_stream().wait_stream(side)
        # drop the gradients, so that the capture allocates gradients in the graph's memory
        optimizer.zero_grad(set_to_none=True)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self.loss = work()

    def replay(self) -> torch.Tensor:
        """Enqueue the step; the next replay overwrites the returned loss."""
        self._graph.replay()
        return self.loss


class File(UsersFile):
    """A user's file that defines a network with PyTorch."""

    def seed(self) -> None:
        torch.manual_seed(SEED)

    def fault(self, network: Any) -> Optional[str]:
        if isinstance(network, torch.nn.Module):
            return None
        return "a {}, not a torch.nn.Module".format(type(network).__name__)

    def parameters(self, network: Any) -> Dict[str, Any]:
        """Return the trainable parameters, in the module's order."""
        return {name: p for name, p in network.named_parameters() if p.requires_grad}

    def values(self, network: Any) -> Arrays:
        return {n: p.detach().cpu().numpy() for n, p in self.parameters(network).items()}

    def first_step(self, network: Any, workload: Workload, batch: Any, device: str) -> Step:
        """Run the first step in strict float32."""
        network = network.to(device).train()
        lengths = torch.from_numpy(batch.lengths)
        arguments = (lengths,) if workload.variable_length else ()
        set_tf32("fp32")
        outputs = network(torch.from_numpy(batch.inputs).to(device), *arguments)
        self.refuse_unless_shaped(workload, outputs)
        targets = torch.from_numpy(batch.targets).to(device)
        loss = loss_of(workload, outputs, targets, lengths, self.TIME_MAJOR)
        loss.backward()
        gradients = {
            name: (torch.zeros_like(p) if p.grad is None else p.grad).cpu().numpy()
            for name, p in self.parameters(network).items()
        }
        return loss.item(), outputs.detach().cpu().numpy(), gradients
