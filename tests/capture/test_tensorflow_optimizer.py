"""TensorFlow's optimizers on an embedding, whose gradient is rows, as on a dense array."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from lstmprof.workloads import Workload

tf = pytest.importorskip("tensorflow")

TOKENS = Workload("tokens", 1, 4, False, 2, 3, 2, 2, "ce", vocabulary=5)
ROWS = ([1, 3, 1], [3, 0, 0])  # of two steps; some twice, some never


def trained(workload: Workload, precision: str, *, dense: bool) -> NDArray[Any]:
    """The embedding after two steps with the gradients 1, 2, 3 of ``ROWS``."""
    from lstmprof.capture.worker.loops import tensorflow

    optimizer = tensorflow.optimizer_of(workload)
    scaling = tensorflow.loss_scaling(precision)
    variable = tf.Variable(tf.zeros([5, 2]))

    @tf.function(autograph=False)  # type: ignore[untyped-decorator, unused-ignore]
    def step(rows: Any) -> None:
        values = scaling.scaled(tf.constant([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]))
        gradient = tf.IndexedSlices(values, rows, tf.constant([5, 2]))
        gradient = tf.convert_to_tensor(gradient) if dense else gradient
        scaling.apply(optimizer, [gradient], [variable])

    for rows in ROWS:
        step(tf.constant(rows))
    found: NDArray[Any] = variable.numpy()
    return found


@pytest.mark.parametrize("precision", ["fp32", "amp-fp16"])
@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_rows_and_a_dense_gradient_train_alike(optimizer: str, precision: str) -> None:
    workload = dataclasses.replace(TOKENS, optimizer=optimizer)
    rows, whole = (trained(workload, precision, dense=dense) for dense in (False, True))
    assert np.allclose(rows, whole, rtol=1e-6)
    assert np.all(rows[[0, 1, 3]] != 0)
    assert np.all(rows[[2, 4]] == 0)
