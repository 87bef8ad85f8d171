"""Programs in PyTorch that do something besides, by name: what a user's cell might hold.

All of it is part of the network: gradients flow through what touches the state.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

Tensor = torch.Tensor
#: An LSTM of one call does so often what a cell does once a time step.
OF_A_LAYER = 10


def _cast(h: Tensor) -> Tensor:
    return h.to(torch.float64).to(torch.float32)


def _clone(h: Tensor) -> Tensor:
    return h.clone()


def _transpose(h: Tensor) -> Tensor:
    return h.transpose(0, 1).contiguous().transpose(0, 1).contiguous()


def _ask(h: Tensor) -> Tensor:
    if h.detach()[0, 0].item() > 2:
        raise ArithmeticError("an LSTM's output is above 2")
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
    build = module.build
    if label in OF_STATE:
        module.build = lambda workload: _hooked(build(workload), OF_STATE[label])  # type: ignore[attr-defined]
    elif label in OF_STEPS:
        module.build = lambda workload: _indexed(build(workload), OF_STEPS[label])  # type: ignore[attr-defined]
    elif label == "keeps-gradients":
        torch.optim.Adam.zero_grad = functools.partialmethod(  # type: ignore[method-assign]
            torch.optim.Adam.zero_grad, set_to_none=False
        )


def _hooked(network: Any, then: Callable[[Tensor], Tensor]) -> Any:
    if not hasattr(network, "cells"):
        network.lstm.register_forward_pre_hook(functools.partial(_before_layer, then))
    else:
        for cell in network.cells.values():
            cell.register_forward_pre_hook(functools.partial(_before_cell, then))
    return network


def _before_layer(then: Callable[[Tensor], Tensor], _module: Any, inputs: Any) -> Any:
    x, *rest = inputs
    for _ in range(OF_A_LAYER):
        x = then(x)
    return (x, *rest)


def _before_cell(then: Callable[[Tensor], Tensor], _module: Any, inputs: Any) -> Any:
    x, (h, c) = inputs
    return x, (then(h), c)


def _each(x: Tensor) -> list[Tensor]:
    return [x[t] for t in range(len(x))]


def _at_once(x: Tensor) -> list[Tensor]:
    return list(x.unbind(0))


#: Label → how a layer takes its inputs (time, batch, features) apart.
OF_STEPS: dict[str, Callable[[Tensor], list[Tensor]]] = {"indexed": _each, "unbound": _at_once}


def _indexed(network: Any, apart: Callable[[Tensor], list[Tensor]]) -> Any:
    run = network._run

    def layer(slot: str, steps: list[Tensor], masks: Any) -> Any:
        return run(slot, apart(torch.stack(steps)), masks)

    network._run = layer
    return network
