"""torch-aot-inductor: torch.nn.LSTM, exported and compiled ahead of time; forward pass only.

::

    i, f, g, o = W x_t + b_ih + U h_{t−1} + b_hh        (gates in this order, two biases)
    c_t = σ(f) ⊙ c_{t−1} + σ(i) ⊙ tanh(g)
    h_t = σ(o) ⊙ tanh(c_t)

The network is that of torch-nn-lstm. At the first call, ``torch.export`` exports it as one graph
for the shape of the inputs, and AOTInductor compiles the graph to a C++ library with the weights.
On a CPU the library calls oneDNN's LSTM; on a GPU Inductor would split the layer into time steps.
The library reports each kernel to torch.profiler (``cpp.enable_kernel_profile``); otherwise a
profile would show a single call. Source: the documentation of torch.export and of AOTInductor.
"""

from __future__ import annotations

import tempfile
from typing import Any, Iterator, List, Optional, Tuple

import torch

from lstmprof.base.errors import CaptureError
from lstmprof.implementations.torch import nn_lstm, parameters
from lstmprof.implementations.torch.nn_lstm import canonical, load
from lstmprof.workloads import Workload

__all__ = ["KERNELS", "TIME_MAJOR", "build", "canonical", "load", "op_inputs", "parameters"]

TIME_MAJOR = True
KERNELS = (("aoti_torch_cpu_mkldnn_rnn_layer", "oneDNN, called by AOTInductor's library"),)
OPTIONS = {"cpp.enable_kernel_profile": True}
#: Functions in the compiled library: one direction of an LSTM layer, and a matmul.
LAYER, PRODUCT = "aoti_torch_cpu_mkldnn_rnn_layer", "aoti_torch_cpu_mm_out"


class Network(nn_lstm.Network):
    """A network that compiles itself at its first call."""

    def __init__(self, workload: Workload) -> None:
        super().__init__(workload)
        self.workload = workload
        self.exported: Any = None
        self.compiled: Any = None

    def forward(self, inputs: torch.Tensor, lengths: Optional[torch.Tensor] = None) -> torch.Tensor:
        """Map inputs (time, batch[, features]) to outputs ([time,] batch, classes)."""
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
    return Network(workload)


def op_inputs(module: Network) -> Iterator[Tuple[str, List[Any], List[str]]]:
    """Yield (op, input shapes, dtypes) of each LSTM layer and matmul on a CPU."""
    # read the shapes from the graph, because a profile has only names of functions
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
    """Return the fake tensors of graph nodes, which have shapes and dtypes."""
    nodes = argument if isinstance(argument, (list, tuple)) else [argument]
    return [node.meta["val"] for node in nodes]


def _type(tensor: Any) -> str:
    return str(tensor.dtype).replace("torch.", "")
