"""Causes: the host launches too many small kernels to keep up with its device."""

from __future__ import annotations

import re
from collections.abc import Iterable

from lstmprof import implementations
from lstmprof.base.numbers import count, listed, number_of
from lstmprof.diagnose.certainty.pair import layer_in_words
from lstmprof.diagnose.findings import Finding, causes
from lstmprof.diagnose.findings.causes import MEMORY
from lstmprof.diagnose.findings.counts import counted
from lstmprof.diagnose.remedies.cells import form_of
from lstmprof.diagnose.remedies.keras import is_keras
from lstmprof.diagnose.remedies.rows import (
    HOST,
    SERIES,
    TENSORFLOW,
    TORCH,
    WORK,
    Match,
    Remedy,
    in_ms,
    is_compiled,
    is_retraced,
    kernels_and_gaps,
    series_of_launches,
    times_called,
)
from lstmprof.diagnose.remedies.work import tables_of_few_rows
from lstmprof.diagnose.step_profile import StepProfile
from lstmprof.diagnose.step_profile.contributors import Contributor
from lstmprof.implementations import LOOP

#: Category of kernels whose work does not grow with the batch size.
_NOT_OF_THE_BATCH = "optimizer"
#: Pattern of Python frames and ranges of code from Inductor, which launches kernels from Python.
INDUCTOR = re.compile(
    r"torchinductor|/c[0-9a-z]{40,}\.py|torch/_(?:inductor|dynamo)/|Torch-Compiled Region"
    r"|CompiledFxGraph|CompiledFunction"
)
#: Pattern of ops whose output shape depends on the data. The host waits for this shape, so a CUDA
#: graph cannot contain such ops.
SIZED_BY_DATA = re.compile(r"aten::(?:nonzero|masked_select|_?unique\w*)$")
_GRAPH = "torch.compile(mode='reduce-overhead')"
_COLLECTIVE = "collective"
_NOT_XLA = re.compile(r":(?:CTCLoss|CudnnRNN|BlockLSTM|LSTMBlockCell|GRUBlockCell)\w*$")
_FUSED = re.compile(r"_fused_(?:adam|sgd|adagrad)|FusedAdam|FusedSgd|FusedAdagrad", re.IGNORECASE)
_OPTIMIZER = re.compile(r"Optimizer\.step#(\w+)\.step")
#: Optimizers of torch.optim that accept ``fused=True``.
_CAN_FUSE = ("Adam", "AdamW", "SGD", "Adagrad")
_XLA = "tf.function(jit_compile=True)"
_XLA_OF_KERAS = "model.compile(jit_compile=True)"
_UNROLL = "set unroll=True in the Keras layer: the layer then runs its time steps without a loop"


@Remedy(
    name="CUDA graph",
    cause="the GPU waits for each kernel launch",
    fix=f"replay the step as a CUDA graph, if its shapes are constant: {_GRAPH}",
    condition="The GPU waits for launches, and nothing prevents a CUDA graph of the step: shapes "
    "are constant, and the step has no tracing, no CTC loss, no communication between ranks and no "
    "op whose result size depends on the data",
    kinds=HOST,
    frameworks=TORCH,
    sources=(
        "https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs",
        "https://github.com/keras-team/keras/issues/8885",
    ),
)
def cuda_graph(f: Finding) -> Match | None:
    saves, ours = series_of_launches(f), f.slow.implementation in implementations.ROWS
    if saves is None and f.slow.device is not None and f.largest:
        first = f.largest[0]
        is_inductor = first.name and INDUCTOR.search(first.name) and f.kind == causes.PYTHON
        saves = first.slow_ns if is_inductor else None
    launches, reads = counted(f.slow, "launches"), f.slow.seen.read
    few = launches < SERIES * (sum(fact.count for fact in reads) + 1)
    if saves is None or not _can_be_captured(f.slow) or (reads and (ours or few)):
        return None
    seen = f"{count(launches)} kernel launches{f.slow.per_step}"
    fix = "replay the step as one CUDA graph (capture --cuda-graph)" if ours else ""
    if reads:
        names = listed(sorted(fact.name for fact in reads))
        fix = f"move {names} out of the step, then replay the step as a CUDA graph: {_GRAPH}"
    return Match(seen, saves, fix)


