"""Causes: a mode or setting slows the step: NaN checks, fills, denormals, too many threads."""

from __future__ import annotations

import re

from lstmprof.base.numbers import count, cropped, listed, quantity
from lstmprof.diagnose.findings import Finding, causes, settings
from lstmprof.diagnose.findings.causes import COPY, DISPATCH, LAUNCH, MEMORY, SYNC
from lstmprof.diagnose.findings.reasons import THREADS, reason
from lstmprof.diagnose.remedies.rows import (
    HOST,
    TORCH,
    WORK,
    Match,
    Remedy,
    from_facts,
    often,
)
from lstmprof.diagnose.step_profile import labels

#: The op that anomaly mode calls for each gradient.
_CHECK = "aten::isnan"
#: Environment variable → pattern of values that turn on a slow debugging aid.
_DEBUGGING = {
    "CUDA_LAUNCH_BLOCKING": re.compile("1"),
    "TORCH_SHOW_CPP_STACKTRACES": re.compile("1"),
    "LD_PRELOAD": re.compile(r"lib(?:a|t|ub|m|l)san"),
    "PYTHONDEVMODE": re.compile("."),
    "PYTHONMALLOC": re.compile("debug"),
}
_NODE = re.compile(r"autograd::engine::evaluate_function: (?!torch::autograd::AccumulateGrad)")


@Remedy(
    name="no anomaly mode",
    cause="anomaly mode checks every backward op for NaN",
    fix="turn anomaly mode off: torch.autograd.set_detect_anomaly(False)",
    condition="Each node of the backward pass runs at least one NaN check (aten::isnan)",
    kinds=(*HOST, *WORK, SYNC),
    frameworks=TORCH,
    first=True,
    sources=("https://docs.pytorch.org/docs/stable/autograd.html#anomaly-detection",),
)
def anomaly_mode(f: Finding) -> Match | None:
    rows = f.slow.rows("ops")
    checks = next((r["count"] for r in rows if r["name"] == _CHECK), 0)
    nodes = sum(r["count"] for r in rows if _NODE.search(r["name"]))
    if not nodes or checks < nodes:
        return None
    times = often(f.slow, checks / f.slow.steps)
    # leave the saving unknown, because some work of anomaly mode has no events
    return Match(f"autograd checks gradients for NaN {times} ({_CHECK})")


@Remedy(
    name="flush denormals",
    cause="the CPU computes with denormal numbers, which is slow",
    fix="flush denormals to zero: torch.set_flush_denormal(True)",
    condition="On a CPU, matmuls of the same shape take at least eight times as long in one part "
    "of every step as in another part. Or the backward op of a recurrent layer takes at least "
    "eight times as long as the forward op. Or you compare two runs, and only the faster run "
    "flushed denormals",
    kinds=(*WORK, causes.SLOWER),
    frameworks=TORCH,
    sources=(
        "https://docs.pytorch.org/docs/stable/generated/torch.set_flush_denormal.html",
        "https://github.com/pytorch/pytorch/issues/19651",
        "https://github.com/uxlfoundation/oneDNN/issues/561",
        "https://github.com/chainer/chainer/issues/2554",
    ),
)
def denormals(f: Finding) -> Match | None:
    slow = f.slow.seen.slowing
    if slow is not None and f.kind == causes.GEMM:
        fast_each, slow_each = quantity(slow.fast_ns, "ns"), quantity(slow.slow_ns, "ns")
        parts = f"{fast_each} in one part of every step, and {slow_each} in another part"
        seen = f"{slow.name} of one shape takes {parts}"
        if slow.whole:
            forward = f"but the forward pass takes only {fast_each}"
            seen = f"{slow.name} takes {slow_each}, {forward}"
        return Match(seen, slow.ns)
    if f.fast is None or f.slow.runs_on != "cpu":
        return None
    if (settings.denormals(f.fast.info), settings.denormals(f.slow.info)) != ("flushed", "kept"):
        return None
    return Match(f"{labels(f.fast, f.slow)[0]} flushed denormals to zero; this run kept them")


