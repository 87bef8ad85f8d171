"""Steps of JAX as its users write them, each profiled into a folder: one argument, where to.

``no-jit`` calls operator by operator, ``no-jit-scan`` has a scan outside of any jit, ``anew`` makes
a jit in every step, ``first`` profiles the step that compiles, ``gates-apart`` has a weight for
each gate, ``jit`` is right; ``unmarked-*`` have no step markers.
"""

import os
import sys
from pathlib import Path

os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp

TIME_STEPS, BATCH, FEATURES, HIDDEN = 8, 4, 8, 8
WARM, PROFILED = 2, 2

INPUTS = jnp.ones((TIME_STEPS, BATCH, FEATURES))
WEIGHTS = 0.1 * jnp.ones((FEATURES + HIDDEN, 4 * HIDDEN))
STATE = (jnp.zeros((BATCH, HIDDEN)), jnp.zeros((BATCH, HIDDEN)))


def cell(weights, state, now):
    """One time step."""
    hidden, memory = state
    i, f, g, o = jnp.split(jnp.concatenate([now, hidden], 1) @ weights, 4, axis=1)
    memory = jax.nn.sigmoid(f) * memory + jax.nn.sigmoid(i) * jnp.tanh(g)
    hidden = jax.nn.sigmoid(o) * jnp.tanh(memory)
    return (hidden, memory), hidden


def looped(weights):
    """The loss of a Python loop over the time steps."""
    state = STATE
    for now in INPUTS:
        state, _ = cell(weights, state, now)
    return jnp.mean(state[0] ** 2)


def scanned(weights):
    """The loss of a scan over the time steps, whose function is made at every call."""
    state, _ = jax.lax.scan(lambda state, now: cell(weights, state, now), STATE, INPUTS)
    return jnp.mean(state[0] ** 2)


def apart(weights):
    """The loss of a scan that multiplies input and state with each gate's own weights."""

    def step(state, now):
        hidden, memory = state
        i, f, g, o = (now @ w[:FEATURES] + hidden @ w[FEATURES:] for w in weights)
        memory = jax.nn.sigmoid(f) * memory + jax.nn.sigmoid(i) * jnp.tanh(g)
        hidden = jax.nn.sigmoid(o) * jnp.tanh(memory)
        return (hidden, memory), hidden

    state, _ = jax.lax.scan(step, STATE, INPUTS)
    return jnp.mean(state[0] ** 2)


def train(loss, weights):
    """One step of gradient descent."""
    return jax.tree.map(lambda w, gradient: w - 0.1 * gradient, weights, jax.grad(loss)(weights))


def small(weights):
    """One time step's loss: what compiles in less time."""
    return jnp.mean(cell(weights, STATE, INPUTS[0])[1] ** 2)


JITTED = jax.jit(lambda weights: train(scanned, weights))
FIRST = jax.jit(lambda weights: train(small, weights))
PROGRAMS = {
    "jit": JITTED,
    "no-jit": lambda weights: train(looped, weights),
    "no-jit-scan": lambda weights: train(scanned, weights),
    "anew": lambda weights: jax.jit(lambda w: train(small, w))(weights),
    "first": FIRST,
    "gates-apart": jax.jit(lambda weights: train(apart, weights)),
}


def profile(step, weights, folder, marked):
    """Profile steps of this program."""
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    jax.profiler.start_trace(folder, profiler_options=options)
    for number in range(PROFILED):
        if marked:
            with jax.profiler.StepTraceAnnotation("train", step_num=number):
                weights = jax.block_until_ready(step(weights))
        else:
            weights = jax.block_until_ready(step(weights))
    jax.profiler.stop_trace()


if __name__ == "__main__":
    FOLDER = Path(sys.argv[1])
    for name, step in PROGRAMS.items():
        weights = jnp.split(WEIGHTS, 4, axis=1) if name == "gates-apart" else WEIGHTS
        for _ in range(0 if name == "first" else WARM):
            weights = jax.block_until_ready(step(weights))
        profile(step, weights, str(FOLDER / name), marked=True)
        if name in ("jit", "no-jit", "no-jit-scan"):
            profile(step, weights, str(FOLDER / ("unmarked-" + name)), marked=False)
