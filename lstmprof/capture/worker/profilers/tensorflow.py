"""TensorFlow's profiler, and facts about its settings and the device."""

from __future__ import annotations

import contextlib
import functools
import importlib
from typing import Any, ContextManager, Dict, Iterator, Tuple

import tensorflow as tf

from lstmprof.capture.worker.machine.settings import denormal_numbers, denormals
from lstmprof.capture.worker.profilers import Profiler, keras_version, xplane_in
from lstmprof.capture.worker.profiling import Ranges


class TensorflowProfiler(Profiler):
    profiler = "tf.profiler"
    device = "cpu"

    @property
    def starts_late(self) -> bool:
        """Return True: a session's first step took 8 to 23 ms, later steps 6 ms."""
        return True

    def find_device(self) -> None:
        self.device = "cuda:0" if tf.config.list_logical_devices("GPU") else "cpu"

    def wait(self, outcome: Any = None) -> None:
        """Wait for the GPUs; on a CPU, a call returns when its work is done."""
        if self.device != "cpu":
            synchronize()

    @contextlib.contextmanager
    def recording(self, folder: str) -> Iterator[None]:
        # growing buffers slow a session by 20 %, but only by 3 % if an earlier session was at least
        # as long (TF 2.21)
        tf.profiler.experimental.start(folder)
        try:
            yield
        finally:
            tf.profiler.experimental.stop()

    def annotated(self, number: int) -> Ranges:
        return functools.partial(_trace, number)

    def written(self, session: None, folder: str) -> Tuple[str, str]:
        return xplane_in(folder)

    def settings(self) -> Dict[str, Any]:
        threading, on_cpu = tf.config.threading, self.device == "cpu"
        eager = tf.executing_eagerly()  # while a graph is built, a tensor has no value
        doubled = (tf.constant(denormal_numbers()) * 2.0).numpy() if on_cpu and eager else None
        return {
            "deterministic": _call("python.framework.config", "is_op_determinism_enabled"),
            "onednn": _call("python.util._pywrap_util_port", "IsMklEnabled"),
            "matmul_tf32": _call("python.framework.config", "tensor_float_32_execution_enabled"),
            "intra_op_threads": threading.get_intra_op_parallelism_threads(),
            "inter_op_threads": threading.get_inter_op_parallelism_threads(),
            "framework_denormals": None if doubled is None else denormals(doubled),
        }

    def facts(self) -> Dict[str, Any]:
        built: Dict[str, Any] = getattr(tf.sysconfig, "get_build_info", dict)()  # since TF 2.3
        gpus = tf.config.get_visible_devices("GPU")
        gpu = self.device != "cpu"
        details = tf.config.experimental.get_device_details(gpus[0]) if gpu else {}
        return {
            "device": self.device,
            "device_name": details.get("device_name"),
            "device_memory_bytes": None,
            "threads": tf.config.threading.get_intra_op_parallelism_threads() or None,
            "versions": {
                "tensorflow": tf.__version__,
                "keras": keras_version(),
                "cuda": built.get("cuda_version") if gpu else None,
                "cudnn": built.get("cudnn_version") if gpu else None,
            },
        }


def _call(module: str, function: str) -> Any:
    """Call an undocumented TensorFlow function that some versions lack."""
    try:
        return getattr(importlib.import_module("tensorflow." + module), function)()
    except (ImportError, AttributeError):
        return None


def synchronize() -> None:
    # do nothing before TensorFlow 2.10: there, copying the loss to the host waits for the device
    wait = getattr(tf.test.experimental, "sync_devices", None)
    if wait is not None:
        wait()


def _trace(step: int, name: str) -> ContextManager[Any]:
    marks = {"step_num": step, "_r": 1} if name == "step" else {}  # ``_r`` marks a step
    trace: ContextManager[Any] = tf.profiler.experimental.Trace(name, **marks)
    return trace
