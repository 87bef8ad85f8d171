"""Causes of known kind that can be planted in a JAX step, and the trainer they grow in.

Units of the program stand in a loop of its own, each on the result of the one before, so that XLA
neither fuses nor drops them; nothing of their result is 0 times added to the loss.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from turns import (
    PRODUCT_SIZE,
    SIZE,
    UNITS,
    Cause,
    Plant,
    Turns,
    Unit,
    fastest_ns,
    input_work,
    sleep,
    spin,
    thread_wait,
)

from lstmprof.capture.worker.loops import jax as worker_jax

set_threads = worker_jax.set_threads


def _cast(x: jax.Array) -> jax.Array:
    """To integers in a branch, which XLA does not fuse with the way back, and back."""

    def rounded(x: jax.Array) -> jax.Array:
        return x.astype(jnp.int32)

    def raised(x: jax.Array) -> jax.Array:
        return x.astype(jnp.int32) + 1

    return jax.lax.cond(x[0, 0] > 1, raised, rounded, x).astype(jnp.float32)


def _product(x: jax.Array) -> jax.Array:
    return x @ x


def _tiny_op() -> Unit:
    one = jnp.ones(1)
    call = jax.jit(jnp.multiply)
    return lambda: call(one, one)


CAUSES = (
    Cause("casts", _cast, SIZE),
    Cause("tiny ops", _tiny_op),
    Cause("busy wait", lambda: spin),
    Cause("sleep", lambda: sleep),
    Cause("thread wait", thread_wait),
    Cause("layout copies", jnp.transpose, SIZE),
    Cause("doubled GEMM", _product, PRODUCT_SIZE),
    Cause("pointwise", jnp.tanh, SIZE),
    Cause("input work", input_work, in_input=True),
    Cause("input wait", lambda: spin, in_input=True),
)
BY_NAME = {cause.name: cause for cause in CAUSES}


class PlantedTrainer(Turns, worker_jax.Trainer):
    """The worker's own trainer, whose steps do what is planted besides."""

    def planted(self, name: str, target_ns: float) -> Plant:
        """As many units of the cause as take ``target_ns``, and at least one."""
        cause = BY_NAME[name]
        unit = cause.unit if cause.in_program else cause.unit()
        unit_ns = _unit_ns(cause) if cause.in_program else fastest_ns(unit)
        count = max(1, round(target_ns / unit_ns))
        return Plant(name, unit, count, cause.in_input, cause.in_program)

    def _program(self) -> Any:
        def body(*given: Any) -> Any:
            return self._train_step(*given)

        # A profile of both programs tells their instructions apart by the name of the program.
        body.__name__ = f"step_{len(self.programs)}"
        return jax.jit(body, donate_argnums=0)

    def _loss(self, parameters: Any, inputs: Any, targets: Any) -> Any:
        loss = super()._loss(parameters, inputs, targets)
        seed = inputs[0].ravel()[0]
        for plant in self.plants:
            if plant.in_program:
                loss += 0 * _grown(BY_NAME[plant.name], plant.count, seed)[0, 0]
        return loss


def _grown(cause: Cause, count: int, seed: Any) -> jax.Array:
    """The last of ``count`` units; ``seed`` is known to no compiler."""
    start = jnp.full((cause.size, cause.size), seed / cause.size / 16)  # bounded as a product
    grown = jax.lax.fori_loop(0, count, lambda _, x: cause.unit(x), start)
    return jax.lax.stop_gradient(grown)


def _unit_ns(cause: Cause) -> float:
    many, none = (jax.jit(lambda seed, n=n: _grown(cause, n, seed)[0, 0]) for n in (UNITS, 0))
    spent = [fastest_ns(lambda c=call: c(1.0).block_until_ready()) for call in (many, none)]
    return max(1.0, (spent[0] - spent[1]) / UNITS)
