"""Causes: unnecessary or slow work: casts, copies, matmuls without tensor cores, repeated ops."""

from __future__ import annotations

import re

from lstmprof.base.numbers import count, cropped, listed
from lstmprof.breakdown.recurrent.cudnn_algorithm import gpu_of
from lstmprof.diagnose.findings import Finding, causes
from lstmprof.diagnose.findings.because import may_be_copies
from lstmprof.diagnose.findings.causes import CAST, COPY, DISPATCH, GEMM, LAUNCH, MEMORY, SYNC
from lstmprof.diagnose.findings.counts import counted
from lstmprof.diagnose.remedies.cells import form_of
from lstmprof.diagnose.remedies.rows import (
    HOST,
    TORCH,
    WORK,
    Match,
    Remedy,
    from_facts,
    in_ms,
    often,
    total,
)
from lstmprof.diagnose.seen import DenseTable, Product
from lstmprof.diagnose.step_profile import StepProfile
from lstmprof.implementations import CELL_OP, LOOP

#: Largest share of a float32 matmul's time that TF32 saves (A100: 156, not 19.5 TFLOP/s).
_TF32_SAVES = 7 / 8
#: Pattern of GPUs with TF32 (compute capability 8.0 or later).
_AMPERE = re.compile(r"\b(?:A100|A10|A30|A40|H100|H200|B200|L4|L40|RTX (?:A\d|[3-5]0\d\d))")
#: Pattern of kernels that were made for GPUs with TF32.
_AMPERE_KERNEL = re.compile(r"^(?:ampere|sm80|sm86|sm89|sm90)_|cutlass_(?:80|90)")
#: Pattern of cuBLAS kernels for float32 matmuls without tensor cores.
_FLOAT32_PRODUCT = re.compile(r"sgemm(?!.*tf32)|simt_sgemm")
#: 16-bit types, as Kineto writes them.
_HALF = ("c10::Half", "c10::BFloat16")
#: Smallest number of casts per step at which lstmprof assumes casts in a loop over time. Chosen by
#: hand.
_LOOPED = 8
_RELAYS = ("aten::contiguous", "aten::reshape", "aten::clone", "aten::flatten")
_TO_CHANNELS_LAST = re.compile(r"(?i)nchwtonhwc|nhwctonchw")
#: Smallest compute capability of NVIDIA GPUs with tensor cores, times 10.
_FIRST_WITH_TENSOR_CORES = 70
#: Pattern of GPUs without tensor cores despite compute capability 7.5.
_WITHOUT_TENSOR_CORES = re.compile(r"\bGTX 16\d\d")
#: Pattern of matmul kernels without tensor cores. Kernels with tensor cores have a number before
#: ``gemm`` (s884gemm, h16816gemm).
_SCALAR = re.compile(r"(?i)(?<![0-9])[sh]gemm(?!\w*(?:tensorop|hmma))|simt|magma_\w*gemm")
#: Pattern of CUTLASS kernels that load fewer than 8 elements at once, because rows are unaligned.
_UNALIGNED = re.compile(r"align[124](?![0-9])")
#: Largest share of an embedding table's rows that lstmprof treats as few rows. Chosen by hand.
_FEW_ROWS = 0.25
#: Number of 16-bit elements in the 16 bytes that a tensor core reads at once.
_ALIGNED = 8


@Remedy(
    name="do it once",
    cause="an op runs more often per step than in the faster run",
    fix="look for work that the step does twice, or in more calls than necessary",
    condition="Both runs use the same implementation, and the slower run calls an op at least 1.5 "
    "times as often",
    kinds=(*WORK, CAST, COPY, DISPATCH, LAUNCH, SYNC),
    sources=(
        "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html",
        "https://www.tensorflow.org/guide/gpu_performance_analysis",
        "https://docs.jax.dev/en/latest/gpu_performance_tips.html",
    ),
)
def repeated(f: Finding) -> Match | None:
    name = f.slow.implementation
    if f.fast is None or name is None or f.fast.implementation != name:
        return None
    more = (c for c in f.largest if c.slow_count > 1.5 * c.fast_count and c.delta_ns > 0)
    grown = next(more, None)
    if grown is None:
        return None
    times = f"{count(grown.slow_count)} times{f.slow.per_step}"
    seen = f"{cropped(grown.name)} runs {times} (baseline: {count(grown.fast_count)})"
    return Match(seen, grown.delta_ns)


