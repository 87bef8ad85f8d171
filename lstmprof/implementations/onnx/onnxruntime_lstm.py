"""onnxruntime-lstm: ONNX's LSTM in ONNX Runtime; forward pass only.

::

    i, o, f, c = W x_t + Wb + R h_{t−1} + Rb        (gates in this order, two biases)
    c_t = σ(f) ⊙ c_{t−1} + σ(i) ⊙ tanh(c)
    h_t = σ(o) ⊙ tanh(c_t)

``implementations.onnx`` defines the graph and the layout of the weights. On a CPU, an LSTM node is
one kernel, which computes one matmul with the inputs of all time steps, then a small matmul per
time step. Source: onnxruntime/core/providers/cpu/rnn/deep_cpu_lstm.cc.
"""

from __future__ import annotations

from lstmprof.implementations.onnx import build, canonical, forward, load, parameters

__all__ = ["KERNELS", "TIME_MAJOR", "build", "canonical", "forward", "load", "parameters"]

TIME_MAJOR = True
KERNELS = tuple(("::" + name, "ONNX Runtime's own") for name in ("LSTM", "GRU", "RNN"))
