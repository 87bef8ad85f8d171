"""mxnet-module-lstm: mxnet.rnn.LSTMCell, unrolled to a graph that mxnet.mod.Module runs.

::

    i, f, g, o = W x_t + b_i2h + U h_{t−1} + b_h2h        (gates in this order, two biases)
    c_t = σ(f) ⊙ c_{t−1} + σ(i) ⊙ tanh(g)
    h_t = σ(o) ⊙ tanh(c_t)

This is MXNet's older interface: a graph of symbols, with its gradient, gets its memory once and
runs as a whole. Batch-major, as Module requires. ``cell="gru"`` is GRUCell (gates r z n, the reset
gate after the matmul), ``cell="rnn"`` is RNNCell with tanh. Source: the documentation of mxnet.rnn
and mxnet.module, MXNet 1.9.1.
"""

from __future__ import annotations

from typing import Any, Dict, Mapping

import mxnet as mx
import numpy as np

from lstmprof.implementations.mxnet import canonical, shared_name
from lstmprof.workloads import Workload

__all__ = ["KERNELS", "TIME_MAJOR", "apply", "build", "canonical", "load", "parameters"]

TIME_MAJOR = False
KERNELS = (("FullyConnected", "separate operators of MXNet, run as a graph"),)
CELLS = {"lstm": mx.rnn.LSTMCell, "gru": mx.rnn.GRUCell, "rnn": mx.rnn.RNNCell}


class Network:
    """The weights, by the names of their symbols in the graph."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.arrays: Dict[str, Any] = {}


def build(workload: Workload) -> Network:
    return Network(workload)


def apply(module: Network, inputs: Any) -> Any:
    """Map inputs (batch, time[, features]) to outputs (batch, [time,] classes)."""
    w, steps = module.workload, inputs
    if w.vocabulary:
        weight = mx.sym.Variable("embedding_weight")
        steps = mx.sym.Embedding(inputs, weight, input_dim=w.vocabulary, output_dim=w.features)
    outputs, _ = _cells(w).unroll(w.time_steps, steps, merge_outputs=w.every_step)
    outputs = outputs if w.every_step else outputs[-1]
    if not w.head:
        return outputs
    weight = mx.sym.Variable("head_weight")
    return mx.sym.FullyConnected(outputs, weight, num_hidden=w.classes, no_bias=True, flatten=False)


def _cells(w: Workload) -> Any:
    stack = mx.rnn.SequentialRNNCell()
    for layer in range(w.layers):
        sides = "lr"[: w.directions]
        cells = [CELLS[w.cell](w.hidden, prefix="{}{}_".format(side, layer)) for side in sides]
        both = len(cells) == 2
        name = "bi{}_".format(layer)
        stack.add(mx.rnn.BidirectionalCell(*cells, output_prefix=name) if both else cells[0])
    return stack


def parameters(module: Network) -> Dict[str, Any]:
    return module.arrays


def load(module: Network, weights: Mapping[str, Any]) -> None:
    names = [n for n in apply(module, mx.sym.Variable("inputs")).list_arguments() if n != "inputs"]
    for name in names:
        shared = shared_name(name)
        array = np.zeros_like(weights[_first(name)]) if shared is None else weights[shared]
        module.arrays[name] = mx.nd.array(array)


def _first(name: str) -> str:
    """Return lstmprof's name of the first bias: ``l0_h2h_bias`` -> ``bias_l0``."""
    shared = shared_name(name.replace("h2h_bias", "i2h_bias"))
    assert shared is not None
    return shared
