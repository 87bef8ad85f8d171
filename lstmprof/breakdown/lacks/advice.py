"""How to record what a profile lacks: advice for each profile format, and recipes to copy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Advice:
    """Phrases for users: how to record GPU activities, host events, ops and launches."""

    gpu: str
    host: str
    ops: str
    links: str = "export the profile without trimming it"


_ADVICE_FOR_FORMAT = {
    "kineto": Advice(
        "record with ProfilerActivity.CUDA (on Intel or Meta devices: .XPU or .MTIA) while no "
        "other profiler (nsys, DCGM) runs, and synchronise before the profiler stops",
        "also record with ProfilerActivity.CPU",
        "also record with ProfilerActivity.CPU",
    ),
    "nsys": Advice(
        "profile with nsys profile --trace=cuda,nvtx",
        "profile with nsys profile --trace=cuda,nvtx",
        "run under torch.autograd.profiler.emit_nvtx and profile with nsys profile "
        "--trace=cuda,nvtx",
    ),
    "nvprof": Advice(
        "profile with nvprof -o FILE python …, or with nsys profile --trace=cuda,nvtx",
        "profile with nvprof -o FILE python …, or with nsys profile --trace=cuda,nvtx",
        "run under torch.autograd.profiler.emit_nvtx",
    ),
    "rocprofv3": Advice(
        "record with rocprofv3 --runtime-trace (before ROCm 7, add --output-format json)",
        "record with rocprofv3 --runtime-trace (before ROCm 7, add --output-format json)",
        "run under torch.autograd.profiler.emit_nvtx and record with rocprofv3 --runtime-trace "
        "(before ROCm 7, add --output-format json)",
    ),
    "xplane": Advice(
        "add libcupti to LD_LIBRARY_PATH, allow profiling for all users "
        "(NVreg_RestrictProfilingToAdminUsers=0), and record again",
        "record with a host tracer level of 1 or more",
        "record with a host tracer level of 2 or more",
    ),
    "trace_viewer": Advice(
        "look for errors about libcupti in the program's log, allow profiling for all users "
        "(NVreg_RestrictProfilingToAdminUsers=0), and record again",
        "give the .xplane.pb of the same run",
        "give the .xplane.pb of the same run",
        "give the .xplane.pb of the same run",
    ),
    "onnxruntime": Advice(
        "record with nsys profile --trace=cuda,nvtx, as ONNX Runtime's profiler records only the "
        "host",
        "record with SessionOptions.enable_profiling = True",
        "record with SessionOptions.enable_profiling = True",
    ),
    "autograd": Advice(
        "record with torch.autograd.profiler.profile(use_cuda=True), or under emit_nvtx with nsys",
        "record with torch.autograd.profiler.profile()",
        "record with torch.autograd.profiler.profile()",
        "record with nsys profile, as this profiler does not record launches",
    ),
    "tf1_timeline": Advice(
        "add libcupti to LD_LIBRARY_PATH, and record with RunOptions(trace_level=FULL_TRACE)",
        "record with RunOptions(trace_level=FULL_TRACE)",
        "record with RunOptions(trace_level=FULL_TRACE)",
        "record with nsys profile, as a TensorFlow 1 timeline has no launches",
    ),
}
_ANY = Advice(
    "also record the GPU's activities", "also record the host", "also record the framework's ops"
)


def advice_for(profile_format: str | None) -> Advice:
    return _ADVICE_FOR_FORMAT.get(profile_format or "", _ANY)


_TORCH = """\
from torch.profiler import profile, schedule, supported_activities

with profile(
    activities=supported_activities(),
    schedule=schedule(wait=1, warmup=2, active=5, repeat=1),
    record_shapes=True,
    on_trace_ready=lambda p: p.export_chrome_trace("profile.pt.trace.json"),
) as profiler:
    for batch in batches:
        train(batch)
        profiler.step()
"""
_TENSORFLOW = """\
import tensorflow as tf

for batch in batches[:3]:
    train(batch)
options = tf.profiler.experimental.ProfilerOptions(host_tracer_level=2)
with tf.profiler.experimental.Profile("logdir", options=options):
    for number, batch in enumerate(batches[3:8]):
        with tf.profiler.experimental.Trace("train", step_num=number, _r=1):
            train(batch)
"""
_JAX = """\
import jax

for batch in batches[:3]:
    jax.block_until_ready(train(batch))
with jax.profiler.trace("logdir"):
    for number, batch in enumerate(batches[3:8]):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            jax.block_until_ready(train(batch))
"""
_NSYS = """\
nsys profile --trace=cuda,nvtx,osrt --sample=none --force-overwrite=true -o profile python train.py
nsys export --type sqlite --force-overwrite=true -o profile.sqlite profile.nsys-rep
lstmprof check profile.sqlite --step-range '^step'
"""
_NVTX = """\
import torch

with torch.autograd.profiler.emit_nvtx(record_shapes=True):
    for number, batch in enumerate(batches):
        with torch.cuda.nvtx.range(f"step {number}"):
            train(batch)
"""
#: Name of a recipe → code or commands to copy, in the order that ``check`` prints.
RECIPES: Mapping[str, str] = {
    "torch": _TORCH,
    "tensorflow": _TENSORFLOW,
    "jax": _JAX,
    "nsys": _NSYS,
    "nsys, in a program of torch": _NVTX,
}
_OF_NSYS = ("nsys", "nsys, in a program of torch")
_RECIPES_OF_FORMAT = {
    **dict.fromkeys(("kineto", "autograd", "rocprofv3"), ("torch",)),
    **dict.fromkeys(("xplane", "trace_viewer"), ("tensorflow", "jax")),
    **dict.fromkeys(("nsys", "nvprof", "onnxruntime", "tf1_timeline", "mxnet"), _OF_NSYS),
}


def recipes_for(profile_format: str | None) -> tuple[str, ...]:
    return _RECIPES_OF_FORMAT.get(profile_format or "", tuple(RECIPES))
