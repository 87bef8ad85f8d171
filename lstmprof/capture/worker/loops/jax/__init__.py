"""The one step loop for JAX, and JAX's profiler around it.

A training step is one call of a jitted function that owns the parameters and the optimizer's state
(both are donated). Its phases are named scopes (``forward``, ``loss``, ``optimizer``; the backward
pass is what JAX names ``transpose(jvp(…))``), which a profile has in the HLO beside its events. On
the host only ``step`` and ``input`` are ranges. A step ends when all that it returns is there.

XLA on a CPU takes its threads from the affinity it finds when it starts, and from nothing else;
they flush denormals by themselves.
"""

from __future__ import annotations

import functools
import glob
import importlib
import os
import re
import shutil
import sys
import time
from typing import Any, ContextManager, Dict, Iterable, List, Optional, Tuple

import jax
import jaxlib
import numpy as np

from lstmprof import implementations, workloads
from lstmprof.capture.request import CaptureRequest
from lstmprof.capture.worker import (
    cpus,
    profiling,
    ranges as worker_ranges,
)
from lstmprof.capture.worker.loops.jax import (
    loss as worker_jax_loss,
    optimizer,
)
from lstmprof.capture.worker.ranges import Ranges
from lstmprof.errors import CaptureError
from lstmprof.implementations.cudnn import _runtime

#: Precision -> JAX's for matrix products: TF32 where the GPU has it (jax.lax.Precision.HIGH)
PRODUCTS = {"fp32": "highest", "tf32": "tensorfloat32"}

Parameters = Dict[str, Any]
Arrays = Tuple[Any, ...]


def device_of(requested: str) -> str:
    """The device to run on: ``cpu`` or ``cuda:N``.

    Raises:
        CaptureError: this JAX does not see it.
    """
    if requested == "cpu":
        jax.config.update("jax_platforms", "cpu")
        return requested
    devices = _gpus()
    if requested == "auto":
        return "cuda:0" if devices else "cpu"
    if int(requested.partition(":")[2]) >= len(devices):
        raise CaptureError(
            "device {} is not available: jax {} sees {} GPU(s)".format(
                requested, jax.__version__, len(devices)
            ),
            "give --device cpu, or install a jax built for CUDA",
        )
    return requested


def _gpus() -> List[Any]:
    try:
        return list(jax.devices("gpu"))
    except RuntimeError:  # no such platform
        return []


def set_threads(threads: int) -> None:
    """Nothing: XLA obeys the affinity only, which was set before JAX was imported."""


