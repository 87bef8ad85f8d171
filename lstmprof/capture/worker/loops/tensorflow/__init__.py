"""The one step loop for TensorFlow and Keras, and TensorFlow's profiler around it.

A training step is one call of a tf.function: its phases are name scopes of the graph (``forward``,
``loss``, ``optimizer``; the backward pass is what TensorFlow names ``gradient_tape/…``). On the
host only ``step`` and ``input`` are ranges. A step ends when its loss is on the host, which is
after everything the device was given before it. Compiled by XLA a step shows XLA's instructions,
fused ones as one event, in place of TensorFlow's operators; its phases are those of the operators
that they were made from. TensorFlow's own threads flush denormals by
themselves; the main one, which runs small operators too, since ``worker_host.flush_denormals``.
"""

from __future__ import annotations

import functools
import glob
import importlib
import os
import shutil
import sys
import time
from typing import Any, ContextManager, Dict, Iterable, List, Optional, Tuple

import tensorflow as tf

from lstmprof import implementations, workloads
from lstmprof.capture.request import CaptureRequest
from lstmprof.capture.worker import profiling, ranges as worker_ranges
from lstmprof.capture.worker.loops.tensorflow import (
    loss as worker_tensorflow_loss,
    precision,
)
from lstmprof.capture.worker.loops.tensorflow.loss import Tensors
from lstmprof.capture.worker.ranges import Ranges
from lstmprof.errors import CaptureError
from lstmprof.workloads import Workload

#: of a compiled step; the profile names the operators that it was made from all the same
XLA = "XLA's fused operators"


def device_of(requested: str) -> str:
    """The device to run on, made the only one TensorFlow sees: ``cpu`` or ``cuda:N``.

    Raises:
        CaptureError: this TensorFlow does not see it.
    """
    devices = tf.config.list_physical_devices("GPU")
    if requested == "auto":
        requested = "cuda:0" if devices else "cpu"
    if requested == "cpu":
        return requested
    number = int(requested.partition(":")[2])
    if number >= len(devices):
        raise CaptureError(
            "device {} is not available: tensorflow {} sees {} GPU(s)".format(
                requested, tf.__version__, len(devices)
            ),
            "give --device cpu, or install a tensorflow built for CUDA",
        )
    tf.config.set_visible_devices(devices[number], "GPU")
    return requested


def set_threads(threads: int) -> None:
    """Threads within an operator and between operators; to be called before any tensor is made."""
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)


