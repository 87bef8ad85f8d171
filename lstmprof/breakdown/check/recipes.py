"""How to record a good profile with each profiler: the lines, as they are run."""

from __future__ import annotations

from collections.abc import Mapping

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
#: What a recipe is called -> its lines, in the order in which they are shown.
RECIPES: Mapping[str, str] = {
    "torch": _TORCH,
    "tensorflow": _TENSORFLOW,
    "jax": _JAX,
    "nsys": _NSYS,
    "nsys, in a program of torch": _NVTX,
}
_OF_NSYS = ("nsys", "nsys, in a program of torch")
_OF_FORMAT = {
    **dict.fromkeys(("kineto", "autograd", "rocprofv3"), ("torch",)),
    **dict.fromkeys(("xplane", "trace_viewer"), ("tensorflow", "jax")),
    **dict.fromkeys(("nsys", "nvprof", "onnxruntime", "tf1_timeline", "mxnet"), _OF_NSYS),
}


def recipes_for(profile_format: str | None) -> tuple[str, ...]:
    """What records better what a profile of this format lacks; all where that is not known."""
    return _OF_FORMAT.get(profile_format or "", tuple(RECIPES))
