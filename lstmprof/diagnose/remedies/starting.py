"""Causes: work that belongs before the profiled steps: runtime start, tracing, compilation."""

from __future__ import annotations

import re
from collections.abc import Sequence

from lstmprof.diagnose.causes import COMPILE, START
from lstmprof.diagnose.findings import Finding
from lstmprof.diagnose.remedies.eager import compiled_alone, compiled_when, is_compiled_again
from lstmprof.diagnose.remedies.rows import (
    JAX,
    TENSORFLOW,
    Example,
    Match,
    Remedy,
    from_facts,
    in_ms,
    total,
)
from lstmprof.diagnose.seen import RUNTIMES, Fact
from lstmprof.diagnose.seen.calls import PROGRAM, loads
from lstmprof.numbers import cropped, listed, number_of, quantity

_WARM_UP = "run a few warm-up steps before the profiled ones"
_HOW_NOT_TO_TRACE = {
    "torch": "keep shapes constant, or use torch.compile(dynamic=True); TORCH_LOGS=recompiles says "
    "why it recompiled",
    "tensorflow": "pass tensors, not Python numbers, to the tf.function; for varying shapes set "
    "reduce_retracing=True",
    "jax": "call jax.jit once, before the loop, and keep shapes and types constant; "
    "jax_explain_cache_misses says why it recompiled",
}
#: Runtime → its maker's page on starting it and loading code.
_ON_LOADING = {
    "CUDA": "https://docs.nvidia.com/cuda/cuda-c-programming-guide/#lazy-loading",
    "HIP": "https://rocm.docs.amd.com/projects/HIP/en/latest/how-to/hip_runtime_api/"
    "initialization.html",
}
#: The compilers that ROCm's libraries call, and MIOpen's own functions that call them.
_ROCM_COMPILER = re.compile(r"(?i)hiprtc|amd_comgr|miopen\w*.*(?:compile|buildprogram)")


def starts(f: Finding) -> Match | None:
    """Match calls that started the runtime or loaded code."""
    calls = f.slow.seen.loading
    if not calls:
        return None
    runtime = _runtime_of(calls)
    if runtime is None:
        cause = "libraries start up, or load code, inside the profiled steps"
        return Match(_first_call(calls[0]), total(calls), cause=cause)
    cause, fix = f"{runtime} starts up, or loads code, inside the profiled steps", ""
    if f.slow.seen.steps_before and not loads(calls[0].name):
        cause = f"the profiler starts up, or {runtime} loads code, inside the profiled steps"
        fix = "let the profiler warm up for one step before it records"
    return Match(_first_call(calls[0]), total(calls), fix, cause, source=_ON_LOADING[runtime])


def _first_call(call: Fact) -> str:
    """Return the time of a call that initialises or loads something, and that of later calls."""
    each_ns = quantity(call.ns / call.count, "ns")
    if call.median_ns is None:
        return f"{call.name} took {each_ns}" + (" per call" if call.count > 1 else "")
    later = "under 1 µs" if call.median_ns < 1000 else quantity(call.median_ns, "ns")
    if call.count > 1:
        return f"{call.name} took {each_ns} for each kernel's first launch, and later {later}"
    return f"the first {call.name} took {each_ns}, later calls {later}"


def _runtime_of(calls: Sequence[Fact]) -> str | None:
    """Return the runtime whose calls these are; None if they are ops only."""
    called = (runtime for c in calls for runtime, name in RUNTIMES.items() if name.match(c.name))
    return next(called, "CUDA" if any(loads(call.name) for call in calls) else None)


def retraces(f: Finding) -> Match | None:
    """Match tracing or compiling in the profiled steps."""
    facts = f.slow.seen.compiled
    if not facts or compiled_alone(f.slow) is not None:
        return None
    own_ns = f.slow_ns - _captured_ns(f)
    within = next((fact.within for fact in facts if fact.within), None)
    function = PROGRAM.fullmatch(within or "")
    name = function["name"] if function else within
    names = name is not None and f.slow.framework in (*JAX, *TENSORFLOW)
    target = f" for {cropped(name)}" if name is not None and names else ""
    seen = f"{cropped(facts[0].name)} and similar events{target} take {in_ms(f.slow, own_ns)}"
    if not is_compiled_again(f.slow):
        if name is None or not target or not f.slow.marked or f.slow.steps < 2:
            return Match(seen, own_ns, _WARM_UP)
        return Match(
            f"{seen}, all of them in 1 of {f.slow.steps} steps",
            own_ns,
            f"call {cropped(name)} once before the profiled steps",
            f"{cropped(name)} is traced or compiled in 1 of {f.slow.steps} profiled steps",
        )
    return Match(f"{seen}, {compiled_when(f.slow)}{_shapes(f)}", own_ns, fix=_how_not_to_trace(f))


