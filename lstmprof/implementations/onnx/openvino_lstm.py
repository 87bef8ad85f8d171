"""openvino-lstm: ONNX's LSTM in OpenVINO; forward pass only.

::

    i, o, f, c = W x_t + Wb + R h_{t−1} + Rb        (gates in this order, two biases)
    c_t = σ(f) ⊙ c_{t−1} + σ(i) ⊙ tanh(c)
    h_t = σ(o) ⊙ tanh(c_t)

``implementations.onnx`` defines the graph and the layout of the weights. OpenVINO reads ONNX files
and converts each direction of a layer to an LSTMSequence node, which oneDNN computes on a CPU.
Source: src/plugins/intel_cpu/src/nodes/rnn.cpp of OpenVINO.
"""

from __future__ import annotations

from lstmprof.implementations.onnx import build, canonical, forward, load, parameters

__all__ = ["KERNELS", "TIME_MAJOR", "build", "canonical", "forward", "load", "parameters"]

TIME_MAJOR = True
KERNELS = tuple(
    ("::" + name, "oneDNN, by OpenVINO") for name in ("LSTMSequence", "GRUSequence", "RNNSequence")
)
