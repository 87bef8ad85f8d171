"""mxnet-gluon-lstmcell: mxnet.gluon.rnn.LSTMCell, unrolled over the time steps, run eagerly.

::

    i, f, g, o = W x_t + b_i2h + U h_{t−1} + b_h2h        (gates in this order, two biases)
    c_t = σ(f) ⊙ c_{t−1} + σ(i) ⊙ tanh(g)
    h_t = σ(o) ⊙ tanh(c_t)

A cell runs two matmuls and eleven other operators per time step. ``valid_length`` masks the outputs
after a sequence's end. ``cell="gru"`` is GRUCell (gates r z n, the reset gate after the matmul),
``cell="rnn"`` is RNNCell with tanh. Source: the documentation of mxnet.gluon.rnn, MXNet 1.9.1.
"""

from __future__ import annotations

from typing import Any, Optional

import mxnet as mx

from lstmprof.implementations import mxnet as ends
from lstmprof.implementations.mxnet import canonical, load, parameters
from lstmprof.workloads import Workload

__all__ = ["KERNELS", "TIME_MAJOR", "build", "canonical", "load", "parameters"]

TIME_MAJOR = True
KERNELS = (('"FullyConnected"', "separate operators of MXNet"),)
CELLS = {"lstm": mx.gluon.rnn.LSTMCell, "gru": mx.gluon.rnn.GRUCell, "rnn": mx.gluon.rnn.RNNCell}


class Network(ends.Ends):
    def __init__(self, workload: Workload) -> None:
        super().__init__(workload)
        self.time_steps = workload.time_steps
        self.cells = mx.gluon.rnn.SequentialRNNCell(prefix="")
        for layer in range(workload.layers):
            size = workload.directions * workload.hidden if layer else workload.features
            cells = [
                CELLS[workload.cell](
                    workload.hidden, input_size=size, prefix="{}{}_".format(side, layer)
                )
                for side in "lr"[: workload.directions]
            ]
            both = len(cells) == 2
            self.cells.add(mx.gluon.rnn.BidirectionalCell(*cells) if both else cells[0])

    def forward(self, inputs: Any, lengths: Optional[Any] = None) -> Any:
        """Map inputs (time, batch[, features]) to outputs ([time,] batch, classes)."""
        outputs, _ = self.cells.unroll(
            self.time_steps,
            self.embedded(inputs),
            layout="TNC",
            merge_outputs=self.every_step or lengths is not None,
            valid_length=lengths,
        )
        if self.every_step:
            return self.headed(outputs)
        if lengths is None:
            return self.headed(outputs[-1])
        return self.headed(mx.nd.SequenceLast(outputs, lengths, use_sequence_length=True))


def build(workload: Workload) -> Network:
    return Network(workload)
