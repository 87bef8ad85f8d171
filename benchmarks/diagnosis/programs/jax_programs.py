"""Programs in JAX that do something besides, by name: before the layers, in the program.

A barrier stands behind each, or XLA would join it with the next and drop both.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp

TIMES = 10
_barrier = jax.lax.optimization_barrier


def _cast(x: Any) -> Any:
    return _barrier(_barrier(x.astype(jnp.bfloat16)).astype(jnp.float32))


def _transpose(x: Any) -> Any:
    return _barrier(_barrier(jnp.transpose(x, (2, 1, 0))).transpose((2, 1, 0)))


#: Label → what becomes of the inputs, ``TIMES`` times.
OF_INPUTS: dict[str, Callable[[Any], Any]] = {"casts": _cast, "transposes": _transpose}


def change(module: ModuleType, label: str) -> None:
    """Let ``module`` apply the program ``label`` from here on."""
    if label not in OF_INPUTS:
        return
    apply: Any = module.apply
    then = OF_INPUTS[label]

    def changed(network: Any, arrays: Any, inputs: Any, *lengths: Any) -> Any:
        for _ in range(TIMES):
            inputs = then(inputs)
        return apply(network, arrays, inputs, *lengths)

    module.apply = changed
