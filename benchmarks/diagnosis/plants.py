"""Causes of known kind that can be planted in a step, and the torch trainer in which they grow.

A cause is planted as so many units. Those of a recurrent module are spread evenly over its calls
in a step (every time step where a Python loop calls a cell), those of the input are done in its
phase. Nothing depends on what they compute, and no gradient flows through them.
"""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from turns import Plant, Unit, fastest_ns, input_work, preemptions, sleep, spin, thread_wait

from lstmprof.capture.request import CaptureRequest
from lstmprof.capture.worker.loops import torch as worker_torch
from lstmprof.capture.worker.profiling import Ranges
from lstmprof.diagnose import causes

set_threads = worker_torch.set_threads


@dataclass(frozen=True)
class Site:
    """What a recurrent module works on: inputs (…, features) and one weight (outputs, features)."""

    inputs: torch.Tensor
    weight: torch.Tensor


@dataclass(frozen=True)
class Cause:
    """``kind`` is what a diagnosis must say; ``unit`` makes one unit of it for a site."""

    name: str
    kind: str
    unit: Callable[[Site], Unit]
    in_input: bool = False


def _casts(site: Site) -> Unit:
    x = site.inputs
    return lambda: x.to(torch.float64).to(torch.float32)


def _tiny_ops(site: Site) -> Unit:
    one, other = torch.ones(1), torch.ones(1)  # not the number 1: that would be cast in every call
    return lambda: one.mul_(other)


def _asks(site: Site) -> Unit:
    one = torch.zeros(1)
    return lambda: one.item()


def _layout_copies(site: Site) -> Unit:
    weight = site.weight
    return lambda: weight.transpose(0, 1).contiguous()


def _products(site: Site) -> Unit:
    x, weight = site.inputs, site.weight
    return lambda: torch.nn.functional.linear(x, weight)


def _pointwise(site: Site) -> Unit:
    weight = site.weight
    return lambda: torch.exp(weight)


CAUSES = (
    Cause("casts", causes.CAST, _casts),
    Cause("tiny ops", causes.DISPATCH, _tiny_ops),
    Cause("busy wait", causes.PYTHON, lambda site: spin),
    Cause("sleep", causes.PYTHON, lambda site: sleep),
    Cause("thread wait", causes.PYTHON, lambda site: thread_wait()),
    Cause("item()", causes.SYNC, _asks),
    Cause("layout copies", causes.COPY, _layout_copies),
    Cause("doubled GEMM", causes.GEMM, _products),
    Cause("pointwise", causes.MEMORY, _pointwise),
    Cause("input work", causes.INPUT, lambda site: input_work(), in_input=True),
    Cause("input wait", causes.INPUT, lambda site: spin, in_input=True),
)
BY_NAME = {cause.name: cause for cause in CAUSES}


class PlantedTrainer(worker_torch.Trainer):
    """The worker's own trainer, whose steps do what is planted besides.

    ``turns`` are the plants of one step after the other, again and again; a profile begins with
    the first. A step has ``calls`` of recurrent modules. ``preempted`` is how often the CPU was
    taken away in each step since.
    """

    def __init__(self, request: CaptureRequest, device: str) -> None:
        super().__init__(request, device)
        self.turns: Sequence[Sequence[Plant]] = [()]
        self.turn = 0
        self.preempted: list[int] = []
        self.plants: Sequence[Plant] = ()
        self.call, self.calls = 0, 1
        self.site: Site | None = None
        module: Any = self.module
        for recurrent in module.cells.values() if hasattr(module, "cells") else [module.lstm]:
            recurrent.register_forward_pre_hook(self._before_call)

    def take_turns(self, turns: Sequence[Sequence[Plant]]) -> None:
        """Begin with the first of ``turns``."""
        self.turns, self.turn, self.preempted = turns, 0, []

    def warm(self) -> None:
        """What a step has shown of itself is known from here on."""
        self.calls = self.call

    def planted(self, name: str, target_ns: float) -> Plant:
        """As many units of the cause as take ``target_ns``, and at least one."""
        assert self.site is not None
        cause = BY_NAME[name]
        unit = cause.unit(self.site)
        return Plant(name, unit, max(1, round(target_ns / fastest_ns(unit))), cause.in_input)

    def step(self, ranges: Ranges) -> torch.Tensor:
        self.plants = self.turns[self.turn % len(self.turns)]
        self.turn += 1
        before = preemptions(resource.RUSAGE_THREAD)
        loss = super().step(ranges)
        self.preempted.append(preemptions(resource.RUSAGE_THREAD) - before)
        return loss

    def _session(
        self, ranges: Ranges, steps: Iterable[int], folder: str
    ) -> tuple[Any, list[int], list[float]]:
        self.take_turns(self.turns)
        return super()._session(ranges, steps, folder)

    def _on_device(self) -> tuple[torch.Tensor, torch.Tensor]:
        self.call = 0
        for plant in self.plants:
            if plant.in_input:
                for _ in range(plant.count):
                    plant.unit()
        return super()._on_device()

    def _before_call(self, module: Any, arguments: tuple[Any, ...]) -> None:
        """This call's share of the units."""
        before, self.call = self.call, self.call + 1
        if self.site is None:
            weight = getattr(module, "weight_ih", None)
            weight = module.weight_ih_l0 if weight is None else weight
            self.site = Site(arguments[0].detach(), weight.detach())
        for plant in self.plants:
            if not plant.in_input:
                share = plant.count * self.call // self.calls - plant.count * before // self.calls
                for _ in range(share):
                    plant.unit()
