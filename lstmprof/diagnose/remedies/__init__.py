"""What to do about a finding: an ordered table of remedies, each with when it fits and its source.

A remedy is told only where the facts or the profile of the run show that its condition holds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lstmprof.diagnose import causes
from lstmprof.diagnose.causes import CAST, COPY, DISPATCH, GEMM, LAUNCH, MEMORY, PYTHON, SYNC
from lstmprof.diagnose.findings import Finding
from lstmprof.diagnose.remedies import device, host

#: Remedies told of one finding.
MOST = 3

_HOST = (LAUNCH, DISPATCH, PYTHON, causes.UNRECORDED)
_WORK = (GEMM, MEMORY)


@dataclass(frozen=True)
class Remedy:
    """What to do about findings of ``kinds``; ``sentence`` is None where it does not fit."""

    kinds: tuple[str, ...]
    sentence: Callable[[Finding], str | None]
    source: str


TABLE = (
    Remedy(
        (LAUNCH, causes.RUNTIME, causes.ALLOCATION),
        host.initialises,
        "CUDA C++ guide: initialisation, lazy loading",
    ),
    Remedy(
        (causes.COMPILE,),
        host.recompiles,
        "docs.pytorch.org, torch.compile: recompilation",
    ),
    Remedy(
        (*_HOST, *_WORK),
        device.keras_without_cudnn,
        "documentation of keras.layers.LSTM: requirements of the cuDNN implementation",
    ),
    Remedy(
        (*_HOST, *_WORK),
        device.layer_in_one_op,
        "Appleyard et al., Optimizing Performance of RNNs on GPUs, arXiv:1604.01946",
    ),
    Remedy(
        (GEMM, LAUNCH, DISPATCH),
        device.products_to_hoist,
        "Appleyard et al., arXiv:1604.01946 (combining the inputs' products)",
    ),
    Remedy((GEMM,), device.repeated_products, "the counts of both runs"),
    Remedy((MEMORY, COPY, DISPATCH), device.indexed_time_steps, "torch: derivatives.yaml, select"),
    Remedy((LAUNCH, PYTHON, DISPATCH), host.cuda_graph, "docs.pytorch.org, CUDA graphs"),
    Remedy((*_HOST, MEMORY), host.xla, "tensorflow.org/xla: jit_compile"),
    Remedy((LAUNCH, MEMORY, DISPATCH), device.unfused_cell, "torch.nn.LSTMCell; torch.compile"),
    Remedy(
        (MEMORY, DISPATCH, LAUNCH), device.optimizer, "documentation of torch.optim.Adam: fused"
    ),
    Remedy(
        (SYNC,),
        host.values_asked_for,
        "PyTorch's performance tuning guide: synchronisation",
    ),
    Remedy(
        (SYNC, COPY, causes.INPUT),
        host.pageable_copies,
        "CUDA C++ guide: page-locked memory",
    ),
    Remedy((CAST,), device.casts_each_time_step, "documentation of torch.autocast"),
    Remedy((CAST,), device.casts, "the cast table"),
    Remedy((COPY,), device.contiguous, "documentation of torch.Tensor.contiguous"),
    Remedy((causes.INPUT,), host.input_in_line, "PyTorch's and TensorFlow's guides to input"),
    Remedy((PYTHON,), host.python_stretches, "the ranges of the profile"),
    Remedy((DISPATCH,), host.repeated_ops, "the counts of both runs"),
    Remedy((GEMM,), device.tf32, "docs.pytorch.org, CUDA semantics: TF32"),
    Remedy((GEMM,), device.persistent_kernels, "aten/src/ATen/native/cudnn/RNN.cpp"),
    Remedy((causes.CTC,), device.native_ctc, "documentation of torch.nn.CTCLoss: cuDNN"),
    Remedy((causes.ALLOCATION,), host.allocations, "docs.pytorch.org, CUDA memory management"),
    Remedy((causes.COLLECTIVE,), host.collectives, "documentation of DistributedDataParallel"),
    Remedy((LAUNCH, DISPATCH, PYTHON), host.small_batch, "the mean kernel and the mean gap"),
    Remedy((*_WORK,), device.denormals, "documentation of torch.set_flush_denormal"),
)


@dataclass(frozen=True)
class Advice:
    """A remedy that fits: its sentence and where it comes from."""

    sentence: str
    source: str


def remedies(finding: Finding) -> tuple[Advice, ...]:
    """The first ``MOST`` remedies that fit a finding."""
    fitting = (remedy for remedy in TABLE if finding.kind in remedy.kinds)
    advice = ((remedy.sentence(finding), remedy.source) for remedy in fitting)
    return tuple(Advice(sentence, source) for sentence, source in advice if sentence)[:MOST]
