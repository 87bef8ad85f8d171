"""torch-lstmcell-fused: torch.nn.LSTMCell, one call a time step, in a Python loop.

::

    i, f, g, o = W x_t + b_ih + U h_{t−1} + b_hh        (gates in this order, two biases)
    c_t = σ(f) ⊙ c_{t−1} + σ(i) ⊙ tanh(g)
    h_t = σ(o) ⊙ tanh(c_t)

On a GPU the cell's pointwise part is one kernel (``_thnn_fused_lstm_cell``); on a CPU torch runs
separate operators behind one call. ``weight_ih`` is (4·hidden, inputs), ``weight_hh`` (4·hidden,
hidden); the shared bias goes into ``bias_ih``, ``bias_hh`` holds zeros and is trained as torch
has it. Source: the documentation of torch.nn.LSTMCell; the ASR study (arXiv:1806.01818).
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
    """Return the network of ``workload`` without its weights."""
    return layers.Layers(workload, torch.nn.LSTMCell)
