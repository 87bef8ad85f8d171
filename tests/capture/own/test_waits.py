"""A measured step ends when the device has done its work, by what each framework has for it."""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest


def test_torch_waits_for_each_gpu_on_which_the_process_has_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch = pytest.importorskip("torch")
    from lstmprof.capture.worker.profilers.torch import TorchProfiler

    waited: list[int] = []
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    profiler = TorchProfiler()
    profiler.find_device()
    profiler.wait()
    assert (str(profiler.device), waited) == ("cpu", [])
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(
        torch._C, "_cuda_hasPrimaryContext", lambda number: number in (1, 3), raising=False
    )
    profiler.find_device()
    profiler.wait()
    assert (str(profiler.device), waited) == ("cuda:1", [1, 3])


def test_tensorflow_waits_where_it_uses_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    tf = pytest.importorskip("tensorflow")
    from lstmprof.capture.worker.profilers.tensorflow import TensorflowProfiler

    waits: list[str] = []
    gpus: list[Any] = []
    monkeypatch.setattr(tf.test.experimental, "sync_devices", lambda: waits.append("all"))
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind: gpus)
    profiler = TensorflowProfiler()
    profiler.find_device()
    profiler.wait()
    assert (profiler.device, waits) == ("cpu", [])
    gpus.append("GPU:0")
    profiler.find_device()
    profiler.wait()
    assert (profiler.device, waits) == ("cuda:0", ["all"])


def test_jax_waits_for_every_array_that_there_is() -> None:
    jax = pytest.importorskip("jax")
    from lstmprof.capture.worker.profilers.jax import JaxProfiler

    @jax.jit
    def long(x: Any) -> Any:
        return jax.lax.fori_loop(0, 200, lambda _, y: y @ x, x)

    profiler = JaxProfiler()
    profiler.find_device()
    start = jax.numpy.eye(200)
    long(start).block_until_ready()
    ended = long(start)
    profiler.wait()
    assert ended.is_ready()
    ended = long(start)
    profiler.wait(ended)
    assert ended.is_ready()


def test_a_profiler_stays_attached_where_a_step_may_replay_a_cuda_graph(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    torch = pytest.importorskip("torch")
    from lstmprof.capture.worker.profilers.torch import TorchProfiler

    class Graph:
        """A captured graph."""

    for variable in ("DISABLE_CUPTI_LAZY_REINIT", "TEARDOWN_CUPTI"):
        monkeypatch.setenv(variable, "")
        monkeypatch.delenv(variable)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.profiler, "profile", lambda **options: nullcontext())
    profiler = TorchProfiler()
    profiler.device = torch.device("cuda", 0)
    with profiler.recording(str(tmp_path)):
        pass
    assert "TEARDOWN_CUPTI" not in os.environ
    graph = Graph()
    with profiler.recording(str(tmp_path)):
        pass
    assert os.environ["TEARDOWN_CUPTI"] == "0"
    del graph
