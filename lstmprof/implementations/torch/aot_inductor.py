"""torch-aot-inductor: torch.nn.LSTM, exported and compiled ahead of time, run forward.

::

    i, f, g, o = W x_t + b_ih + U h_{t−1} + b_hh        (gates in this order, two biases)
    c_t = σ(f) ⊙ c_{t−1} + σ(i) ⊙ tanh(g)
    h_t = σ(o) ⊙ tanh(c_t)

The network, its weights and their layout are torch.nn_lstm's. ``torch.export`` takes it as
one graph, AOTInductor makes a C++ library of it, which holds the weights and runs without Python;
both happen at the first call, for its inputs' shape. On a CPU the layer stays the vendor's
operator, called from C++; on a GPU Inductor splits it into time steps, so it is refused there. The
library tells torch.profiler of each kernel (``cpp.enable_kernel_profile``), or it would be seen as
one call. Source: the documentation of torch.export and of AOTInductor.
"""

from __future__ import annotations

import tempfile
from typing import Any, Iterator, List, Optional, Tuple

import torch

from lstmprof.errors import CaptureError
from lstmprof.implementations.torch import nn_lstm, parameters
from lstmprof.implementations.torch.nn_lstm import canonical, load
from lstmprof.workloads import Workload

__all__ = ["KERNELS", "TIME_MAJOR", "build", "canonical", "load", "op_inputs", "parameters"]

TIME_MAJOR = True
KERNELS = (("aoti_torch_cpu_mkldnn_rnn_layer", "oneDNN, called by AOTInductor's library"),)
OPTIONS = {"cpp.enable_kernel_profile": True}
#: The library's functions on a CPU for a layer and direction of an LSTM, and for a matmul.
LAYER, PRODUCT = "aoti_torch_cpu_mkldnn_rnn_layer", "aoti_torch_cpu_mm_out"


class Network(nn_lstm.Network):
    """A network that compiles itself at its first call."""

    def __init__(self, workload: Workload) -> None:
        super().__init__(workload)
        self.workload = workload
        self.exported: Any = None
        self.compiled: Any = None

    def forward(self, inputs: torch.Tensor, lengths: Optional[torch.Tensor] = None) -> torch.Tensor:
        """Return outputs (batch, classes), or one per step, for (time, batch, …) or tokens."""
        if self.compiled is None:
            self.compiled = self._compiled(inputs)
        return self.compiled(inputs)

    def _compiled(self, inputs: torch.Tensor) -> Any:
        inductor = torch._inductor
        if not hasattr(inductor, "aoti_load_package"):
            raise CaptureError(
                "torch {} cannot load AOTInductor packages".format(torch.__version__),
                "install torch 2.6 or newer",
            )
        plain = nn_lstm.Network(self.workload).to(inputs.device).eval()
        plain.load_state_dict(self.state_dict())
        place = "{}/network.pt2".format(tempfile.mkdtemp())
        with torch.no_grad():
            self.exported = torch.export.export(plain, (inputs,))
            inductor.aoti_compile_and_package(
                self.exported, package_path=place, inductor_configs=dict(OPTIONS)
            )
        return inductor.aoti_load_package(place)


def build(workload: Workload) -> Network:
    """Return the network of ``workload`` without its weights; its first call compiles it."""
    return Network(workload)


def op_inputs(module: Network) -> Iterator[Tuple[str, List[Any], List[str]]]:
    """Yield shapes and types of the inputs of the library's layers and matmuls on a CPU.

    They come from the exported program, in its order, because the library gives only names to the
    profiler. An LSTM is one op per layer and direction there.
    """
    for node in module.exported.graph.nodes if module.exported is not None else ():
        if node.target is torch.ops.aten.lstm.input:
            data, _, parameters_of_layers = (_tensors(argument) for argument in node.args[:3])
            matrices = [tensor for tensor in parameters_of_layers if tensor.dim() == 2]
            for place in range(0, len(matrices), 2):
                into, back = matrices[place : place + 2]
                inputs = [[*data[0].shape[:2], into.shape[1]], list(into.shape), list(back.shape)]
                yield LAYER, inputs, [_type(tensor) for tensor in (data[0], into, back)]
        elif node.target is torch.ops.aten.linear.default:
            (rows,), (weight,) = (_tensors(argument) for argument in node.args[:2])
            inputs = [list(rows.shape), list(weight.shape[::-1])]
            yield PRODUCT, inputs, [_type(rows), _type(weight)]


def _tensors(argument: Any) -> List[Any]:
    """Return the facts about the tensors that an argument is, or is a list of."""
    nodes = argument if isinstance(argument, (list, tuple)) else [argument]
    return [node.meta["val"] for node in nodes]


def _type(tensor: Any) -> str:
    return str(tensor.dtype).replace("torch.", "")
