"""The step loop for TensorFlow and Keras, with TensorFlow's profiler.

A training step is one tf.function, whose phases are name scopes. A step ends when its loss is on
the host. With XLA, the profile shows XLA's instructions instead of TensorFlow's operators.
"""

from __future__ import annotations

import sys
from typing import Any, Callable, Iterator, List, Optional, Sequence, Tuple

import numpy as np
import tensorflow as tf

from lstmprof import workloads
from lstmprof.base.errors import CaptureError
from lstmprof.capture.request import CaptureRequest
from lstmprof.capture.worker import loops, shapes
from lstmprof.capture.worker.loops import laid, lengths_of, targets_of
from lstmprof.capture.worker.machine import driver
from lstmprof.capture.worker.machine.peaks import Run
from lstmprof.capture.worker.profilers import tensorflow as profilers
from lstmprof.capture.worker.profiling import Ranges
from lstmprof.capture.worker.shapes import inputs_of, nodes_of
from lstmprof.capture.worker.users_file import SEED, Arrays, Step, UsersFile
from lstmprof.implementations import tensorflow as layers
from lstmprof.workloads import Workload

#: Name of the kernels of a run with XLA, because its profile still lists the original operators.
XLA = "XLA's fused operators"


def device_of(requested: str) -> str:
    """Return the device, and hide all other GPUs from TensorFlow."""
    device = driver.chosen(requested, driver.tensorflow_sees)
    if device != "cpu":
        number = int(device.partition(":")[2])
        tf.config.set_visible_devices(tf.config.list_physical_devices("GPU")[number], "GPU")
    return device


def set_threads(threads: int) -> None:
    # set the threads within and between operators; TensorFlow forbids this after the first tensor
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)


class Trainer(profilers.TensorflowProfiler, loops.Trainer):
    def __init__(self, request: CaptureRequest, device: str) -> None:
        set_tf32(request.precision == "tf32")
        if request.deterministic:
            set_deterministic(request.seed)
        super().__init__(request)
        self.device, self.xla = device, request.xla
        if request.precision.startswith("amp-"):
            self.implementation.mixed_precision(request.precision)
        self.module = self.implementation.build(self.workload)
        self.implementation.load(self.module, workloads.weights(self.workload, request.seed))
        self.optimizer = optimizer_of(self.workload)
        self.loss_of = self.checked(loss_of)
        self.scaling = loss_scaling(request.precision)
        self.batch = batch_of(self.workload, request.seed, self.implementation.TIME_MAJOR)
        body = self._forward if self.forward_only else self._train
        # ``jit_compile`` exists since TensorFlow 2.5
        compiled = {"jit_compile": True} if request.xla else {}
        self.function = tf.function(body, autograph=False, **compiled)

    def _forward(self, inputs: tf.Tensor, lengths: Tensors, targets: Tensors) -> tf.Tensor:
        with tf.name_scope("forward"):
            outputs = self.module(inputs, *lengths)
        with tf.name_scope("loss"):
            return self.loss_of(self.workload, outputs, targets, self.implementation.TIME_MAJOR)

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
        with ranges("step"):
            with ranges("input"):
                batch = tf.nest.map_structure(tf.constant, self.batch)
            with ranges("program"):
                loss = self.function(*batch)
                if self.device != "cpu":
                    profilers.synchronize()
                number: float = loss.numpy()
        return number

    def shapes(self, folder: str) -> Iterator[shapes.OpInputs]:
        # read the shapes from the graph, because TensorFlow's profiler (2.21) records no shapes
        batch = tf.nest.map_structure(tf.constant, self.batch)
        return inputs_of(nodes_of(self.function.get_concrete_function(*batch).graph))

    def needles(self) -> Sequence[Tuple[str, str]]:
        # with XLA, name the kernels without a search: every profile contains the empty text
        return [("", XLA)] if self.xla else super().needles()