@Remedy(
    name="as many threads as CPUs",
    cause="there are more threads than CPUs, or threads wait for each other",
    fix="use as many threads as CPUs (torch.set_num_threads, OMP_NUM_THREADS; "
    "OMP_WAIT_POLICY=passive)",
    condition="A run without a GPU has more threads than CPUs. Or you compare two runs, and the "
    "slower run keeps more CPUs busy but takes longer for the same calls",
    kinds=(*HOST, *WORK, causes.SLOWER),
    sources=(
        "https://github.com/tensorflow/tensorflow/issues/33138",
        "https://github.com/uxlfoundation/oneDNN/issues/282",
    ),
)
def crowded(f: Finding) -> Match | None:
    if f.slow.runs_on != "cpu":
        return None
    if f.fast is not None and f.kind == causes.SLOWER:
        why = reason(f.fast, f.slow)
        return Match(why.text) if why.name == THREADS else None
    shared = settings.shared_cpus(f.slow.info)
    return None if shared is None else Match(shared)


@Remedy(
    name="settings of the faster run",
    cause="the two runs have different settings, and the same calls take longer in this run",
    fix="use the settings of the faster run",
    condition="The two runs differ in a setting, and the same calls take longer in the slower run",
    kinds=(causes.SLOWER,),
    sources=(
        "https://docs.pytorch.org/docs/stable/backends.html",
        "https://www.tensorflow.org/api_docs/python/tf/config",
        "https://docs.jax.dev/en/latest/config_options.html",
    ),
)
def faster_settings(f: Finding) -> Match | None:
    differ = [] if f.fast is None else settings.disagreements(f.fast.info, f.slow.info)
    others = [d for d in differ if d.setting not in (settings.DENORMALS, settings.ANOMALY)]
    if f.fast is None or not others:
        return None
    values = listed(cropped(f"{d.setting} {d.fast}") for d in others)
    return Match(fix=f"use the settings of {labels(f.fast, f.slow)[0]}: {values}")


@Remedy(
    name="no debugging settings",
    cause="a setting for debugging is on",
    fix="unset the environment variable for debugging when you train",
    condition="At least 95 % of the launch calls return only after their kernel has ended. Or "
    "an environment variable for debugging is set, such as CUDA_LAUNCH_BLOCKING, "
    "TORCH_SHOW_CPP_STACKTRACES, PYTHONDEVMODE or PYTHONMALLOC=debug",
    kinds=(*HOST, *WORK, SYNC, COPY, causes.RUNTIME),
    several_kinds=True,
    sources=(
        "https://docs.pytorch.org/docs/stable/torch_environment_variables.html",
        "https://docs.nvidia.com/cuda/cuda-c-programming-guide/#cuda-environment-variables",
    ),
)
def debugging(f: Finding) -> Match | None:
    profile = f.slow
    variables = profile.info.settings.environment or {}
    texts = [
        f"{name}={cropped(value)}"
        for name, pattern in _DEBUGGING.items()
        if (value := variables.get(name)) and pattern.search(value)
    ]
    launches = profile.seen.blocking_launches
    if launches:
        number = f"{count(launches)} launches{profile.per_step}"
        seen = f"{number} return only after their kernel has ended"
        # without these waits, busy and idle time overlap, so the saving is at most the shorter
        saves_ns = min(profile.busy_ns, profile.length_ns - profile.busy_ns)
        cause = "each launch call waits for its kernel, as with CUDA_LAUNCH_BLOCKING=1"
        return Match(
            seen, saves_ns, "unset CUDA_LAUNCH_BLOCKING, and run without a debugger", cause
        )
    if not texts or (profile.device is None and texts[0].startswith("CUDA")):
        return None
    return Match(f"{listed(texts)} {'is' if len(texts) == 1 else 'are'} set")


