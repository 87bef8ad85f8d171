"""Pairs of JAX training steps: one with a mistake, one with its fix, by the name of the fix."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

TIME, BATCH, FEATURES, HIDDEN = 20, 16, 64, 128
Step = Callable[[], object]


def cell(weights: Any, state: Any, x: Any) -> Any:
    """Run one time step; return the next state (h, c), and h."""
    h, c = state
    i, f, g, o = jnp.split(jnp.concatenate([x, h], 1) @ weights, 4, axis=1)
    c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
    h = jax.nn.sigmoid(o) * jnp.tanh(c)
    return (h, c), h


def training(compile_: Callable[[Any], Any], scan: bool = False) -> Step:
    """Return a training step, with a Python loop or ``lax.scan`` over the time steps.

    ``compile_`` is applied to the update function, such as ``jax.jit``.
    """
    key = jax.random.PRNGKey(0)
    weights = jax.random.normal(key, (FEATURES + HIDDEN, 4 * HIDDEN)) * 0.1
    inputs = jax.random.normal(key, (TIME, BATCH, FEATURES))

    def loss(weights: Any, inputs: Any) -> Any:
        state = (jnp.zeros((BATCH, HIDDEN)),) * 2
        if scan:
            state, _ = jax.lax.scan(lambda s, x: cell(weights, s, x), state, inputs)
        else:
            for x in inputs:
                state, _ = cell(weights, state, x)
        return jnp.square(state[0]).mean()

    update = compile_(lambda weights, inputs: weights - 1e-3 * jax.grad(loss)(weights, inputs))
    return lambda: jax.block_until_ready(update(weights, inputs))


PAIRS: dict[str, tuple[Callable[[], Step], Callable[[], Step]]] = {
    "jit the whole": (lambda: training(lambda f: f), lambda: training(jax.jit)),
}