class Trainer:
    """One implementation with its weights, data and optimizer on one device."""

    profiler = "tf.profiler"

    def __init__(self, request: CaptureRequest, device: str) -> None:
        tf.config.experimental.enable_tensor_float_32_execution(request.precision == "tf32")
        self.workload, self.device, self.xla = request.workload, device, request.xla
        self.implementation: Any = importlib.import_module(
            implementations.find(request.implementation).module
        )
        if request.precision.startswith("amp-"):
            self.implementation.mixed_precision(request.precision)
        self.module = self.implementation.build(self.workload)
        self.implementation.load(self.module, workloads.weights(self.workload, request.seed))
        self.optimizer = optimizer_of(self.workload)
        self.scaling = precision.loss_scaling(request.precision)
        self.batch = worker_tensorflow_loss.batch_of(
            self.workload, request.seed, self.implementation.TIME_MAJOR
        )
        body = self._forward if request.mode == "forward" else self._train
        compiled = {"jit_compile": True} if request.xla else {}  # an argument since 2.5
        self.function = tf.function(body, autograph=False, **compiled)

    def _forward(self, inputs: tf.Tensor, lengths: Tensors, targets: Tensors) -> tf.Tensor:
        with tf.name_scope("forward"):
            outputs = self.module(inputs, *lengths)
        with tf.name_scope("loss"):
            return worker_tensorflow_loss.loss_of(
                self.workload, outputs, targets, self.implementation.TIME_MAJOR
            )

    def _train(self, inputs: tf.Tensor, lengths: Tensors, targets: Tensors) -> tf.Tensor:
        variables = list(self.implementation.parameters(self.module).values())
        with tf.GradientTape() as tape:
            loss = self._forward(inputs, lengths, targets)
            scaled = self.scaling.scaled(loss)
        gradients = tape.gradient(scaled, variables)
        with tf.name_scope("optimizer"):
            self.scaling.apply(self.optimizer, gradients, variables)
        return loss

    def step(self, ranges: Ranges) -> float:
        """One step, synchronised at its end; the loss."""
        with ranges("step"):
            with ranges("input"):
                batch = tf.nest.map_structure(tf.constant, self.batch)
            loss = self.function(*batch)
            if self.device != "cpu":
                _synchronize()
            number: float = loss.numpy()
        return number

    def loss(self, outcome: float) -> float:
        """The number in a step's outcome."""
        return float(outcome)

    def device_ns(self) -> Optional[int]:
        """TensorFlow offers no device events: always None."""
        return None

    def profile(self, ranges: Ranges, steps: int, folder: str) -> profiling.Profiled:
        """``steps`` profiled steps, after a throwaway session.

        The first session takes 20 % longer, a second one of the same length 3 %, after a shorter
        throwaway 20 % again (measured, 2.21): the profiler's buffers grow as they are filled.
        """
        throwaway = profiling.throwaway_steps(steps, time.perf_counter_ns)
        self._session(worker_ranges.no_ranges, throwaway, os.path.join(folder, "throwaway"))
        shutil.rmtree(os.path.join(folder, "throwaway"))
        logs = os.path.join(folder, "logs")
        walls_ns, losses = self._session(ranges, range(steps), logs)
        (raw,) = glob.glob(os.path.join(logs, "plugins", "profile", "*", "*.xplane.pb"))
        found = profiling.first_found(raw, self.implementation.KERNELS)
        kernels = XLA if self.xla else found
        place = os.path.join(folder, os.path.basename(raw) + ".gz")
        packed = profiling.compressed(raw, place)
        shutil.rmtree(logs)
        return profiling.Profiled(walls_ns, losses, [packed], kernels)

    def _session(
        self, ranges: Ranges, steps: Iterable[int], logs: str
    ) -> Tuple[List[int], List[float]]:
        walls_ns, losses = [], []
        tf.profiler.experimental.start(logs)
        for number in steps:
            seen = worker_ranges.both(ranges, functools.partial(_trace, number))
            start_ns = time.perf_counter_ns()
            loss = self.step(seen)
            walls_ns.append(time.perf_counter_ns() - start_ns)
            losses.append(self.loss(loss))
        tf.profiler.experimental.stop()
        return walls_ns, losses

    def facts(self) -> Dict[str, Any]:
        """What run.json says of the framework and the device."""
        built, gpus = tf.sysconfig.get_build_info(), tf.config.get_visible_devices("GPU")
        gpu = self.device != "cpu"
        details = tf.config.experimental.get_device_details(gpus[0]) if gpu else {}
        return {
            "device": self.device,
            "device_name": details.get("device_name"),
            "device_memory_bytes": None,
            "threads": tf.config.threading.get_intra_op_parallelism_threads(),
            "versions": {
                "tensorflow": tf.__version__,
                "keras": getattr(sys.modules.get("keras"), "__version__", None),
                "cuda": built.get("cuda_version") if gpu else None,
                "cudnn": built.get("cudnn_version") if gpu else None,
            },
        }


def _synchronize() -> None:
    """Wait for the device; where TensorFlow (before 2.10) cannot, the loss's copy does it."""
    wait = getattr(tf.test.experimental, "sync_devices", None)
    if wait is not None:
        wait()


def _trace(step: int, name: str) -> ContextManager[Any]:
    """A range in TensorFlow's profiler; ``_r=1`` marks the root of a step."""
    marks = {"step_num": step, "_r": 1} if name == "step" else {}
    trace: ContextManager[Any] = tf.profiler.experimental.Trace(name, **marks)
    return trace


def optimizer_of(workload: Workload) -> Any:
    """The workload's optimizer: one fused kernel a variable, where its gradient is dense.

    Raises:
        CaptureError: the optimizer is neither Adam nor SGD.
    """
    if workload.optimizer == "sgd":
        return tf.compat.v1.train.GradientDescentOptimizer(workload.learning_rate)
    if workload.optimizer != "adam":
        raise CaptureError("unknown optimizer '{}'".format(workload.optimizer), "use adam or sgd")
    return tf.compat.v1.train.AdamOptimizer(workload.learning_rate)


def out_of_memory(error: BaseException) -> bool:
    """Whether ``error`` is TensorFlow's way of saying so."""
    return isinstance(error, tf.errors.ResourceExhaustedError)
