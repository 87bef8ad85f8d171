"""jax-cudnn: jax.experimental.rnn.lstm, cuDNN's LSTM of all layers and time steps in one call.

::

    i, f, g, o = W x_t + b_ih + U h_{t−1} + b_hh        (gates in this order, two biases)
    c_t = σ(f) ⊙ c_{t−1} + σ(i) ⊙ tanh(g)
    h_t = σ(o) ⊙ tanh(c_t)

All weights are one vector, ``lstm``: first W and U of each layer and direction, row by row, then
both biases of each; b_hh starts at zero. Batch-major. cuDNN uses TF32 unless JAX's matmul precision
is ``highest``. Its outputs after the end of a sequence are zero. Source: the docstring of
jax.experimental.rnn (jax 0.10).
"""

from __future__ import annotations

from typing import Any, Dict, Iterator, Mapping, Optional, Tuple

import jax.numpy as jnp
import numpy as np
from jax.experimental import rnn

from lstmprof.workloads import Workload, parameter_shapes

TIME_MAJOR = False
KERNELS = (("cudnn_rnn", "cuDNN"),)

NO_DROPOUT = 0.0


class Network:
    """The parameters: cuDNN's weight vector, and the embedding and head (if any)."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        shapes = parameter_shapes(workload)
        size = sum(int(np.prod(shape)) for _, shape in _parts(workload))
        self.arrays: Dict[str, Any] = {"lstm": np.zeros(size, np.float32)}
        if workload.head:
            self.arrays["head"] = np.zeros(shapes["head"], np.float32).T
        if workload.vocabulary:
            self.arrays["embedding"] = np.zeros(shapes["embedding"], np.float32)


def _parts(workload: Workload) -> Iterator[Tuple[Optional[str], Tuple[int, ...]]]:
    """Yield (name, shape) of each part of the vector; a second bias has no name."""
    shapes = parameter_shapes(workload)
    directions = ("", "_reverse")[: workload.directions]
    slots = ["_l{}{}".format(layer, s) for layer in range(workload.layers) for s in directions]
    for slot in slots:
        for name in ("weight_ih" + slot, "weight_hh" + slot):
            yield name, shapes[name]
    for slot in slots:
        yield "bias" + slot, shapes["bias" + slot]
        yield None, shapes["bias" + slot]  # cuDNN's second bias


def build(workload: Workload) -> Network:
    return Network(workload)


def apply(module: Network, arrays: Mapping[str, Any], inputs: Any, lengths: Any = None) -> Any:
    """Map inputs (batch, time[, features]) to outputs (batch, [time,] classes)."""
    workload = module.workload
    steps = arrays["embedding"][inputs] if workload.vocabulary else inputs
    batch, time_steps = steps.shape[:2]
    sequence_lengths = jnp.full(batch, time_steps, jnp.int32) if lengths is None else lengths
    zeros = jnp.zeros((workload.layers * workload.directions, batch, workload.hidden), steps.dtype)
    outputs, _, _ = rnn.lstm(
        *(steps, zeros, zeros, arrays["lstm"], sequence_lengths),
        *(workload.features, workload.hidden, workload.layers, NO_DROPOUT),
        workload.bidirectional,
    )
    if not workload.every_step:
        outputs = outputs[jnp.arange(batch), sequence_lengths - 1]
    return outputs @ arrays["head"] if workload.head else outputs


def parameters(module: Network) -> Dict[str, Any]:
    return dict(module.arrays)


def load(module: Network, weights: Mapping[str, Any]) -> None:
    """Copy the weights; the second biases become zero."""
    parts = [
        np.zeros(shape, np.float32) if name is None else weights[name]
        for name, shape in _parts(module.workload)
    ]
    module.arrays["lstm"] = np.concatenate([np.ravel(part) for part in parts])
    if "head" in module.arrays:
        module.arrays["head"] = weights["head"].T
    if "embedding" in module.arrays:
        module.arrays["embedding"] = weights["embedding"]


def canonical(module: Network, arrays: Mapping[str, Any]) -> Dict[str, Any]:
    vector, shared, start = np.asarray(arrays["lstm"]), {}, 0
    for name, shape in _parts(module.workload):
        end = start + int(np.prod(shape))
        if name is not None:
            shared[name] = vector[start:end].reshape(shape)
        start = end
    if "head" in arrays:
        shared["head"] = np.asarray(arrays["head"]).T
    if "embedding" in arrays:
        shared["embedding"] = np.asarray(arrays["embedding"])
    return shared
