"""torch-aot-inductor: torch.nn.LSTM, exported and compiled ahead of time, run forward.

::

    i, f, g, o = W x_t + b_ih + U h_{t−1} + b_hh        (gates in this order, two biases)
    c_t = σ(f) ⊙ c_{t−1} + σ(i) ⊙ tanh(g)
    h_t = σ(o) ⊙ tanh(c_t)

The network, its weights and their layout are those of ``torch.cudnn``. ``torch.export`` takes it as
one graph, AOTInductor makes a C++ library of it, which holds the weights and runs without Python;
both happen at the first call, for its inputs' shape. The layer stays the vendor's operator, called
from C++. The library tells torch.profiler of each kernel (``cpp.enable_kernel_profile``), or it
would be seen as one call. Source: the documentation of torch.export and of AOTInductor.
"""

from __future__ import annotations

import tempfile
from typing import Any, Optional

import torch

from lstmprof.errors import CaptureError
from lstmprof.implementations.torch import cudnn, parameters
from lstmprof.implementations.torch.cudnn import canonical, load
from lstmprof.workloads import Workload

__all__ = ["KERNELS", "TIME_MAJOR", "build", "canonical", "load", "parameters"]

TIME_MAJOR = True
KERNELS = (
    ("aoti_torch_cuda__cudnn_rnn", "cuDNN, called by AOTInductor's library"),
    ("aoti_torch_cpu_mkldnn_rnn_layer", "oneDNN, called by AOTInductor's library"),
)
OPTIONS = {"cpp.enable_kernel_profile": True}


class Network(cudnn.Network):
    """A network that compiles itself at its first call."""

    def __init__(self, workload: Workload) -> None:
        super().__init__(workload)
        self.workload = workload
        self.compiled: Any = None

    def forward(self, inputs: torch.Tensor, lengths: Optional[torch.Tensor] = None) -> torch.Tensor:
        """Inputs (time, batch, features) or tokens; outputs (batch, classes), or one a step."""
        if self.compiled is None:
            self.compiled = self._compiled(inputs)
        return self.compiled(inputs)

    def _compiled(self, inputs: torch.Tensor) -> Any:
        inductor = torch._inductor
        if not hasattr(inductor, "aoti_load_package"):
            raise CaptureError(
                "torch {} does not load what AOTInductor compiled".format(torch.__version__),
                "install torch 2.6 or newer",
            )
        plain = cudnn.Network(self.workload).to(inputs.device).eval()
        plain.load_state_dict(self.state_dict())
        place = "{}/network.pt2".format(tempfile.mkdtemp())
        with torch.no_grad():
            exported = torch.export.export(plain, (inputs,))
            inductor.aoti_compile_and_package(
                exported, package_path=place, inductor_configs=dict(OPTIONS)
            )
        return inductor.aoti_load_package(place)


def build(workload: Workload) -> Network:
    """The network of ``workload``, weights not yet set; compiled at its first call."""
    return Network(workload)
