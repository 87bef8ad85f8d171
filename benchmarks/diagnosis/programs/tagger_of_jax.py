"""A JAX script that trains a tagger and profiles itself. Arguments: FOLDER jit|eager."""

import sys

import jax
import jax.numpy as jnp
import numpy as np

import lstmprof as lp

TIME, BATCH, INPUTS, HIDDEN, TAGS = 50, 8, 32, 64, 20
Weights = dict[str, jax.Array]


def cell(weights: Weights, state: tuple[jax.Array, jax.Array], x: jax.Array) -> tuple:
    """Run one time step; return the next state (h, c) and the output h."""
    h, c = state
    gates = x @ weights["kernel"] + h @ weights["recurrent"] + weights["bias"]
    i, f, g, o = jnp.split(gates, 4, -1)
    c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
    h = jax.nn.sigmoid(o) * jnp.tanh(c)
    return (h, c), h


def loss_of(weights: Weights, inputs: jax.Array, tags: jax.Array) -> jax.Array:
    """Return the mean cross entropy for ``tags`` (time, batch)."""
    zeros = jnp.zeros((BATCH, HIDDEN))
    _, outputs = jax.lax.scan(lambda state, x: cell(weights, state, x), (zeros, zeros), inputs)
    scores = jax.nn.log_softmax(outputs @ weights["head"])
    return -jnp.mean(jnp.take_along_axis(scores, tags[..., None], -1))


def main() -> None:
    """Train for some steps under ``lp.profile``; ``eager`` does not jit-compile the whole step."""
    place, form = sys.argv[1:]
    generator = np.random.default_rng(0)
    shapes = {
        "kernel": (INPUTS, 4 * HIDDEN),
        "recurrent": (HIDDEN, 4 * HIDDEN),
        "bias": (4 * HIDDEN,),
        "head": (HIDDEN, TAGS),
    }
    weights = {n: jnp.asarray(generator.normal(size=s) * 0.1, "f") for n, s in shapes.items()}

    def step(weights: Weights, inputs: jax.Array, tags: jax.Array) -> Weights:
        gradients = jax.grad(loss_of)(weights, inputs, tags)
        return {name: weights[name] - 0.1 * gradients[name] for name in weights}

    train = step if form == "eager" else jax.jit(step)
    with lp.profile(place, force=True) as profile:
        for _ in range(300 if form == "jit" else 60):
            inputs = jnp.asarray(generator.normal(size=(TIME, BATCH, INPUTS)), "f")
            tags = jnp.asarray(generator.integers(TAGS, size=(TIME, BATCH)))
            weights = jax.block_until_ready(train(weights, inputs, tags))
            profile.step()


main()
