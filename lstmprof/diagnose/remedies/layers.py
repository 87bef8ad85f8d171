"""Causes: a cuDNN or MIOpen layer runs slow kernels, or copies its weights.

``_cudnn_rnn`` copies the weights on every call unless flatten_parameters() has put all weights into
one buffer (copy_weights_to_flat_buf_views in aten/src/ATen/native/cudnn/RNN.cpp). ``miopen_rnn``
always copies the weights (aten/src/ATen/native/miopen/RNN_miopen.cpp).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from lstmprof.base.numbers import count, listed
from lstmprof.breakdown.recurrent.cudnn_algorithm import (
    BFLOAT16,
    CUDNN,
    FLOAT16,
    FLOAT32,
    GRU,
    LSTM,
    RNN_TANH,
    SMALL_H,
    STANDARD,
    STATIC,
    Choice,
    Gpu,
    Layer,
    algorithm,
    gpu_of,
)
from lstmprof.diagnose.findings import Finding
from lstmprof.diagnose.findings.causes import CAST, COPY, DISPATCH, GEMM, LAUNCH, MEMORY
from lstmprof.diagnose.remedies.rows import (
    HOST,
    TORCH,
    WORK,
    Match,
    Remedy,
    from_facts,
    often_in_all,
    times_called,
    total,
)
from lstmprof.diagnose.seen import Fact
from lstmprof.diagnose.step_profile import StepProfile
from lstmprof.implementations import LAYER_OP

_DTYPES = {"fp32": FLOAT32, "tf32": FLOAT32, "amp-fp16": FLOAT16, "amp-bf16": BFLOAT16}
_CELLS = {"lstm": LSTM, "gru": GRU, "rnn": RNN_TANH}
_MODES = {"lstm": "LSTM", "gru": "GRU", "rnn_tanh": "RNN", "rnn_relu": "RNN"}
_MEET = "let cuDNN run its persistent kernels"
#: Largest hidden size for which lstmprof considers both types of persistent kernels, also the type
#: for few hidden units. Fewer units change the network.
_FEW_UNITS = 256
_ON_MIOPEN = re.compile(r"aten::miopen_rnn(?!_)")
#: Smallest number of weight arrays of a layer: fewer copies per call do not copy the weights.
_WEIGHTS = 4
_FLATTENS = "aten::_cudnn_rnn_flatten_weight"
_MIOPEN = "aten::miopen_rnn"


@dataclass(frozen=True)
class Run:
    """One pass of a cuDNN layer, with the algorithms requested and seen to run."""

    way: str
    requested: Choice
    seen: str | None  # None: no kernel shows which algorithm ran

    @property
    def standard(self) -> bool:
        """Return whether the slower standard algorithm probably ran."""
        return (self.seen or self.requested.algorithm) == STANDARD

    @property
    def refused(self) -> bool:
        """Return whether cuDNN refused the persistent kernels that PyTorch requested."""
        return self.standard and self.requested.algorithm not in (STANDARD, None)


@dataclass(frozen=True)
class OnCudnn:
    """A recurrent layer on cuDNN, and its passes."""

    layer: Layer
    passes: tuple[Run, ...]

    @property
    def words(self) -> str:
        """Return the layer as text, such as ``LSTM, 256 hidden units, batch 60, float16``."""
        layer = self.layer
        sizes = (
            _MODES.get(layer.mode or ""),
            None if layer.hidden is None else f"{layer.hidden:,} hidden units",
            None if layer.batch is None else f"batch {layer.batch:,}",
            layer.dtype,
        )
        return ", ".join(word for word in sizes if word)


def layers_on_cudnn(profile: StepProfile) -> list[OnCudnn]:
    if profile.device is None or profile.framework != "torch":
        return []
    gpu = gpu_of(profile.info.device_facts.get(str(profile.device)))
    rows = [row for row in profile.rows("layers") if row["library"] == CUDNN and row["hidden"]]
    return [_layer_of_row(row, gpu) for row in rows] or list(_captured_layer(profile, gpu))


def _layer_of_row(row: dict[str, Any], gpu: Gpu) -> OnCudnn:
    names = ("time_steps", "batch", "inputs", "hidden", "layers", "directions", "dtype", "packed")
    layer = Layer(
        framework="torch",
        mode=row["cell"],
        projection=row["projection"] or 0,
        op=row["op"],
        **{name: row[name] for name in names},
    )
    runs = [Run("forward", algorithm(layer, gpu, True), row["algorithm_seen"])]
    if row["backward_ns"] is not None:
        seen = row["backward_algorithm_seen"]
        runs.append(Run("backward", algorithm(layer, gpu, False), seen))
    return OnCudnn(layer, tuple(runs))


def _captured_layer(profile: StepProfile, gpu: Gpu) -> Iterator[OnCudnn]:
    """Yield the layer of the run's workload, for profiles without recorded shapes."""
    info, workload = profile.info, profile.info.workload
    if info.framework != "torch" or info.kernels_used != CUDNN or not workload:
        return
    persists = any(c.part == "rnn" and c.family == "persistent" for c in profile.contributors)
    layer = Layer(
        framework="torch",
        mode=_CELLS.get(workload.cell or "lstm"),
        dtype=_DTYPES.get(str(info.precision)),
        time_steps=workload.time_steps,
        batch=workload.batch,
        inputs=workload.features,
        hidden=workload.hidden,
        layers=workload.layers,
        directions=2 if workload.bidirectional else 1,
        packed=bool(workload.variable_length),
        projection=0,
    )
    ways = ("forward",) if info.mode == "forward" else ("forward", "backward")
    if not persists:
        runs = (Run(way, algorithm(layer, gpu, way == "forward"), None) for way in ways)
        yield OnCudnn(layer, tuple(runs))


