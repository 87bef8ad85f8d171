"""caffe2-lstm: caffe2.python.rnn_cell.LSTM, one ``RecurrentNetwork`` operator per layer.

::

    i, f, o, g = W x_t + b_i2h + U h_{t−1} + b_gates        (gates in this order, two biases)
    c_t = σ(f) ⊙ c_{t−1} + σ(i) ⊙ tanh(g)
    h_t = σ(o) ⊙ tanh(c_t)

One ``FC`` operator multiplies the inputs of all time steps by W. For every time step,
``RecurrentNetwork`` runs ``FC``, ``Sum`` and ``LSTMUnit``, which a profile does not show. W is
``l{k}/i2h_w`` (4·hidden, inputs), U is ``l{k}/gates_t_w`` (4·hidden, hidden). The second bias,
``l{k}/gates_t_b``, starts at zero. No forget bias is added. Source: caffe2/python/rnn_cell.py of
PyTorch 1.4 and 1.8.
"""

from __future__ import annotations

from typing import Any, Dict, Mapping

import numpy as np
from caffe2.python import core, rnn_cell, workspace
from caffe2.python.model_helper import ModelHelper
from caffe2.python.modeling.initializers import Initializer

from lstmprof.workloads import Workload, reordered

TIME_MAJOR = True
KERNELS = (("caffe2::RecurrentNetwork", "Caffe2's operator RecurrentNetwork"),)
#: Indices that convert gate order i f g o to Caffe2's i f o g, and back.
ORDER = (0, 1, 3, 2)
KINDS = {"i2h_w": "weight_ih", "gates_t_w": "weight_hh", "i2h_b": "bias", "gates_t_b": None}


class Network:
    def __init__(self, workload: Workload) -> None:
        core.GlobalInit(["caffe2", "--caffe2_log_level=2"])
        workspace.ResetWorkspace()
        self.workload, self.model = workload, ModelHelper(name="lstmprof")
        state = np.zeros((1, workload.batch, workload.hidden), np.float32)
        for name in ("first_hidden", "first_cell"):
            workspace.FeedBlob(name, state)
        lengths = np.full(workload.batch, workload.time_steps, np.int32)
        workspace.FeedBlob("lengths", lengths)
        self.outputs = self._headed(self._last_layer())  # a blob (tensor)
        workspace.RunNetOnce(self.model.param_init_net)

    def _last_layer(self) -> Any:
        """Return the last layer's outputs (time, batch, hidden), or the last step (1, …)."""
        w, steps = self.workload, "inputs"
        for layer in range(w.layers):
            whole = w.every_step or layer < w.layers - 1
            every_step, last, _, _ = rnn_cell.LSTM(
                self.model,
                steps,
                "lengths",
                ("first_hidden", "first_cell"),
                w.hidden if layer else w.features,
                w.hidden,
                "l{}".format(layer),
                outputs_with_grads=(0,) if whole else (1,),
                forget_bias=0.0,
            )
            steps = every_step if whole else last
        return steps

    def _headed(self, steps: Any) -> Any:
        """Return the head's outputs (batch, classes), or (time, batch, classes)."""
        w, net = self.workload, self.model.net
        flat = net.Reshape([steps], ["flat", "steps_shape"], shape=[-1, w.hidden])[0]
        if w.head:
            filled = Initializer("ConstantFill")
            shape = [w.classes, w.hidden]
            weight = self.model.create_param("head_w", shape=shape, initializer=filled)
            flat = net.MatMul([flat, weight], "headed", trans_b=1)
        if not w.every_step:
            return flat
        whole = [w.time_steps, w.batch, w.classes]
        return net.Reshape([flat], ["outputs", "flat_shape"], shape=whole)[0]


def build(workload: Workload) -> Network:
    return Network(workload)


def _shared_names(module: Network) -> Dict[str, Any]:
    """Map Caffe2's names to lstmprof's (``weight_ih_l0``), and second biases to None."""
    names: Dict[str, Any] = {"head_w": "head"} if module.workload.head else {}
    for layer in range(module.workload.layers):
        for own, kind in KINDS.items():
            name = "l{}/{}".format(layer, own)
            names[name] = kind and "{}_l{}".format(kind, layer)
    return names


def parameters(module: Network) -> Dict[str, Any]:
    return {name: name for name in _shared_names(module)}


def load(module: Network, weights: Mapping[str, Any]) -> None:
    for name, shared in _shared_names(module).items():
        if shared is None:
            array = np.zeros(4 * module.workload.hidden, np.float32)
        else:
            array = weights[shared] if shared == "head" else reordered(weights[shared], ORDER)
        workspace.FeedBlob(name, array)


def canonical(module: Network, arrays: Mapping[str, Any]) -> Dict[str, Any]:
    return {
        shared: arrays[name] if shared == "head" else reordered(arrays[name], ORDER)
        for name, shared in _shared_names(module).items()
        if shared is not None
    }
