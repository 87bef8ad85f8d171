"""Probes of ``lstmprof check --system``: whether lstmprof can measure on this machine's GPU."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from lstmprof.capture.worker.machine.driver import (
    SEES,
    Driver,
    GpuView,
    driver,
    wheel_for,
    why_no_gpu,
)

OK, MISSING = "ok", "missing"
#: Seconds after which ``lstmprof check --system`` treats a framework's import as hung.
_IMPORT_S = 300.0
#: Settings of NVIDIA's driver; ``RmProfilingAdminOnly: 1`` lets only root read GPU counters.
_PARAMETERS = Path("/proc/driver/nvidia/params")
#: Linux's level of protection for CPU counters; above 2, users cannot read the counters.
_PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")


@dataclass(frozen=True)
class Probe:
    """The result of one check: ``Probe("nsys", "ok", "/usr/bin/nsys")``."""

    name: str
    state: str
    sentence: str
    next_step: str = ""


def lines() -> Iterator[Probe]:
    gpu_driver = driver()
    yield _driver(gpu_driver)
    with ThreadPoolExecutor() as pool:  # each framework is imported in its own process
        yield from pool.map(lambda name: _framework(name, gpu_driver), SEES)
    yield from _shared_files()
    yield _cupti(gpu_driver)
    yield _nsys()
    yield from _counters()


def _driver(gpu_driver: Driver) -> Probe:
    if not gpu_driver.gpus:
        return Probe("driver", MISSING, gpu_driver.fault)
    allowed = (
        "an unknown CUDA" if gpu_driver.cuda is None else "CUDA {}.{}".format(*gpu_driver.cuda)
    )
    gpus = ", ".join(gpu_driver.gpus)
    return Probe("driver", OK, f"NVIDIA driver {gpu_driver.version} allows {allowed}; {gpus}")


def _framework(name: str, gpu_driver: Driver) -> Probe:
    if importlib.util.find_spec(name) is None:
        step = wheel_for(name, gpu_driver) if gpu_driver.gpus else f'pip install "lstmprof[{name}]"'
        return Probe(name, MISSING, "not installed", step)
    command = [sys.executable, "-m", "lstmprof.capture.worker.machine.driver", name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_IMPORT_S)
        view = GpuView(**json.loads(done.stdout.splitlines()[-1]))
    except (subprocess.TimeoutExpired, IndexError, ValueError):
        return Probe(name, MISSING, "it cannot be imported", f'python -c "import {name}" says why')
    build = f"built for CUDA {view.built_for}" if view.built_for else "built without CUDA"
    if view.gpus:
        sees = f"{view.version}, {build}, sees {view.gpus} GPU(s)"
        if view.profiles is False:
            return Probe(name, MISSING, f"{sees}; its profiler records no kernels", "use nsys")
        return Probe(name, OK, sees)
    if not gpu_driver.gpus:
        return Probe(name, OK, f"{view.version}, {build}; it runs on the CPU")
    fault, step = why_no_gpu(view, gpu_driver)
    return Probe(name, MISSING, f"{fault}; it sees no GPU", step)


def _shared_files() -> Iterator[Probe]:
    """Report cuDNN and NCCL wheels for CUDA 12 and 13 that contain the same files."""
    installed = {d.name.lower() for d in metadata.distributions() if d.name}
    for library in ("cudnn", "nccl"):
        both = [f"nvidia-{library}-cu{major}" for major in (12, 13)]
        if installed.issuperset(both):
            yield Probe(
                library,
                MISSING,
                f"{both[0]} and {both[1]} own the same files",
                "install torch and tensorflow[and-cuda] into separate environments",
            )


def _cupti(gpu_driver: Driver) -> Probe:
    places = [Path(folder) for folder in sys.path if folder] + [
        Path("/usr/local/cuda/extras/CUPTI")
    ]
    patterns = ("nvidia/*/lib/libcupti.so.*", "lib64/libcupti.so.*")
    libraries = (path for place in places for pattern in patterns for path in place.glob(pattern))
    first = next(libraries, None)
    if first is not None:
        return Probe("CUPTI", OK, str(first))
    step = "install a wheel for CUDA, which brings it" if gpu_driver.gpus else ""
    return Probe("CUPTI", MISSING, "libcupti.so was not found, so no kernels are recorded", step)


def _nsys() -> Probe:
    path = shutil.which("nsys")
    if path:
        return Probe("nsys", OK, path)
    return Probe("nsys", MISSING, "not on the PATH; only --profiler nsys needs it")


def _counters() -> Iterator[Probe]:
    if _PARAMETERS.is_file():
        restricted = "RmProfilingAdminOnly: 1" in _PARAMETERS.read_text(encoding="utf-8")
        words = "only root may read them" if restricted else "every user may read them"
        step = "load the driver with NVreg_RestrictProfilingToAdminUsers=0" if restricted else ""
        yield Probe("GPU counters", MISSING if restricted else OK, words, step)
    if _PARANOID.is_file():
        level = int(_PARANOID.read_text(encoding="utf-8"))
        step = "sysctl kernel.perf_event_paranoid=2" if level > 2 else ""
        words = f"kernel.perf_event_paranoid is {level}"
        yield Probe("CPU counters", MISSING if level > 2 else OK, words, step)
