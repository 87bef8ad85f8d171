"""Embedding and head of Chainer's networks."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np

from lstmprof.workloads import Workload


class Ends(chainer.Chain):  # type: ignore[misc]
    """The embedding (if inputs are tokens) and the output layer, if any."""

    def __init__(self, workload: Workload) -> None:
        super().__init__()
        self.every_step = workload.every_step
        width = workload.directions * workload.hidden
        with self.init_scope():
            self.embedding: Any = (
                L.EmbedID(workload.vocabulary, workload.features) if workload.vocabulary else None
            )
            self.head: Any = (
                L.Linear(width, workload.classes, nobias=True) if workload.head else None
            )

    def embedded(self, inputs: Any) -> Any:
        return inputs if self.embedding is None else self.embedding(inputs)

    def headed(self, outputs: Any) -> Any:
        if self.head is None:
            return outputs
        return self.head(outputs, n_batch_axes=outputs.ndim - 1)


def parameters(module: Any) -> Dict[str, Any]:
    return dict(module.namedparams())


def end_names(module: Ends) -> Dict[str, str]:
    """Map Chainer's names to lstmprof's: ``/embedding/W`` -> ``embedding``."""
    names = {"/embedding/W": "embedding", "/head/W": "head"}
    return {own: shared for own, shared in names.items() if own in parameters(module)}


def set_to(module: Any, arrays: Mapping[str, Optional[Any]]) -> None:
    """Set each parameter to its array; None means zeros."""
    for name, parameter in module.namedparams():
        array = arrays[name]
        filled = np.zeros(parameter.shape) if array is None else array
        parameter.array = np.ascontiguousarray(filled, np.float32)


def last(outputs: Any, lengths: Optional[Any]) -> Any:
    """Return the last output of each sequence: (time, batch, width) -> (batch, width)."""
    if lengths is None:
        return outputs[-1]
    return F.get_item(outputs, (lengths - 1, np.arange(len(lengths))))
