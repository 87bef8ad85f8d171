"""Find out why a framework sees no GPU, and which wheel fits NVIDIA's driver."""

from __future__ import annotations

import ctypes
import dataclasses
import json
import sys
from typing import Any, Callable, Dict, List, Optional, Tuple

from lstmprof.base.errors import CaptureError
from lstmprof.capture.worker.machine.meters import CUDA, NVML

#: Framework -> pairs (lowest CUDA major version of the driver, install command), newest first.
WHEELS = {
    "torch": (
        (13, "pip install torch"),
        (12, "pip install torch --index-url https://download.pytorch.org/whl/cu126"),
    ),
    "jax": ((13, 'pip install "jax[cuda13]"'), (12, 'pip install "jax[cuda12]"')),
    "tensorflow": ((12, 'pip install "tensorflow[and-cuda]" in an environment without torch'),),
}
#: Error code of ``cuInit`` (cuda.h, CUresult) -> what is wrong, and what the user can do.
_FAULTS = {
    100: "the driver shows this process no GPU; unset CUDA_VISIBLE_DEVICES, or start the container "
    "with --gpus all",
    803: "the driver and its libcuda.so.1 have different versions; restart the machine",
}


@dataclasses.dataclass(frozen=True)
class Driver:
    """The report of NVIDIA's driver: versions and GPUs, or the reason why there is no GPU."""

    fault: str = ""  # why there is no GPU
    version: Optional[str] = None
    cuda: Optional[Tuple[int, int]] = None  # newest CUDA that the driver supports
    gpus: Tuple[str, ...] = ()


def driver(cuda: str = CUDA, nvml: str = NVML) -> Driver:
    """Read the NVIDIA driver's version, newest supported CUDA version, and GPUs."""
    try:
        library = ctypes.CDLL(cuda)
    except OSError:
        return Driver("no NVIDIA driver is loaded here ({} is missing)".format(cuda))
    number, count = ctypes.c_int(), ctypes.c_int()
    newest = None
    if library.cuDriverGetVersion(ctypes.byref(number)) == 0:
        newest = number.value // 1000, number.value % 1000 // 10
    code = library.cuInit(0)
    if code:
        fault = _FAULTS.get(code, "the driver does not start: cuInit returned {}".format(code))
        return Driver(fault, _version(nvml), newest)
    library.cuDeviceGetCount(ctypes.byref(count))
    names = [_name(library, index) for index in range(count.value)]
    return Driver("" if names else _FAULTS[100], _version(nvml), newest, tuple(names))


def _version(nvml: str) -> Optional[str]:
    """Return the driver's own version, such as ``580.65.06``."""
    text = ctypes.create_string_buffer(96)
    try:
        library = ctypes.CDLL(nvml)
        answered = library.nvmlInit_v2() == 0
        answered = answered and library.nvmlSystemGetDriverVersion(text, len(text)) == 0
    except (OSError, AttributeError):
        return None
    return text.value.decode("ascii", "replace") if answered else None


def _name(library: Any, index: int) -> str:
    device, text = ctypes.c_int(), ctypes.create_string_buffer(128)
    library.cuDeviceGet(ctypes.byref(device), index)
    library.cuDeviceGetName(text, len(text), device)
    return text.value.decode("utf-8", "replace")


@dataclasses.dataclass(frozen=True)
class GpuView:
    """The report of a framework about GPUs."""

    framework: str
    version: str
    built_for: Optional[str]  # version of CUDA
    gpus: int
    profiles: Optional[bool] = None  # whether its profiler records kernels


def why_no_gpu(view: GpuView, gpu_driver: Driver) -> Tuple[str, str]:
    """Explain why a framework sees no GPU; return (reason, next step)."""
    name = "{} {}".format(view.framework, view.version)
    if not gpu_driver.gpus:
        return gpu_driver.fault, "use --device cpu"
    wheel = wheel_for(view.framework, gpu_driver)
    if view.built_for is None:
        return "{} is built without CUDA".format(name), wheel
    allowed = gpu_driver.cuda
    if allowed is not None and int(view.built_for.partition(".")[0]) > allowed[0]:
        words = "{} is built for CUDA {}, but the driver allows {}.{} at most"
        return words.format(name, view.built_for, *allowed), wheel
    return "{}, built for CUDA {}, does not find its libraries".format(name, view.built_for), wheel


def wheel_for(framework: str, gpu_driver: Driver) -> str:
    """Return the command that installs a build of the framework for this driver."""
    major = 0 if gpu_driver.cuda is None else gpu_driver.cuda[0]
    command = next((words for least, words in WHEELS[framework] if major >= least), None)
    return command or "update the NVIDIA driver to 525 or newer, for CUDA 12"


def chosen(requested: str, ask: Callable[[], GpuView]) -> str:
    """Return the device to use, ``cpu`` or ``cuda:N``."""
    if requested == "cpu":
        return requested
    view = ask()
    number = 0 if requested == "auto" else int(requested.partition(":")[2])
    if number < view.gpus:
        return "cuda:{}".format(number)
    gpu_driver = driver()
    if requested == "auto" and not gpu_driver.gpus:
        return "cpu"
    if view.gpus:
        raise CaptureError(
            "device {} is not available: {} {} sees {} GPU(s)".format(
                requested, view.framework, view.version, view.gpus
            ),
            "use --device cuda:0",
        )
    fault, step = why_no_gpu(view, gpu_driver)
    if requested == "auto":
        raise CaptureError("the driver shows a GPU, but " + fault, step + ", or use --device cpu")
    raise CaptureError("device {} is not available: {}".format(requested, fault), step)


def torch_sees() -> GpuView:
    import torch

    kinds: Any = getattr(getattr(torch, "profiler", None), "supported_activities", set)()
    profiles = any(str(kind).endswith("CUDA") for kind in kinds)
    gpus = torch.cuda.device_count()
    return GpuView("torch", torch.__version__, torch.version.cuda, gpus, profiles)


def jax_sees() -> GpuView:
    import jax

    try:
        gpus = len(jax.devices("gpu"))
    except RuntimeError:  # no such platform
        gpus = 0
    # report the CUDA version of JAX's GPU plugin, because the plugin is a separate package
    return GpuView("jax", jax.__version__, _plugin_of_jax(), gpus)


def _plugin_of_jax() -> Optional[str]:
    try:
        from importlib import metadata  # since Python 3.8
    except ImportError:
        return None
    for major in ("13", "12"):
        try:
            metadata.version("jax-cuda{}-plugin".format(major))
            return major
        except metadata.PackageNotFoundError:
            continue
    return None


def tensorflow_sees() -> GpuView:
    import tensorflow as tf

    built: Dict[str, Any] = getattr(tf.sysconfig, "get_build_info", dict)()  # since TF 2.3
    gpus = tf.config.list_physical_devices("GPU")
    return GpuView("tensorflow", tf.__version__, built.get("cuda_version"), len(gpus))


SEES: Dict[str, Callable[[], GpuView]] = {
    "torch": torch_sees,
    "jax": jax_sees,
    "tensorflow": tensorflow_sees,
}


def main(arguments: List[str]) -> int:
    """Print what a framework reports about GPUs, as JSON in the last line."""
    print(json.dumps(dataclasses.asdict(SEES[arguments[0]]())))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
