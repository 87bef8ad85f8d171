"""Common parts of MXNet's networks: Gluon's embedding and head, and the names of parameters.

Weights have the layout of ``workloads``: gates i f g o (MXNet: i f c o), ``i2h_weight`` (4·hidden,
inputs), ``h2h_weight`` (4·hidden, hidden). The second bias, ``h2h_bias``, starts at zero. Names
begin with ``l0_`` (first layer) or ``r0_`` (its reverse direction).
"""

from __future__ import annotations

import re
from typing import Any, Dict, Mapping, Optional

import mxnet as mx
import numpy as np

from lstmprof.workloads import Workload

_ENDS = {"embedding_weight": "embedding", "head_weight": "head"}
_OF_LAYER = re.compile(r"([lr])(\d+)_(i2h|h2h)_(weight|bias)$")
_KINDS = {("i2h", "weight"): "weight_ih", ("h2h", "weight"): "weight_hh", ("i2h", "bias"): "bias"}


class Ends(mx.gluon.Block):  # type: ignore[misc]
    """The embedding (if inputs are tokens) and the output layer, if any."""

    def __init__(self, workload: Workload) -> None:
        super().__init__(prefix="")
        self.every_step = workload.every_step
        width = workload.directions * workload.hidden
        self.embedding: Any = None
        self.head: Any = None
        if workload.vocabulary:
            self.embedding = mx.gluon.nn.Embedding(
                workload.vocabulary, workload.features, prefix="embedding_"
            )
        if workload.head:
            self.head = mx.gluon.nn.Dense(
                workload.classes, use_bias=False, flatten=False, in_units=width, prefix="head_"
            )

    def embedded(self, inputs: Any) -> Any:
        return inputs if self.embedding is None else self.embedding(inputs)

    def headed(self, outputs: Any) -> Any:
        return outputs if self.head is None else self.head(outputs)


def shared_name(name: str) -> Optional[str]:
    """Map MXNet's name to lstmprof's: ``l0_i2h_weight`` -> ``weight_ih_l0``."""
    match = _OF_LAYER.search(name)
    if match is None:
        return _ENDS[name]
    kind = _KINDS.get((match[3], match[4]))
    return kind and "{}_l{}{}".format(kind, match[2], "_reverse" if match[1] == "r" else "")


def parameters(module: Any) -> Dict[str, Any]:
    return dict(module.collect_params().items())


def load(module: Any, weights: Mapping[str, Any]) -> None:
    module.initialize(mx.init.Zero())
    for name, parameter in parameters(module).items():
        shared = shared_name(name)
        if shared is not None:
            parameter.set_data(mx.nd.array(weights[shared]))


def canonical(module: Any, arrays: Mapping[str, Any]) -> Dict[str, Any]:
    names = {name: shared_name(name) for name in arrays}
    return {shared: np.asarray(arrays[name]) for name, shared in names.items() if shared}
