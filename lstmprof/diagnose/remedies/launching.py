"""What lets a host keep up with its device: fewer launches, each with more to do."""

from __future__ import annotations

import re

from lstmprof import implementations
from lstmprof.diagnose import causes
from lstmprof.diagnose.causes import MEMORY
from lstmprof.diagnose.findings import Finding
from lstmprof.diagnose.findings.counts import counted
from lstmprof.diagnose.remedies.told import (
    HOST,
    SERIES,
    TENSORFLOW,
    TORCH,
    WORK,
    Example,
    Remedy,
    Told,
    each,
    is_compiled,
    is_retraced,
    series_of_launches,
    times_called,
)
from lstmprof.diagnose.step_profile import StepProfile
from lstmprof.events.threads import ASKS
from lstmprof.numbers import count, milliseconds, number_of, quantity

#: A category whose kernels are as many and as large whatever the batch.
_NOT_OF_THE_BATCH = "optimizer"
#: Ops of torch whose result's size is asked of the device: no graph can be captured over them.
SIZED_BY_DATA = re.compile(r"aten::(?:nonzero|masked_select|_?unique\w*)$")
_ASKS = re.compile("|".join(f"^{name}$" for name in ASKS))
_COLLECTIVE = "collective"
#: Ops of TensorFlow that XLA does not compile.
_NOT_XLA = re.compile(r":(?:CTCLoss|CudnnRNN|BlockLSTM|LSTMBlockCell|GRUBlockCell)\w*$")
_FUSED = re.compile(r"_fused_(?:adam|sgd|adagrad)|FusedAdam|FusedSgd|FusedAdagrad", re.IGNORECASE)
_OPTIMIZER = re.compile(r"Optimizer\.step#(\w+)\.step")
#: The optimizers of torch.optim that take ``fused``.
_CAN_FUSE = ("Adam", "AdamW", "SGD", "Adagrad")


def cuda_graph(f: Finding) -> Told | None:
    """A series of launches of PyTorch that is the same in every step, as far as is seen."""
    saves, row = series_of_launches(f), implementations.ROWS.get(f.slow.implementation or "")
    if saves is None or not _can_be_captured(f.slow):
        return None
    launches = f"{count(counted(f.slow, 'launches'))} launches{each(f.slow)}"
    if row is not None:
        return Told(f"replay its {launches} as one CUDA graph (capture --cuda-graph)", saves)
    return Told(
        f"its {launches} can be one where every step has the same shapes: a CUDA graph, by "
        "torch.compile(mode='reduce-overhead') or torch.cuda.graph",
        saves,
    )


def _can_be_captured(profile: StepProfile) -> bool:
    """Whether nothing is seen that a CUDA graph refuses, and none is there already."""
    info, workload = profile.info, profile.info.workload
    if info.cuda_graph or profile.seen.graph or is_retraced(profile):
        return False
    if workload.loss == "ctc" or workload.variable_length:
        return False
    asks = times_called(profile, _ASKS) + times_called(profile, SIZED_BY_DATA)
    shared = any(c.part == _COLLECTIVE for c in profile.contributors)
    row = implementations.ROWS.get(profile.implementation or "")
    return not asks and not shared and (row is None or "cuda-graph" not in row.refusals())


def compiled_step(f: Finding) -> Told | None:
    """A series of launches of PyTorch, half of them element by element, that nothing compiled."""
    saves = series_of_launches(f)
    if saves is None or f.slow.implementation or is_compiled(f.slow) or is_retraced(f.slow):
        return None
    kernels, pointwise = counted(f.slow, "kernels"), counted(f.slow, "pointwise")
    if 2 * pointwise < kernels or not kernels:
        return None
    return Told(
        f"{count(pointwise)} of its {count(kernels)} kernels{each(f.slow)} work element by "
        "element: torch.compile can fuse them",
        round(saves * min(pointwise / kernels, 1.0)),
    )


