"""What a mode or a setting does beside the work: checks, fills, denormals, threads."""

from __future__ import annotations

import re
from collections.abc import Sequence

from lstmprof.diagnose import causes, settings
from lstmprof.diagnose.causes import COPY, DISPATCH, GEMM, LAUNCH, MEMORY, SYNC
from lstmprof.diagnose.findings import Finding
from lstmprof.diagnose.findings.reasons import THREADS, reason
from lstmprof.diagnose.remedies.told import (
    HOST,
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
from lstmprof.diagnose.seen import Fact
from lstmprof.diagnose.step_profile import labels
from lstmprof.numbers import cropped, listed, milliseconds, quantity

#: What anomaly mode calls for each gradient.
_CHECK = "aten::isnan"
_NODE = re.compile(r"autograd::engine::evaluate_function: (?!torch::autograd::AccumulateGrad)")


def anomaly_mode(f: Finding) -> Told | None:
    """Autograd looks for NaN in what every node puts out.

    What it takes in all cannot be told: for each op of the forward pass it keeps a Python stack,
    which no event shows.
    """
    rows = f.slow.rows("ops")
    checks = next((r["count"] for r in rows if r["name"] == _CHECK), 0)
    nodes = sum(r["count"] for r in rows if _NODE.search(r["name"]))
    if not nodes or checks < nodes:
        return None
    return Told(
        "every node of the backward pass is searched for NaN "
        f"({often(f.slow, checks / f.slow.steps)}): anomaly mode is on, "
        "torch.autograd.set_detect_anomaly(False)"
    )


def filled_memory(f: Finding) -> Told | None:
    """New memory is filled before it is used: what deterministic algorithms ask for."""
    filled = f.slow.seen.filled
    if not filled:
        return None
    times = often_in_all(f.slow, filled)
    return Told(
        f"new tensors are filled before they are written, {times}: deterministic algorithms do "
        "that; torch.utils.deterministic.fill_uninitialized_memory = False leaves it out",
        total(filled),
    )


def gradient_hooks(f: Finding) -> Told | None:
    """Hooks on gradients run ops in the backward pass."""
    hooked = f.slow.seen.hooked
    if not hooked:
        return None
    times, took = often_in_all(f.slow, hooked), total(hooked)
    return Told(
        f"hooks on gradients run {_names(hooked)} in the backward pass "
        f"({times}, {milliseconds(took)} ms{each(f.slow)}): remove what register_hook "
        "gave, or look at gradients once in many steps",
        took,
    )


def recomputed(f: Finding) -> Told | None:
    """The backward pass computes ops of the forward pass again."""
    again = f.slow.seen.recomputed
    if not again:
        return None
    times, took = often_in_all(f.slow, again), total(again)
    return Told(
        f"the backward pass computes {_names(again)} again ({times}, "
        f"{milliseconds(took)} ms{each(f.slow)}), as checkpointing does to save memory: "
        "where the memory is there, call the layer without torch.utils.checkpoint",
        took,
    )


def _names(facts: Sequence[Fact]) -> str:
    """The first of them, and that there are others."""
    others = " and such" if len(facts) > 1 else ""
    return f"{cropped(facts[0].name)}{others}"


def torchscript(f: Finding) -> Told | None:
    """TorchScript computes the gradients of its graphs op by op."""
    scripted = f.slow.seen.scripted
    if not scripted:
        return None
    times, took = often_in_all(f.slow, scripted), total(scripted)
    return Told(
        f"TorchScript computes the gradients of its graphs op by op ({times}, "
        f"{milliseconds(took)} ms{each(f.slow)}): torch.nn.LSTM has the whole layer in "
        "one op; torch.compile compiles the backward pass of a cell of one's own",
        took,
    )


def slowed_by_denormals(f: Finding) -> Told | None:
    """On a CPU the same products are slow at one place of every step."""
    slow = f.slow.seen.slowing
    if slow is None:
        return None
    fast_each, slow_each = quantity(slow.fast_ns, "ns"), quantity(slow.slow_ns, "ns")
    if slow.whole:
        seen = f"{slow.name} takes {slow_each}, the forward pass {fast_each}"
    else:
        seen = f"{slow.name} of one shape takes {fast_each} at one place of every step and "
        seen += f"{slow_each} at another"
    return Told(
        f"{seen}, as products of denormal numbers do on a CPU: torch.set_flush_denormal(True) "
        "takes them for zero, and shows whether they are",
        slow.ns,
    )


def denormals(f: Finding) -> Told | None:
    """A CPU that computes with denormal numbers, and is slower than one that does not."""
    if f.fast is None or f.slow.device is not None:
        return None
    if (settings.denormals(f.fast.info), settings.denormals(f.slow.info)) != ("flushed", "kept"):
        return None
    return Told(
        "the faster run flushed denormal numbers to zero, this one did not: "
        "torch.set_flush_denormal(True)"
    )


def crowded(f: Finding) -> Told | None:
    """More threads than CPUs, or threads that spin: they take each other's time."""
    if f.slow.device is not None:
        return None
    how = (
        "give it as many threads as CPUs (torch.set_num_threads, OMP_NUM_THREADS), one pool of "
        "them, and let those that wait sleep (OMP_WAIT_POLICY=passive, KMP_BLOCKTIME=0)"
    )
    if f.fast is not None and f.kind == causes.SLOWER:
        why = reason(f.fast, f.slow)
        return Told(f"{why.text}: {how}") if why.name == THREADS else None
    shared = settings.shared_cpus(f.slow.info)
    return None if shared is None else Told(f"its {shared}: {how}")


def faster_settings(f: Finding) -> Told | None:
    """What was set otherwise in the faster run, but what has a remedy of its own."""
    differ = [] if f.fast is None else settings.disagreements(f.fast.info, f.slow.info)
    others = [d for d in differ if d.setting not in (settings.DENORMALS, settings.ANOMALY)]
    if f.fast is None or not others:
        return None
    values = listed([cropped(f"{d.setting} {d.fast}") for d in others])
    return Told(f"set as in {labels(f.fast, f.slow)[0]}: {values}")


NO_ANOMALY_MODE = Remedy(
    name="no anomaly mode",
    cause="anomaly mode searches what every node of the backward pass puts out for NaN",
    condition="a search for NaN for every node of the backward pass",
    kinds=(*HOST, *WORK, SYNC),
    frameworks=TORCH,
    decide=anomaly_mode,
    sources=("https://docs.pytorch.org/docs/stable/autograd.html#anomaly-detection",),
    example=Example(
        of="nn.LSTMCell in torch.autograd.set_detect_anomaly, PyTorch 2.13 on a CPU",
        told="every node of the backward pass is searched for NaN (1,077 times per step): "
        "anomaly mode is on, torch.autograd.set_detect_anomaly(False)",
    ),
)
LEAVE_UNFILLED = Remedy(
    name="leave memory unfilled",
    cause="deterministic algorithms fill new memory before it is written",
    condition="fill_ inside ops that allocate",
    kinds=(MEMORY, DISPATCH, LAUNCH),
    frameworks=TORCH,
    saves="filling",
    decide=filled_memory,
    sources=("https://docs.pytorch.org/docs/stable/deterministic.html",),
)
FLUSH_DENORMALS = Remedy(
    name="flush denormals",
    cause="a CPU computes with denormal numbers, each with the help of microcode",
    condition="on a CPU the faster run flushed denormal numbers and this one did not",
    kinds=(*WORK, causes.SLOWER),
    frameworks=TORCH,
    decide=denormals,
    sources=(
        "https://docs.pytorch.org/docs/stable/generated/torch.set_flush_denormal.html",
        "https://github.com/pytorch/pytorch/issues/19651",
    ),
)
FASTER_SETTINGS = Remedy(
    name="settings of the faster run",
    cause="the same calls take longer under other settings",
    condition="a setting differs between both, and the same calls take longer in this one",
    kinds=(causes.SLOWER,),
    decide=faster_settings,
    sources=(
        "https://docs.pytorch.org/docs/stable/backends.html",
        "https://www.tensorflow.org/api_docs/python/tf/config",
        "https://docs.jax.dev/en/latest/config_options.html",
    ),
)
NO_GRADIENT_HOOKS = Remedy(
    name="no gradient hooks",
    cause="hooks on gradients run ops in the backward pass",
    condition="ops inside a node's call by autograd's engine, before the node itself",
    kinds=(*HOST, *WORK, SYNC, COPY),
    frameworks=TORCH,
    saves="these ops, without the Python between them",
    of_several=True,
    decide=gradient_hooks,
    sources=(
        "https://docs.pytorch.org/docs/stable/generated/torch.Tensor.register_hook.html",
        "https://docs.pytorch.org/docs/stable/notes/autograd.html",
    ),
    example=Example(
        of="statistics of every gradient in Tensor.register_hook, PyTorch 2.13 on a CPU",
        told="hooks on gradients run aten::is_nonzero and such in the backward pass (480 times "
        "a step, 22.0 ms per step): remove what register_hook gave, or look at gradients "
        "once in many steps",
    ),
)
COMPUTE_ONCE = Remedy(
    name="compute once",
    cause="the backward pass computes the forward pass again",
    condition="ops in which a forward pass is written (aten::lstm, lstm_cell, linear …) inside "
    "nodes of the backward pass",
    kinds=(*HOST, *WORK, COPY),
    frameworks=TORCH,
    saves="these ops",
    of_several=True,
    decide=recomputed,
    sources=("https://docs.pytorch.org/docs/stable/checkpoint.html",),
    example=Example(
        of="nn.LSTMCell in torch.utils.checkpoint, PyTorch 2.13 on a CPU",
        told="the backward pass computes aten::lstm_cell again (40 times per step, 43.8 ms a "
        "step), as checkpointing does to save memory: where the memory is there, call the "
        "layer without torch.utils.checkpoint",
    ),
)
NO_TORCHSCRIPT = Remedy(
    name="no TorchScript",
    cause="TorchScript computes the gradients of its graphs op by op",
    condition="nodes of the backward pass that are graphs of TorchScript",
    kinds=(*HOST, *WORK, COPY),
    frameworks=TORCH,
    saves="these nodes",
    of_several=True,
    instead="any other backward pass",
    decide=torchscript,
    sources=(
        "https://github.com/pytorch/pytorch/issues/46213",
        "https://github.com/pytorch/benchmark/pull/53",
        "https://docs.pytorch.org/docs/stable/jit.html",
    ),
    example=Example(
        of="an LSTM written by hand in torch.jit.script, PyTorch 2.13 on a CPU",
        told="TorchScript computes the gradients of its graphs op by op (40 times per step, "
        "104.4 ms per step): torch.nn.LSTM has the whole layer in one op; torch.compile "
        "compiles the backward pass of a cell of one's own",
    ),
)
FLUSH_UNDERFLOW = Remedy(
    name="flush what underflows",
    cause="values shrink from time step to time step until a CPU computes with denormal numbers",
    condition="products of one shape whose medians are eight times as long at one place of every "
    "step; of a layer in one op a backward pass eight times as long as a forward one of 5 ms",
    kinds=(GEMM,),
    frameworks=TORCH,
    saves="what these products take above the fast ones",
    decide=slowed_by_denormals,
    sources=(
        "https://docs.pytorch.org/docs/stable/generated/torch.set_flush_denormal.html",
        "https://github.com/pytorch/pytorch/issues/19651",
        "https://github.com/uxlfoundation/oneDNN/issues/561",
        "https://github.com/chainer/chainer/issues/2554",
    ),
    example=Example(
        of="an LSTM written by hand with small weights over 160 time steps, PyTorch 2.13 on a CPU",
        told="aten::mm of one shape takes 6.0 µs at one place of every step and 331.6 µs at "
        "another, as products of denormal numbers do on a CPU: "
        "torch.set_flush_denormal(True) takes them for zero, and shows whether they are",
    ),
)
AS_MANY_THREADS = Remedy(
    name="as many threads as CPUs",
    cause="threads share CPUs, or spin while they wait, and take each other's time",
    condition="more threads than CPUs in run.json; against a faster run, calls that are slower "
    "while more CPUs are busy",
    kinds=(*HOST, *WORK, causes.SLOWER),
    decide=crowded,
    sources=(
        "https://github.com/tensorflow/tensorflow/issues/33138",
        "https://github.com/uxlfoundation/oneDNN/issues/282",
    ),
)