class Trainer:
    """One implementation with its weights, data and optimizer on one device."""

    profiler = "jax.profiler"

    def __init__(self, request: CaptureRequest, device: str) -> None:
        jax.config.update("jax_default_matmul_precision", PRODUCTS[request.precision])
        self.workload, self.device_name = request.workload, device
        self.number = 0 if device == "cpu" else int(device.partition(":")[2])
        self.device = (jax.devices("cpu") if device == "cpu" else _gpus())[self.number]
        jax.config.update("jax_default_device", self.device)
        self.implementation: Any = importlib.import_module(
            implementations.find(request.implementation).module
        )
        self.module = self.implementation.build(self.workload)
        self.implementation.load(self.module, workloads.weights(self.workload, request.seed))
        parameters = self.implementation.parameters(self.module)
        state = optimizer.initial_state(self.workload, parameters)
        self.state = jax.device_put(state, self.device)
        self.inputs, self.targets = self._data(request.seed)
        body = self._forward_step if request.mode == "forward" else self._train_step
        self.function = jax.jit(body, donate_argnums=0)

    def _data(self, seed: int) -> Tuple[Arrays, Arrays]:
        """What ``apply`` takes, in its layout, and what the loss compares with; NumPy, 32 bits."""
        batch: Any = workloads.batch(self.workload, seed)
        time_major = self.implementation.TIME_MAJOR
        inputs = batch.inputs if time_major else batch.inputs.swapaxes(0, 1)
        inputs = np.ascontiguousarray(inputs, np.int32 if self.workload.vocabulary else np.float32)
        known = (batch.lengths.astype(np.int32),) if self.workload.variable_length else ()
        return (inputs, *known), worker_jax_loss.targets_of(self.workload, batch, time_major)

    def _loss(self, parameters: Parameters, inputs: Arrays, targets: Arrays) -> Any:
        with jax.named_scope("forward"):
            outputs = self.implementation.apply(self.module, parameters, *inputs)
        with jax.named_scope("loss"):
            return worker_jax_loss.loss_of(
                self.workload, outputs, targets, self.implementation.TIME_MAJOR
            )

    def _forward_step(self, state: Any, inputs: Arrays, targets: Arrays) -> Any:
        return state, self._loss(state["parameters"], inputs, targets)

    def _train_step(self, state: Any, inputs: Arrays, targets: Arrays) -> Any:
        loss, gradients = jax.value_and_grad(self._loss)(state["parameters"], inputs, targets)
        with jax.named_scope("optimizer"):
            return optimizer.updated(self.workload, state, gradients), loss

    def step(self, ranges: Ranges) -> Any:
        """One step, synchronised at its end; the loss."""
        with ranges("step"):
            with ranges("input"):
                inputs, targets = jax.device_put((self.inputs, self.targets), self.device)
            outcome = self.function(self.state, inputs, targets)
            self.state, loss = jax.block_until_ready(outcome)
        return loss

    def loss(self, outcome: Any) -> float:
        """The number in a step's outcome."""
        return float(outcome)

    def device_ns(self) -> Optional[int]:
        """JAX offers no device events: always None."""
        return None

    def profile(self, ranges: Ranges, steps: int, folder: str) -> profiling.Profiled:
        """``steps`` profiled steps, after a throwaway session."""
        throwaway = profiling.throwaway_steps(steps, time.perf_counter_ns)
        self._session(worker_ranges.no_ranges, throwaway, os.path.join(folder, "throwaway"))
        shutil.rmtree(os.path.join(folder, "throwaway"))
        logs = os.path.join(folder, "logs")
        walls_ns, losses = self._session(ranges, range(steps), logs)
        (raw,) = glob.glob(os.path.join(logs, "plugins", "profile", "*", "*.xplane.pb"))
        kernels = profiling.first_found(raw, self.implementation.KERNELS)
        place = os.path.join(folder, os.path.basename(raw) + ".gz")
        packed = profiling.compressed(raw, place)
        shutil.rmtree(logs)
        return profiling.Profiled(walls_ns, losses, [packed], kernels)

    def _session(
        self, ranges: Ranges, steps: Iterable[int], logs: str
    ) -> Tuple[List[int], List[float]]:
        walls_ns, losses = [], []
        jax.profiler.start_trace(logs, **_without_python_calls())
        for number in steps:
            seen = worker_ranges.both(ranges, functools.partial(_trace, number))
            start_ns = time.perf_counter_ns()
            loss = self.step(seen)
            walls_ns.append(time.perf_counter_ns() - start_ns)
            losses.append(self.loss(loss))
        jax.profiler.stop_trace()
        return walls_ns, losses

    def facts(self) -> Dict[str, Any]:
        """What run.json says of the framework and the device."""
        gpu = self.device_name != "cpu"
        loaded = {name: sys.modules.get(name) for name in ("flax", "keras")}
        return {
            "device": self.device_name,
            "device_name": self.device.device_kind if gpu else None,
            "device_memory_bytes": _runtime.device_memory_bytes(self.number) if gpu else None,
            "threads": cpus.thread_count(),
            "versions": {
                "jax": jax.__version__,
                "jaxlib": jaxlib.__version__,
                **{name: getattr(module, "__version__", None) for name, module in loaded.items()},
                "cuda": cuda_version(self.device.client.platform_version) if gpu else None,
            },
        }


def cuda_version(platform: str) -> Optional[str]:
    """``12.9`` of a client's platform that ends in ``cuda 12090``; None where none is told."""
    told = re.search(r"cuda (\d+)", platform)
    number = int(told.group(1)) if told else 0
    return "{}.{}".format(number // 1000, number % 1000 // 10) if number else None


def _without_python_calls() -> Dict[str, Any]:
    """Options of a trace that records no Python call, where this JAX has options."""
    if not hasattr(jax.profiler, "ProfileOptions"):
        return {}
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    return {"profiler_options": options}


def _trace(step: int, name: str) -> ContextManager[Any]:
    """A range in JAX's profiler; a step has its number."""
    if name == "step":
        numbered: ContextManager[Any] = jax.profiler.StepTraceAnnotation(name, step_num=step)
        return numbered
    named: ContextManager[Any] = jax.profiler.TraceAnnotation(name)
    return named


def out_of_memory(error: BaseException) -> bool:
    """Whether ``error`` is XLA's way of saying so."""
    said = str(error)
    return "RESOURCE_EXHAUSTED" in said or "Out of memory" in said
