"""torch-lstmcell-fused: torch.nn.LSTMCell, called once per time step from a Python loop.

::

    i, f, g, o = W x_t + b_ih + U h_{t−1} + b_hh        (gates in this order, two biases)
    c_t = σ(f) ⊙ c_{t−1} + σ(i) ⊙ tanh(g)
    h_t = σ(o) ⊙ tanh(c_t)

On a GPU the cell's elementwise part is one kernel (``_thnn_fused_lstm_cell``); on a CPU one call of
the cell runs separate operators. W is ``weight_ih`` (4·hidden, inputs), U is ``weight_hh``
(4·hidden, hidden). ``bias_ih`` gets the bias that all implementations share; ``bias_hh`` starts
at zero and is trained, too.
Source: the documentation of torch.nn.LSTMCell; the ASR study (arXiv:1806.01818).
"""

from __future__ import annotations

import torch

from lstmprof.implementations import torch as layers
from lstmprof.implementations.torch import canonical, load, parameters
from lstmprof.workloads import Workload

__all__ = ["KERNELS", "TIME_MAJOR", "build", "canonical", "load", "parameters"]

TIME_MAJOR = True
KERNELS = (
    ("aten::_thnn_fused_lstm_cell", "ATen fused cell"),
    ("aten::lstm_cell", "ATen cell of separate operators"),
)


def build(workload: Workload) -> layers.Layers:
    return layers.Layers(workload, torch.nn.LSTMCell)