def set_tf32(allowed: bool) -> None:
    """Set whether matmuls may round their inputs to TF32."""
    enable = getattr(tf.config.experimental, "enable_tensor_float_32_execution", None)
    if enable is not None:
        enable(allowed)
    elif allowed:
        raise CaptureError(
            "tensorflow {} has no switch for TF32".format(tf.__version__),
            "use a newer TensorFlow, or --precision fp32",
        )


def set_deterministic(seed: int) -> None:
    """Use only deterministic operators, which need a seed (TensorFlow 2.9 and later)."""
    enable = getattr(tf.config.experimental, "enable_op_determinism", None)
    if enable is None:
        raise CaptureError(
            "tensorflow {} has no deterministic mode".format(tf.__version__),
            "use a newer TensorFlow, or omit --deterministic",
        )
    tf.random.set_seed(seed)
    enable()


def optimizer_of(workload: Workload) -> Any:
    """Return an optimizer that applies each dense gradient by one fused kernel."""
    if workload.optimizer == "sgd":
        return tf.compat.v1.train.GradientDescentOptimizer(workload.learning_rate)
    return tf.compat.v1.train.AdamOptimizer(workload.learning_rate)


def product(size: int, device: str, dtype: str) -> Run:
    left, right = (tf.cast(tf.random.uniform((size, size)), dtype) for _ in range(2))
    return _read_back(lambda: tf.matmul(left, right))


def copy(buffer: int, device: str) -> Run:
    source = tf.ones(buffer // 4)
    return _read_back(lambda: tf.raw_ops.DeepCopy(x=source))


def _read_back(work: Callable[[], Any]) -> Run:
    """Return a function that repeats ``work``, then waits for the device."""

    def run(times: int) -> None:
        for _ in range(times):
            output = work()
        output[(0,) * len(output.shape)].numpy()  # copying an element waits for the device

    return run


def out_of_memory(error: BaseException) -> bool:
    return isinstance(error, tf.errors.ResourceExhaustedError)


Tensors = Tuple[Any, ...]


def loss_of(workload: Workload, outputs: tf.Tensor, targets: Tensors, time_major: bool) -> Any:
    outputs = tf.cast(outputs, tf.float32)  # as PyTorch's autocast does
    if workload.loss == "mean":
        return tf.reduce_mean(outputs)
    if workload.loss == "ce":
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(targets[0], outputs)
    elif workload.loss == "mse":
        losses = tf.square(outputs - targets[0])
    else:
        # pass sparse labels, because tf.nn.ctc_loss is slow on a CPU with dense labels
        losses = tf.nn.ctc_loss(
            _sparse(targets[0]), outputs, None, targets[1], time_major, blank_index=0
        )
    return tf.reduce_mean(losses)


def _sparse(labels: tf.Tensor) -> tf.SparseTensor:
    """Return labels for CTC as a sparse tensor with constant indices."""
    places = np.argwhere(np.ones(labels.shape, bool))
    return tf.SparseTensor(places, tf.reshape(labels, [-1]), list(labels.shape))


def batch_of(workload: Workload, seed: int, time_major: bool) -> Tuple[Any, Tensors, Tensors]:
    """Return (inputs in the implementation's layout, lengths, targets) as NumPy arrays."""
    batch: Any = workloads.batch(workload, seed)
    lengths, targets = lengths_of(workload, batch), targets_of(workload, batch, time_major)
    return laid(batch.inputs, time_major), lengths, targets


class Unscaled:
    """Trains without loss scaling, as in every precision except float16."""

    def scaled(self, loss: tf.Tensor) -> tf.Tensor:
        return loss

    def apply(self, optimizer: Any, gradients: List[tf.Tensor], variables: List[Any]) -> None:
        optimizer.apply_gradients(list(zip(gradients, variables)))


class DynamicallyScaled(Unscaled):
    """Trains float16 with TensorFlow's DynamicLossScale.

    Source: tensorflow/python/training/experimental/loss_scale.py 2.21.
    """

    def __init__(self) -> None:
        self.scale = tf.compat.v1.mixed_precision.DynamicLossScale()  # starts at 2¹⁵

    def scaled(self, loss: tf.Tensor) -> tf.Tensor:
        return loss * self.scale()

    def apply(self, optimizer: Any, gradients: List[tf.Tensor], variables: List[Any]) -> None:
        """Update the loss scale, and run the optimizer if all gradients are finite."""
        unscaled = [_divided(gradient, self.scale()) for gradient in gradients]
        # halve the scale if a gradient is not finite, double it after 2000 finite steps
        _, finite = self.scale.update([_values(gradient) for gradient in unscaled])

        def step() -> tf.Operation:
            return optimizer.apply_gradients(list(zip(unscaled, variables)))

        tf.cond(finite, step, tf.no_op)


def _values(gradient: Any) -> tf.Tensor:
    return gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient


def _divided(gradient: Any, scale: tf.Tensor) -> Any:
    values = _values(gradient) / scale
    if not isinstance(gradient, tf.IndexedSlices):
        return values
    return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)