def fused_optimizer(f: Finding) -> Told | None:
    """PyTorch's optimizer parameter by parameter: most of this work, or of a series of launches."""
    if _is_fused(f.slow) or not _can_fuse(f.slow):
        return None
    optimizing = [
        c
        for c in f.contributors
        if "optimizer" in (c.part, c.purpose) or _OPTIMIZER.search(c.name or "")
    ]
    saves = sum(c.ns for c in optimizing)
    if f.kind in causes.WAITS and f.slow.device is not None:
        series, kernels = series_of_launches(f), counted(f.slow, "kernels")
        updates = sum(r["count"] for r in _of_optimizer(f.slow)) / f.slow.steps
        if series is None or updates < SERIES:
            return None
        saves = round(series * min(updates / max(kernels, 1.0), 1.0))
    elif 2 * saves < sum(c.ns for c in f.contributors):
        return None
    return Told(
        f"{milliseconds(saves)} ms{each(f.slow)} go to the optimizer, parameter by parameter: "
        "fused=True of torch.optim updates all of them in one kernel",
        saves,
    )


def _of_optimizer(profile: StepProfile) -> list[dict[str, int]]:
    return [row for row in profile.rows("kernels") if row["category"] == "optimizer"]


def _is_fused(profile: StepProfile) -> bool:
    rows = [*profile.rows("ops"), *profile.rows("kernels")]
    return any(_FUSED.search(row["name"]) for row in rows)


def _can_fuse(profile: StepProfile) -> bool:
    """Whether the optimizer that is seen has a fused form."""
    if profile.info.workload.optimizer is not None:
        return True
    rows = [*profile.rows("ops"), *profile.rows("ranges")]
    names = [m.group(1) for row in rows if (m := _OPTIMIZER.search(row["name"]))]
    return bool(names) and all(name in _CAN_FUSE for name in names)


def xla(f: Finding) -> Told | None:
    """A step of TensorFlow that XLA compiles and did not."""
    row = implementations.ROWS.get(f.slow.implementation or "")
    if f.slow.info.xla or is_retraced(f.slow) or is_compiled(f.slow):
        return None
    if row is not None:
        where = "cpu" if f.slow.device is None else "cuda"
        if {"xla", f"xla on {where}"} & row.refusals().keys() or _ctc(f.slow, row):
            return None
        return Told("compile the step with XLA: jit_compile=True (capture --xla)")
    saves = series_of_launches(f)
    if saves is None or times_called(f.slow, _NOT_XLA):
        return None
    return Told(
        "compile the step with XLA where its shapes are known: tf.function(jit_compile=True) "
        f"launches what it fuses at once, of {count(counted(f.slow, 'launches'))} launches"
        f"{each(f.slow)}",
        saves,
    )


def _ctc(profile: StepProfile, row: implementations.Implementation) -> bool:
    return profile.info.workload.loss == "ctc" and "xla of ctc" in row.refusals()


def larger_batch(f: Finding) -> Told | None:
    """Kernels that are over before the host brings the next one, one after another."""
    gaps = f.slow.seen.gaps
    if gaps is None or series_of_launches(f) is None or f.slow.seen.graph:
        return None
    return Told(
        f"the median kernel takes {quantity(gaps.kernel_ns, 'ns')}, the median gap before one "
        f"{quantity(gaps.gap_ns, 'ns')}: a larger batch gives every launch more to do at the "
        "same cost"
    )


def fill_the_device(f: Finding) -> Told | None:
    """Kernels that can use half of a GPU at most."""
    parts = {c.part for c in f.contributors if c.state == "busy"} - {_NOT_OF_THE_BATCH}
    small = [s for s in f.slow.seen.small if 2 * s.blocks <= s.multiprocessors]
    small = [s for s in small if s.category in parts]
    ns = sum(s.ns for s in small)
    if f.fast is not None or not small or 2 * ns < f.slow_ns:
        return None
    return Told(
        f"{milliseconds(ns)} ms{each(f.slow)} are kernels of at most "
        f"{number_of(max(s.blocks for s in small), 'thread block', 'thread blocks')} on a GPU of "
        f"{small[0].multiprocessors} multiprocessors: half of it or more is idle while one of them "
        "runs alone, and a larger batch may use that"
    )


