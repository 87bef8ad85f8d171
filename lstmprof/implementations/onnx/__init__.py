"""The network as an ONNX graph, for inference engines: forward passes only.

::

    i, o, f, c = W x_t + Wb + R h_{t−1} + Rb        (gates in this order, two biases)
    c_t = σ(f) ⊙ c_{t−1} + σ(i) ⊙ tanh(c)
    h_t = σ(o) ⊙ tanh(c_t)

Each layer, with all its directions, is one node: LSTM, GRU or RNN. W is ``W_l{k}`` (directions,
4·hidden, inputs), R is ``R_l{k}`` (directions, 4·hidden, hidden). ``B_l{k}`` (directions, 8·hidden)
is Wb, followed by Rb, which is zero. Time-major. GRU has the gates z r n and
``linear_before_reset``; RNN uses tanh. Source: ONNX's specification of LSTM, GRU and RNN (opset
14).
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Tuple

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from lstmprof.workloads import GATES, Workload, reordered

#: Versions of ONNX's operators and of ONNX's file format that all recent engines read.
OPSET, IR_VERSION = 17, 8
#: Cell -> indices that convert gate order to ONNX's: i f g o to i o f c, r z n to z r n.
#: ``BACK`` contains the inverse indices.
GATE_POSITIONS: Mapping[str, Tuple[int, ...]] = {
    "lstm": (0, 3, 1, 2),
    "gru": (1, 0, 2),
    "rnn": (0,),
}
BACK: Mapping[str, Tuple[int, ...]] = {"lstm": (0, 2, 3, 1), "gru": (1, 0, 2), "rnn": (0,)}
NODES = {"lstm": "LSTM", "gru": "GRU", "rnn": "RNN"}
FORWARD = "forward/"


class Network:
    """The weights, by their names in the graph."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.arrays: Dict[str, Any] = {}


def build(workload: Workload) -> Network:
    return Network(workload)


def parameters(module: Network) -> Dict[str, Any]:
    return dict(module.arrays)


def _suffixes(workload: Workload) -> Tuple[str, ...]:
    return ("", "_reverse")[: workload.directions]


def load(module: Network, weights: Mapping[str, Any]) -> None:
    """Copy the weights; the second biases become zero."""
    workload = module.workload
    if workload.vocabulary:
        module.arrays["embedding"] = weights["embedding"]
    for layer in range(workload.layers):
        for own, shared in (("W", "weight_ih"), ("R", "weight_hh"), ("B", "bias")):
            name = "_l{}".format(layer)
            parts = [
                reordered(weights[shared + name + suffix], GATE_POSITIONS[workload.cell])
                for suffix in _suffixes(workload)
            ]
            if own == "B":
                parts = [np.concatenate([part, np.zeros_like(part)]) for part in parts]
            module.arrays[own + name] = np.stack(parts)
    if workload.head:
        module.arrays["head"] = np.ascontiguousarray(weights["head"].T)


def canonical(module: Network, arrays: Mapping[str, Any]) -> Dict[str, Any]:
    workload, shared = module.workload, {}
    if "embedding" in arrays:
        shared["embedding"] = arrays["embedding"]
    for layer in range(workload.layers):
        for own, name in (("W", "weight_ih"), ("R", "weight_hh"), ("B", "bias")):
            for direction, suffix in enumerate(_suffixes(workload)):
                rows = arrays["{}_l{}".format(own, layer)][direction]
                rows = rows[: GATES[workload.cell] * workload.hidden]
                place = "{}_l{}{}".format(name, layer, suffix)
                shared[place] = reordered(rows, BACK[workload.cell])
    if "head" in arrays:
        shared["head"] = arrays["head"].T
    return shared


class Graph:
    """An ONNX graph under construction."""

    def __init__(self) -> None:
        self.nodes: List[Any] = []
        self.constants: List[Any] = []

    def node(self, operator: str, name: str, *inputs: str, **attributes: Any) -> str:
        """Add a node; its only output has the node's name."""
        node = helper.make_node(operator, list(inputs), [name], name=name, **attributes)
        self.nodes.append(node)
        return name

    def constant(self, name: str, array: Any) -> str:
        self.constants.append(numpy_helper.from_array(np.array(array, order="C"), name))
        return name


def forward(module: Network, graph: Graph) -> str:
    """Add the network's nodes to a graph; return the name of the outputs."""
    workload = module.workload
    for name, array in module.arrays.items():
        graph.constant(name, array)
    steps = "inputs"  # (time, batch, features), or tokens (time, batch)
    if workload.vocabulary:
        steps = graph.node("Gather", FORWARD + "embedding", "embedding", steps)
    for layer in range(workload.layers):
        steps = _layer(workload, graph, layer, steps)
    if not workload.every_step:
        steps = _last(workload, graph, steps)
    return graph.node("MatMul", FORWARD + "head", steps, "head") if workload.head else steps


def _layer(workload: Workload, graph: Graph, layer: int, steps: str) -> str:
    """Add a layer's nodes; return the name of its outputs (time, batch, width)."""
    slot = "l{}".format(layer)
    options: Dict[str, Any] = {"linear_before_reset": 1} if workload.cell == "gru" else {}
    inputs = [steps, *("{}_{}".format(own, slot) for own in ("W", "R", "B"))]
    outputs = graph.node(
        NODES[workload.cell],
        FORWARD + slot,
        *inputs,
        *(["lengths"] if workload.variable_length else []),
        hidden_size=workload.hidden,
        direction="bidirectional" if workload.bidirectional else "forward",
        **options,
    )
    turned = graph.node("Transpose", FORWARD + slot + "/turned", outputs, perm=[0, 2, 1, 3])
    shape = graph.constant(slot + "/shape", np.array([0, 0, -1], np.int64))
    return graph.node("Reshape", FORWARD + slot + "/joined", turned, shape)


def _last(workload: Workload, graph: Graph, steps: str) -> str:
    """Add nodes that select each sequence's last time step."""
    if not workload.variable_length:
        last = graph.constant("last", np.array(-1, np.int64))
        return graph.node("Gather", FORWARD + "last", steps, last, axis=0)
    one, axis = (graph.constant(name, np.array([1], np.int64)) for name in ("one", "axis"))
    lengths = graph.node("Cast", FORWARD + "lengths", "lengths", to=TensorProto.INT64)
    ends = graph.node("Sub", FORWARD + "ends", lengths, one)
    places = graph.node("Unsqueeze", FORWARD + "places", ends, axis)
    by_batch = graph.node("Transpose", FORWARD + "by_batch", steps, perm=[1, 0, 2])
    return graph.node("GatherND", FORWARD + "last", by_batch, places, batch_dims=1)


def serialized(graph: Graph, inputs: Mapping[str, Any], outputs: List[str]) -> bytes:
    """Return the graph as an ONNX file."""
    values = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
        )
        for name, array in inputs.items()
    ]
    returned = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs]
    whole = helper.make_graph(graph.nodes, "lstmprof", values, returned, graph.constants)
    opset = helper.make_opsetid("", OPSET)
    model = helper.make_model(whole, opset_imports=[opset], ir_version=IR_VERSION)
    content: bytes = model.SerializeToString()
    return content
