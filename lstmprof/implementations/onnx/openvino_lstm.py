"""openvino-lstm: ONNX's LSTM, run forward by OpenVINO.

::

    i, o, f, c = W x_t + Wb + R h_{t−1} + Rb        (gates in this order, two biases)
    c_t = σ(f) ⊙ c_{t−1} + σ(i) ⊙ tanh(c)
    h_t = σ(o) ⊙ tanh(c_t)

Graph, weights and their layout are those of ``implementations.onnx``; OpenVINO reads ONNX by
itself, makes a node LSTMSequence of every direction of a layer and, on a CPU, gives it to oneDNN.
Source: src/plugins/intel_cpu/src/nodes/rnn.cpp of OpenVINO.
"""

from __future__ import annotations

from lstmprof.implementations.onnx import build, canonical, forward, load, parameters

__all__ = ["KERNELS", "TIME_MAJOR", "build", "canonical", "forward", "load", "parameters"]

TIME_MAJOR = True
KERNELS = tuple(
    ("::" + name, "oneDNN, by OpenVINO") for name in ("LSTMSequence", "GRUSequence", "RNNSequence")
)
