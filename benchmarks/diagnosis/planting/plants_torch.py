"""Causes of known kind that can be planted in a PyTorch step, and the trainer that runs them.

Planted calls are spread evenly over the calls of recurrent modules in a step (with a Python loop
over a cell: one call per time step); those of input causes run in the input phase. Nothing uses
their results, and no gradient flows through them. A setting changes how the unchanged code runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from planted_steps import (
    PRODUCT_SIZE,
    SIZE,
    Planted,
    Unit,
    input_work,
    sleep,
    spin,
    thread_wait,
)


@dataclass(frozen=True)
class Site:
    """Tensors of a recurrent module: its inputs (…, features), one weight (outputs, features)."""

    inputs: torch.Tensor
    weight: torch.Tensor


@dataclass(frozen=True)
class Cause:
    """A cause that can be planted; ``unit(site)`` returns a function that runs it once."""

    name: str
    unit: Callable[[Site], Unit]
    in_input: bool = False
    in_program: bool = False


def _casts(site: Site) -> Unit:
    x = site.inputs
    return lambda: x.to(torch.float64).to(torch.float32)


def _tiny_ops(site: Site) -> Unit:
    one, other = torch.ones(1), torch.ones(1)  # the number 1 would be cast in every call
    return lambda: one.mul_(other)


def _asks(site: Site) -> Unit:
    one = torch.zeros(1)
    return lambda: one.item()


def _layout_copies(site: Site) -> Unit:
    weight = site.weight
    return lambda: weight.transpose(0, 1).contiguous()


def _products(site: Site) -> Unit:
    x = torch.rand(PRODUCT_SIZE, PRODUCT_SIZE)
    return lambda: torch.mm(x, x)


def _pointwise(site: Site) -> Unit:
    x = torch.rand(SIZE, SIZE)
    return lambda: torch.exp(x)


CAUSES = (
    Cause("casts", _casts),
    Cause("tiny ops", _tiny_ops),
    Cause("busy wait", lambda site: spin),
    Cause("sleep", lambda site: sleep),
    Cause("thread wait", lambda site: thread_wait()),
    Cause("item()", _asks),
    Cause("layout copies", _layout_copies),
    Cause("doubled GEMM", _products),
    Cause("pointwise", _pointwise),
    Cause("input work", lambda site: input_work(), in_input=True),
    Cause("input wait", lambda site: spin, in_input=True),
)
BY_NAME = {cause.name: cause for cause in CAUSES}


def _two_threads() -> None:
    """Let PyTorch use two threads, although the worker runs on one CPU."""
    torch.set_num_threads(2)


#: Setting that no option makes → the function that makes it after the model is built.
SETTINGS: dict[str, Callable[[], None]] = {"two threads on one CPU": _two_threads}


class PlantedTorch(Planted):
    """The worker's own trainer, whose steps also run what is planted.

    ``calls`` is the number of calls of recurrent modules per step, counted in the first step.
    """

    module: Any

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.call, self.calls = 0, 0
        self.site: Site | None = None
        for recurrent in (
            self.module.cells.values() if hasattr(self.module, "cells") else [self.module.lstm]
        ):
            recurrent.register_forward_pre_hook(self._before_call)
        if self.plan["setting"] in SETTINGS:
            SETTINGS[self.plan["setting"]]()

    def cause(self, name: str) -> Cause:
        return BY_NAME[name]

    def unit(self, cause: Cause) -> Unit:
        assert self.site is not None
        return cause.unit(self.site)

    def step(self, ranges: Any) -> Any:
        outcome = super().step(ranges)
        if not self.calls:
            self.calls = self.call
            self.plant()
        return outcome

    def _on_device(self) -> Any:
        self.call = 0
        for plant in self.plants:
            if plant.in_input:
                self.spent[plant.name].add(plant.count, plant.unit)
        return super()._on_device()  # type: ignore[misc]

    def _before_call(self, module: Any, arguments: tuple[Any, ...]) -> None:
        """Run the planted calls that belong to this call of a recurrent module."""
        before, self.call = self.call, self.call + 1
        if self.site is None:
            weight = getattr(module, "weight_ih", None)
            weight = module.weight_ih_l0 if weight is None else weight
            self.site = Site(arguments[0].detach(), weight.detach())
        for plant in self.plants:
            if not plant.in_input:
                share = plant.count * self.call // self.calls - plant.count * before // self.calls
                self.spent[plant.name].add(share, plant.unit)


def planted_trainer(trainer: type, plan: dict[str, Any]) -> type:
    """Return a subclass of ``trainer`` whose steps also run what ``plan`` says."""
    return type("Trainer", (PlantedTorch, trainer), {"plan": plan})
