"""Additional work for a PyTorch program, by name, such as users' cells often contain.

It is part of the network: gradients flow through the work on the state.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

Tensor = torch.Tensor
#: How often nn.LSTM, which is called once per step, does what a cell does once per time step.
OF_A_LAYER = 10


def _cast(h: Tensor) -> Tensor:
    return h.to(torch.float64).to(torch.float32)


def _clone(h: Tensor) -> Tensor:
    return h.clone()


def _transpose(h: Tensor) -> Tensor:
    return h.transpose(0, 1).contiguous().transpose(0, 1).contiguous()


def _ask(h: Tensor) -> Tensor:
    if h.detach().view(-1)[0].item() > 100:
        raise ArithmeticError("a number is above 100")
    return h


def _fill(h: Tensor) -> Tensor:
    h.new_zeros(len(h), 4 * h.shape[-1])
    return h


#: Label → function that is applied at every call to a cell's state, or to nn.LSTM's inputs.
OF_STATE: dict[str, Callable[[Tensor], Tensor]] = {
    "casts": _cast,
    "clones": _clone,
    "transposes": _transpose,
    "item": _ask,
    "zeros": _fill,
}


def change(module: ModuleType, label: str) -> None:
    """Change ``module.build`` (an implementation) so that networks do the additional work."""
    build: Any = module.build
    if label in OF_STATE:
        then = OF_STATE[label]
        module.build = lambda workload: _doing(build(workload), then)
    elif label in OF_STEPS:
        apart = OF_STEPS[label]
        module.build = lambda workload: _taking(build(workload), apart)


def _doing(network: Any, then: Callable[[Tensor], Tensor]) -> Any:
    """Change ``network`` to call ``then`` at every call of a cell, or before its nn.LSTM."""
    if not hasattr(network, "cells"):
        network.lstm.forward = _layer(network.lstm.forward, then)
        return network
    for cell in network.cells.values():
        cell.forward = _cell(cell.forward, then)
    return network


def _layer(forward: Any, then: Callable[[Tensor], Tensor]) -> Any:
    def changed(x: Tensor) -> Any:
        for _ in range(OF_A_LAYER):
            x = then(x)
        return forward(x)

    return changed


def _cell(forward: Any, then: Callable[[Tensor], Tensor]) -> Any:
    def changed(x: Tensor, state: tuple[Tensor, Tensor]) -> Any:
        h, c = state
        return forward(x, (then(h), c))

    return changed


def _each(x: Tensor) -> list[Tensor]:
    return [x[t] for t in range(len(x))]


def _at_once(x: Tensor) -> list[Tensor]:
    return list(x.unbind(0))


#: Label → function that splits a layer's inputs (time, batch, features) into time steps.
OF_STEPS: dict[str, Callable[[Tensor], list[Tensor]]] = {"indexed": _each, "unbound": _at_once}


def _taking(network: Any, apart: Callable[[Tensor], list[Tensor]]) -> Any:
    """Change ``network`` so that layers stack their inputs and split them with ``apart``."""
    run = network._run

    def layer(slot: str, steps: list[Tensor], masks: Any) -> Any:
        return run(slot, apart(torch.stack(steps)), masks)

    network._run = layer
    return network
