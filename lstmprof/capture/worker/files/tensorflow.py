"""A file of the user's that builds a ``tf.Module`` or a Keras model on TensorFlow."""

from __future__ import annotations

import sys
from typing import Any, Optional

import numpy as np
import tensorflow as tf

from lstmprof.capture.worker.files import SEED, Arrays, Step, UsersFile
from lstmprof.capture.worker.loops.tensorflow import loss_of, set_tf32, targets_of
from lstmprof.errors import CaptureError
from lstmprof.implementations import tensorflow as layers
from lstmprof.workloads import Workload


class File(UsersFile):
    """Variables by their number and name: names alone may be the same twice."""

    def seed(self) -> None:
        """Of TensorFlow's generators and of Keras's."""
        tf.random.set_seed(SEED)
        keras = sys.modules.get("keras")
        if keras is not None:
            keras.utils.set_random_seed(SEED)

    def fault(self, network: Any) -> Optional[str]:
        """Where it cannot be called or has no list of variables."""
        if callable(network) and hasattr(network, "trainable_variables"):
            return None
        return "a {}, not a tf.Module or a Keras model".format(type(network).__name__)

    def build(self, workload: Workload) -> Any:
        """The network, its variables made: Keras makes them at the first call."""
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
        """Number and own name -> variable; of Keras's the one that it wraps."""
        variables = enumerate(network.trainable_variables)
        return {"{} {}".format(n, v.name): _variable(v) for n, v in variables}

    def values(self, network: Any) -> Arrays:
        """The same as NumPy arrays."""
        return {name: v.numpy() for name, v in self.parameters(network).items()}

    def mixed_precision(self, precision: str) -> None:
        """Keras's policy where the file uses Keras, else TensorFlow's rewrite of graphs."""
        if "keras" in sys.modules:
            from lstmprof.implementations import keras as policies

            policies.mixed_precision(precision)
        else:
            layers.mixed_precision(precision)

    def first_step(self, network: Any, workload: Workload, batch: Any, device: str) -> Step:
        """As a graph in strict float32, on the device that TensorFlow chooses."""
        set_tf32(False)  # on by default, and too coarse for the check
        targets = targets_of(workload, batch, self.TIME_MAJOR)
        lengths = (batch.lengths.astype(np.int32),) if workload.variable_length else ()
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
        outputs = outputs.numpy()
        if workload.every_step and not self.TIME_MAJOR:
            outputs = outputs.swapaxes(0, 1)
        return float(loss), outputs, gradients


def _variable(variable: Any) -> Any:
    return variable if isinstance(variable, tf.Variable) else variable.value