def _can_be_captured(profile: StepProfile) -> bool:
    """Return whether a CUDA graph could replay the step, but does not yet."""
    info, workload = profile.info, profile.info.workload
    if info.cuda_graph or profile.seen.graph or is_retraced(profile):
        return False
    if workload.loss == "ctc" or workload.variable_length:
        return False
    asks = times_called(profile, SIZED_BY_DATA)
    shared = any(c.part == _COLLECTIVE for c in profile.contributors)
    row = implementations.ROWS.get(profile.implementation or "")
    return not asks and not shared and (row is None or "cuda-graph" not in row.refusals())


@Remedy(
    name="torch.compile",
    cause="many small elementwise kernels are launched one by one",
    fix="fuse small elementwise kernels with torch.compile",
    condition="The GPU waits for launches. At least half of the kernels are elementwise, and no "
    "kernel comes from a compiler such as Triton or XLA",
    kinds=HOST,
    frameworks=TORCH,
    sources=("https://docs.pytorch.org/docs/stable/generated/torch.compile.html",),
)
def compiled_step(f: Finding) -> Match | None:
    saves = series_of_launches(f)
    if saves is None or f.slow.implementation or is_compiled(f.slow) or is_retraced(f.slow):
        return None
    kernels, pointwise = counted(f.slow, "kernels"), counted(f.slow, "pointwise")
    if 2 * pointwise < kernels or not kernels:
        return None
    return Match(
        f"{count(pointwise)} of {count(kernels)} kernels{f.slow.per_step} are elementwise",
        round(saves * min(pointwise / kernels, 1.0)),
    )


@Remedy(
    name="fuse elementwise ops",
    cause="each elementwise op reads its inputs from memory and writes its result to memory",
    fix="fuse elementwise ops with torch.compile: fused ops read and write memory once",
    condition="A GPU runs ten or more elementwise kernels per step, and no kernel comes from a "
    "compiler such as Triton or XLA. These kernels take at least half of the time of elementwise "
    "ops and reductions",
    kinds=(MEMORY,),
    frameworks=TORCH,
    instead="the fused kernels",
    sources=("https://docs.pytorch.org/docs/stable/generated/torch.compile.html",),
)
def unfused(f: Finding) -> Match | None:
    ns = sum(c.ns for c in f.contributors if c.part == "pointwise")
    number = counted(f.slow, "pointwise")
    if f.slow.device is None or number < SERIES or 2 * ns < f.slow_ns:
        return None
    if f.slow.implementation or is_compiled(f.slow) or is_retraced(f.slow):
        return None
    return Match(
        f"{count(number)} elementwise kernels{f.slow.per_step}, none of them made by a compiler", ns
    )


@Remedy(
    name="fused optimizer",
    cause="the optimizer updates one parameter after the other",
    fix="pass fused=True to the optimizer: one op then updates all parameters",
    condition="The step does not use the fused form of the optimizer. Either the GPU waits "
    "for launches and the optimizer runs ten or more kernels per step, or the optimizer takes at "
    "least half of the elementwise, dispatch or Python time",
    kinds=(MEMORY, *HOST),
    frameworks=TORCH,
    several_kinds=True,
    instead="the fused optimizer",
    sources=("https://docs.pytorch.org/docs/stable/generated/torch.optim.Adam.html",),
)
def fused_optimizer(f: Finding) -> Match | None:
    events = [*f.slow.rows("ops"), *f.slow.rows("kernels")]
    if any(_FUSED.search(row["name"]) for row in events) or not _can_fuse(f.slow):
        return None
    saves = _optimizing_ns(f.contributors)
    if f.kind in causes.WAITS and f.slow.device is not None:
        series, kernels = series_of_launches(f), counted(f.slow, "kernels")
        own = (row for row in f.slow.rows("kernels") if row["category"] == "optimizer")
        updates = sum(row["count"] for row in own) / f.slow.steps
        if series is None or updates < SERIES:
            return None
        saves = round(series * min(updates / max(kernels, 1.0), 1.0))
    elif 2 * saves < sum(c.ns for c in f.contributors):
        return None
    elif f.slow.device is None:
        saves = _optimizing_ns(f.slow.contributors)
    if 2 * sum(table.ns for table in tables_of_few_rows(f.slow)) >= saves:
        return None  # most rows need no update
    return Match(f"the optimizer takes {in_ms(f.slow, saves)}", saves)


