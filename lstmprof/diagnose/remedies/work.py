"""What makes the work itself less: casts, copies, products, what is done twice."""

from __future__ import annotations

import re

from lstmprof.diagnose import causes
from lstmprof.diagnose.causes import CAST, COPY, DISPATCH, GEMM, LAUNCH, MEMORY, SYNC
from lstmprof.diagnose.findings import Finding
from lstmprof.diagnose.findings.because import may_be_copies
from lstmprof.diagnose.findings.counts import counted
from lstmprof.diagnose.remedies.cells import form_of
from lstmprof.diagnose.remedies.told import (
    TORCH,
    WORK,
    Example,
    Remedy,
    Told,
    each,
    often,
    often_in_all,
    total,
)
from lstmprof.implementations import CELL_OP, LOOP
from lstmprof.numbers import count, cropped, milliseconds

#: GPUs with TF32: compute capability 8.0 and later; kernels that say so.
_AMPERE = re.compile(r"\b(?:A100|A10|A30|A40|H100|H200|B200|L4|L40|RTX (?:A\d|[3-5]0\d\d))")
_AMPERE_KERNEL = re.compile(r"^(?:ampere|sm80|sm86|sm89|sm90)_|cutlass_(?:80|90)")
#: Products of float32 that use no tensor cores, of cuBLAS.
_FLOAT32_PRODUCT = re.compile(r"sgemm(?!.*tf32)|simt_sgemm")
#: Types of 16 bits, as Kineto writes them.
_HALF = ("c10::Half", "c10::BFloat16")
#: So many casts per step are a loop.
_LOOPED = 8
_RELAYS = ("aten::contiguous", "aten::reshape", "aten::clone", "aten::flatten")
_TO_CHANNELS_LAST = re.compile(r"(?i)nchwtonhwc|nhwctonchw")


def repeated(f: Finding) -> Told | None:
    """The same implementation does the same more often than in the faster run."""
    grown = f.repeated
    if grown is None:
        return None
    calls = f"{count(grown.slow_count)} times{each(f.slow)} against {count(grown.fast_count)}"
    return Told(
        f"{cropped(grown.name)} runs {calls}: look for work that is repeated or split into pieces",
        grown.delta_ns,
    )


def casts_each_time_step(f: Finding) -> Told | None:
    """Automatic mixed precision casts in every time step what does not change between them."""
    if f.slow.info.precision is None:
        return _casts_to_half(f)
    casts, steps = counted(f.slow, "casts"), f.slow.time_steps
    if not str(f.slow.info.precision).startswith("amp") or not steps or casts < steps:
        return None
    took = sum(c.ns for c in f.contributors if "cast" in (c.part, c.purpose))
    return Told(
        f"autocast casts {count(casts / steps)} times per time step: cast weights and inputs once "
        "before the loop, or keep the weights in half precision",
        round(took * (1 - 1 / steps)),
    )


def _casts_to_half(f: Finding) -> Told | None:
    """The same in a profile made elsewhere, by what is cast to."""
    rows = [r for r in f.slow.rows("casts") if r["to_dtype"] in _HALF]
    times = sum(r["count"] for r in rows) / f.slow.steps
    if times < _LOOPED or form_of(f.slow) not in (CELL_OP, LOOP):
        return None
    took = round(sum(r["total_ns"] for r in rows) / f.slow.steps)
    return Told(
        f"it casts to half precision {often(f.slow, times)}, {milliseconds(took)} ms"
        f"{each(f.slow)}, as autocast does: cast weights and inputs once before the loop, or leave "
        "a small layer in float32 (torch.autocast(enabled=False) around it)",
        took,
    )


def casts(f: Finding) -> Told | None:
    """Who casts from what to what, the largest."""
    rows = sorted(f.slow.rows("casts"), key=lambda row: -row["total_ns"])
    if not rows or rows[0]["op"] is None or may_be_copies(f.slow):
        return None
    row = rows[0]
    types = f" from {row['from_dtype']} to {row['to_dtype']}" if row["to_dtype"] else ""
    op, times = cropped(row["op"]), often(f.slow, row["count"] / f.slow.steps)
    within = f" in {cropped(row['within'])}" if row["within"] else ""
    return Told(
        f"{op}{within} casts{types} {times}: keep what it casts in the type that is needed there",
        round(row["total_ns"] / f.slow.steps),
    )


def contiguous(f: Finding) -> Told | None:
    """Copies into another layout that torch was asked for or had to make."""
    moved = [h for h in f.slow.seen.moved if h.within in _RELAYS]
    if not moved or 2 * total(f.slow.seen.relaid) > total(moved):
        return None
    times = often_in_all(f.slow, moved)
    return Told(
        f"{moved[0].within} copies elements into another layout {times}, "
        f"{milliseconds(total(moved))} ms{each(f.slow)}: keep the tensor in the layout in which it "
        "is read, or move it once",
        total(moved),
    )


def channels_last(f: Finding) -> Told | None:
    """Convolutions whose images are turned into the layout that their kernels read, and back."""
    rows = [r for r in f.slow.rows("kernels") if _TO_CHANNELS_LAST.search(r["name"])]
    if not rows:
        return None
    took = round(sum(r["total_ns"] for r in rows) / f.slow.steps)
    times = often(f.slow, sum(r["count"] for r in rows) / f.slow.steps)
    return Told(
        f"images are turned between NCHW and NHWC {times}, {milliseconds(took)} ms{each(f.slow)}: "
        "give the model and its inputs memory_format=torch.channels_last",
        took,
    )


