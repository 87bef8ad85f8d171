"""mxnet-gluon-lstm: mxnet.gluon.rnn.LSTM, all layers and time steps in one operator, ``RNN``.

::

    i, f, g, o = W x_t + b_i2h + U h_{t−1} + b_h2h        (gates in this order, two biases)
    c_t = σ(f) ⊙ c_{t−1} + σ(i) ⊙ tanh(g)
    h_t = σ(o) ⊙ tanh(c_t)

In every step, MXNet concatenates all weights to one vector (``_rnn_param_concat``). On a CPU,
oneDNN computes the layer if MXNet was built with it; otherwise MXNet's own loop does.
``cell="gru"`` is gluon.rnn.GRU (gates r z n, the reset gate after the matmul), ``cell="rnn"`` is
gluon.rnn.RNN with tanh. Source: the documentation of mxnet.gluon.rnn, MXNet 1.9.1.
"""

from __future__ import annotations

from typing import Any

import mxnet as mx

from lstmprof.implementations import mxnet as ends
from lstmprof.implementations.mxnet import canonical, load, parameters
from lstmprof.workloads import Workload

__all__ = ["KERNELS", "TIME_MAJOR", "build", "canonical", "load", "parameters"]

TIME_MAJOR = True
KERNELS = (('"RNN"', "MXNet's operator RNN"),)
LAYERS = {"lstm": mx.gluon.rnn.LSTM, "gru": mx.gluon.rnn.GRU, "rnn": mx.gluon.rnn.RNN}


class Network(ends.Ends):
    def __init__(self, workload: Workload) -> None:
        super().__init__(workload)
        tanh = {"activation": "tanh"} if workload.cell == "rnn" else {}
        self.lstm = LAYERS[workload.cell](
            workload.hidden,
            workload.layers,
            bidirectional=workload.bidirectional,
            input_size=workload.features,
            prefix="",
            **tanh,
        )

    def forward(self, inputs: Any) -> Any:
        """Map inputs (time, batch[, features]) to outputs ([time,] batch, classes)."""
        outputs = self.lstm(self.embedded(inputs))
        if not self.every_step:
            # avoid mx.nd.SequenceLast, whose backward pass crashes the process in MXNet 1.9.1
            outputs = mx.nd.slice_axis(outputs, axis=0, begin=-1, end=None).reshape((-3, 0))
        return self.headed(outputs)


def build(workload: Workload) -> Network:
    return Network(workload)
