"""torch-nn-lstm: torch.nn.LSTM, all layers and time steps in one call.

::

    i, f, g, o = W x_t + b_ih + U h_{t−1} + b_hh        (gates in this order, two biases)
    c_t = σ(f) ⊙ c_{t−1} + σ(i) ⊙ tanh(g)
    h_t = σ(o) ⊙ tanh(c_t)

cuDNN runs it on a GPU. On a CPU oneDNN does where torch was built with it and finds it usable
(torch before 2.0: without gradients only), else ATen's own loop: ``KERNELS`` tells from the
operators of a profile which it was. ``weight_ih_l{k}[_reverse]`` is (4·hidden, inputs); the shared
bias goes into ``bias_ih``, ``bias_hh`` holds zeros and is trained as torch has it.

Sequences of variable length are a PackedSequence, sorted and unsorted in every step, as users have
it; cuDNN then always takes its standard kernels, and on a CPU ATen its own loop.

GRU (gates r z n, the reset gate after the product: ``bias_hh`` of n is no copy of ``bias_ih``) and
RNN (tanh) are torch.nn.GRU and torch.nn.RNN, in the same layout.
Source: the documentation of torch.nn.LSTM, GRU and RNN; the ASR study (arXiv:1806.01818).
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
#: PyTorch 1.0 does not: its users sorted by themselves.
SORTS = "enforce_sorted" in inspect.signature(pack_padded_sequence).parameters
LAYERS = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU, "rnn": torch.nn.RNN}


class Network(torch.nn.Module):  # type: ignore[misc]
    """``lstm`` (for another cell it holds that), ``head`` and, for tokens, ``embedding``."""

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
        """Return outputs (batch, classes), or one per step, for (time, batch, …) or tokens.

        ``lengths`` (batch,) on the host.
        """
        inputs = self.embedding(inputs)
        if lengths is None:
            outputs, _ = self.lstm(inputs)
        else:
            outputs = self._packed(inputs, lengths)
        return self.head(outputs if self.every_step else layers.last(outputs, lengths))

    def _packed(self, inputs: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """Return the layers' outputs over sequences of these lengths, padded again."""
        if SORTS:
            packed = pack_padded_sequence(inputs, lengths, enforce_sorted=False)
            return pad_packed_sequence(self.lstm(packed)[0], total_length=len(inputs))[0]
        longest_first = lengths.sort(descending=True)[1]
        packed = pack_padded_sequence(inputs[:, longest_first], lengths[longest_first])
        outputs, _ = pad_packed_sequence(self.lstm(packed)[0], total_length=len(inputs))
        return outputs[:, longest_first.sort()[1]]

    def shared_names(self) -> layers.Names:
        """Return own name -> shared name of the layers' parameters; ``bias_hh`` has none."""
        return {
            "lstm." + key: None if key.startswith("bias_hh") else key.replace("bias_ih", "bias")
            for key, _ in self.lstm.named_parameters()
        }


def build(workload: Workload) -> Network:
    """Return the network of ``workload`` without its weights."""
    return Network(workload)