CUDA_GRAPH = Remedy(
    name="CUDA graph",
    cause="a device waits for one launch after the other",
    condition="ten kernels or more per step, the median one shorter than the gap before it; the "
    "usual gaps are most of the waiting for the host; no graph, no value or size asked for, no "
    "tracing, no CTC, no communication, no differing shapes or lengths",
    kinds=HOST,
    frameworks=TORCH,
    saves="the usual gaps",
    decide=cuda_graph,
    sources=(
        "https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs",
        "https://github.com/keras-team/keras/issues/8885",
    ),
    example=Example(
        of="a Transformer of PyTorch on an H100",
        told="its 16 launches per step can be one where every step has the same shapes: a CUDA "
        "graph, by torch.compile(mode='reduce-overhead') or torch.cuda.graph",
    ),
)
XLA = Remedy(
    name="XLA",
    cause="a step of TensorFlow runs op by op where XLA compiles it",
    condition="an implementation that XLA compiles and did not; in a profile made elsewhere "
    "launches as for a CUDA graph, no op that XLA refuses, nothing compiled or traced",
    kinds=(*HOST, MEMORY),
    frameworks=TENSORFLOW,
    saves="the usual gaps, of a profile made elsewhere",
    decide=xla,
    sources=("https://openxla.org/xla/tf2xla",),
)
TORCH_COMPILE = Remedy(
    name="torch.compile",
    cause="many small elementwise kernels are launched one by one",
    condition="launches as for a CUDA graph, half of the kernels element by element, none compiled",
    kinds=HOST,
    frameworks=TORCH,
    saves="the usual gaps, by the share of these kernels",
    decide=compiled_step,
    sources=("https://docs.pytorch.org/docs/stable/generated/torch.compile.html",),
    example=Example(
        of="a small BERT of PyTorch on an H100",
        told="30 of its 60 kernels per step work element by element: torch.compile can fuse them",
    ),
)
FUSED_OPTIMIZER = Remedy(
    name="fused optimizer",
    cause="the optimizer updates parameter by parameter",
    condition="most of it is the optimizer, or ten kernels of it a step among launches as for a "
    "CUDA graph; it is not fused, and is known to have a fused form",
    kinds=(MEMORY, *HOST),
    frameworks=TORCH,
    saves="the optimizer",
    decide=fused_optimizer,
    sources=("https://docs.pytorch.org/docs/stable/generated/torch.optim.Adam.html",),
    example=Example(
        of="one of eight ranks of a recommendation model of PyTorch",
        told="1.3 ms per step go to the optimizer, parameter by parameter: fused=True of "
        "torch.optim updates all of them in one kernel",
    ),
)
LARGER_BATCH = Remedy(
    name="larger batch",
    cause="each kernel is over before the host brings the next one",
    condition="launches as for a CUDA graph, and no graph",
    kinds=HOST,
    decide=larger_batch,
    sources=("https://github.com/keras-team/keras/issues/8885",),
    example=Example(
        of="a small BERT of PyTorch on an MI300",
        told="the median kernel takes 4.8 µs, the median gap before one 40.5 µs: a larger "
        "batch gives every launch more to do at the same cost",
    ),
)
FILL_THE_DEVICE = Remedy(
    name="fill the GPU",
    cause="kernels are too small for their GPU: half of its multiprocessors get no thread block",
    condition="a run alone, and half of the time is in kernels with at most half as many thread "
    "blocks as the GPU has multiprocessors, both as the profile says; no persistent kernel of a "
    "recurrent layer, no optimizer",
    kinds=WORK,
    decide=fill_the_device,
    sources=(
        "https://docs.nvidia.com/deeplearning/performance/dl-performance-gpu-background/index.html",
    ),
)