@Remedy(
    name="persistent kernels",
    cause="cuDNN runs its standard kernels instead of the faster persistent kernels",
    fix=f"{_MEET}, which need certain batch sizes, hidden sizes and element types",
    condition="Either the names of the kernels show that cuDNN ran its standard kernels, or the "
    "names show nothing about this and PyTorch requests standard kernels for this layer",
    kinds=(GEMM, MEMORY, LAUNCH),
    frameworks=TORCH,
    sources=(
        "https://github.com/pytorch/pytorch/blob/00fc08aa616fbdec70496aebee034ac90b083ff4/"
        "aten/src/ATen/native/cudnn/RNN.cpp",
        "https://github.com/pytorch/pytorch/pull/62143",
        "https://github.com/pytorch/pytorch/pull/43165",
        "https://github.com/pytorch/pytorch/pull/59830",
    ),
)
def persistent_kernels(f: Finding) -> Match | None:
    layer_ns = sum(c.ns for c in f.contributors if "rnn" in (c.part, c.purpose))
    matches = (_standard(on, layer_ns) for on in layers_on_cudnn(f.slow))
    return next(filter(None, matches), None) if layer_ns else None


def _standard(on: OnCudnn, layer_ns: int) -> Match | None:
    runs = [run for run in on.passes if run.standard]
    refused = [run for run in runs if run.refused]
    ways = listed(run.way for run in refused or runs)
    seen = f"cuDNN ran its standard kernels in the {ways} pass ({on.words})"
    if refused:
        other = ", or float16, which has persistent kernels" if on.layer.dtype == BFLOAT16 else ""
        seen += f", although PyTorch requested {refused[0].requested.algorithm}"
        return Match(seen, layer_ns, fix=f"try another version of cuDNN{other}")
    needs = _needs(runs, on.layer.hidden or 0)
    return Match(seen, layer_ns, fix=f"{_MEET}: {needs}") if needs else None


def _needs(runs: list[Run], hidden: int) -> str:
    """Return the smallest set of changes that lets cuDNN run persistent kernels."""
    large = [r.needs for run in runs if (r := run.requested.refusal_of(STATIC))]
    small = [r.needs for run in runs if (r := run.requested.refusal_of(SMALL_H))]
    ways = [list(needs) for needs in large[:1]]
    few = list(dict.fromkeys(need for needs in small for need in needs))
    if few and (hidden <= _FEW_UNITS or not large):
        ways.append(few)
    fewest: list[str] = min(ways, key=len, default=[])
    return listed(fewest)


@Remedy(
    name="cells instead of MIOpen",
    cause="MIOpen runs the layer one time step at a time",
    fix="turn MIOpen off (torch.backends.cudnn.enabled = False), or replay the step as a HIP graph",
    condition="The op miopen_rnn runs on a GPU, with one or more kernels per time step",
    kinds=(*HOST, *WORK),
    frameworks=TORCH,
    sources=(
        "https://github.com/ROCm/MIOpen/issues/667",
        "https://github.com/ROCm/legacy-rocm-build/issues/4677",
    ),
)
def layer_on_miopen(f: Finding) -> Match | None:
    if f.slow.device is None or not times_called(f.slow, _ON_MIOPEN):
        return None
    rows = [row for row in f.slow.rows("layers") if row["library"] == "MIOpen"]
    kernels = max((row["kernels_per_time_step"] or 0 for row in rows), default=0)
    if 0 < kernels < 1:
        return None
    launches = (
        f"launches {count(kernels)} kernels per time step" if kernels else "computes the layer"
    )
    return Match(f"aten::miopen_rnn {launches}")


