"""Recalls the first vector of a series; with "fixed", one matmul computes all gates of the LSTM."""

import sys

import jax
import jax.numpy as jnp

LENGTH, BATCH, FEATURES, UNITS = 50, 8, 16, 32


def apart(weights, hidden, now):
    """Return the four gates; each has its own weights for the inputs and for the state."""
    return [now @ w_x + hidden @ w_h + b for w_x, w_h, b in weights]


def together(weights, hidden, now):
    w, b = weights
    return jnp.split(jnp.concatenate([now, hidden], 1) @ w + b, 4, axis=1)


def initial(key, fixed):
    if fixed:
        return 0.1 * jax.random.normal(key, (FEATURES + UNITS, 4 * UNITS)), jnp.zeros(4 * UNITS)
    w_x = 0.1 * jax.random.normal(key, (4, FEATURES, UNITS))
    w_h = 0.1 * jax.random.normal(key, (4, UNITS, UNITS))
    return list(zip(w_x, w_h, jnp.zeros((4, UNITS)), strict=True))


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    gates = together if "fixed" in sys.argv else apart

    def loss_of(weights, series):
        def cell(state, now):
            hidden, memory = state
            i, f, g, o = gates(weights, hidden, now)
            memory = jax.nn.sigmoid(f) * memory + jax.nn.sigmoid(i) * jnp.tanh(g)
            return (jax.nn.sigmoid(o) * jnp.tanh(memory), memory), None

        zeros = jnp.zeros((BATCH, UNITS))
        (hidden, _), _ = jax.lax.scan(cell, (zeros, zeros), series)
        return jnp.mean((hidden[:, :FEATURES] - series[0]) ** 2)

    @jax.jit
    def train_step(weights, series):
        loss, gradients = jax.value_and_grad(loss_of)(weights, series)
        return jax.tree.map(lambda w, g: w - 0.1 * g, weights, gradients), loss

    weights = initial(jax.random.PRNGKey(0), "fixed" in sys.argv)
    for number in range(steps):
        series = jax.random.normal(jax.random.PRNGKey(number), (LENGTH, BATCH, FEATURES))
        weights, loss = train_step(weights, series)
        if number % 10 == 0:
            print(f"step {number}: loss {float(loss):.3f}", flush=True)


if __name__ == "__main__":
    main()