@Remedy(
    name="detach the state",
    cause="each step's backward pass goes through all earlier batches",
    fix="detach the state between batches: h = h.detach(), or tuple(s.detach() for s in state)",
    condition="From step to step, the number of autograd nodes in the backward pass grows by "
    "about the same amount, while the forward pass does not grow",
    kinds=(*HOST, *WORK, causes.COPY),
    frameworks=TORCH,
    several_kinds=True,
    first=True,
    sources=(
        "https://docs.pytorch.org/docs/stable/generated/torch.Tensor.detach.html",
        "https://github.com/pytorch/examples/blob/main/word_language_model/main.py",
    ),
)
def undetached(f: Finding) -> Match | None:
    grown = f.slow.seen.growing
    if grown is None or f.slow.implementation:
        return None
    return Match(
        f"the backward pass has {count(grown.first)} autograd nodes in the first profiled step and "
        f"{count(grown.last)} in the last step",
        grown.ns,
    )


@Remedy(
    name="no gradient hooks",
    cause="hooks run additional ops in the backward pass",
    fix="remove the hooks (register_hook), or inspect gradients only once in many steps",
    condition="Hooks run ops before or after a node of the backward pass. lstmprof ignores hooks "
    "in distributed training",
    kinds=(*HOST, *WORK, SYNC, COPY),
    frameworks=TORCH,
    several_kinds=True,
    sources=(
        "https://docs.pytorch.org/docs/stable/generated/torch.Tensor.register_hook.html",
        "https://docs.pytorch.org/docs/stable/notes/autograd.html",
    ),
)
def gradient_hooks(f: Finding) -> Match | None:
    return from_facts(f, f.slow.seen.hooked, "hooks run {names} {cost}")


@Remedy(
    name="compute once",
    cause="the backward pass computes the forward pass again (checkpointing)",
    fix="call the layer without torch.utils.checkpoint, if memory allows",
    condition="The backward pass runs ops of the forward pass, such as aten::lstm, aten::lstm_cell "
    "or aten::linear",
    kinds=(*HOST, *WORK, COPY),
    frameworks=TORCH,
    several_kinds=True,
    sources=("https://docs.pytorch.org/docs/stable/checkpoint.html",),
)
def recomputed(f: Finding) -> Match | None:
    return from_facts(f, f.slow.seen.recomputed, "the backward pass runs {names} again {cost}")


@Remedy(
    name="no TorchScript",
    cause="TorchScript runs the backward pass op by op",
    fix="use torch.nn.LSTM, not a scripted cell: one call runs all time steps of a layer",
    condition="Some nodes of the backward pass are TorchScript graphs",
    kinds=(*HOST, *WORK, COPY),
    frameworks=TORCH,
    several_kinds=True,
    instead="nn.LSTM's backward pass",
    sources=(
        "https://github.com/pytorch/pytorch/issues/46213",
        "https://github.com/pytorch/benchmark/pull/53",
        "https://docs.pytorch.org/docs/stable/jit.html",
    ),
)
def scripted_backward(f: Finding) -> Match | None:
    return from_facts(f, f.slow.seen.scripted, "{n} backward graphs of TorchScript take {ms}")


@Remedy(
    name="leave memory unfilled",
    cause="PyTorch's deterministic mode fills each new tensor before an op writes it",
    fix="turn filling off: torch.utils.deterministic.fill_uninitialized_memory = False",
    condition="Ops that allocate an uninitialised tensor (aten::empty) call aten::fill_",
    kinds=(MEMORY, DISPATCH, LAUNCH),
    frameworks=TORCH,
    sources=("https://docs.pytorch.org/docs/stable/deterministic.html",),
)
def filled_memory(f: Finding) -> Match | None:
    return from_facts(f, f.slow.seen.filled, "new tensors are filled {times}")