def _optimizing_ns(contributors: Iterable[Contributor]) -> int:
    return sum(
        c.ns
        for c in contributors
        if "optimizer" in (c.part, c.purpose) or _OPTIMIZER.search(c.name or "")
    )


def _can_fuse(profile: StepProfile) -> bool:
    """Return whether the optimizer accepts ``fused=True``."""
    if profile.info.workload.optimizer is not None:
        return True
    rows = [*profile.rows("ops"), *profile.rows("ranges")]
    names = [m.group(1) for row in rows if (m := _OPTIMIZER.search(row["name"]))]
    return bool(names) and all(name in _CAN_FUSE for name in names)


@Remedy(
    name="XLA",
    cause="TensorFlow runs the step op by op, without XLA",
    fix=f"compile the function with XLA: {_XLA}",
    condition="The run does not use XLA. Either a GPU waits for the launches of ops that XLA can "
    "compile, or a CPU runs a Keras layer as a loop over time steps",
    kinds=(*HOST, MEMORY),
    frameworks=TENSORFLOW,
    sources=("https://openxla.org/xla/tf2xla",),
)
def xla(f: Finding) -> Match | None:
    profile = f.slow
    row, on_cpu = implementations.ROWS.get(profile.implementation or ""), profile.runs_on == "cpu"
    if profile.info.xla or is_retraced(profile) or is_compiled(profile):
        return None
    # on a CPU, advise unroll=True (4.8 → 4.4 ms): XLA made steps 1.1 to 1.25 times as long
    if on_cpu:
        if row is not None or not is_keras(profile) or form_of(profile) != LOOP:
            return None
        seen, saves_ns = layer_in_words(profile), profile.seen.looping_ns
        return Match(seen, saves_ns, _UNROLL, at_most=True) if f.kind == causes.DISPATCH else None
    if row is not None:
        settings = {"xla", "xla on cuda"}
        settings |= {"xla with ctc"} if profile.info.workload.loss == "ctc" else set()
        refused = settings & row.refusals().keys()
        return None if refused else Match(fix="compile the step with XLA (capture --xla)")
    saves = series_of_launches(f)
    if saves is None or times_called(profile, _NOT_XLA):
        return None
    seen = f"{count(counted(profile, 'launches'))} kernel launches{profile.per_step}"
    return Match(seen, saves, f"use {_XLA_OF_KERAS if is_keras(profile) else _XLA}")


@Remedy(
    name="larger batch",
    cause="each kernel ends before the host launches the next kernel",
    fix="use a larger batch: each launch then does more work at the same cost",
    condition="The GPU waits for launches, and the step replays no CUDA graph",
    kinds=HOST,
    sources=("https://github.com/keras-team/keras/issues/8885",),
)
def larger_batch(f: Finding) -> Match | None:
    gaps = f.slow.seen.gaps
    if gaps is None or series_of_launches(f) is None or f.slow.seen.graph:
        return None
    return Match(kernels_and_gaps(gaps))


@Remedy(
    name="fill the GPU",
    cause="kernels are too small: they leave at least half of the GPU's multiprocessors idle",
    fix="use a larger batch: its kernels have more thread blocks and can fill the whole GPU",
    condition="Small kernels take at least half of the matmul time or of the elementwise time. "
    "A kernel is small if it has at most half as many thread blocks as the GPU has "
    "multiprocessors",
    kinds=WORK,
    sources=(
        "https://docs.nvidia.com/deeplearning/performance/dl-performance-gpu-background/index.html",
    ),
)
def fill_the_device(f: Finding) -> Match | None:
    parts = {c.part for c in f.contributors if c.state == "busy"} - {_NOT_OF_THE_BATCH}
    small = [s for s in f.slow.seen.small if 2 * s.blocks <= s.multiprocessors]
    small = [s for s in small if s.category in parts]
    ns = sum(s.ns for s in small)
    if f.fast is not None or not small or 2 * ns < f.slow_ns:
        return None
    blocks = number_of(max(s.blocks for s in small), "thread block", "thread blocks")
    return Match(
        f"kernels with at most {blocks} take {in_ms(f.slow, ns)}; the GPU has "
        f"{small[0].multiprocessors} multiprocessors"
    )
