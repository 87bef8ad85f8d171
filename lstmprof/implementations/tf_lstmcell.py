"""tf-lstmcell: the LSTM written by hand, under tf.while_loop.

::

    i, j, f, o = [x_t, h_{t−1}] K + b        (gates in this order, j the candidate; one bias)
    c_t = σ(f) ⊙ c_{t−1} + σ(i) ⊙ tanh(j)
    h_t = σ(o) ⊙ tanh(c_t)

``kernel`` K is (inputs + hidden, 4·hidden), ``bias`` b (4·hidden). One product a time step on the
concatenated input, the loop reads and writes TensorArrays, time-major. Source: TensorFlow's
BasicLSTMCell under dynamic_rnn, which the ASR study (arXiv:1806.01818) timed, except that nothing
is added to the forget gate at run time (there ``forget_bias`` is 1 by default).
"""

from __future__ import annotations

from typing import Any, Dict, Mapping

import numpy as np
import tensorflow as tf

from lstmprof.workloads import Workload

TIME_MAJOR = True
KERNELS = (("BasicLSTMCell", "separate TensorFlow operators in a while loop"),)

#: this file's gates, i j f o, by their place in the shared order i f g o; its own inverse
GATES = (0, 2, 1, 3)


class Cell(tf.Module):  # type: ignore[misc]
    """One direction of one layer."""

    def __init__(self, inputs: int, hidden: int, name: str) -> None:
        super().__init__(name=name)
        self.hidden = hidden
        self.kernel = tf.Variable(tf.zeros([inputs + hidden, 4 * hidden]), name=name + "/kernel")
        self.bias = tf.Variable(tf.zeros([4 * hidden]), name=name + "/bias")

    def __call__(self, x: tf.Tensor, h: tf.Tensor, c: tf.Tensor) -> Any:
        """The next h and c, each (batch, hidden)."""
        gates = tf.matmul(tf.concat([x, h], 1), self.kernel) + self.bias
        i, j, f, o = tf.split(gates, 4, axis=1)
        c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(j)
        return tf.sigmoid(o) * tf.tanh(c), c

    def run(self, inputs: tf.Tensor, reverse: bool) -> tf.Tensor:
        """Outputs (time, batch, hidden), in the order of time."""
        steps, batch = inputs.shape[0], inputs.shape[1]
        read = tf.TensorArray(tf.float32, steps).unstack(inputs)
        zeros = tf.zeros([batch, self.hidden])

        def body(k: tf.Tensor, h: tf.Tensor, c: tf.Tensor, written: tf.TensorArray) -> Any:
            t = steps - 1 - k if reverse else k
            with tf.name_scope("BasicLSTMCell"):
                h, c = self(read.read(t), h, c)
            return k + 1, h, c, written.write(t, h)

        start = (tf.constant(0), zeros, zeros, tf.TensorArray(tf.float32, steps))
        end = tf.while_loop(lambda k, *_: k < steps, body, start, maximum_iterations=steps)
        return tf.ensure_shape(end[3].stack(), [steps, batch, self.hidden])


class Network(tf.Module):  # type: ignore[misc]
    """``l{k}[_reverse]/kernel`` and ``/bias``, and ``head`` (directions·hidden, classes)."""

    def __init__(self, workload: Workload) -> None:
        super().__init__()
        self.every_step = workload.loss == "ctc"
        width = workload.directions * workload.hidden
        suffixes = ("", "_reverse")[: workload.directions]
        self.layers = [
            [
                Cell(
                    width if layer else workload.features,
                    workload.hidden,
                    "l{}{}".format(layer, suffix),
                )
                for suffix in suffixes
            ]
            for layer in range(workload.layers)
        ]
        self.head = tf.Variable(tf.zeros([width, workload.classes]), name="head")

    def __call__(self, inputs: tf.Tensor) -> tf.Tensor:
        """Inputs (time, batch, features); outputs (batch, classes), for CTC one a time step."""
        for cells in self.layers:
            outputs = [cell.run(inputs, bool(n)) for n, cell in enumerate(cells)]
            inputs = outputs[0] if len(outputs) == 1 else tf.concat(outputs, 2)
        return tf.matmul(inputs, self.head) if self.every_step else tf.matmul(inputs[-1], self.head)


def build(workload: Workload) -> Network:
    """The network of ``workload``, weights not yet set."""
    return Network(workload)


def parameters(module: Network) -> Dict[str, tf.Variable]:
    """Own name -> variable, in the module's order."""
    return {variable.name.split(":")[0]: variable for variable in module.trainable_variables}


def load(module: Network, weights: Mapping[str, Any]) -> None:
    """Set the shared weights."""
    for name, variable in parameters(module).items():
        slot, _, kind = name.partition("/")
        if kind == "kernel":
            both = (weights["weight_ih_" + slot], weights["weight_hh_" + slot])
            variable.assign(_reordered(np.concatenate(both, axis=1)).T)
        elif kind == "bias":
            variable.assign(_reordered(weights["bias_" + slot]))
        else:
            variable.assign(weights["head"].T)


def canonical(module: Network, arrays: Mapping[str, Any]) -> Dict[str, Any]:
    """``arrays``, one a parameter by its own name, in the shared names and layout."""
    shared = {"head": np.asarray(arrays["head"]).T}
    for cell in (cell for cells in module.layers for cell in cells):
        kernel = _reordered(np.asarray(arrays[cell.name + "/kernel"]).T)
        shared["weight_ih_" + cell.name] = kernel[:, : -cell.hidden]
        shared["weight_hh_" + cell.name] = kernel[:, -cell.hidden :]
        shared["bias_" + cell.name] = _reordered(np.asarray(arrays[cell.name + "/bias"]))
    return shared


def _reordered(rows: Any) -> Any:
    """Rows of the gates i f g o in the order i j f o, or back."""
    gates = np.split(rows, 4)
    return np.concatenate([gates[place] for place in GATES])
