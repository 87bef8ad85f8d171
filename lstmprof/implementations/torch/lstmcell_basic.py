"""torch-lstmcell-basic: the LSTM written by hand from separate torch operators.

::

    i, f, g, o = W x_t + U h_{t−1} + b        (gates in this order, one bias)
    c_t = σ(f) ⊙ c_{t−1} + σ(i) ⊙ tanh(g)
    h_t = σ(o) ⊙ tanh(c_t)

``weight_ih`` W is (4·hidden, inputs), ``weight_hh`` U is (4·hidden, hidden), ``bias`` b is
(4·hidden). No peepholes, no forget bias beyond b. A Python loop runs it over the time steps.
Source: the hand-written PyTorch cell of the ASR study (arXiv:1806.01818); F. Gers et al.,
"Learning to forget" (2000), without peepholes.
"""

from __future__ import annotations

from typing import Tuple

import torch
import torch.nn.functional as F

from lstmprof.implementations import torch as layers
from lstmprof.implementations.torch import canonical, load, parameters
from lstmprof.workloads import Workload

__all__ = ["KERNELS", "TIME_MAJOR", "build", "canonical", "load", "parameters"]

TIME_MAJOR = True
KERNELS = (("aten::sigmoid", "separate ATen operators"),)


class Cell(torch.nn.Module):  # type: ignore[misc]
    """One time step of one direction of one layer."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.weight_ih = torch.nn.Parameter(torch.empty(4 * hidden, inputs))
        self.weight_hh = torch.nn.Parameter(torch.empty(4 * hidden, hidden))
        self.bias = torch.nn.Parameter(torch.empty(4 * hidden))

    def forward(
        self, x: torch.Tensor, state: Tuple[torch.Tensor, torch.Tensor]
    ) -> Tuple[torch.Tensor, torch.Tensor]:
        """Return the next (h, c), each (batch, hidden)."""
        h, c = state
        gates = F.linear(x, self.weight_ih, self.bias) + F.linear(h, self.weight_hh)
        i, f, g, o = gates.chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c


def build(workload: Workload) -> layers.Layers:
    return layers.Layers(workload, Cell)
