"""torch-compile-layer: a network with torch.nn.LSTM under torch.compile, as users write it.

::

    i, f, g, o = W x_t + b_ih + U h_{t−1} + b_hh        (gates in this order, two biases)
    c_t = σ(f) ⊙ c_{t−1} + σ(i) ⊙ tanh(g)
    h_t = σ(o) ⊙ tanh(c_t)

The network is that of torch-nn-lstm with ``module.compile()``. torch.compile breaks its graph at
torch.nn.LSTM, GRU and RNN, because ``torch._dynamo.config.allow_rnn`` is False by default, so these
layers run the same kernels as without it. Source: torch/_dynamo/config.py; the documentation of
torch.nn.Module.compile.
"""

from __future__ import annotations

from lstmprof.implementations.torch import nn_lstm, parameters
from lstmprof.implementations.torch.nn_lstm import canonical, load
from lstmprof.workloads import Workload

__all__ = ["KERNELS", "TIME_MAJOR", "build", "canonical", "load", "parameters"]

TIME_MAJOR = True
KERNELS = tuple(
    (operator, kernels + ", torch.compile left the layer as it is")
    for operator, kernels in nn_lstm.KERNELS
)


def build(workload: Workload) -> nn_lstm.Network:
    module = nn_lstm.build(workload)
    module.compile()
    return module
