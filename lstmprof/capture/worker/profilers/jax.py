"""JAX's profiler, and facts about its settings and the device."""

from __future__ import annotations

import contextlib
import functools
import re
import sys
from typing import Any, ContextManager, Dict, Iterator, Optional, Tuple

import jax
import jax.numpy as jnp
import jaxlib
import numpy as np

from lstmprof.capture.worker.machine.host import allowed_cpus
from lstmprof.capture.worker.machine.settings import denormal_numbers, denormals
from lstmprof.capture.worker.profilers import Profiler, xplane_in
from lstmprof.capture.worker.profiling import Ranges
from lstmprof.implementations.cudnn import _runtime

#: Packages with layers for JAX. lstmprof records the version of each imported package.
LIBRARIES = ("flax", "equinox", "haiku", "keras")


class JaxProfiler(Profiler):
    profiler = "jax.profiler"
    device_name, number, device = "cpu", 0, None  # type: Tuple[str, int, Any]

    @property
    def starts_late(self) -> bool:
        """Return True: a session's first step took 4 to 46 ms, later steps 3 to 5 ms."""
        return True

    def find_device(self) -> None:
        self.device = jax.local_devices()[0]
        on_gpu = self.device.platform == "gpu"
        self.device_name = "cuda:0" if on_gpu else self.device.platform

    def wait(self, outcome: Any = None) -> None:
        """Wait for ``outcome``, or for all arrays: JAX cannot wait for a device."""
        jax.block_until_ready(jax.live_arrays() if outcome is None else outcome)

    def threads(self) -> int:
        """Return the number of XLA's threads: one per allowed CPU."""
        return len(allowed_cpus())

    @contextlib.contextmanager
    def recording(self, folder: str) -> Iterator[None]:
        jax.profiler.start_trace(folder, **_without_python_calls())
        try:
            yield
        finally:
            jax.profiler.stop_trace()

    def annotated(self, number: int) -> Ranges:
        return functools.partial(_trace, number)

    def written(self, session: None, folder: str) -> Tuple[str, str]:
        return xplane_in(folder)

    def settings(self) -> Dict[str, Any]:
        on_cpu = self.device_name == "cpu"
        doubled = (
            np.asarray(jax.jit(jnp.add)(denormal_numbers(), denormal_numbers())) if on_cpu else None
        )
        return {
            "matmul_precision": jax.config.jax_default_matmul_precision,
            "framework_denormals": None if doubled is None else denormals(doubled),
        }

    def facts(self) -> Dict[str, Any]:
        gpu = self.device_name != "cpu"
        loaded = {name: sys.modules.get(name) for name in LIBRARIES}
        return {
            "device": self.device_name,
            "device_name": self.device.device_kind if gpu else None,
            "device_memory_bytes": _runtime.device_memory_bytes(self.number) if gpu else None,
            "threads": self.threads(),
            "versions": {
                "jax": jax.__version__,
                "jaxlib": jaxlib.__version__,
                **{name: getattr(module, "__version__", None) for name, module in loaded.items()},
                "cuda": cuda_version(self.device.client.platform_version) if gpu else None,
            },
        }


def cuda_version(platform: str) -> Optional[str]:
    """Find CUDA's version in ``platform``: ``cuda 12090`` gives ``12.9``."""
    match = re.search(r"cuda (\d+)", platform)
    number = int(match.group(1)) if match else 0
    return "{}.{}".format(number // 1000, number % 1000 // 10) if number else None


def _without_python_calls() -> Dict[str, Any]:
    if not hasattr(jax.profiler, "ProfileOptions"):
        return {}
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    return {"profiler_options": options}


def _trace(step: int, name: str) -> ContextManager[Any]:
    if name == "step":
        numbered: ContextManager[Any] = jax.profiler.StepTraceAnnotation(name, step_num=step)
        return numbered
    named: ContextManager[Any] = jax.profiler.TraceAnnotation(name)
    return named
