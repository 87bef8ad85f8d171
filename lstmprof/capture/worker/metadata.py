"""Collect the worker's facts for run.json: request, framework, interpreter, host and passes."""

from __future__ import annotations

import dataclasses
import json
import platform
import sys
import time
from typing import Any, Dict, List, Optional

from lstmprof.base.package import __version__
from lstmprof.capture.request import CaptureRequest
from lstmprof.capture.worker.machine import host
from lstmprof.capture.worker.profiling import Profiled, nvtx_ranges
from lstmprof.capture.worker.timing import Iteration


@dataclasses.dataclass(frozen=True)
class TwoPasses:
    """The results of the timing pass and of the profile pass."""

    rows: List[Iteration]
    cost: Dict[str, Any]  # energy, counters and settings for run.json
    profiled: Profiled


def request_facts(request: CaptureRequest) -> Dict[str, Any]:
    fields = json.loads(request.to_json())
    names = ["implementation", "workload", "precision", "mode", "seed"]
    names += ["cuda_graph", "xla", "label"]
    facts = {name: fields[name] for name in names}
    facts["warmup"] = request.warmup_iterations
    facts["turn_with"] = list(request.turn_with) or None
    if request.file is not None:
        facts["implementation_file"] = "{}:{}".format(request.file.file_name, request.file.function)
        facts["implementation_sha256"] = request.file.sha256
    return dict(facts, framework=request.row.framework, tf32=request.precision == "tf32")


def worker_facts(trainer: Any, cpus: Optional[List[int]]) -> Dict[str, Any]:
    """Return what run.json says about framework, interpreter and host."""
    facts = trainer.facts()
    nvtx = nvtx_ranges() is not None
    versions: Dict[str, Any] = {"lstmprof": __version__, "python": platform.python_version()}
    versions.update({"numpy": _version("numpy"), "nvtx": _version("nvtx") if nvtx else None})
    hardware = host.hardware()
    hardware["gpu"] = facts.pop("device_name")
    hardware["gpu_memory_bytes"] = facts.pop("device_memory_bytes")
    name = hardware["gpu"] or hardware["cpu_model"]
    return dict(
        facts,
        device_name=name,
        versions=dict(versions, **facts["versions"]),
        packages=packages(),
        hardware=hardware,
        affinity=cpus,
        cpu_clock_mhz=host.clock_mhz(host.allowed_cpus() if cpus is None else cpus),
        denormals_flushed=host.denormals_flushed(),
        garbage_collector="frozen and off",
        profiler=trainer.profiler,
        nvtx=True if nvtx else None,
        python_executable=sys.executable,
        peak_memory_bytes=host.peak_memory_bytes(),
    )


def pass_facts(passes: TwoPasses, request: CaptureRequest) -> Dict[str, Any]:
    """Return what run.json says about the timing pass and the profile pass."""
    first, last = passes.rows[0], passes.rows[-1]
    fell = None
    if request.mode == "train" and first.loss is not None and last.loss is not None:
        fell = last.loss < first.loss
    return {
        **passes.cost,
        "iterations": sum(not row.warmup for row in passes.rows),
        "kernels_used": passes.profiled.kernels,
        "compile_ns": first.wall_ns,
        "profiled_wall_ns": passes.profiled.walls_ns,
        "recording": [passes.profiled.recording] if passes.profiled.recording else None,
        "loss_first": first.loss,
        "loss_last": last.loss,
        "loss_fell": fell,
    }


def _version(package: str) -> Any:
    try:
        from importlib import metadata

        return metadata.version(package)
    except Exception:
        return getattr(sys.modules.get(package), "__version__", None)


def packages() -> Optional[Dict[str, Any]]:
    try:
        from importlib import metadata
    except ImportError:  # Python 3.7
        return None
    versions: Dict[str, Any] = {}
    for distribution in metadata.distributions():
        try:
            facts = distribution.metadata  # parsed again at each access
            name, version = facts["Name"], facts["Version"]
        except Exception:  # leftovers of a package that was not removed completely
            continue
        if name:
            versions.setdefault(str(name), None if version is None else str(version))
    return {name: versions[name] for name in sorted(versions, key=str.lower)}


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
