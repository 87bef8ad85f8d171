"""Causes: the runtime starts or functions compile inside the steps, or ops run one by one."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from lstmprof.base.numbers import cropped, listed, number_of, quantity
from lstmprof.diagnose.findings import Finding, causes
from lstmprof.diagnose.findings.causes import COMPILE, START
from lstmprof.diagnose.remedies.rows import (
    HOST,
    JAX,
    SERIES,
    TENSORFLOW,
    TORCH,
    Match,
    Remedy,
    from_facts,
    in_ms,
    is_retraced,
    often,
    series_of_launches,
    times_called,
    total,
)
from lstmprof.diagnose.seen import RUNTIMES, Fact
from lstmprof.diagnose.seen.calls import EAGER, FUNCTION, PROGRAM, loads
from lstmprof.diagnose.step_profile import StepProfile, total_ns
from lstmprof.runs.fields import Recompiled

#: Patterns of torch.compile's events: a search for a compiled version, and a run of this version.
_LOOKUP, _COMPILED_REGION = (
    re.compile(f"^{name}") for name in ("TorchDynamo Cache Lookup", "Torch-Compiled Region")
)
#: Smallest compile time, as a share of the longest, at which a function is preferred because the
#: reason for its compilation is known. Chosen by hand.
_EXPLAINS = 0.25
_WARM_UP = "run a few warm-up steps before the profiled steps"
_HOW_NOT_TO_TRACE = {
    "torch": "keep shapes constant, or use torch.compile(dynamic=True); TORCH_LOGS=recompiles "
    "prints the reasons",
    "tensorflow": "pass tensors, not Python numbers, to the tf.function; if shapes vary, set "
    "reduce_retracing=True",
    "jax": "call jax.jit before the loop; keep shapes and types constant; "
    "JAX_EXPLAIN_CACHE_MISSES=1 logs causes",
}
#: (what changed before a function was compiled again, framework) → the fix.
_KEEP = {
    ("size", "torch"): "keep the size of {argument} constant (pad to a few lengths), or use "
    "torch.compile(dynamic=True)",
    ("value", "torch"): "make {argument} a tensor: torch.compile compiles {function} once per "
    "Python value",
    ("object", "torch"): "create {argument} once, before the loop",
    ("function", "torch"): "create what torch.compile compiles, and its backend, once, before the "
    "loop",
    ("guard", "torch"): "keep the condition true in every step: {before}",
    ("function", "tensorflow"): "create the tf.function {function} once, before the loop, not in "
    "every step",
    ("function", "jax"): "call jax.jit on {function} once, before the loop, not in every step",
    (
        "shape",
        "tensorflow",
    ): "keep the shape of {argument} constant (by padding), or set reduce_retracing=True",
    ("shape", "jax"): "keep the shape of {argument} constant (pad to a few lengths): JAX compiles "
    "{function} once per shape",
    ("value", "tensorflow"): "pass {argument} as a tf.constant: TensorFlow traces {function} once "
    "per Python value",
    ("value", "jax"): "pass {argument} as an array, not as a static argument: JAX compiles "
    "{function} once per value",
}
#: Runtime → the maker's page on how the runtime starts and loads code.
_ON_LOADING = {
    "CUDA": "https://docs.nvidia.com/cuda/cuda-c-programming-guide/#lazy-loading",
    "HIP": "https://rocm.docs.amd.com/projects/HIP/en/latest/how-to/hip_runtime_api/"
    "initialization.html",
}
#: Pattern of ROCm's compilers, and of MIOpen's functions that call compilers.
_ROCM_COMPILER = re.compile(r"(?i)hiprtc|amd_comgr|miopen\w*.*(?:compile|buildprogram)")


@Remedy(
    name="profile later",
    cause="the GPU's runtime starts up, or loads code, inside the profiled steps",
    fix=_WARM_UP,
    condition="A profiled step loads code (for example by cuModuleLoad). Or the first call of a "
    "CUDA or HIP function, or of an op, takes at least 1 ms and at least ten times as long as "
    "later calls of this function or op",
    kinds=(START,),
    first=True,
    sources=tuple(_ON_LOADING.values()),
)
def starts(f: Finding) -> Match | None:
    calls = f.slow.seen.loading
    if not calls:
        return None
    named = (name for call in calls for name, known in RUNTIMES.items() if known.match(call.name))
    runtime = next(named, "CUDA" if any(loads(call.name) for call in calls) else None)
    if runtime is None:
        cause = "libraries start up, or load code, inside the profiled steps"
        return Match(_first_call(calls[0]), total(calls), cause=cause)
    cause, fix = f"{runtime} starts up, or loads code, inside the profiled steps", ""
    if f.slow.seen.steps_before and not loads(calls[0].name):
        cause = f"the profiler starts up, or {runtime} loads code, inside the profiled steps"
        fix = "let the profiler warm up for one step before it records"
    return Match(_first_call(calls[0]), total(calls), fix, cause, source=_ON_LOADING[runtime])


def _first_call(call: Fact) -> str:
    """Return text such as ``the first cuInit took 90 ms, later calls took 5 µs``."""
    each_ns = quantity(call.ns / call.count, "ns")
    if call.median_ns is None:
        return f"{call.name} took {each_ns}" + (" per call" if call.count > 1 else "")
    later = "under 1 µs" if call.median_ns < 1000 else quantity(call.median_ns, "ns")
    if call.count > 1:
        first = f"{call.name} took {each_ns} for a kernel's first launch"
        return f"{first}, and {later} for later launches"
    return f"the first {call.name} took {each_ns}, later calls took {later}"


@Remedy(
    name="trace once",
    cause="functions are traced or compiled inside the profiled steps",
    fix="keep shapes and types constant, and create compiled functions once, before the training "
    "loop",
    condition="The profiled steps contain events of a compiler, or of tracing, which turns Python "
    "code into a graph",
    kinds=(COMPILE,),
    first=True,
    sources=(
        "https://www.tensorflow.org/guide/function",
        "https://docs.pytorch.org/docs/stable/torch.compiler_troubleshooting.html",
        "https://docs.jax.dev/en/latest/jit-compilation.html",
        "https://github.com/tensorflow/tensorflow/issues/46518",
        "https://github.com/pytorch/pytorch/issues/185135",
    ),
)
def retraces(f: Finding) -> Match | None:
    facts = f.slow.seen.compiled
    if not facts or compiled_alone(f.slow) is not None:
        return None
    own_ns = f.slow_ns - _captured_ns(f)
    name = _function(_longest_compiled(f.slow))
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
    change = _change(f.slow, name)
    if change is not None:
        cause = f"{cropped(change.function or '')} is compiled again: {_in_words(change)}"
        return Match(f"{seen}, {compiled_when(f.slow)}", own_ns, _keep(f, change), cause)
    anew = f.slow.seen.made_anew
    fix = _HOW_NOT_TO_TRACE.get(f.slow.framework or "", "")
    if anew is not None:
        fix = f"create the tf.function {cropped(anew)} once, before the loop, not in every step"
    return Match(f"{seen}, {compiled_when(f.slow)}{_shapes(f)}", own_ns, fix)


def _longest_compiled(profile: StepProfile) -> str | None:
    """Return the op that takes longest to compile, preferably an op with a known reason."""
    spent_ns: Counter[str] = Counter()
    for fact in profile.seen.compiled:
        if fact.within:
            spent_ns[fact.within] += fact.ns
    ops = spent_ns.most_common()
    # JAX also compiles its own functions again (``jax.random.normal``): prefer known reasons
    explained = [(op, ns) for op, ns in ops if _change(profile, _function(op)) is not None]
    if explained and explained[0][1] >= _EXPLAINS * ops[0][1]:
        return explained[0][0]
    return ops[0][0] if ops else None


def _change(profile: StepProfile, function: str | None) -> Recompiled | None:
    """Return what changed before a function was compiled again."""
    changes = profile.info.recompiled or ()
    # PyTorch's events name no function: assume the function that was compiled most often
    if profile.framework in TORCH:
        return max(changes, key=lambda each: each.times or 0, default=None)
    return next((each for each in changes if function and each.function == function), None)


def _in_words(change: Recompiled) -> str:
    """Say what changed, such as ``epoch changed from 3 to 4``."""
    argument = cropped(change.argument or "")
    if change.changed == "function":
        return "the script creates the function anew"
    if change.changed == "structure":
        return f"the number of arrays in {argument} changed"
    before, after = (cropped(text or "") for text in (change.before, change.after))
    if change.changed == "guard":
        return f"a condition of the compiled code does not hold: {before}"
    what = argument if change.changed == "value" else f"the {change.changed} of {argument}"
    if change.changed == "object":
        return f"{argument} is another object"
    if after:
        return f"{what} changed from {before} to {after}"
    return f"{what} is no longer {before}" if before else f"{what} changed"


def _keep(f: Finding, change: Recompiled) -> str:
    """Return advice that avoids the change, such as ``keep the shape of x constant``."""
    fix = _KEEP.get((change.changed or "", f.slow.framework or ""))
    names = {
        name: cropped(getattr(change, name) or "") for name in ("function", "argument", "before")
    }
    return (fix or "keep the {changed} of {argument} constant").format(
        changed=change.changed, **names
    )


@Remedy(
    name="keep it compiled",
    cause="torch.compile reached its recompile limit, so PyTorch runs the function eagerly",
    fix="keep shapes, dtypes and Python arguments of the compiled function constant",
    condition="PyTorch reported that a function reached torch.compile's limit of compilations "
    "(recompile_limit), and the profiled steps run no compiled code",
    kinds=(*HOST, causes.MEMORY),
    frameworks=TORCH,
    first=True,
    sources=(
        "https://docs.pytorch.org/docs/stable/user_guide/torch_compiler/compile/"
        "programming_model.recompilation.html",
    ),
)
def gave_up(f: Finding) -> Match | None:
    changes = f.slow.info.recompiled or ()
    change = next((each for each in changes if each.limit is not None), None)
    if change is None or times_called(f.slow, _COMPILED_REGION):
        return None
    if not times_called(f.slow, _LOOKUP):
        return None
    function = cropped(change.function or "")
    return Match(
        f"torch.compile compiled {function} {change.limit} times, and PyTorch runs it eagerly now",
        fix=_keep(f, change),
        cause=f"torch.compile gave up on {function}: {_in_words(change)}",
    )


def _function(within: str | None) -> str | None:
    """Return the name of the function that was compiled: ``PjitFunction(step)`` → ``step``."""
    program = PROGRAM.fullmatch(within or "")
    return program["name"] if program else within


@Remedy(
    name="capture once",
    cause="a CUDA or HIP graph is captured inside the profiled steps instead of before them",
    fix="capture the graph before the profiled steps, and replay the graph in these steps",
    condition="The profiled steps capture a graph (cudaStreamBeginCapture)",
    kinds=(COMPILE,),
    first=True,
    sources=(
        "https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs",
        "https://docs.nvidia.com/cuda/cuda-c-programming-guide/#cuda-graphs",
    ),
)
def captures(f: Finding) -> Match | None:
    captured_ns = _captured_ns(f)
    if not captured_ns:
        return None
    number = number_of(round(f.slow.seen.captured * f.slow.steps), "launch", "launches")
    what = in_ms(f.slow, captured_ns)
    return Match(f"capturing {number} into a graph takes {what}", captured_ns)


def _captured_ns(f: Finding) -> int:
    return sum(c.ns for c in f.contributors if c.name and "StreamBeginCapture" in c.name)


def _shapes(f: Finding) -> str:
    if f.slow.seen.shapes is None:
        return ""
    name, shapes = f.slow.seen.shapes
    some = listed(cropped(shape) for shape in shapes[:2])
    return f"; the input shapes of {name} differ between steps: {some}"


@Remedy(
    name="warm MIOpen up",
    cause="MIOpen compiles kernels inside the profiled steps",
    fix="run each input shape once before the profiled steps; keep MIOpen's cache "
    "(MIOPEN_USER_DB_PATH)",
    condition="The profiled steps call ROCm's compilers (hiprtc or comgr), or functions of MIOpen "
    "that compile",
    kinds=(COMPILE,),
    first=True,
    sources=(
        "https://rocm.docs.amd.com/projects/MIOpen/en/latest/conceptual/cache.html",
        "https://github.com/pytorch/pytorch/issues/177834",
    ),
)
def miopen_compiles(f: Finding) -> Match | None:
    calls = [c for c in f.slow.seen.compiled if _ROCM_COMPILER.search(c.name)]
    return from_facts(f, calls, "{name} and similar calls take {ms}")


#: Pattern of JAX's own functions. JAX compiles one program per function outside jax.jit.
_OWN = re.compile(
    r"_?(?:scan|while(?:_loop)?|cond|switch|fori_loop|map|add(?:_any)?|sub(?:tract)?|mul(?:tiply)?"
    r"|(?:true_)?div(?:ide)?|floor_divide|neg(?:ative)?|abs(?:olute)?|exp2?|expm1|log1?p?|tanh|sqrt"
    r"|rsqrt|square|power|integer_pow|pow|max(?:imum)?|min(?:imum)?|clip|where|select(?:_n|_and_\w+)?"
    r"|(?:not_)?equal|less(?:_equal)?|greater(?:_equal)?|eq|ne|lt|le|gt|ge|logical_\w+|bitwise_\w+"
    r"|and|or|not|xor|shift_\w+|sign|floor|ceil|round|rem(?:ainder)?|isfinite|is_finite|isnan"
    r"|logistic|sigmoid|relu6?|elu|gelu|silu|softplus|hard_\w+|log_sigmoid|(?:log_)?softmax"
    r"|logsumexp|one_hot|dot(?:_general)?|matmul|einsum|tensordot|outer|inner|vdot|reduce_\w+|sum"
    r"|mean|var|std|prod|all|any|arg(?:max|min|sort)|sort|cum\w+|broadcast(?:_in_dim|_to|_arrays)?"
    r"|reshape|transpose|swapaxes|moveaxis|squeeze|expand_dims|concatenate|stack|unstack|split"
    r"|array_split|pad|rev|flip|roll|tile|repeat|take(?:_along_axis)?|gather|scatter\w*|slice"
    r"|dynamic_\w+|convert_element_type|astype|copy(?:_p)?|iota|arange|zeros(?:_like)?|full(?:_like)?"
    r"|ones(?:_like)?|eye|tri[lu]?|ravel|norm|threefry\w*|random_\w+|uniform|normal|bernoulli|split"
    r"|fold_in|rng_\w+|stop_gradient|erf\w*|nan_to_num)"
)
#: Smallest number of compilations at which lstmprof reports that a function is compiled repeatedly.
#: A warm-up compiles once, or twice with gradients.
_AGAIN = 3
#: Pattern of events in which Python calls an operator of TensorFlow.
_CALLING = re.compile(
    r"EagerLocalExecute: (?!__).*|EagerExecute|EagerKernelExecute|KernelAndDeviceFunc::Run"
    r"|TFE_\w+|EagerCopyToDevice|ValidateInputTypeAndPlacement|convert_to_tensor|tf\.constant"
)


@Remedy(
    name="jit the whole",
    cause="JAX calls many small compiled programs instead of one program for the whole step",
    fix="put one jax.jit around the whole step, with gradients and optimizer, before the loop",
    condition="A step calls small compiled programs ten or more times (JAX compiles every operator "
    "outside jax.jit to such a program). Or JAX compiles single operators in several steps",
    kinds=(*HOST, COMPILE),
    frameworks=JAX,
    several_kinds=True,
    sources=(
        "https://docs.jax.dev/en/latest/jit-compilation.html",
        "https://docs.jax.dev/en/latest/_autosummary/jax.lax.scan.html",
    ),
)
def jitted_whole(f: Finding) -> Match | None:
    if f.kind == COMPILE:
        return _compiled_alone(f)
    programs = small_programs(f.slow)
    if not programs or is_retraced(f.slow):
        return None
    on_host = f.slow.device is None
    if on_host and f.kind == causes.DISPATCH and 2 * total(programs) < f.slow_ns:
        return None
    saves = _calling_ns(f.slow, programs) if on_host else series_of_launches(f)
    if saves is None:
        return None
    seen = (
        f"compiled programs such as {_called(programs[0].name)} are called "
        f"{often(f.slow, _calls(programs))}"
    )
    # a program that takes longer than all small programs together is the step itself
    wholes = [p for p in f.slow.seen.programs if p not in programs and p.ns > total(programs)]
    if not wholes:
        return Match(seen, saves)
    whole = _called(max(wholes, key=lambda p: p.ns).name)
    return Match(
        seen,
        saves,
        fix=f"call JAX only inside the compiled function {whole}; prepare batches with NumPy",
        cause=f"the step calls many small JAX programs outside {whole}",
    )


def _compiled_alone(f: Finding) -> Match | None:
    """Match repeated compilation of JAX's own functions outside jax.jit."""
    name = compiled_alone(f.slow)
    if name is None:
        return None
    return Match(
        f"compiling takes {in_ms(f.slow, f.slow_ns)}",
        f.slow_ns,
        cause=f"JAX compiles {name} {compiled_when(f.slow)}, because the script calls {name} "
        "outside jax.jit",
    )


