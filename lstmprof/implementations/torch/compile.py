"""torch-compile: the hand-written cell under torch.compile, in a Python loop over time steps.

::

    i, f, g, o = W x_t + U h_{t−1} + b        (gates in this order, one bias)
    c_t = σ(f) ⊙ c_{t−1} + σ(i) ⊙ tanh(g)
    h_t = σ(o) ⊙ tanh(c_t)

Cell and weights are those of torch-lstmcell-basic. Only the cell is compiled, not the loop, because
torch.compile unrolls loops: it took 84 s to compile a loop over 100 time steps, and 13 s to compile
the cell (torch 2.13, CPU). Inductor, the compiler's backend, fuses the elementwise part; on a CPU
it calls a C++ compiler. Source: the documentation of torch.compile.
"""

from __future__ import annotations

from lstmprof.implementations import torch as layers
from lstmprof.implementations.torch import lstmcell_basic, parameters
from lstmprof.implementations.torch.lstmcell_basic import canonical, load
from lstmprof.workloads import Workload

__all__ = ["KERNELS", "TIME_MAJOR", "build", "canonical", "load", "parameters"]

TIME_MAJOR = True
KERNELS = (("Torch-Compiled Region: 0/0", "Inductor"), ("CompiledFunction", "Inductor"))


def build(workload: Workload) -> layers.Layers:
    module = lstmcell_basic.build(workload)
    for cell in module.cells.values():
        cell.compile(dynamic=False)
    return module
