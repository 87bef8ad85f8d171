"""What to do about a finding: an ordered table of remedies, each with its condition and source.

::

    launching  waiting  layers  work ─▶ TABLE ─▶ remedies

A remedy is told where its condition is seen in this profile, for the framework of the profile, and
where it addresses enough time. Of two runs of one implementation the slower is told only what the
faster one, alone, would not be told.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lstmprof.diagnose import causes
from lstmprof.diagnose.causes import (
    ALLOCATION,
    CAST,
    COLLECTIVE,
    COMPILE,
    COPY,
    DISPATCH,
    GEMM,
    INPUT,
    LAUNCH,
    MEMORY,
    PYTHON,
    QUEUE,
    RUNTIME,
    SYNC,
)
from lstmprof.diagnose.findings import Finding, findings, lengths
from lstmprof.diagnose.remedies import launching, layers, waiting, work
from lstmprof.diagnose.remedies.told import Told
from lstmprof.numbers import milliseconds

#: Remedies told of one finding.
MOST = 3
#: What addresses less of the step, of two runs of their difference, is not worth a remedy.
WORTH = 0.05

_HOST = (LAUNCH, DISPATCH, PYTHON, causes.UNRECORDED)
_WORK = (GEMM, MEMORY)
_TORCH, _TENSORFLOW, _JAX = ("torch",), ("tensorflow",), ("jax",)


@dataclass(frozen=True)
class Remedy:
    """What to do about findings of ``kinds`` where ``decide`` sees the ``condition``.

    ``condition`` is what must be seen in the profile, ``saves`` the time that is addressed: None
    where no profile tells it. ``frameworks`` is empty where it is for any.
    """

    name: str
    condition: str
    kinds: tuple[str, ...]
    frameworks: tuple[str, ...]
    saves: str | None
    decide: Callable[[Finding], Told | None]
    source: str


TABLE = (
    Remedy(
        "profile later",
        "a call that loads code, or the first call of a function of CUDA or HIP (of launches the "
        "first of a kernel) that takes 1 ms and ten times the median of the later ones",
        (LAUNCH, RUNTIME, ALLOCATION),
        (),
        "these calls",
        launching.initialises,
        "CUDA programming guide: initialisation, lazy loading",
    ),
    Remedy(
        "trace once",
        "a function is traced or compiled in the profiled steps",
        (COMPILE,),
        (),
        "tracing and compiling",
        launching.recompiles,
        "docs.pytorch.org, dealing with recompilations; tensorflow.org, tf.function; docs.jax.dev, "
        "debugging slow tracing",
    ),
    Remedy(
        "Keras on cuDNN",
        "ops of a cell of Keras run on a GPU, and their names show an option that cuDNN lacks",
        (*_HOST, *_WORK),
        _TENSORFLOW,
        None,
        layers.keras_without_cudnn,
        "documentation of keras.layers.LSTM: requirements of the cuDNN implementation",
    ),
    Remedy(
        "layer in one op",
        "a layer runs cell by cell: by the table of implementations, or by ops of single cells",
        (*_HOST, *_WORK),
        (*_TORCH, *_TENSORFLOW),
        None,
        layers.layer_in_one_op,
        "Appleyard et al., Optimizing Performance of RNNs on GPUs, arXiv:1604.01946",
    ),
    Remedy(
        "inputs' product at once",
        "a cell written by hand has more products a time step than depend on the step before",
        (GEMM, LAUNCH, DISPATCH),
        (),
        None,
        layers.products_to_hoist,
        "Appleyard et al., arXiv:1604.01946 (combining the inputs' products)",
    ),
    Remedy(
        "do it once",
        "the same implementation calls an op half as often again as in the faster run",
        (*_WORK, CAST, COPY, DISPATCH, LAUNCH, SYNC),
        (),
        "what the op takes more",
        waiting.repeated,
        "the counts of both runs",
    ),
    Remedy(
        "unbind before the loop",
        "select_backward runs for every time step, or eight times on tensors of one shape",
        (MEMORY, COPY, DISPATCH, LAUNCH),
        _TORCH,
        "the backward passes of indexing",
        layers.indexed_time_steps,
        "torch: derivatives.yaml, select; pytorch/pytorch#48474",
    ),
    Remedy(
        "flatten_parameters",
        "four copies or more inside each call of a cuDNN or MIOpen layer",
        (COPY, MEMORY, LAUNCH, DISPATCH),
        _TORCH,
        "these copies",
        layers.weights_copied,
        "documentation of torch.nn.RNNBase.flatten_parameters",
    ),
    Remedy(
        "pad instead of pack",
        "sequences are packed on a CPU, and no op holds the whole layer",
        (*_WORK, COPY, DISPATCH, PYTHON),
        _TORCH,
        None,
        layers.packed_sequences,
        "pytorch/pytorch#149194",
    ),
    Remedy(
        "CUDA graph",
        "ten kernels or more a step, the median one shorter than the gap before it; the usual gaps "
        "are most of the waiting for the host; no graph, no value or size asked for, no "
        "tracing, no CTC, no communication, no differing shapes or lengths",
        _HOST,
        _TORCH,
        "the usual gaps",
        launching.cuda_graph,
        "docs.pytorch.org: CUDA graphs; torch.compile",
    ),
    Remedy(
        "XLA",
        "an implementation that XLA compiles and did not; in a profile made elsewhere launches as "
        "for a CUDA graph, no op that XLA refuses, nothing compiled or traced",
        (*_HOST, MEMORY),
        _TENSORFLOW,
        "the usual gaps, of a profile made elsewhere",
        launching.xla,
        "tensorflow.org/xla: jit_compile",
    ),
    Remedy(
        "jit the whole",
        "ten compiled programs or more a step; on a GPU launches as for a CUDA graph",
        _HOST,
        _JAX,
        "the usual gaps of a GPU",
        launching.jitted_whole,
        "docs.jax.dev: just-in-time compilation",
    ),
    Remedy(
        "fused cell",
        "a cell written by hand with five element-by-element ops a time step or more",
        (LAUNCH, MEMORY, DISPATCH),
        _TORCH,
        None,
        layers.unfused_cell,
        "documentation of torch.nn.LSTMCell and torch.compile",
    ),
    Remedy(
        "torch.compile",
        "launches as for a CUDA graph, half of the kernels element by element, none compiled",
        _HOST,
        _TORCH,
        "the usual gaps, by the share of these kernels",
        launching.compiled_step,
        "documentation of torch.compile",
    ),
    Remedy(
        "fused optimizer",
        "most of it is the optimizer, or ten kernels of it a step among launches as for a CUDA "
        "graph; it is not fused, and is known to have a fused form",
        (MEMORY, *_HOST),
        _TORCH,
        "the optimizer",
        launching.fused_optimizer,
        "documentation of torch.optim.Adam, AdamW, SGD and Adagrad: fused",
    ),
    Remedy(
        "ask for no value",
        "ops that ask for a value (aten::item)",
        (SYNC,),
        _TORCH,
        "waiting in them",
        waiting.values_asked_for,
        "PyTorch's performance tuning guide: synchronisation",
    ),
    Remedy(
        "ask for no size",
        "blocking calls inside ops whose result's size the data decide (aten::nonzero)",
        (SYNC,),
        _TORCH,
        "these calls",
        waiting.sizes_asked_for,
        "documentation of torch.nonzero: host-device synchronisation",
    ),
    Remedy(
        "synchronise once",
        "the device is synchronised twice a step or more",
        (SYNC,),
        (),
        "all of it but one",
        waiting.device_synchronised,
        "PyTorch's performance tuning guide: synchronisation",
    ),
    Remedy(
        "pin memory",
        "copies of pageable memory",
        (SYNC, COPY, INPUT),
        (),
        "these copies, of synchronisations the waiting in them",
        waiting.pageable_copies,
        "CUDA programming guide: page-locked memory",
    ),
    Remedy(
        "cast once before the loop",
        "autocast casts once or more in every time step",
        (CAST,),
        _TORCH,
        "all casts but those of one time step",
        work.casts_each_time_step,
        "documentation of torch.autocast",
    ),
    Remedy(
        "keep one type",
        "ops that cast, by name",
        (CAST,),
        (),
        "the largest",
        work.casts,
        "the cast table",
    ),
    Remedy(
        "channels last",
        "kernels that turn images between NCHW and NHWC",
        (COPY, MEMORY, GEMM),
        _TORCH,
        "these kernels",
        work.channels_last,
        "docs.pytorch.org: channels last memory format",
    ),
    Remedy(
        "keep the layout",
        "copies inside contiguous, reshape, clone or flatten",
        (COPY,),
        _TORCH,
        "these copies",
        work.contiguous,
        "documentation of torch.Tensor.contiguous",
    ),
    Remedy(
        "workers",
        "a DataLoader without worker processes",
        (INPUT,),
        _TORCH,
        "the input",
        waiting.loader_in_line,
        "documentation of torch.utils.data.DataLoader",
    ),
    Remedy(
        "more workers",
        "a DataLoader with worker processes that is waited for",
        (INPUT,),
        _TORCH,
        "the input",
        waiting.slow_workers,
        "documentation of torch.utils.data.DataLoader",
    ),
    Remedy(
        "prefetch",
        "a step takes the next element of a dataset (IteratorGetNext)",
        (INPUT,),
        _TENSORFLOW,
        "the input",
        waiting.dataset_in_line,
        "tensorflow.org: better performance with the tf.data API",
    ),
    Remedy(
        "input beside the step",
        "the step has an input phase, and no loader of a framework is seen",
        (INPUT,),
        (),
        "the input",
        waiting.input_in_line,
        "PyTorch's and TensorFlow's guides to input",
    ),
    Remedy(
        "event sooner",
        "work that was queued stood behind a wait for another stream's event",
        (QUEUE,),
        (),
        "this waiting",
        waiting.waits_for_event,
        "CUDA programming guide: streams and events",
    ),
    Remedy(
        "no host function",
        "work that was queued stood behind a function of the host",
        (QUEUE,),
        (),
        "this waiting",
        waiting.waits_for_host_function,
        "CUDA programming guide: host functions (callbacks)",
    ),
    Remedy(
        "look inside",
        "one range or frame holds most of it; no step or phase, no wait, none of a framework's own",
        (PYTHON, causes.RANGE),
        (),
        "this range or frame",
        waiting.python_stretches,
        "py-spy: native stacks",
    ),
    Remedy(
        "TF32",
        "float32 products without tensor cores, on a GPU that has TF32",
        (GEMM,),
        _TORCH,
        "these products",
        work.tf32,
        "documentation of torch.set_float32_matmul_precision",
    ),
    Remedy(
        "persistent kernels",
        "cuDNN's standard kernels ran, and a condition of its persistent ones is not met",
        (GEMM,),
        _TORCH,
        None,
        layers.persistent_kernels,
        "aten/src/ATen/native/cudnn/RNN.cpp",
    ),
    Remedy(
        "cuDNN's CTC",
        "PyTorch's own kernels of the CTC loss",
        (causes.CTC,),
        _TORCH,
        "the loss",
        work.native_ctc,
        "documentation of torch.nn.CTCLoss: cuDNN",
    ),
    Remedy(
        "allocate once",
        "memory is allocated or freed after the first step, without marks in the later half",
        (ALLOCATION,),
        (),
        "these calls",
        waiting.allocations,
        "docs.pytorch.org: CUDA memory management",
    ),
    Remedy(
        "overlap communication",
        "collectives run while nothing computes, and there is work to run them beside",
        (COLLECTIVE,),
        (),
        "as much of them as there is such work",
        waiting.collectives,
        "documentation of DistributedDataParallel and FullyShardedDataParallel",
    ),
    Remedy(
        "no anomaly mode",
        "a search for NaN for every node of the backward pass",
        (*_HOST, *_WORK, SYNC),
        _TORCH,
        "these searches",
        work.anomaly_mode,
        "documentation of torch.autograd.set_detect_anomaly",
    ),
    Remedy(
        "leave memory unfilled",
        "fill_ inside ops that allocate",
        (MEMORY, DISPATCH, LAUNCH),
        _TORCH,
        "filling",
        work.filled_memory,
        "documentation of torch.utils.deterministic",
    ),
    Remedy(
        "larger batch",
        "launches as for a CUDA graph, and no graph",
        _HOST,
        (),
        None,
        launching.larger_batch,
        "the median kernel and the median gap",
    ),
    Remedy(
        "flush denormals",
        "on a CPU the faster run flushed denormal numbers and this one did not",
        (*_WORK, causes.SLOWER),
        _TORCH,
        None,
        work.denormals,
        "documentation of torch.set_flush_denormal",
    ),
    Remedy(
        "settings of the faster run",
        "a setting differs between both, and the same calls take longer in this one",
        (causes.SLOWER,),
        (),
        None,
        work.faster_settings,
        "settings in run.json of both",
    ),
)


@dataclass(frozen=True)
class Advice:
    """A remedy that fits: what to do, why it fits, and where it comes from.

    ``framework`` is the one that it is for, None where it is for any; ``saves_ns`` the time of the
    mean step that it addresses, of two runs of one implementation what the slower has more of it:
    what would come to light behind it, or go with it elsewhere, is not counted. None is unknown.
    """

    name: str
    sentence: str
    condition: str
    framework: str | None
    saves_ns: int | None
    source: str

    @property
    def text(self) -> str:
        """The sentence, and the time that it addresses, where that is known."""
        if self.saves_ns is None:
            return self.sentence
        return f"{self.sentence} (addresses {milliseconds(self.saves_ns)} ms)"


def remedies(finding: Finding) -> tuple[Advice, ...]:
    """The first ``MOST`` remedies that fit a finding."""
    fitting = (remedy for remedy in TABLE if finding.kind in remedy.kinds)
    advice = (_advice(remedy, finding) for remedy in fitting)
    return tuple(one for one in advice if one is not None)[:MOST]


def _advice(remedy: Remedy, finding: Finding) -> Advice | None:
    """What ``remedy`` says of a finding; None where it does not fit or is not worth it."""
    framework = finding.slow.framework
    if remedy.frameworks and framework not in remedy.frameworks:
        return None
    told = remedy.decide(finding)
    if told is None:
        return None
    saves_ns = None if told.saves_ns is None else min(told.saves_ns, _limit_ns(finding))
    if _are_twins(finding):
        before = _of_the_faster(remedy, finding)
        if before is not None and _is_worth(before.saves_ns, before.whole_ns):
            return None
        saved_ns = (before and before.saves_ns) or 0
        saves_ns = None if saves_ns is None else saves_ns - saved_ns
    if not _is_worth(saves_ns, _whole_ns(finding)):
        return None
    of_one = framework if remedy.frameworks else None
    return Advice(remedy.name, told.sentence, remedy.condition, of_one, saves_ns, remedy.source)


def _limit_ns(finding: Finding) -> int:
    """The finding's time; of one wait of a device for its host that of all, told together."""
    profile = finding.slow
    if profile.device is not None and finding.kind in causes.WAITS:
        return max(finding.slow_ns, profile.waits_for_host_ns)
    return finding.slow_ns


def _is_worth(saves_ns: int | None, whole_ns: int) -> bool:
    return saves_ns is None or saves_ns >= WORTH * whole_ns


def _whole_ns(finding: Finding) -> int:
    """The step of a run alone, the difference of two."""
    if finding.fast is None:
        return finding.slow.profiled_ns
    ends = lengths(finding.fast, finding.slow)
    return ends[1] - ends[0]


def _are_twins(finding: Finding) -> bool:
    """Whether two runs are of one implementation and framework, or nothing tells them apart."""
    fast, slow = finding.fast, finding.slow
    if fast is None:
        return False
    return (fast.implementation, fast.framework) == (slow.implementation, slow.framework)


@dataclass(frozen=True)
class _Before:
    """What a remedy addresses in the faster run alone, and the length of its step."""

    saves_ns: int | None
    whole_ns: int


def _of_the_faster(remedy: Remedy, finding: Finding) -> _Before | None:
    """What ``remedy`` would address in the faster run alone; None where it does not fit that."""
    if finding.fast is None:
        return None
    alone = next((f for f in findings(None, finding.fast) if f.kind == finding.kind), None)
    told = None if alone is None else remedy.decide(alone)
    return None if told is None else _Before(told.saves_ns, finding.fast.profiled_ns)
