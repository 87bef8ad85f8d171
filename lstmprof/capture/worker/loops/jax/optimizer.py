"""The optimizers of the JAX loop: plain SGD, and Adam.

Adam: D. Kingma, J. Ba, "Adam" (2014), algorithm 1. A few lines of our own, because optax, JAX's
usual optimizers, is another package. The state is a dictionary of arrays, so that one jitted step
can own it.
"""

from __future__ import annotations

from typing import Any, Dict, Mapping

import jax.numpy as jnp
import numpy as np

from lstmprof.errors import CaptureError
from lstmprof.workloads import Workload

#: Adam's decay of the mean and of the square, and its epsilon: the defaults of torch.optim.Adam
MEAN_DECAY, SQUARE_DECAY, EPSILON = 0.9, 0.999, 1e-8

Parameters = Mapping[str, Any]


def initial_state(workload: Workload, parameters: Parameters) -> Dict[str, Any]:
    """Copies of the parameters, and the state of the workload's optimizer before the first step.

    Raises:
        CaptureError: the optimizer is neither Adam nor SGD.
    """
    copies = {name: np.array(array) for name, array in parameters.items()}
    if workload.optimizer == "sgd":
        return {"parameters": copies}
    if workload.optimizer != "adam":
        raise CaptureError("unknown optimizer '{}'".format(workload.optimizer), "use adam or sgd")
    zeros = {name: np.zeros_like(array) for name, array in copies.items()}
    return {"parameters": copies, "means": zeros, "squares": zeros, "count": np.float32(0)}


def updated(workload: Workload, state: Any, gradients: Parameters) -> Dict[str, Any]:
    """The state after one step, as torch.optim.SGD or torch.optim.Adam computes it."""
    if workload.optimizer == "sgd":
        rate, before = workload.learning_rate, state["parameters"]
        return {"parameters": {name: before[name] - rate * g for name, g in gradients.items()}}
    return _after_adam(workload, state, gradients)


def _after_adam(workload: Workload, state: Any, gradients: Parameters) -> Dict[str, Any]:
    count = state["count"] + 1
    means, squares, parameters = {}, {}, {}
    for name, gradient in gradients.items():
        means[name] = MEAN_DECAY * state["means"][name] + (1 - MEAN_DECAY) * gradient
        squares[name] = SQUARE_DECAY * state["squares"][name] + (1 - SQUARE_DECAY) * gradient**2
        mean = means[name] / (1 - MEAN_DECAY**count)
        root = jnp.sqrt(squares[name] / (1 - SQUARE_DECAY**count))
        change = workload.learning_rate * mean / (root + EPSILON)
        parameters[name] = state["parameters"][name] - change
    return {"parameters": parameters, "means": means, "squares": squares, "count": count}
