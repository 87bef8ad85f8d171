"""An LSTM in plain JAX: a compiled step subtracts the gradients itself, no library."""

import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

INPUTS, HIDDEN, BATCH, TIME = 6, 20, 8, 12


def predict(parameters, series):
    def cell(states, inputs):
        hidden, memory = states
        gates = inputs @ parameters["w"] + hidden @ parameters["u"] + parameters["b"]
        i, f, g, o = jnp.split(gates, 4, -1)
        memory = jax.nn.sigmoid(f) * memory + jax.nn.sigmoid(i) * jnp.tanh(g)
        hidden = jax.nn.sigmoid(o) * jnp.tanh(memory)
        return (hidden, memory), hidden

    zeros = jnp.zeros((BATCH, HIDDEN))
    (hidden, _), _ = jax.lax.scan(cell, (zeros, zeros), series)
    return hidden @ parameters["head"]


def loss_of(parameters, series):
    return ((predict(parameters, series)[:, 0] - series.sum((0, 2))) ** 2).mean()


@jax.jit
def evaluate(parameters, series):
    return loss_of(parameters, series)


@jax.jit
def update(parameters, series):
    gradients = jax.grad(loss_of)(parameters, series)
    return jax.tree_util.tree_map(lambda p, g: p - 0.01 * g, parameters, gradients)


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    generator = np.random.default_rng(0)
    sizes = {"w": (INPUTS, 4 * HIDDEN), "u": (HIDDEN, 4 * HIDDEN), "b": (4 * HIDDEN,)}
    sizes["head"] = (HIDDEN, 1)
    parameters = {name: generator.normal(0, 0.1, size) for name, size in sizes.items()}
    for number in range(count):
        time.sleep(0.02)  # waits for a queue of batches
        series = generator.normal(size=(TIME, BATCH, INPUTS))
        parameters = update(parameters, series)
        if number % 10 == 0:
            print(f"step {number}: loss {float(evaluate(parameters, series)):.3f}", flush=True)


if __name__ == "__main__":
    main()
