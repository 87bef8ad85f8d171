"""How each framework multiplies two matrices, and copies on its device, as often as it is asked.

It computes with NumPy's random numbers or its own, never with zeros, which cost a GPU less power.
"""

from __future__ import annotations

import dataclasses
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable

from lstmprof.capture.worker import cpus

Run = Callable[[int], None]  # so many times, waiting for the last


@dataclasses.dataclass(frozen=True)
class Rig:
    """A framework's product (size, device, dtype) and its copy (bytes, device), ready to run."""

    product: Callable[[int, str, str], Run]
    copy: Callable[[int, str], Run]


def numpy_copy(buffer: int, device: str = "cpu") -> Run:
    """A copy of ``buffer`` bytes on the host, shared among the worker's threads."""
    import numpy as np

    threads = cpus.thread_count()
    sources = [np.ones(buffer // threads, np.int8) for _ in range(threads)]
    parts = [(np.ones_like(source), source) for source in sources]

    def run(times: int) -> None:
        with ThreadPoolExecutor(threads) as pool:
            for _ in range(times):
                list(pool.map(lambda part: np.copyto(*part), parts))

    return run


def _numpy_product(size: int, device: str, dtype: str) -> Run:
    import numpy as np

    left, right = (np.random.RandomState(0).rand(size, size).astype(dtype) for _ in range(2))
    made = np.empty_like(left)

    def run(times: int) -> None:
        for _ in range(times):
            np.matmul(left, right, out=made)

    return run


def _torch_product(size: int, device: str, dtype: str) -> Run:
    """By MKL or by oneDNN, which runs nn.LSTM: on CPUs of other makers MKL is half as fast."""
    import torch

    left, right = (
        torch.rand(size, size, device=device).to(getattr(torch, dtype)) for _ in range(2)
    )
    made = torch.empty_like(left)
    run = _torch_run(lambda: torch.mm(left, right, out=made), device)
    if (device, dtype) != ("cpu", "float32") or not torch.backends.mkldnn.is_available():
        return run
    packed = left.to_mkldnn(), right.to_mkldnn()
    return faster(run, _torch_run(lambda: torch.nn.functional.linear(*packed), device))


def faster(*runs: Run) -> Run:
    """The one whose second time is the shorter."""
    took_ns = []
    for run in runs:
        run(1)
        start_ns = time.perf_counter_ns()
        run(1)
        took_ns.append(time.perf_counter_ns() - start_ns)
    return runs[took_ns.index(min(took_ns))]


def _torch_copy(buffer: int, device: str) -> Run:
    import torch

    source = torch.ones(buffer, dtype=torch.int8, device=device)
    made = torch.empty_like(source)
    return _torch_run(lambda: made.copy_(source), device)


def _torch_run(work: Callable[[], Any], device: str) -> Run:
    import torch

    def run(times: int) -> None:
        for _ in range(times):
            work()
        if device != "cpu":
            torch.cuda.synchronize(device)

    return run


def _tensorflow_product(size: int, device: str, dtype: str) -> Run:
    import tensorflow as tf

    left, right = (tf.cast(tf.random.uniform((size, size)), dtype) for _ in range(2))
    return _read_back(lambda: tf.matmul(left, right))


def _tensorflow_copy(buffer: int, device: str) -> Run:
    import tensorflow as tf

    source = tf.ones(buffer // 4)
    return _read_back(lambda: tf.raw_ops.DeepCopy(x=source))


def _read_back(work: Callable[[], Any]) -> Run:
    """TensorFlow has no general wait: one element on the host comes after all work before it."""

    def run(times: int) -> None:
        for _ in range(times):
            made = work()
        made[(0,) * len(made.shape)].numpy()

    return run


def _jax_product(size: int, device: str, dtype: str) -> Run:
    import jax

    left, right = (jax.random.uniform(jax.random.PRNGKey(n), (size, size)) for n in range(2))
    return _jax_run(lambda a, b: a @ b, left, right)


def _jax_copy(buffer: int, device: str) -> Run:
    import jax.numpy as jnp

    return _jax_run(lambda a: a.copy(), jnp.ones(buffer, jnp.int8))


def _jax_run(work: Callable[..., Any], *operands: Any) -> Run:
    import jax

    compiled = jax.jit(work)

    def run(times: int) -> None:
        for _ in range(times):
            made = compiled(*operands)
        made.block_until_ready()

    return run


#: framework -> what it measures with; cuDNN's own functions multiply no matrices
RIGS = {
    "torch": Rig(_torch_product, _torch_copy),
    "tensorflow": Rig(_tensorflow_product, _tensorflow_copy),
    "jax": Rig(_jax_product, _jax_copy),
    "pytensor": Rig(_numpy_product, numpy_copy),
}
