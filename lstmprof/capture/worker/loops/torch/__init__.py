"""The one step loop for PyTorch, and torch.profiler around it.

The phases of a step are consecutive host ranges; on a GPU ``step`` ends with a synchronisation of
the device and CUDA events stand at both its ends. A step replayed as a CUDA graph has the phase
``input`` alone: a single launch does the others (with a gradient scaler, all but ``optimizer``).
"""

from __future__ import annotations

import functools
import importlib
import os
import time
from typing import Any, Dict, Iterable, List, Optional, Tuple

import numpy as np
import torch

from lstmprof import implementations, workloads
from lstmprof.capture.request import CaptureRequest
from lstmprof.capture.worker import profiling, ranges as worker_ranges
from lstmprof.capture.worker.loops.torch import (
    cuda_graph,
    loss as worker_torch_loss,
    precision as worker_torch_precision,
)
from lstmprof.capture.worker.ranges import Ranges
from lstmprof.errors import CaptureError
from lstmprof.workloads import Workload

#: PyTorch's documentation warms up for three iterations before it captures a graph
GRAPH_WARMUP = 3


def device_of(requested: str) -> str:
    """The device to run on: ``cpu`` or ``cuda:N``.

    Raises:
        CaptureError: this torch does not see it.
    """
    if requested == "auto":
        requested = "cuda:0" if torch.cuda.is_available() else "cpu"
    if requested != "cpu" and int(requested.partition(":")[2]) >= torch.cuda.device_count():
        raise CaptureError(
            "device {} is not available: torch {} sees {} CUDA device(s)".format(
                requested, torch.__version__, torch.cuda.device_count()
            ),
            "give --device cpu, or install a torch built for CUDA",
        )
    return requested


def set_threads(threads: int) -> None:
    """Threads of torch's operators on the host."""
    torch.set_num_threads(threads)


