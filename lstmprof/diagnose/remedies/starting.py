"""What belongs before the profiled steps: setting the runtime up, tracing and compiling."""

from __future__ import annotations

from lstmprof.diagnose.causes import ALLOCATION, COMPILE, LAUNCH, RUNTIME
from lstmprof.diagnose.findings import Finding
from lstmprof.diagnose.remedies.told import Remedy, Told, each, total
from lstmprof.diagnose.seen import RUNTIMES, Fact
from lstmprof.numbers import cropped, listed, milliseconds, quantity

_HOW_NOT_TO_TRACE = {
    "torch": "TORCH_LOGS=recompiles says why; give it the same shapes, or torch.compile(dynamic="
    "True), and tensors for numbers that change",
    "tensorflow": "pass tensors instead of Python numbers, and give tf.function an input_signature "
    "or reduce_retracing=True",
    "jax": "create the jitted function once, outside the loop, and give it the same shapes and "
    "types; jax_explain_cache_misses says why",
}


def initialises(f: Finding) -> Told | None:
    """Calls of this kind that set the runtime up or loaded code."""
    names = {c.name for c in f.contributors}
    calls = [h for h in f.slow.seen.loading if h.name in names]
    if not calls:
        return None
    return Told(
        f"{_took(calls[0])}: {_runtime_of(calls[0].name)} was being initialised or loaded code; "
        "run a few steps before those that are profiled",
        total(calls),
    )


def _took(call: Fact) -> str:
    """What a call that initialises took, and what the later ones of its name take."""
    each_ns = quantity(call.ns / call.count, "ns")
    if call.median_ns is None:
        return f"{call.name} took {each_ns}" + (" a call" if call.count > 1 else "")
    if call.count > 1:
        where = "where it launched a kernel for the first time"
        return f"{call.name} took {each_ns} {where}, and {_short(call.median_ns)} otherwise"
    return f"the first {call.name} took {each_ns}, the others {_short(call.median_ns)}"


def _short(ns: int) -> str:
    return "under 1 µs" if ns < 1000 else quantity(ns, "ns")


def _runtime_of(name: str) -> str:
    names = (runtime for runtime, pattern in RUNTIMES.items() if pattern.match(name))
    return next(names, "CUDA")


def recompiles(f: Finding) -> Told | None:
    """Something was traced or compiled in the profiled steps."""
    compiled = f.slow.seen.compiled
    if not compiled:
        return None
    steps, name = f.slow.seen.compiled_steps, cropped(compiled[0].name)
    took = f"{name} and such take {milliseconds(f.slow_ns)} ms{each(f.slow)}"
    if steps < 2:
        return Told(f"{took}: run a few steps before those that are profiled", f.slow_ns)
    how = _HOW_NOT_TO_TRACE.get(f.slow.framework or "", "give every step the same shapes and types")
    return Told(f"{took}, in {steps} steps{_shapes(f)}: {how}", f.slow_ns)


def _shapes(f: Finding) -> str:
    if f.slow.seen.shapes is None:
        return ""
    name, shapes = f.slow.seen.shapes
    return f" (the shapes of {name} differ: {listed([cropped(s) for s in shapes[:2]])})"


PROFILE_LATER = Remedy(
    name="profile later",
    cause="the runtime of a GPU is set up, or loads code, in the profiled steps",
    condition="a call that loads code, or the first call of a function of CUDA or HIP (of launches "
    "the first of a kernel) that takes 1 ms and ten times the median of the later ones",
    kinds=(LAUNCH, RUNTIME, ALLOCATION),
    saves="these calls",
    decide=initialises,
    sources=("https://docs.nvidia.com/cuda/cuda-c-programming-guide/#lazy-loading",),
)
TRACE_ONCE = Remedy(
    name="trace once",
    cause="functions are traced or compiled in the profiled steps",
    condition="a function is traced or compiled in the profiled steps",
    kinds=(COMPILE,),
    saves="tracing and compiling",
    decide=recompiles,
    sources=(
        "https://www.tensorflow.org/guide/function",
        "https://docs.pytorch.org/docs/stable/torch.compiler_troubleshooting.html",
        "https://docs.jax.dev/en/latest/jit-compilation.html",
    ),
)