def compiled_when(profile: StepProfile) -> str:
    """Say how often functions compile: ``in 3 steps``; without markers ``5 times``."""
    if profile.marked:
        return f"in {number_of(profile.seen.compiled_steps, 'step', 'steps')}"
    return often(profile, profile.seen.compiled[0].count)


def compiled_alone(profile: StepProfile) -> str | None:
    """Return JAX's own function (``add``) if its repeated compilation takes longest."""
    facts = profile.seen.compiled
    if not facts or not is_compiled_again(profile):
        return None
    match = PROGRAM.fullmatch(_longest_compiled(profile) or "")
    return match["name"] if match and _OWN.fullmatch(match["name"]) else None


def is_compiled_again(profile: StepProfile) -> bool:
    """Return whether something is compiled more often than in a warm-up."""
    facts = profile.seen.compiled
    if profile.marked:
        changes = (_change(profile, _function(fact.within)) for fact in facts)
        again = any(change is not None and (change.times or 0) >= _AGAIN for change in changes)
        return profile.seen.compiled_steps > 1 or (again and profile.steps == 1)
    is_shown = profile.framework in (*JAX, *TENSORFLOW) and facts and facts[0].within is not None
    return bool(is_shown) and facts[0].count >= _AGAIN


def small_programs(profile: StepProfile) -> Sequence[Fact]:
    """Return the small JAX programs of a run, or nothing if calls are few."""
    programs = profile.seen.programs
    # small programs are JAX's own functions, and programs that run many times per step
    small = [p for p in programs if _is_own(p.name) or (profile.marked and p.count >= SERIES)]
    wholes = _calls(programs) - _calls(small)
    return small if _calls(small) >= SERIES * max(1.0, wholes) else ()


