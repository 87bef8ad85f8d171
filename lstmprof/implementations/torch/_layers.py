"""Layers and directions of a torch cell in a Python loop over time steps, with the head.

::

    h_t, c_t = cell(x_t, (h_{t−1}, c_{t−1})),   h_0 = c_0 = 0

The reverse direction runs from the last time step to the first; both outputs at a time step, the
forward one first, are the next layer's input. The head has no bias. Of a sequence that has ended
h_t and c_t are 0: a mask multiplies them, as a framework without packed sequences has to.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional

import torch

from lstmprof.implementations.torch import _parameters
from lstmprof.workloads import Workload


class Layers(torch.nn.Module):  # type: ignore[misc]
    """``cells.l{k}[_reverse]``, made by ``cell(inputs, hidden)``, and ``head``."""

    def __init__(self, workload: Workload, cell: Callable[[int, int], torch.nn.Module]) -> None:
        super().__init__()
        self.hidden = workload.hidden
        self.layers = workload.layers
        self.suffixes = ("", "_reverse")[: workload.directions]
        self.every_step = workload.every_step
        self.embedding = _parameters.embedding(workload)
        width = workload.directions * workload.hidden
        self.cells = torch.nn.ModuleDict(
            {
                "l{}{}".format(layer, suffix): cell(
                    width if layer else workload.features, self.hidden
                )
                for layer in range(workload.layers)
                for suffix in self.suffixes
            }
        )
        self.head = _parameters.head(workload)

    def forward(self, inputs: torch.Tensor, lengths: Optional[torch.Tensor] = None) -> torch.Tensor:
        """Inputs (time, batch, features) or tokens; outputs (batch, classes), or one a step.

        ``lengths`` (batch,) on the host.
        """
        steps = list(self.embedding(inputs).unbind(0))
        masks = None if lengths is None else _masks(steps, lengths)
        for layer in range(self.layers):
            directions = [self._run("l{}{}".format(layer, s), steps, masks) for s in self.suffixes]
            steps = directions[0]
            if len(directions) == 2:
                steps = [torch.cat([h, back], 1) for h, back in zip(*directions)]  # noqa: B905
        if self.every_step:
            return self.head(torch.stack(steps))
        if lengths is None:
            return self.head(steps[-1])
        return self.head(_parameters.last(torch.stack(steps), lengths))

    def _run(
        self, slot: str, steps: List[torch.Tensor], masks: Optional[List[torch.Tensor]]
    ) -> List[torch.Tensor]:
        """The cell's outputs at every time step, in the order of time."""
        cell = self.cells[slot]
        state = (steps[0].new_zeros(len(steps[0]), self.hidden),) * 2
        outputs = []
        order = range(len(steps))
        for t in reversed(order) if slot.endswith("_reverse") else order:
            state = cell(steps[t], state)
            if masks is not None:
                state = (state[0] * masks[t], state[1] * masks[t])
            outputs.append(state[0])
        return outputs[::-1] if slot.endswith("_reverse") else outputs


def _masks(steps: List[torch.Tensor], lengths: torch.Tensor) -> List[torch.Tensor]:
    """For every time step (batch, 1): 1 where a sequence has not ended, else 0."""
    device = steps[0].device
    times = torch.arange(len(steps), device=device)[:, None, None]
    alive = times < lengths.to(device)[None, :, None]
    return list(alive.to(steps[0].dtype).unbind(0))


def shared_names(module: Layers) -> Dict[str, Any]:
    """Own name -> shared name: ``cells.l0.weight_ih`` is ``weight_ih_l0``; ``bias_hh`` has none."""
    names: Dict[str, Any] = _parameters.end_names(module)
    for own, _ in module.cells.named_parameters():
        slot, kind = own.split(".")
        names["cells." + own] = (
            None if kind == "bias_hh" else kind.replace("bias_ih", "bias") + "_" + slot
        )
    return names