@Remedy(
    name="flatten_parameters",
    cause="the layer copies its weights into one block of memory on every call",
    fix="call flatten_parameters() once, after the model has moved to the GPU",
    condition="Each call of a cuDNN or MIOpen layer runs four or more copies inside the layer's op",
    kinds=(COPY, MEMORY, LAUNCH, DISPATCH),
    frameworks=TORCH,
    sources=(
        "https://github.com/pytorch/examples/issues/248",
        "https://github.com/salesforce/awd-lstm-lm/issues/120",
        "https://github.com/pytorch/pytorch/blob/main/torch/nn/modules/rnn.py",
        "https://github.com/pytorch/pytorch/pull/3752",
        "https://github.com/pytorch/pytorch/issues/3751",
    ),
)
def weights_apart(f: Finding) -> Match | None:
    copies = _weight_facts(f, [h for h in f.slow.seen.weights if h.within != _FLATTENS])
    if not copies:
        return None
    fix = ""
    if copies[0].within == _MIOPEN:
        fix = "make fewer, longer calls of the layer: on MIOpen, each call copies the weights"
    elif f.slow.seen.flattens:
        # flatten_parameters() is in torch/nn/modules/rnn.py
        fix = (
            "share no weights and mix no dtypes in a layer: flatten_parameters() skips such layers"
        )
    seen = f"{copies[0].within} copies its weights {often_in_all(f.slow, copies)}"
    return Match(seen, total(copies), fix)


@Remedy(
    name="cast the layer's weights once",
    cause="autocast casts the weights of the layer on every call",
    fix="keep the layer's weights in float16 (layer.half()), or run the layer outside autocast",
    condition="Each call of a cuDNN or MIOpen layer runs four or more casts inside the layer's op",
    kinds=(CAST, COPY, MEMORY, LAUNCH, DISPATCH),
    frameworks=TORCH,
    sources=(
        "https://github.com/pytorch/pytorch/issues/42385",
        "https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/cudnn/AutocastRNN.cpp",
    ),
)
def weights_cast(f: Finding) -> Match | None:
    casts = _weight_facts(f, f.slow.seen.recast)
    if not casts:
        return None
    return Match(f"{casts[0].within} casts its weights {often_in_all(f.slow, casts)}", total(casts))


@Remedy(
    name="bfloat16 on cuDNN",
    cause="the layer computes in bfloat16, but this version of cuDNN or MIOpen has no bfloat16 "
    "layer op",
    fix="compute the layer in float16 or float32, or upgrade cuDNN to 9.13 or later (NVIDIA GPUs)",
    condition="A GPU runs a recurrent layer of PyTorch in bfloat16, and the profile shows no cuDNN "
    "or MIOpen op inside the layer",
    kinds=(*HOST, *WORK, COPY),
    frameworks=TORCH,
    sources=(
        "https://github.com/pytorch/pytorch/pull/164411",
        "https://github.com/pytorch/pytorch/issues/116925",
    ),
)
def in_bfloat16_off_cudnn(f: Finding) -> Match | None:
    rows = [
        row
        for row in f.slow.rows("layers")
        if (row["form"], row["library"], row.get("dtype")) == (LAYER_OP, "ATen", "bfloat16")
    ]
    if f.slow.device is None or not rows:
        return None
    row = max(rows, key=lambda row: row["calls"] or 0)
    steps = f" its {count(row['time_steps'])} time steps" if row["time_steps"] else ""
    return Match(f"{row['op']} runs{steps} op by op")


def _weight_facts(f: Finding, facts: Sequence[Fact]) -> list[Fact]:
    """Keep copies only if each call of the layer makes enough to copy all weights."""
    copies = [fact for fact in facts if fact.within]
    calls = sum(
        r["count"] for r in f.slow.rows("ops") if r["name"] in {h.within for h in copies}
    ) / max(f.slow.steps, 1)
    few = not calls or sum(h.count for h in copies) < _WEIGHTS * calls
    return [] if few else copies


@Remedy(
    name="flatten once",
    cause="flatten_parameters() copies the weights in every step",
    fix="call flatten_parameters() once, after the model has moved to the GPU, not in forward()",
    condition="The profiled steps make copies inside the op _cudnn_rnn_flatten_weight",
    kinds=(COPY, MEMORY, LAUNCH, DISPATCH),
    frameworks=TORCH,
    sources=("https://github.com/pytorch/pytorch/blob/main/torch/nn/modules/rnn.py",),
)
def flattened_each_step(f: Finding) -> Match | None:
    copies = [h for h in f.slow.seen.weights if h.within == _FLATTENS]
    return from_facts(f, copies, "flatten_parameters() makes copies {times}")
