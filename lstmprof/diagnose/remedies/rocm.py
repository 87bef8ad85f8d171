"""What MIOpen, AMD's library, does otherwise than cuDNN: it compiles kernels, a layer is many."""

from __future__ import annotations

import re

from lstmprof.diagnose.causes import COMPILE
from lstmprof.diagnose.findings import Finding
from lstmprof.diagnose.remedies.told import HOST, TORCH, WORK, Remedy, Told, each, times_called
from lstmprof.numbers import count, cropped, milliseconds

#: The compilers that ROCm's libraries call, and MIOpen's own functions that call them.
_COMPILER = re.compile(r"(?i)hiprtc|amd_comgr|miopen\w*.*(?:compile|buildprogram)")
_LAYER = re.compile(r"aten::miopen_rnn(?!_)")


def miopen_compiles(f: Finding) -> Told | None:
    """ROCm's compilers ran in the profiled steps."""
    compiled = [fact for fact in f.slow.seen.compiled if _COMPILER.search(fact.name)]
    if not compiled:
        return None
    took_ns = sum(fact.ns for fact in compiled)
    return Told(
        f"{cropped(compiled[0].name)} and such take {milliseconds(took_ns)} ms{each(f.slow)}: "
        "MIOpen compiles a kernel when it first needs it, for every new shape again; run each "
        "shape once before the steps that count, pad to few shapes, and keep its cache between "
        "runs (MIOPEN_USER_DB_PATH, MIOPEN_CUSTOM_CACHE_DIR)",
        took_ns,
    )


def layer_on_miopen(f: Finding) -> Told | None:
    """A recurrent layer runs on MIOpen, by kernels of which every time step launches some."""
    times = times_called(f.slow, _LAYER)
    if f.slow.device is None or not times:
        return None
    rows = [row for row in f.slow.rows("layers") if row["library"] == "MIOpen"]
    kernels = [row["kernels_per_time_step"] for row in rows if row["kernels_per_time_step"]]
    launched = f", {count(max(kernels))} kernels per time step" if kernels else ""
    if kernels and max(kernels) < 1:
        return None
    return Told(
        f"aten::miopen_rnn runs the layer on MIOpen{launched}: it has no persistent kernel as "
        "cuDNN has; compare torch.backends.cudnn.enabled = False, which takes PyTorch's own cells "
        "on ROCm, and a graph of the step"
    )


WARM_MIOPEN = Remedy(
    name="warm MIOpen up",
    cause="MIOpen compiles its kernels at their first use",
    condition="calls of ROCm's compilers (hiprtc, comgr) in the profiled steps",
    kinds=(COMPILE,),
    saves="compiling",
    decide=miopen_compiles,
    sources=(
        "https://rocm.docs.amd.com/projects/MIOpen/en/latest/conceptual/cache.html",
        "https://github.com/pytorch/pytorch/issues/177834",
    ),
)
MIOPEN_LAYER = Remedy(
    name="cells instead of MIOpen",
    cause="a recurrent layer runs on MIOpen, time step by time step",
    condition="the op miopen_rnn on a GPU, with a kernel per time step or more if these are known",
    kinds=(*HOST, *WORK),
    frameworks=TORCH,
    decide=layer_on_miopen,
    sources=(
        "https://github.com/ROCm/MIOpen/issues/667",
        "https://github.com/ROCm/legacy-rocm-build/issues/4677",
    ),
)
