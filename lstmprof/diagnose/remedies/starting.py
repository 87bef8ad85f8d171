"""What belongs before the profiled steps: setting the runtime up, tracing and compiling."""

from __future__ import annotations

from lstmprof.diagnose.causes import ALLOCATION, COMPILE, LAUNCH, RUNTIME
from lstmprof.diagnose.findings import Finding
from lstmprof.diagnose.remedies.eager import compiled_alone, compiled_when, is_compiled_again
from lstmprof.diagnose.remedies.told import JAX, TENSORFLOW, Example, Remedy, Told, each, total
from lstmprof.diagnose.seen import RUNTIMES, Fact
from lstmprof.diagnose.seen.calls import PROGRAM
from lstmprof.diagnose.seen.loading import loads
from lstmprof.numbers import cropped, listed, milliseconds, quantity

_HOW_NOT_TO_TRACE = {
    "torch": "TORCH_LOGS=recompiles says why; give it the same shapes, or torch.compile(dynamic="
    "True), and tensors for numbers that change",
    "tensorflow": "pass tensors instead of Python numbers, and give tf.function an input_signature "
    "or reduce_retracing=True where shapes change",
    "jax": "create the jitted function once, outside the loop, and give it the same shapes and "
    "types; jax_explain_cache_misses says why",
}
#: Runtime → what its maker says of when it is set up and loads code.
_ON_LOADING = {
    "CUDA": "https://docs.nvidia.com/cuda/cuda-c-programming-guide/#lazy-loading",
    "HIP": "https://rocm.docs.amd.com/projects/HIP/en/latest/how-to/hip_runtime_api/"
    "initialization.html",
}


def initialises(f: Finding) -> Told | None:
    """Calls of this kind that set the runtime up or loaded code."""
    names = {c.name for c in f.contributors}
    calls = [h for h in f.slow.seen.loading if h.name in names]
    if not calls:
        return None
    runtime = _runtime_of(calls[0].name)
    why = f"{runtime} was being initialised or loaded code"
    remedy = "run a few steps before those that are profiled"
    if f.slow.seen.steps_before and not loads(calls[0].name):
        why = f"the profiler was being started, or {runtime} loaded code"
        remedy = "let the profiler warm up for a step first"
    return Told(
        f"{_took(calls[0])}: {why}; {remedy}",
        total(calls),
        source=_ON_LOADING[runtime],
    )


def _took(call: Fact) -> str:
    """What a call that initialises took, and what the later ones of its name take."""
    each_ns = quantity(call.ns / call.count, "ns")
    if call.median_ns is None:
        return f"{call.name} took {each_ns}" + (" a call" if call.count > 1 else "")
    later = f"{_short(call.median_ns)} in the median"
    if call.count > 1:
        where = "where it launched a kernel for the first time"
        return f"{call.name} took {each_ns} {where}, and {later} otherwise"
    return f"the first {call.name} took {each_ns}, the others {later}"


def _short(ns: int) -> str:
    return "under 1 µs" if ns < 1000 else quantity(ns, "ns")


def _runtime_of(name: str) -> str:
    names = (runtime for runtime, pattern in RUNTIMES.items() if pattern.match(name))
    return next(names, "CUDA")


def recompiles(f: Finding) -> Told | None:
    """Something was traced or compiled in the profiled steps."""
    compiled = f.slow.seen.compiled
    if not compiled or compiled_alone(f.slow) is not None:
        return None
    took = f"{_what(f)} {milliseconds(f.slow_ns)} ms{each(f.slow)}"
    if not is_compiled_again(f.slow):
        return Told(f"{took}: run a few steps before those that are profiled", f.slow_ns)
    return Told(f"{took}, {compiled_when(f.slow)}{_shapes(f)}: {_how_not_to_trace(f)}", f.slow_ns)


def _what(f: Finding) -> str:
    """The compiler's events, and the function that they are for where that is told."""
    first = f.slow.seen.compiled[0]
    function = PROGRAM.fullmatch(first.within or "")
    called = function["name"] if function else first.within
    if f.slow.framework not in (*JAX, *TENSORFLOW) or called is None:
        return f"{cropped(first.name)} and such take"
    return f"{cropped(first.name)} and such, for {cropped(called)}, take"


def _how_not_to_trace(f: Finding) -> str:
    anew = f.slow.seen.made_anew
    if anew is not None:
        return f"tf.function makes {cropped(anew)} anew each time: make it once, before the loop"
    how = _HOW_NOT_TO_TRACE.get(f.slow.framework or "")
    return how or "give every step the same shapes and types"


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
    sources=tuple(_ON_LOADING.values()),
    example=Example(
        of="drawn by the tests' simulator: the first kernel launched in the profiled steps",
        told="the first cudaLaunchKernel took 5.005 ms, the others 4.0 µs in the median: CUDA was "
        "being initialised or loaded code; run a few steps before those that are profiled",
    ),
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
        "https://github.com/tensorflow/tensorflow/issues/46518",
        "https://github.com/pytorch/pytorch/issues/185135",
    ),
    example=Example(
        "a tf.function of TensorFlow 2.21 that is made in every step, on a CPU",
        "tf.function-graph_building and such, for <lambda>, take 1,598.8 ms per step, in 3 steps: "
        "tf.function makes <lambda> anew each time: make it once, before the loop",
    ),
)