def loss_scaling(precision: str) -> Unscaled:
    return DynamicallyScaled() if precision == "amp-fp16" else Unscaled()


class File(UsersFile):
    """A user's file that defines a network with TensorFlow or Keras."""

    def seed(self) -> None:
        tf.random.set_seed(SEED)
        keras = sys.modules.get("keras")
        if keras is not None:
            keras.utils.set_random_seed(SEED)

    def fault(self, network: Any) -> Optional[str]:
        if callable(network) and hasattr(network, "trainable_variables"):
            return None
        return "a {}, not a tf.Module or a Keras model".format(type(network).__name__)

    def build(self, workload: Workload) -> Any:
        """Build the network, and create variables that Keras creates at the first call."""
        network = super().build(workload)
        if not network.trainable_variables or not getattr(network, "built", True):
            place = workload.batch, workload.time_steps
            place = place[::-1] if self.TIME_MAJOR else place
            inputs = np.zeros((*place, workload.features), np.float32)
            network(tf.constant(np.zeros(place, np.int64) if workload.vocabulary else inputs))
        if not network.trainable_variables:
            raise CaptureError(
                "{}: the network has no trainable variables".format(self.file.file_name),
                "create them in __init__",
            )
        return network

    def parameters(self, network: Any) -> Arrays:
        """Return the variables under unique names, such as ``"0 kernel"``."""
        # get TensorFlow's variable out of a variable of Keras
        return {
            "{} {}".format(n, v.name): v if isinstance(v, tf.Variable) else v.value
            for n, v in enumerate(network.trainable_variables)
        }

    def values(self, network: Any) -> Arrays:
        return {name: v.numpy() for name, v in self.parameters(network).items()}

    def mixed_precision(self, precision: str) -> None:
        """Turn on mixed precision: by Keras's policy, or by TensorFlow if Keras is absent."""
        if "keras" in sys.modules:
            from lstmprof.implementations import keras as policies

            policies.mixed_precision(precision)
        else:
            layers.mixed_precision(precision)

    def first_step(self, network: Any, workload: Workload, batch: Any, device: str) -> Step:
        """Run the first step in strict float32, as a graph."""
        set_tf32(False)  # TF32 is the default, and too coarse for the check
        targets = targets_of(workload, batch, self.TIME_MAJOR)
        lengths = lengths_of(workload, batch)
        own = self.parameters(network)

        def step(inputs: Any, lengths: Any, targets: Any) -> Any:
            with tf.GradientTape() as tape:
                outputs = network(inputs, *lengths)
                self.refuse_unless_shaped(workload, outputs)
                loss = loss_of(workload, outputs, targets, self.TIME_MAJOR)
            gradients = tape.gradient(
                loss, list(own.values()), unconnected_gradients=tf.UnconnectedGradients.ZERO
            )
            return loss, outputs, [tf.convert_to_tensor(gradient) for gradient in gradients]

        graph = tf.function(step, autograph=False)
        given = tf.nest.map_structure(tf.constant, (batch.inputs, lengths, targets))
        loss, outputs, tensors = graph(*given)
        gradients = {name: tensor.numpy() for name, tensor in zip(own, tensors)}
        return float(loss), outputs.numpy(), gradients