def tf32(f: Finding) -> Told | None:
    """Float32 products on a GPU that has TF32, which is off."""
    info = f.slow.info
    if f.slow.device is None or info.tf32 or info.precision not in (None, "fp32"):
        return None
    rows = [r for r in f.slow.rows("kernels") if _FLOAT32_PRODUCT.search(r["name"])]
    named = f"{info.device_name} {' '.join(info.device_names.values())}"
    ampere = _AMPERE.search(named) or any(_AMPERE_KERNEL.search(r["name"]) for r in rows)
    if not ampere or not rows:
        return None
    how = "--precision tf32 or amp-bf16 runs them on the tensor cores"
    if info.precision is None:
        how = "torch.set_float32_matmul_precision('high') runs them on the tensor cores, with "
        how += "fewer digits"
    return Told(
        f"{cropped(rows[0]['name'])} and such are float32 products: {how}",
        round(sum(r["total_ns"] for r in rows) / f.slow.steps),
    )


def native_ctc(f: Finding) -> Told | None:
    """PyTorch's own CTC kernels ran on a GPU where cuDNN has one."""
    own = [c for c in f.contributors if "ctc_loss_log_alpha" in (c.name or "")]
    if not own:
        return None
    return Told(
        "cuDNN's CTC needs int32 targets on the CPU, concatenated, full-length inputs and blank 0",
        f.slow_ns,
    )


DO_IT_ONCE = Remedy(
    name="do it once",
    cause="the same is done more often than in the faster run",
    condition="the same implementation calls an op half as often again as in the faster run",
    kinds=(*WORK, CAST, COPY, DISPATCH, LAUNCH, SYNC),
    saves="what the op takes more",
    decide=repeated,
    sources=(
        "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html",
        "https://www.tensorflow.org/guide/gpu_performance_analysis",
        "https://docs.jax.dev/en/latest/gpu_performance_tips.html",
    ),
)
CAST_ONCE = Remedy(
    name="cast once before the loop",
    cause="mixed precision casts in every time step what does not change between them",
    condition="autocast casts once or more in every time step; in a profile made elsewhere, "
    "whose layers run cell by cell, eight casts to half precision a step or more",
    kinds=(CAST,),
    frameworks=TORCH,
    saves="all casts but those of one time step",
    decide=casts_each_time_step,
    sources=(
        "https://docs.pytorch.org/docs/stable/amp.html",
        "https://github.com/NVIDIA/apex/issues/297",
    ),
)
KEEP_ONE_TYPE = Remedy(
    name="keep one type",
    cause="elements are cast from one type to another",
    condition="ops that cast, by name",
    kinds=(CAST,),
    saves="the largest",
    decide=casts,
    sources=(
        "https://docs.pytorch.org/docs/stable/amp.html",
        "https://www.tensorflow.org/guide/mixed_precision",
        "https://docs.jax.dev/en/latest/type_promotion.html",
    ),
    example=Example(
        of="mixed precision of PyTorch on an A100",
        told="aten::to in aten::linear casts from float to c10::Half 127 times: keep what it "
        "casts in the type that is needed there",
    ),
)
CHANNELS_LAST = Remedy(
    name="channels last",
    cause="images are turned from one layout to the other and back around convolutions",
    condition="kernels that turn images between NCHW and NHWC",
    kinds=(COPY, MEMORY, GEMM),
    frameworks=TORCH,
    saves="these kernels",
    decide=channels_last,
    sources=("https://docs.pytorch.org/tutorials/intermediate/memory_format_tutorial.html",),
)
KEEP_THE_LAYOUT = Remedy(
    name="keep the layout",
    cause="tensors are copied from one layout to another",
    condition="copies inside contiguous, reshape, clone or flatten, most of them of no recurrent "
    "layer",
    kinds=(COPY,),
    frameworks=TORCH,
    saves="these copies",
    decide=contiguous,
    sources=(
        "https://docs.pytorch.org/docs/stable/generated/torch.Tensor.contiguous.html",
        "https://github.com/pytorch/pytorch/issues/621",
    ),
)
TF32 = Remedy(
    name="TF32",
    cause="float32 products run without tensor cores",
    condition="float32 products without tensor cores, on a GPU that has TF32",
    kinds=(GEMM,),
    frameworks=TORCH,
    saves="these products",
    decide=tf32,
    sources=(
        "https://docs.pytorch.org/docs/stable/generated/torch.set_float32_matmul_precision.html",
    ),
    example=Example(
        of="a PyTorch profile of kernels alone, on an A4000",
        told="ampere_sgemm_128x64_tn and such are float32 products: "
        "torch.set_float32_matmul_precision('high') runs them on the tensor cores, with "
        "fewer digits",
    ),
)
CUDNN_CTC = Remedy(
    name="cuDNN's CTC",
    cause="the CTC loss runs on PyTorch's own kernels where cuDNN has it",
    condition="PyTorch's own kernels of the CTC loss",
    kinds=(causes.CTC,),
    frameworks=TORCH,
    saves="the loss",
    decide=native_ctc,
    sources=("https://docs.pytorch.org/docs/stable/generated/torch.nn.CTCLoss.html",),
)
