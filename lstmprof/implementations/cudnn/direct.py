"""cudnn-direct: cuDNN's recurrent layers called without a framework, as in DeepBench; GPU only.

::

    lstm   i, f, c̃, o = W x_t + b_W + R h_{t−1} + b_R        (linear layers 0–3, 4–7)
           c_t = σ(f) ⊙ c_{t−1} + σ(i) ⊙ tanh(c̃)
           h_t = σ(o) ⊙ tanh(c_t)
    gru    r, z = σ(W x_t + b_W + R h_{t−1} + b_R)           (linear layers 0–1, 3–4)
           n = tanh(W x_t + b_W + r ⊙ (R h_{t−1} + b_R))     (2, 5)
           h_t = (1 − z) ⊙ n + z ⊙ h_{t−1}
    rnn    h_t = tanh(W x_t + b_W + R h_{t−1} + b_R)         (0, 1)

``weights`` is cuDNN's weight space: one buffer with all matrices (hidden, inputs) and biases, whose
positions cudnnGetRNNWeightParams returns; b_R starts at zero. Time-major. The standard algorithm is
used, as in DeepBench, but not its SKIP_INPUT, which omits the matmul with the inputs. Strict
float32 is FMA_MATH and TF32 is DEFAULT_MATH, as in jaxlib's gpu/rnn_kernels.cc. Source: cuDNN's
documentation of cudnnRNNForward, cudnnRNNBackwardData_v8 and cudnnRNNBackwardWeights_v8;
DeepBench's code/nvidia/rnn_bench.cu.
"""

from __future__ import annotations

import ctypes
from typing import Any, Dict, Mapping, Tuple

import numpy as np

from lstmprof.implementations import cudnn as api
from lstmprof.implementations.cudnn import Cudnn
from lstmprof.implementations.cudnn._runtime import Buffer
from lstmprof.workloads import Workload, parameter_shapes

TIME_MAJOR = True
KERNELS = (("cudnn::RNNForward", "cuDNN, standard algorithm"),)


class Network:
    """The buffers of a network on the GPU, and the cuDNN calls that use the buffers."""

    def __init__(self, workload: Workload, training: bool, tf32: bool) -> None:
        self.workload, self.cudnn = workload, Cudnn.load()
        self.handle = self.cudnn.created("")
        self.rnn = api.rnn_descriptor(self.cudnn, self.handle, workload, tf32)
        place, width = (workload.time_steps, workload.batch), workload.directions * workload.hidden
        self.inputs = self.buffer((*place, workload.features))
        self.outputs = self.buffer((*place, width))
        self.weights = self.buffer((self._weights_size(),))
        self.places = api.places(self.cudnn, self.handle, self.rnn, workload, self.weights)
        self.d_inputs = self.buffer(self.inputs.shape if training else (0,))
        self.d_outputs = self.buffer(self.outputs.shape if training else (0,))
        self.gradients = self.buffer(self.weights.shape if training else (0,))
        arguments = self._arguments(training)
        self.forward = self.cudnn.bound("cudnnRNNForward", arguments)
        self._backward_data = self.cudnn.bound("cudnnRNNBackwardData_v8", arguments)
        self._backward_weights = self.cudnn.bound("cudnnRNNBackwardWeights_v8", arguments)

    def backward(self) -> None:
        """Enqueue the computation of the gradients."""
        # clear the gradients first, because cuDNN adds to the values in the buffer
        self.gradients.zero()
        self._backward_data()
        self._backward_weights()

    def buffer(self, shape: Tuple[int, ...], dtype: Any = np.float32) -> Buffer:
        return Buffer(self.cudnn.runtime, shape, dtype)

    def _weights_size(self) -> int:
        query = {"handle": self.handle, "rnnDesc": self.rnn}
        size = self.cudnn.read_size("cudnnGetRNNWeightSpaceSize", "weightSpaceSize", query)
        return -(-size // 4)

    def _arguments(self, training: bool) -> Dict[str, Any]:
        """Return the arguments of cudnnRNNForward and of both backward functions."""
        w, lengths = self.workload, self.buffer((self.workload.batch,), np.int32)
        lengths.set(np.full(w.batch, w.time_steps))
        mode = api.CUDNN_FWD_MODE_TRAINING if training else api.CUDNN_FWD_MODE_INFERENCE
        states = self.cudnn.tensor((w.layers * w.directions, w.batch, w.hidden))
        arguments = {
            "handle": self.handle,
            "rnnDesc": self.rnn,
            "fwdMode": mode,
            "addGrad": api.CUDNN_WGRAD_MODE_ADD,
            "devSeqLengths": lengths.address,
            "xDesc": api.data_descriptor(self.cudnn, w, w.features),
            "yDesc": api.data_descriptor(self.cudnn, w, self.outputs.shape[-1]),
            "hDesc": states,
            "cDesc": states,
            # pass null, so that h and c begin as zeros
            **dict.fromkeys(("hx", "hy", "dhx", "dhy", "cx", "cy", "dcx", "dcy")),
            **{"x": self.inputs.address, "dx": self.d_inputs.address},
            **{"y": self.outputs.address, "dy": self.d_outputs.address},
            "weightSpaceSize": self.weights.bytes,
            "weightSpace": self.weights.address,
            "dweightSpace": self.gradients.address,
        }
        work, reserve = self._spaces(arguments)
        self.buffers = lengths, work, reserve
        return dict(
            arguments,
            **{"workSpaceSize": work.bytes, "workSpace": work.address},
            **{"reserveSpaceSize": reserve.bytes, "reserveSpace": reserve.address},
        )

    def _spaces(self, arguments: Mapping[str, Any]) -> Tuple[Buffer, Buffer]:
        """Allocate cuDNN's workspace and reserve space."""
        work, reserve = ctypes.c_size_t(), ctypes.c_size_t()
        sizes = {"workSpaceSize": ctypes.byref(work), "reserveSpaceSize": ctypes.byref(reserve)}
        self.cudnn.bound("cudnnGetRNNTempSpaceSizes", dict(arguments, **sizes))()
        return self.buffer((work.value,), np.uint8), self.buffer((reserve.value,), np.uint8)


def build(workload: Workload, training: bool = True, tf32: bool = False) -> Network:
    return Network(workload, training, tf32)


def parameters(module: Network) -> Dict[str, Buffer]:
    """Return all parameters as one buffer."""
    return {"weights": module.weights}


def load(module: Network, weights: Mapping[str, Any]) -> None:
    """Copy the weights; the second biases stay zero."""
    space = np.zeros(module.weights.shape, np.float32)
    for place in module.places:
        space[place.numbers] = np.ravel(weights[place.name][place.rows])
    module.weights.set(space)


def canonical(module: Network, arrays: Mapping[str, Any]) -> Dict[str, Any]:
    shapes = parameter_shapes(module.workload)
    shared = {name: np.empty(shape, np.float32) for name, shape in shapes.items()}
    for place in module.places:
        rows = shared[place.name][place.rows]
        rows[...] = arrays["weights"][place.numbers].reshape(rows.shape)
    return shared
