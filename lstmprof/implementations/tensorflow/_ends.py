"""What stands before and behind the layers of a TensorFlow network: the embedding, the head.

``embedding`` (vocabulary, features) where the inputs are tokens, ``head`` (directions·hidden,
classes) where there is one, without bias; both under their shared names. The gradient of the
embedding is TensorFlow's own IndexedSlices, one row a token, never a dense array: SGD then updates
these rows alone, and Adam, which changes every row all the same, does it by several operators
in place of one.
"""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional

import numpy as np
import tensorflow as tf

from lstmprof.workloads import Workload


class Network(tf.Module):  # type: ignore[misc]
    """``embedding`` and ``head``; the layers are a subclass's."""

    def __init__(self, workload: Workload) -> None:
        super().__init__()
        self.every_step = workload.every_step
        self.embedding: Any = None
        if workload.vocabulary:
            shape = [workload.vocabulary, workload.features]
            self.embedding = tf.Variable(tf.zeros(shape), name="embedding")
        self.head: Any = None
        if workload.head:
            width = workload.directions * workload.hidden
            self.head = tf.Variable(tf.zeros([width, workload.classes]), name="head")

    def __call__(self, inputs: tf.Tensor, lengths: Optional[tf.Tensor] = None) -> tf.Tensor:
        """Inputs (time, batch, features) or tokens; outputs (batch, classes), or one a step."""
        lengths = None if lengths is None else tf.cast(lengths, tf.int32)
        if self.embedding is not None:
            inputs = tf.nn.embedding_lookup(self.embedding, inputs)
        outputs = self.run(inputs, lengths)
        if not self.every_step:
            outputs = _last(outputs, lengths)
        return outputs if self.head is None else tf.tensordot(outputs, self.head, 1)

    def run(self, inputs: tf.Tensor, lengths: Optional[tf.Tensor]) -> tf.Tensor:
        """Inputs (time, batch, features); the last layer's outputs (time, batch, width)."""
        raise NotImplementedError


def _last(outputs: tf.Tensor, lengths: Optional[tf.Tensor]) -> tf.Tensor:
    """Each sequence's last of ``outputs`` (time, batch, width)."""
    if lengths is None:
        return outputs[-1]
    return tf.gather_nd(outputs, tf.stack([lengths - 1, tf.range(outputs.shape[1])], 1))


def parameters(module: Network) -> Dict[str, tf.Variable]:
    """Own name -> variable, in the module's order."""
    return {variable.name.split(":")[0]: variable for variable in module.trainable_variables}


def load(module: Network, weights: Mapping[str, Any]) -> None:
    """Set the embedding and the head."""
    if module.embedding is not None:
        module.embedding.assign(weights["embedding"])
    if module.head is not None:
        module.head.assign(weights["head"].T)


def canonical(arrays: Mapping[str, Any]) -> Dict[str, Any]:
    """The embedding and the head of ``arrays``, in the shared layout."""
    shared = {name: np.asarray(arrays[name]) for name in ("embedding", "head") if name in arrays}
    return {name: array.T if name == "head" else array for name, array in shared.items()}