@Remedy(
    name="cast once before the loop",
    cause="autocast casts weights and inputs in every time step",
    fix="cast weights and inputs once, before the loop over time steps",
    condition="Recurrent layers compute one time step at a time, and each training step has eight "
    "or more casts to half precision",
    kinds=(CAST,),
    frameworks=TORCH,
    sources=(
        "https://docs.pytorch.org/docs/stable/amp.html",
        "https://github.com/NVIDIA/apex/issues/297",
    ),
)
def casts_each_time_step(f: Finding) -> Match | None:
    if f.slow.info.precision is None:
        return _casts_to_half(f)
    casts, steps = counted(f.slow, "casts"), f.slow.time_steps
    if not str(f.slow.info.precision).startswith("amp") or not steps or casts < steps:
        return None
    took = sum(c.ns for c in f.contributors if "cast" in (c.part, c.purpose))
    return Match(f"{count(casts / steps)} casts per time step", round(took * (1 - 1 / steps)))


def _casts_to_half(f: Finding) -> Match | None:
    """Match casts to 16-bit types in a loop, if the profile has no precision."""
    rows = [r for r in f.slow.rows("casts") if r["to_dtype"] in _HALF]
    times = sum(r["count"] for r in rows) / f.slow.steps
    if times < _LOOPED or form_of(f.slow) not in (CELL_OP, LOOP):
        return None
    took = round(sum(r["total_ns"] for r in rows) / f.slow.steps)
    return Match(
        f"{count(times)} casts to half precision take {in_ms(f.slow, took)}",
        took,
        fix="cast once, before the loop over time steps, or run small layers in float32 "
        "(autocast(…, enabled=False))",
    )


@Remedy(
    name="keep one type",
    cause="an op casts tensors from one element type to another",
    fix="avoid casts: create each tensor in the dtype that the next op uses",
    condition="The profile names the op whose casts take the most time",
    kinds=(CAST,),
    sources=(
        "https://docs.pytorch.org/docs/stable/amp.html",
        "https://www.tensorflow.org/guide/mixed_precision",
        "https://docs.jax.dev/en/latest/type_promotion.html",
    ),
)
def casts(f: Finding) -> Match | None:
    rows = sorted(f.slow.rows("casts"), key=lambda row: -row["total_ns"])
    if not rows or rows[0]["op"] is None or may_be_copies(f.slow):
        return None
    row = rows[0]
    types = f" from {row['from_dtype']} to {row['to_dtype']}" if row["to_dtype"] else ""
    within = f" in {cropped(row['within'])}" if row["within"] else ""
    times = often(f.slow, row["count"] / f.slow.steps)
    seen = f"{cropped(row['op'])}{within} casts{types} {times}"
    return Match(seen, round(row["total_ns"] / f.slow.steps))


@Remedy(
    name="channels last",
    cause="images are converted between NCHW and NHWC around convolutions",
    fix="use memory_format=torch.channels_last for the model and its inputs",
    condition="Kernels convert images between NCHW and NHWC",
    kinds=(COPY, MEMORY, GEMM),
    frameworks=TORCH,
    sources=("https://docs.pytorch.org/tutorials/intermediate/memory_format_tutorial.html",),
)
def channels_last(f: Finding) -> Match | None:
    rows = [r for r in f.slow.rows("kernels") if _TO_CHANNELS_LAST.search(r["name"])]
    if not rows:
        return None
    took = round(sum(r["total_ns"] for r in rows) / f.slow.steps)
    number = sum(r["count"] for r in rows) / f.slow.steps
    return Match(
        f"{count(number)} conversions between NCHW and NHWC take {in_ms(f.slow, took)}", took
    )


