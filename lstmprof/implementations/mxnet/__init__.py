"""What the networks of MXNet share: Gluon's embedding and head, and the names of parameters.

MXNet keeps the layout of ``workloads``: gates i f g o (it calls them i f c o), ``i2h_weight``
(4·hidden, inputs), ``h2h_weight`` (4·hidden, hidden), two biases, of which the second holds zeros;
``l0_`` is the forward direction of the first layer, ``r0_`` the reverse one.
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
    """The ``embedding``, for tokens, and the ``head``, for a workload that has one."""

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
        """Return features for ``inputs``, which are features or tokens."""
        return inputs if self.embedding is None else self.embedding(inputs)

    def headed(self, outputs: Any) -> Any:
        """Return the head of ``outputs`` (batch, width), or (time, batch, width) of every step."""
        return outputs if self.head is None else self.head(outputs)


def shared_name(name: str) -> Optional[str]:
    """Return the shared name of a parameter; None for a second bias."""
    match = _OF_LAYER.search(name)
    if match is None:
        return _ENDS[name]
    kind = _KINDS.get((match[3], match[4]))
    return kind and "{}_l{}{}".format(kind, match[2], "_reverse" if match[1] == "r" else "")


def parameters(module: Any) -> Dict[str, Any]:
    """Return own name -> parameter, in the module's order."""
    return dict(module.collect_params().items())


def load(module: Any, weights: Mapping[str, Any]) -> None:
    """Set the shared weights."""
    module.initialize(mx.init.Zero())
    for name, parameter in parameters(module).items():
        shared = shared_name(name)
        if shared is not None:
            parameter.set_data(mx.nd.array(weights[shared]))


def canonical(module: Any, arrays: Mapping[str, Any]) -> Dict[str, Any]:
    """Return ``arrays`` (one per parameter, by own name) with the shared names and layout."""
    names = {name: shared_name(name) for name in arrays}
    return {shared: np.asarray(arrays[name]) for name, shared in names.items() if shared}
