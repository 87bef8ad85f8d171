"""Causes of known kind that can be planted in a JAX step, and the trainer that runs them.

Planted calls in the compiled program are in a separate loop, each on the result of the previous
one, so that XLA neither fuses nor drops them; 0 times their result is added to the loss.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from planted_steps import (
    PRODUCT_SIZE,
    SIZE,
    UNITS,
    Cause,
    PlantedPrograms,
    Unit,
    fastest_ns,
    input_work,
    sleep,
    spin,
    thread_wait,
)


def _cast(x: jax.Array) -> jax.Array:
    """Cast to integers and back; the branch keeps XLA from fusing the two casts."""

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


class PlantedJax(PlantedPrograms):
    """The worker's own trainer, whose steps also run what is planted."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.plant()

    def cause(self, name: str) -> Cause:
        return BY_NAME[name]

    def unit_ns(self, cause: Cause, unit: Unit) -> float:
        return _unit_ns(cause) if cause.in_program else super().unit_ns(cause, unit)

    def _loss(self, parameters: Any, inputs: Any, targets: Any) -> Any:
        loss = super()._loss(parameters, inputs, targets)  # type: ignore[misc]
        seed = inputs[0].ravel()[0]
        for plant in self.plants:
            if plant.in_program:
                loss += 0 * _grown(BY_NAME[plant.name], plant.count, seed)[0, 0]
        return loss


def _grown(cause: Cause, count: int, seed: Any) -> jax.Array:
    """Return the result of ``count`` calls of ``cause``, computed from the value of ``seed``.

    The compiler cannot know ``seed``, so it cannot replace the calls by a constant.
    """
    start = jnp.full((cause.size, cause.size), seed / cause.size / 16)  # keeps matmuls finite
    grown = jax.lax.fori_loop(0, count, lambda _, x: cause.unit(x), start)
    return jax.lax.stop_gradient(grown)


def _unit_ns(cause: Cause) -> float:
    many, none = (jax.jit(lambda seed, n=n: _grown(cause, n, seed)[0, 0]) for n in (UNITS, 0))
    spent = [fastest_ns(lambda c=call: c(1.0).block_until_ready()) for call in (many, none)]
    return max(1.0, (spent[0] - spent[1]) / UNITS)


def planted_trainer(trainer: type, plan: dict[str, Any]) -> type:
    """Return a subclass of ``trainer`` whose steps also run what ``plan`` says."""
    return type("Trainer", (PlantedJax, trainer), {"plan": plan})