@Remedy(
    name="TF32",
    cause="float32 matmuls do not use the tensor cores",
    fix="allow TF32, a less precise format: torch.set_float32_matmul_precision('high')",
    condition="Matmuls in float32 run without tensor cores on a GPU that supports TF32 (compute "
    "capability 8.0 or later)",
    kinds=(GEMM,),
    frameworks=TORCH,
    sources=(
        "https://www.nvidia.com/en-us/data-center/a100/",
        "https://docs.pytorch.org/docs/stable/generated/torch.set_float32_matmul_precision.html",
    ),
)
def tf32(f: Finding) -> Match | None:
    info = f.slow.info
    if f.slow.device is None or info.tf32 or info.precision not in (None, "fp32"):
        return None
    rows = [r for r in f.slow.rows("kernels") if _FLOAT32_PRODUCT.search(r["name"])]
    named = f"{info.device_name} {' '.join(info.device_names.values())}"
    ampere = _AMPERE.search(named) or any(_AMPERE_KERNEL.search(r["name"]) for r in rows)
    if not ampere or not rows:
        return None
    took = round(sum(r["total_ns"] for r in rows) / f.slow.steps)
    seen = f"{cropped(rows[0]['name'])} and similar kernels take {in_ms(f.slow, took)}"
    ours = "capture with --precision tf32 or amp-bf16: tensor cores then compute these matmuls"
    saves = round(_TF32_SAVES * took)
    return Match(seen, saves, fix="" if info.precision is None else ours)


@Remedy(
    name="cuDNN's CTC",
    cause="the CTC loss runs on PyTorch's own kernels, not cuDNN's",
    fix="meet cuDNN's conditions: concatenated int32 targets on the CPU, all input_lengths = T, "
    "and blank=0",
    condition="A kernel of PyTorch's own CTC loss (ctc_loss_log_alpha) runs",
    kinds=(causes.CTC,),
    frameworks=TORCH,
    sources=("https://docs.pytorch.org/docs/stable/generated/torch.nn.CTCLoss.html",),
)
def native_ctc(f: Finding) -> Match | None:
    own = any("ctc_loss_log_alpha" in (c.name or "") for c in f.contributors)
    return Match("", f.slow_ns) if own else None


@Remedy(
    name="float32 without tensor cores",
    cause="half precision runs on a GPU without tensor cores",
    fix="try float32: this GPU has no tensor cores, so half precision saves memory but no time in "
    "matmuls",
    condition="Matmuls in float16 or bfloat16 run on a GPU without tensor cores: compute "
    "capability below 7.0, or the GTX 16 series",
    kinds=(GEMM, CAST),
    sources=(
        "https://github.com/pytorch/pytorch/issues/1539",
        "https://docs.nvidia.com/cuda/cuda-c-programming-guide/#arithmetic-instructions",
    ),
)
def no_tensor_cores(f: Finding) -> Match | None:
    products = f.slow.seen.half_products
    gpu = _without_tensor_cores(f.slow) if products else None
    return None if gpu is None else Match(f"{products[0].op} runs in {products[0].dtype} on {gpu}")


def _without_tensor_cores(profile: StepProfile) -> str | None:
    """Return text such as ``a GTX 1660`` for a GPU without tensor cores, else None."""
    facts = profile.info.device_facts.get(str(profile.device))
    sm = gpu_of(facts).sm
    if facts is not None and sm is not None and sm < _FIRST_WITH_TENSOR_CORES:
        return f"a GPU of compute capability {facts.compute_capability}"
    named = profile.info.device_names.get(str(profile.device)) or profile.info.device_name or ""
    match = _WITHOUT_TENSOR_CORES.search(named)
    return f"a {match[0]}" if match else None


