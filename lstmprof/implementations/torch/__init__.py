"""A network of PyTorch cells: a Python loop calls one cell per layer, direction and time step.

::

    h_t, c_t = cell(x_t, (h_{t−1}, c_{t−1})),   h_0 = c_0 = 0

The reverse direction runs from the last time step to the first. After the end of a sequence, a mask
sets h_t and c_t to 0.

``weight_ih`` is (4·hidden, inputs), ``weight_hh`` (4·hidden, hidden), gates i f g o, as in
``workloads``; only the names differ (``shared_names``). A second bias starts at zero, and has the
gradient of the first.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, Optional

import torch

from lstmprof.workloads import Workload

Names = Mapping[str, Optional[str]]


class Layers(torch.nn.Module):  # type: ignore[misc]
    """A network with one cell per layer and direction, such as ``l0_reverse``."""

    def __init__(self, workload: Workload, cell: Callable[[int, int], torch.nn.Module]) -> None:
        super().__init__()
        self.hidden = workload.hidden
        self.layers = workload.layers
        self.suffixes = ("", "_reverse")[: workload.directions]
        self.every_step = workload.every_step
        self.embedding = embedding(workload)
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
        self.head = head(workload)

    def forward(self, inputs: torch.Tensor, lengths: Optional[torch.Tensor] = None) -> torch.Tensor:
        """Map inputs (time, batch[, features]) to outputs ([time,] batch, classes)."""
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
        return self.head(last(torch.stack(steps), lengths))

    def _run(
        self, slot: str, steps: List[torch.Tensor], masks: Optional[List[torch.Tensor]]
    ) -> List[torch.Tensor]:
        """Run one cell over all time steps; return the outputs in time order."""
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

    def shared_names(self) -> Names:
        """Map PyTorch's names to lstmprof's: ``cells.l0.bias`` -> ``bias_l0``."""
        names: Dict[str, Optional[str]] = {}
        for name, _ in self.cells.named_parameters():
            slot, kind = name.split(".")
            shared = kind.replace("bias_ih", "bias") + "_" + slot
            names["cells." + name] = None if kind == "bias_hh" else shared
        return names


def _masks(steps: List[torch.Tensor], lengths: torch.Tensor) -> List[torch.Tensor]:
    """Return a mask (batch, 1) per time step: 0 after the end of a sequence."""
    device = steps[0].device
    times = torch.arange(len(steps), device=device)[:, None, None]
    alive = times < lengths.to(device)[None, :, None]
    return list(alive.to(steps[0].dtype).unbind(0))


def parameters(module: torch.nn.Module) -> Dict[str, Any]:
    return dict(module.named_parameters())


def nothing() -> torch.nn.Module:
    # use an empty Sequential instead of ``Identity``, which PyTorch 1.0 lacks
    return getattr(torch.nn, "Identity", torch.nn.Sequential)()


def embedding(workload: Workload) -> torch.nn.Module:
    """Return the embedding for tokens, or a module that returns its input."""
    if not workload.vocabulary:
        return nothing()
    return torch.nn.Embedding(workload.vocabulary, workload.features)


def head(workload: Workload) -> torch.nn.Module:
    """Return the output layer, or a module that returns its input if there is none."""
    if not workload.head:
        return nothing()
    width = workload.directions * workload.hidden
    return torch.nn.Linear(width, workload.classes, bias=False)


def last(outputs: torch.Tensor, lengths: Optional[torch.Tensor]) -> torch.Tensor:
    """Return the last output of each sequence: (time, batch, width) -> (batch, width)."""
    if lengths is None:
        return outputs[-1]
    return outputs[lengths.to(outputs.device) - 1, torch.arange(outputs.shape[1])]


def _names(module: torch.nn.Module) -> Names:
    return {"embedding.weight": "embedding", "head.weight": "head", **module.shared_names()}


def load(module: torch.nn.Module, weights: Mapping[str, Any]) -> None:
    """Copy the weights. Set the other parameters, second biases, to 0."""
    names = _names(module)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            shared = names[name]
            if shared is None:
                parameter.zero_()
            else:
                parameter.copy_(torch.from_numpy(weights[shared]))


def canonical(module: torch.nn.Module, arrays: Mapping[str, Any]) -> Dict[str, Any]:
    shared = {_names(module)[name]: array for name, array in arrays.items()}
    return {name: array for name, array in shared.items() if name is not None}
