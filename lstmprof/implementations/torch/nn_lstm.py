"""torch-nn-lstm: torch.nn.LSTM, all layers and time steps in one call.

::

    i, f, g, o = W x_t + b_ih + U h_{t−1} + b_hh        (gates in this order, two biases)
    c_t = σ(f) ⊙ c_{t−1} + σ(i) ⊙ tanh(g)
    h_t = σ(o) ⊙ tanh(c_t)

On a GPU, cuDNN computes the layer; on a CPU, oneDNN does if it can (before torch 2.0, only without
gradients), else ATen's loop. W is ``weight_ih_l{k}[_reverse]`` (4·hidden, inputs). ``bias_hh``
starts at zero.

Sequences of variable length become a PackedSequence, which PyTorch sorts and unsorts in every step.
cuDNN then always uses its standard algorithm; on a CPU, ATen uses its own loop.

``cell="gru"`` is torch.nn.GRU (gates r z n, the reset gate after the matmul), ``cell="rnn"`` is
torch.nn.RNN with tanh. Source: the documentation of torch.nn.LSTM, GRU and RNN; the ASR study
(arXiv:1806.01818).
"""

from __future__ import annotations

import inspect
from typing import Optional

import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from lstmprof.implementations import torch as layers
from lstmprof.implementations.torch import canonical, load, parameters
from lstmprof.workloads import Workload

__all__ = ["KERNELS", "TIME_MAJOR", "build", "canonical", "load", "parameters"]

TIME_MAJOR = True
KERNELS = (
    ("aten::_cudnn_rnn", "cuDNN"),
    ("aten::miopen_rnn", "MIOpen"),
    ("aten::mkldnn_rnn_layer", "oneDNN"),
    ("aten::lstm", "ATen"),
    ("aten::gru", "ATen"),
    ("aten::rnn_tanh", "ATen"),
)
#: Whether ``pack_padded_sequence`` can sort sequences by length (not in PyTorch 1.0).
SORTS = "enforce_sorted" in inspect.signature(pack_padded_sequence).parameters
LAYERS = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU, "rnn": torch.nn.RNN}


class Network(torch.nn.Module):  # type: ignore[misc]
    def __init__(self, workload: Workload) -> None:
        super().__init__()
        self.every_step = workload.every_step
        self.embedding = layers.embedding(workload)
        self.lstm = LAYERS[workload.cell](
            workload.features,
            workload.hidden,
            workload.layers,
            bidirectional=workload.bidirectional,
        )
        self.head = layers.head(workload)

    def forward(self, inputs: torch.Tensor, lengths: Optional[torch.Tensor] = None) -> torch.Tensor:
        """Map inputs (time, batch[, features]) to outputs ([time,] batch, classes)."""
        inputs = self.embedding(inputs)
        if lengths is None:
            outputs, _ = self.lstm(inputs)
        else:
            outputs = self._packed(inputs, lengths)
        return self.head(outputs if self.every_step else layers.last(outputs, lengths))

    def _packed(self, inputs: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """Run the LSTM on a PackedSequence; return padded outputs (time, batch, width)."""
        if SORTS:
            packed = pack_padded_sequence(inputs, lengths, enforce_sorted=False)
            return pad_packed_sequence(self.lstm(packed)[0], total_length=len(inputs))[0]
        longest_first = lengths.sort(descending=True)[1]
        packed = pack_padded_sequence(inputs[:, longest_first], lengths[longest_first])
        outputs, _ = pad_packed_sequence(self.lstm(packed)[0], total_length=len(inputs))
        return outputs[:, longest_first.sort()[1]]

    def shared_names(self) -> layers.Names:
        """Map PyTorch's names to lstmprof's, and second biases (``bias_hh_l0``) to None."""
        return {
            "lstm." + key: None if key.startswith("bias_hh") else key.replace("bias_ih", "bias")
            for key, _ in self.lstm.named_parameters()
        }


def build(workload: Workload) -> Network:
    return Network(workload)