@Remedy(
    name="multiples of 8",
    cause="sizes that are not a multiple of 8 make half-precision matmuls slow",
    fix="pad the sizes of these matmuls to multiples of 8",
    condition="A dimension of a float16 or bfloat16 matmul is not a multiple of 8. The matmul's "
    "kernel uses no tensor cores, or is a kernel for rows that are not aligned to 16 bytes",
    kinds=(GEMM,),
    sources=(
        "https://docs.nvidia.com/deeplearning/performance/dl-performance-matrix-multiplication/",
        "https://github.com/pytorch/pytorch/pull/3409",
    ),
)
def odd_sizes(f: Finding) -> Match | None:
    if f.slow.device is None or _without_tensor_cores(f.slow):
        return None
    odd = [
        p
        for p in f.slow.seen.half_products
        if _odd(p) and (_SCALAR.search(p.kernel) or _UNALIGNED.search(p.kernel))
    ]
    if not odd:
        return None
    product = odd[0]
    pads = [f"{size:,} to {-size // _ALIGNED * -_ALIGNED:,}" for size in _odd(product)]
    how = (
        "without tensor cores"
        if _SCALAR.search(product.kernel)
        else "by a kernel for unaligned rows"
    )
    sizes = " × ".join(f"{size:,}" for size in product.sizes)
    seen = f"{product.op} (sizes {sizes}) runs in {product.dtype} {how}: {cropped(product.kernel)}"
    return Match(seen, sum(p.ns for p in odd), fix=f"pad the size {listed(pads)}")


@Remedy(
    name="sparse gradient",
    cause="the gradient and the optimizer process all rows of an embedding table, although a step "
    "uses few rows",
    fix="use nn.Embedding(…, sparse=True) with SparseAdam or SGD, which update only the used rows",
    condition="The step runs aten::embedding_dense_backward, although the step looks up at "
    "most a quarter of the embedding's rows. No output layer shares the weights of the "
    "embedding",
    kinds=(*HOST, *WORK, COPY),
    frameworks=TORCH,
    several_kinds=True,
    instead="the sparse update",
    sources=(
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.Embedding.html",
        "https://github.com/pytorch/pytorch/issues/5309",
    ),
)
def dense_table(f: Finding) -> Match | None:
    tables = tables_of_few_rows(f.slow)
    if not tables:
        return None
    table, saves = tables[0], sum(t.ns * (1 - t.looked_up / t.rows) for t in tables)
    used = f"{count(table.looked_up)} of {table.rows:,} rows are looked up{f.slow.per_step}"
    seen = f"{used}, but ops over all rows take {in_ms(f.slow, table.ns)}"
    return Match(seen, round(saves))


def tables_of_few_rows(profile: StepProfile) -> list[DenseTable]:
    """Return the embedding tables with dense gradients, if a step uses few of their rows."""
    return [t for t in profile.seen.dense_tables if t.looked_up <= _FEW_ROWS * t.rows]


def _odd(product: Product) -> list[int]:
    return [size for size in dict.fromkeys(product.sizes) if size % _ALIGNED]


@Remedy(
    name="keep the layout",
    cause="tensors are copied into another memory layout",
    fix="create the tensor in the layout that the next op reads, or convert the tensor only once",
    condition="The ops contiguous, reshape, clone or flatten copy tensors. At least half of the "
    "time of these copies is outside recurrent layers",
    kinds=(COPY,),
    frameworks=TORCH,
    sources=(
        "https://docs.pytorch.org/docs/stable/generated/torch.Tensor.contiguous.html",
        "https://github.com/pytorch/pytorch/issues/621",
    ),
)
def relaid_by_choice(f: Finding) -> Match | None:
    moved = [h for h in f.slow.seen.moved if h.within in _RELAYS]
    if 2 * total(f.slow.seen.relaid) > total(moved):
        return None
    return from_facts(f, moved, "{within} copies tensors {cost}")
