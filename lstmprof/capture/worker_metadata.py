"""What the worker contributes to run.json."""

from __future__ import annotations

import json
import platform
import sys
import time
from typing import Any, Dict, List

from lstmprof import __version__
from lstmprof.capture import worker_host
from lstmprof.capture.worker_request import CaptureRequest
from lstmprof.capture.worker_timing import Iteration


def request_facts(request: CaptureRequest, framework: str) -> Dict[str, Any]:
    """What run.json says of what was asked for."""
    asked = json.loads(request.to_json())
    names = ("implementation", "workload", "precision", "mode", "seed", "warmup", "iterations")
    return dict({name: asked[name] for name in names}, framework=framework, tf32=False)


def worker_facts(trainer: Any, cpus: Any, nvtx: bool) -> Dict[str, Any]:
    """What run.json says of the framework, the interpreter and the host."""
    facts = trainer.facts()
    versions: Dict[str, Any] = {"lstmprof": __version__, "python": platform.python_version()}
    versions.update({"numpy": _version("numpy"), "nvtx": _version("nvtx") if nvtx else None})
    hardware = worker_host.hardware()
    hardware["gpu"] = facts.pop("device_name")
    hardware["gpu_memory_bytes"] = facts.pop("device_memory_bytes")
    name = hardware["gpu"] or hardware["cpu_model"]
    return dict(
        facts,
        device_name=name,
        versions=dict(versions, **facts["versions"]),
        hardware=hardware,
        affinity=cpus,
        denormals_flushed=worker_host.denormals_flushed(),
        garbage_collector="frozen and off",
        profiler=trainer.profiler,
        nvtx=True if nvtx else None,
        python_executable=sys.executable,
        peak_memory_bytes=worker_host.peak_memory_bytes(),
    )


def loss_facts(rows: List[Iteration], request: CaptureRequest) -> Dict[str, Any]:
    """Whether training trained: null in forward mode."""
    first, last = rows[0].loss, rows[-1].loss
    return {
        "loss_first": first,
        "loss_last": last,
        "loss_fell": last < first if request.mode == "train" else None,
    }


def _version(package: str) -> Any:
    """The installed version; None where Python (3.7) or the package does not tell."""
    try:
        from importlib import metadata

        return metadata.version(package)
    except Exception:
        return getattr(sys.modules.get(package), "__version__", None)


def now() -> str:
    """The time of day, UTC, ISO 8601."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
