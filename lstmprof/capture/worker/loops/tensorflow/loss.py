"""The losses of the TensorFlow loop, and the batch as it takes it."""

from __future__ import annotations

from typing import Any, Tuple

import numpy as np
import tensorflow as tf

from lstmprof import workloads
from lstmprof.workloads import Workload

Tensors = Tuple[Any, ...]


def loss_of(workload: Workload, outputs: tf.Tensor, targets: Tensors, time_major: bool) -> Any:
    """The mean loss over the batch; outputs (batch, classes), or one a time step.

    ``targets``: those of ``targets_of``. CTC: blank 0, sparse labels (with dense ones
    tf.nn.ctc_loss on a CPU takes a slow path). In float32 whatever the outputs are, as PyTorch's
    autocast has it.
    """
    outputs = tf.cast(outputs, tf.float32)
    if workload.loss == "mean":
        return tf.reduce_mean(outputs)
    if workload.loss == "ce":
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(targets[0], outputs)
    elif workload.loss == "mse":
        losses = tf.square(outputs - targets[0])
    else:
        losses = tf.nn.ctc_loss(
            _sparse(targets[0]), outputs, None, targets[1], time_major, blank_index=0
        )
    return tf.reduce_mean(losses)


def _sparse(labels: tf.Tensor) -> tf.SparseTensor:
    """Labels without padding as CTC takes them; the places are constants of the graph."""
    places = np.argwhere(np.ones(labels.shape, bool))
    return tf.SparseTensor(places, tf.reshape(labels, [-1]), list(labels.shape))


def batch_of(workload: Workload, seed: int, time_major: bool) -> Tuple[Any, Tensors, Tensors]:
    """Inputs in the implementation's layout, the lengths that it is told, the targets; NumPy."""
    batch: Any = workloads.batch(workload, seed)
    lengths = (batch.lengths.astype(np.int32),) if workload.variable_length else ()
    return _laid(batch.inputs, time_major), lengths, targets_of(workload, batch, time_major)


def targets_of(workload: Workload, batch: Any, time_major: bool) -> Tensors:
    """What the loss compares with, as the outputs lie: classes or values; labels and lengths."""
    if workload.loss == "ctc":
        return batch.targets.astype(np.int32), batch.lengths.astype(np.int32)
    return (_laid(batch.targets, time_major or not workload.each_step),)


def _laid(array: Any, time_major: bool) -> Any:
    """``array`` (time, batch, …) in the implementation's layout."""
    return np.ascontiguousarray(array if time_major else array.swapaxes(0, 1))
