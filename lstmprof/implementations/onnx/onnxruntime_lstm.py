"""onnxruntime-lstm: ONNX's LSTM, run forward by ONNX Runtime.

::

    i, o, f, c = W x_t + Wb + R h_{t−1} + Rb        (gates in this order, two biases)
    c_t = σ(f) ⊙ c_{t−1} + σ(i) ⊙ tanh(c)
    h_t = σ(o) ⊙ tanh(c_t)

Graph, weights and their layout are those of ``implementations.onnx``. On a CPU a node LSTM is one
kernel: the product of all time steps' inputs, then one small product a time step. Source:
onnxruntime/core/providers/cpu/rnn/deep_cpu_lstm.cc.
"""

from __future__ import annotations

from lstmprof.implementations.onnx import build, canonical, forward, load, parameters

__all__ = ["KERNELS", "TIME_MAJOR", "build", "canonical", "forward", "load", "parameters"]

TIME_MAJOR = True
KERNELS = tuple(("::" + name, "ONNX Runtime's own") for name in ("LSTM", "GRU", "RNN"))