class Trainer:
    """One implementation with its weights, data and optimizer on one device."""

    profiler = "torch.profiler"

    def __init__(self, request: CaptureRequest, device: str) -> None:
        self.workload = request.workload
        self.device = torch.device(device)
        self.forward_only = request.mode == "forward"
        self.implementation: Any = importlib.import_module(
            implementations.find(request.implementation).module
        )
        self._prepare_device(request.precision)
        module = self.implementation.build(self.workload)
        self.implementation.load(module, workloads.weights(self.workload, request.seed))
        self.module = module.to(self.device).train(not self.forward_only)
        self.optimizer = optimizer_of(self.workload, self.module, request.cuda_graph)
        self._set_precision(request.precision)
        self.cuda_graph, self.warmup = request.cuda_graph, request.warmup_iterations
        self.graphed: Optional[cuda_graph.GraphedWork] = None
        batch: Any = workloads.batch(self.workload, request.seed)
        inputs = batch.inputs if self.implementation.TIME_MAJOR else batch.inputs.swapaxes(0, 1)
        self.inputs, self.targets = np.ascontiguousarray(inputs), batch.targets
        self.lengths = torch.from_numpy(batch.lengths)
        self.known_lengths = (self.lengths,) if self.workload.variable_length else ()
        self.loss_of = functools.partial(
            worker_torch_loss.loss_of, self.workload, time_major=self.implementation.TIME_MAJOR
        )
        self.events: Optional[Tuple[Any, Any]] = None
        if self.device.type == "cuda":
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            self.events = (start, end)

    def _prepare_device(self, precision: str) -> None:
        torch.set_flush_denormal(True)
        worker_torch_precision.set_tf32(precision)
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)

    def _set_precision(self, precision: str) -> None:
        self.autocast = worker_torch_precision.autocast(precision, self.device.type)
        self.scaler: Any = None
        if not self.forward_only:
            self.scaler = worker_torch_precision.scaler(precision, self.device.type)

    def step(self, ranges: Ranges) -> torch.Tensor:
        """One step, synchronised at its end; the loss."""
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
        """Inputs and targets; for a captured graph in the buffers that it reads."""
        inputs, targets = torch.from_numpy(self.inputs), torch.from_numpy(self.targets)
        if self.graphed is None:
            return inputs.to(self.device), targets.to(self.device)
        return self.buffers[0].copy_(inputs), self.buffers[1].copy_(targets)

    def _replayed(
        self, ranges: Ranges, inputs: torch.Tensor, targets: torch.Tensor
    ) -> torch.Tensor:
        """The step as a CUDA graph, captured at the first call with these very buffers."""
        if self.graphed is None:
            self.buffers = inputs, targets
            work = self._computed if self.scaler is None else self._gradients
            captured = functools.partial(work, worker_ranges.no_ranges, inputs, targets)
            self.graphed = cuda_graph.GraphedWork(
                captured, self.module, self.optimizer, max(self.warmup, GRAPH_WARMUP)
            )
        loss = self.graphed.replay()
        if self.scaler is not None:
            self._update(ranges)
        return loss

    def _computed(
        self, ranges: Ranges, inputs: torch.Tensor, targets: torch.Tensor
    ) -> torch.Tensor:
        """Everything after ``input``; the loss."""
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
            if self.graphed is None:  # else the graph writes the gradients where they are
                self.optimizer.zero_grad()

    def _loss(self, ranges: Ranges, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        with self.autocast():
            with ranges("forward"):
                outputs = self.module(inputs, *self.known_lengths)
            with ranges("loss"):
                return self.loss_of(outputs, targets, self.lengths)

    def loss(self, outcome: torch.Tensor) -> float:
        """The number in a step's outcome."""
        return float(outcome.detach())

    def device_ns(self) -> Optional[int]:
        """Length of the last step by CUDA events (0.5 µs resolution); None on the CPU."""
        if self.events is None:
            return None
        length_ms: float = self.events[0].elapsed_time(self.events[1])
        return round(length_ms * 1e6)

    def profile(self, ranges: Ranges, steps: int, folder: str) -> profiling.Profiled:
        """``steps`` profiled steps, after a throwaway session."""
        throwaway = profiling.throwaway_steps(steps, time.perf_counter_ns)
        self._session(worker_ranges.no_ranges, throwaway)
        session, walls_ns, losses = self._session(ranges, range(steps))
        raw = os.path.join(folder, "trace.json")
        session.export_chrome_trace(raw)
        needles = [('"{}"'.format(op), words) for op, words in self.implementation.KERNELS]
        kernels = profiling.first_found(raw, needles)
        name = self.implementation.__name__.rpartition(".")[2].replace("_", "-")
        packed = profiling.compressed(raw, os.path.join(folder, name + ".pt.trace.json.gz"))
        return profiling.Profiled(walls_ns, losses, [packed], kernels)

    def _session(self, ranges: Ranges, steps: Iterable[int]) -> Tuple[Any, List[int], List[float]]:
        activities = [torch.profiler.ProfilerActivity.CPU]
        if self.device.type == "cuda":
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        seen = worker_ranges.both(ranges, torch.profiler.record_function)
        walls_ns, losses = [], []
        with torch.profiler.profile(activities=activities) as session:
            for _ in steps:
                start_ns = time.perf_counter_ns()
                loss = self.step(seen)
                walls_ns.append(time.perf_counter_ns() - start_ns)
                losses.append(loss.detach().clone() if self.cuda_graph else loss)
        return session, walls_ns, [self.loss(loss) for loss in losses]

    def facts(self) -> Dict[str, Any]:
        """What run.json says of the framework and the device."""
        cuda = self.device.type == "cuda"
        return {
            "device": str(self.device),
            "device_name": torch.cuda.get_device_name(self.device) if cuda else None,
            "device_memory_bytes": (
                torch.cuda.get_device_properties(self.device).total_memory if cuda else None
            ),
            "threads": torch.get_num_threads(),
            "versions": {
                "torch": torch.__version__,
                "cuda": torch.version.cuda,
                "cudnn": torch.backends.cudnn.version() if cuda else None,
            },
        }


def optimizer_of(
    workload: Workload, module: torch.nn.Module, capturable: bool = False
) -> torch.optim.Optimizer:
    """The workload's optimizer over every parameter of ``module``.

    ``capturable`` keeps its step count on the device, as a CUDA graph needs it.

    Raises:
        CaptureError: the optimizer is neither Adam nor SGD.
    """
    if workload.optimizer == "sgd":
        return torch.optim.SGD(module.parameters(), lr=workload.learning_rate)
    if workload.optimizer != "adam":
        raise CaptureError("unknown optimizer '{}'".format(workload.optimizer), "use adam or sgd")
    options = {"capturable": True} if capturable else {}
    return torch.optim.Adam(module.parameters(), lr=workload.learning_rate, **options)


def out_of_memory(error: BaseException) -> bool:
    """Whether ``error`` is torch's way of saying so, on a device or on the host."""
    return isinstance(error, RuntimeError) and (
        "out of memory" in str(error) or "can't allocate memory" in str(error)
    )