def _is_own(program: str) -> bool:
    match = PROGRAM.fullmatch(program)
    return match is not None and _OWN.fullmatch(match["name"]) is not None


def _calls(facts: Sequence[Fact]) -> float:
    return sum(fact.count for fact in facts)


def _called(name: str) -> str:
    match = PROGRAM.fullmatch(name) or EAGER.fullmatch(name)
    return cropped(match["name"] if match else name)


@Remedy(
    name="one tf.function",
    cause="TensorFlow runs the step eagerly, operator by operator",
    fix="put the whole step, with gradients and optimizer, into one tf.function (Keras: "
    "run_eagerly=False)",
    condition="A step runs ten or more eager operators per call of a tf.function. If the step is "
    "slow because of dispatch (calling ops), calls of eager operators are at least half of the "
    "dispatch time",
    kinds=HOST,
    frameworks=TENSORFLOW,
    several_kinds=True,
    sources=(
        "https://www.tensorflow.org/guide/function",
        "https://github.com/tensorflow/tensorflow/issues/50488",
    ),
)
def outside_of_a_function(f: Finding) -> Match | None:
    operators = eager_operators(f.slow)
    if not operators or is_retraced(f.slow):
        return None
    calling = [c for c in f.contributors if c.name and _CALLING.fullmatch(c.name)]
    if f.kind == causes.DISPATCH and 2 * total_ns(calling) < total_ns(f.contributors):
        return None
    return Match(
        f"eager operators such as {_called(operators[0].name)} run "
        f"{often(f.slow, _calls(operators))}",
        _calling_ns(f.slow, operators),
    )


def _calling_ns(profile: StepProfile, called: Sequence[Fact]) -> int:
    """Return the host time of calling these programs or ops."""
    names = {fact.name for fact in called}
    return total([fact for fact in profile.seen.called if fact.name in names])


def eager_operators(profile: StepProfile) -> Sequence[Fact]:
    """Return operators outside any tf.function, or nothing if calls are few."""
    eager = profile.seen.eager
    functions = [fact for fact in eager if FUNCTION.match(fact.name)]
    operators = [fact for fact in eager if not FUNCTION.match(fact.name)]
    return operators if _calls(operators) >= SERIES * max(1.0, _calls(functions)) else ()
