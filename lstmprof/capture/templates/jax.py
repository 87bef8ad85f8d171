"""An LSTM of your own for `lstmprof capture --impl mymodel.py:build`, in JAX.

Replace these parameters and this function by yours (for Flax: the results of init, and apply).
lstmprof provides data, loss, optimizer and the loop (one jitted function per step), the same for
all implementations. This example has a single layer and direction.
"""

import jax
import jax.numpy as jnp

#: Inputs and outputs are (time, batch, …). Delete this line if yours are (batch, time, …).
TIME_MAJOR = True


def build(workload):
    """Return parameters (any tree of arrays) and a function (parameters, inputs) → outputs."""
    if workload.layers > 1 or workload.bidirectional:
        raise ValueError("this network has one layer and one direction")
    gates = 4 * workload.hidden
    parameters = {
        "w": jnp.zeros((workload.features, gates)),
        "u": jnp.zeros((workload.hidden, gates)),
        "b": jnp.zeros(gates),
        "head": jnp.zeros((workload.hidden, workload.classes)),
    }

    def network(parameters, inputs):
        """Map (time, batch, features) to (batch, classes), or to (time, batch, classes)."""

        def cell(state, x):
            h, c = state
            gates = x @ parameters["w"] + h @ parameters["u"] + parameters["b"]
            i, f, g, o = jnp.split(gates, 4, axis=1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        zeros = jnp.zeros((inputs.shape[1], workload.hidden))
        _, outputs = jax.lax.scan(cell, (zeros, zeros), inputs)
        return (outputs if workload.every_step else outputs[-1]) @ parameters["head"]

    return parameters, network


def load(parameters, weights):
    """Return parameters with the given weights, so that lstmprof can check the results.

    The weights have PyTorch's names and layout: weight_ih_l0 (4·hidden, inputs), weight_hh_l0
    (4·hidden, hidden), bias_l0 with gates in the order i f g o, and head (classes, hidden). Delete
    this function if your network does not compute the workload's LSTM.
    """
    return {
        "w": weights["weight_ih_l0"].T,
        "u": weights["weight_hh_l0"].T,
        "b": weights["bias_l0"],
        "head": weights["head"].T,
    }
