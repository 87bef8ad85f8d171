"""The float64 reference against central finite differences."""

import numpy as np
import pytest

from lstmprof.capture.worker import reference
from lstmprof.workloads import Workload, batch, weights

STEP = 1e-6


@pytest.mark.parametrize(
    "workload",
    [
        Workload("ce", 2, 3, True, 2, 4, 2, 3, "ce"),
        Workload("mse", 1, 3, False, 2, 4, 2, 3, "mse"),
        Workload("ctc", 1, 3, True, 3, 6, 2, 3, "ctc", labels=2, shortest=4),
        Workload("gru", 2, 3, True, 2, 4, 2, 3, "ce", cell="gru"),
        Workload("rnn", 2, 3, False, 2, 4, 2, 3, "mse", cell="rnn", each_step=True),
        Workload("headless", 1, 3, True, 2, 4, 2, 6, "mean", head=False, cell="gru"),
        Workload(*("lengths", 2, 3, True, 3, 5, 2, 3, "ce"), shortest=2, variable_length=True),
        Workload(
            *("ctc-lengths", 1, 3, True, 3, 6, 2, 3, "ctc"),
            labels=2,
            shortest=4,
            variable_length=True,
        ),
        Workload("tokens", 1, 3, False, 2, 4, 2, 5, "ce", each_step=True, vocabulary=5),
    ],
    ids=lambda w: w.name,
)
def test_every_gradient_equals_the_finite_difference(workload: Workload) -> None:
    start = {k: np.asarray(v, np.float64) for k, v in weights(workload, 3).items()}
    shared_batch = batch(workload, 3)
    found = reference.outcome(workload, start, shared_batch)
    assert set(found.gradients) == set(start)
    for name, value in start.items():
        expected = np.empty_like(value)
        for place in np.ndindex(value.shape):
            losses = []
            for step in (STEP, -STEP):
                moved = value.copy()
                moved[place] += step
                losses.append(
                    reference.outcome(workload, {**start, name: moved}, shared_batch).loss
                )
            expected[place] = (losses[0] - losses[1]) / (2 * STEP)
        np.testing.assert_allclose(found.gradients[name], expected, rtol=1e-6, atol=1e-8)