def captures(f: Finding) -> Match | None:
    """Match streams that are captured into a graph in the profiled steps."""
    captured_ns = _captured_ns(f)
    if not captured_ns:
        return None
    number = number_of(round(f.slow.seen.captured * f.slow.steps), "launch", "launches")
    what = in_ms(f.slow, captured_ns)
    return Match(f"capturing {number} into a graph takes {what}", captured_ns)


def _captured_ns(f: Finding) -> int:
    return sum(c.ns for c in f.contributors if c.name and "StreamBeginCapture" in c.name)


def _how_not_to_trace(f: Finding) -> str:
    anew = f.slow.seen.made_anew
    if anew is not None:
        return f"create the tf.function {cropped(anew)} once, before the loop, not in every step"
    return _HOW_NOT_TO_TRACE.get(f.slow.framework or "", "")


def _shapes(f: Finding) -> str:
    if f.slow.seen.shapes is None:
        return ""
    name, shapes = f.slow.seen.shapes
    return f"; the shapes of {name} differ: {listed([cropped(s) for s in shapes[:2]])}"


PROFILE_LATER = Remedy(
    name="profile later",
    cause="the GPU's runtime starts up, or loads code, inside the profiled steps",
    fix=_WARM_UP,
    condition="A profiled step has a call that loads code, or a long first call of a CUDA or HIP "
    "function (of launches: the first call for each kernel; of others: each call before the first "
    "kernel). Long means at least 1 ms, and ten times the median of the later calls. In a profile "
    "without step markers also the first call of an op, on a CPU if it takes a hundred times that "
    "median",
    kinds=(START,),
    first=True,
    saves="the time of these calls",
    decide=starts,
    sources=tuple(_ON_LOADING.values()),
    example=Example(
        of="a simulated program: the first kernel launched in the profiled steps",
        seen="the first cudaLaunchKernel took 5.005 ms, later calls 4.0 µs",
    ),
)
WARM_MIOPEN = Remedy(
    name="warm MIOpen up",
    cause="MIOpen compiles kernels inside the profiled steps",
    fix="run every shape once before the profiled steps; keep MIOpen's cache (MIOPEN_USER_DB_PATH)",
    condition="The profiled steps call ROCm's compilers (hiprtc, comgr)",
    kinds=(COMPILE,),
    first=True,
    saves="the time of these compilations",
    decide=from_facts(
        lambda f: [c for c in f.slow.seen.compiled if _ROCM_COMPILER.search(c.name)],
        "{name} and similar calls take {ms}",
    ),
    sources=(
        "https://rocm.docs.amd.com/projects/MIOpen/en/latest/conceptual/cache.html",
        "https://github.com/pytorch/pytorch/issues/177834",
    ),
)
TRACE_ONCE = Remedy(
    name="trace once",
    cause="functions are traced or compiled inside the profiled steps",
    fix="keep shapes and types constant, and create compiled functions once, before the loop",
    condition="The profiled steps have events of tracing or of a compiler",
    kinds=(COMPILE,),
    first=True,
    saves="the time of tracing and compiling",
    decide=retraces,
    sources=(
        "https://www.tensorflow.org/guide/function",
        "https://docs.pytorch.org/docs/stable/torch.compiler_troubleshooting.html",
        "https://docs.jax.dev/en/latest/jit-compilation.html",
        "https://github.com/tensorflow/tensorflow/issues/46518",
        "https://github.com/pytorch/pytorch/issues/185135",
    ),
    example=Example(
        of="a tf.function of TensorFlow 2.21 that is created in every step, on a CPU",
        seen="tf.function-graph_building and similar events for <lambda> take 1,598.8 ms per step, "
        "in 3 steps",
    ),
)
CAPTURE_ONCE = Remedy(
    name="capture once",
    cause="a stream is captured into a GPU graph inside the profiled steps",
    fix="capture the graph before the profiled steps, and replay it in them",
    condition="The profiled steps capture a stream into a graph (cudaStreamBeginCapture)",
    kinds=(COMPILE,),
    first=True,
    saves="the time of the captures",
    decide=captures,
    sources=(
        "https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs",
        "https://docs.nvidia.com/cuda/cuda-c-programming-guide/#cuda-graphs",
    ),
    example=Example(
        of="a diffusion model that torch.compile records into a graph, on an MI300X",
        seen="capturing 1,567 launches into a graph takes 538.4 ms",
    ),
)
