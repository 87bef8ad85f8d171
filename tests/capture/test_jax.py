"""The JAX loop's own parts."""

from typing import Any

import numpy as np
import pytest

from lstmprof.workloads import Workload

CE = Workload("tiny-ce", 1, 4, False, 2, 5, 3, 3, "ce")


def test_five_steps_of_adam_are_torchs() -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("jax")
    from lstmprof.capture import worker_jax_adam

    random = np.random.RandomState(3)
    start = {"w": random.randn(4, 3).astype(np.float32), "b": random.randn(3).astype(np.float32)}
    theirs = {name: torch.tensor(array, requires_grad=True) for name, array in start.items()}
    optimizer = torch.optim.Adam(theirs.values(), lr=CE.learning_rate)
    state: Any = worker_jax_adam.initial_state(CE, start)
    for _ in range(5):
        gradients = {n: random.randn(*a.shape).astype(np.float32) for n, a in start.items()}
        state = worker_jax_adam.updated(state, gradients, CE.learning_rate)
        for name, tensor in theirs.items():
            tensor.grad = torch.from_numpy(gradients[name])
        optimizer.step()
    for name, tensor in theirs.items():
        expected = tensor.detach().numpy()
        assert np.abs(np.asarray(state["parameters"][name]) - expected).max() < 1e-6
        assert np.abs(expected - start[name]).max() > 1e-4
