"""Programs in PyTorch that do something besides, by name: what a user's cell might hold.

All of it is part of the network: gradients flow through what touches the state.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

Tensor = torch.Tensor
#: An LSTM of one call does so often what a cell does once per time step.
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


#: Label → what becomes of the state (of a layer op: of the inputs) at every call.
OF_STATE: dict[str, Callable[[Tensor], Tensor]] = {
    "casts": _cast,
    "clones": _clone,
    "transposes": _transpose,
    "item": _ask,
    "zeros": _fill,
}


def change(module: ModuleType, label: str) -> None:
    """Let ``module`` build the program ``label`` from here on."""
    build: Any = module.build
    if label in OF_STATE:
        then = OF_STATE[label]
        module.build = lambda workload: _doing(build(workload), then)
    elif label in OF_STEPS:
        apart = OF_STEPS[label]
        module.build = lambda workload: _taking(build(workload), apart)


def _doing(network: Any, then: Callable[[Tensor], Tensor]) -> Any:
    """``network`` that does ``then`` at every call of a cell, or before its layer op."""
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


#: Label → how a layer takes its inputs (time, batch, features) apart.
OF_STEPS: dict[str, Callable[[Tensor], list[Tensor]]] = {"indexed": _each, "unbound": _at_once}


def _taking(network: Any, apart: Callable[[Tensor], list[Tensor]]) -> Any:
    """``network`` whose layers take ``apart`` what those beneath them have put together."""
    run = network._run

    def layer(slot: str, steps: list[Tensor], masks: Any) -> Any:
        return run(slot, apart(torch.stack(steps)), masks)

    network._run = layer
    return network
