"""torch-script: the hand-written LSTM, with its loop over time steps, compiled to TorchScript.

::

    i, f, g, o = W x_t + U h_{t−1} + b        (gates in this order, one bias)
    c_t = σ(f) ⊙ c_{t−1} + σ(i) ⊙ tanh(g)
    h_t = σ(o) ⊙ tanh(c_t)

``weight_ih`` W is (4·hidden, inputs), ``weight_hh`` U is (4·hidden, hidden), ``bias`` b is
(4·hidden). torch.jit.script compiles the loop of one direction of one layer. TorchScript profiles
its first calls and then optimises: on a CPU (torch 2.13) times were stable from the fifth iteration
on. Source: the cell of torch-lstmcell-basic; PyTorch's benchmarks/fastrnns/custom_lstms.py.
"""

from __future__ import annotations

import warnings
from typing import Any, List, Optional

import torch
import torch.nn.functional as F

from lstmprof.implementations import torch as layers
from lstmprof.implementations.torch import canonical, load, parameters
from lstmprof.workloads import Workload

__all__ = ["KERNELS", "TIME_MAJOR", "build", "canonical", "load", "parameters"]

TIME_MAJOR = True
KERNELS = (("aten::sigmoid", "separate ATen operators called by TorchScript"),)


class Loop(torch.nn.Module):  # type: ignore[misc]
    """One direction of one layer, run over all time steps."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.hidden = hidden
        self.weight_ih = torch.nn.Parameter(torch.empty(4 * hidden, inputs))
        self.weight_hh = torch.nn.Parameter(torch.empty(4 * hidden, hidden))
        self.bias = torch.nn.Parameter(torch.empty(4 * hidden))

    def forward(self, steps: List[torch.Tensor]) -> List[torch.Tensor]:
        """Return one output (batch, hidden) per time step (batch, inputs)."""
        h = steps[0].new_zeros([steps[0].size(0), self.hidden])
        c = h
        outputs: List[torch.Tensor] = []
        for x in steps:
            gates = F.linear(x, self.weight_ih, self.bias) + F.linear(h, self.weight_hh)
            i, f, g, o = gates.chunk(4, 1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            outputs.append(h)
        return outputs


class Network(layers.Layers):
    def _run(
        self, slot: str, steps: List[torch.Tensor], masks: Optional[List[torch.Tensor]]
    ) -> List[torch.Tensor]:
        step = -1 if slot.endswith("_reverse") else 1
        outputs: List[torch.Tensor] = self.cells[slot](steps[::step])
        return outputs[::step]


def build(workload: Workload) -> Network:
    return Network(workload, _scripted)


def _scripted(inputs: int, hidden: int) -> Any:
    with warnings.catch_warnings():  # deprecated: DeprecationWarning in 2.13, FutureWarning in 2.14
        warnings.simplefilter("ignore")
        return torch.jit.script(Loop(inputs, hidden))
