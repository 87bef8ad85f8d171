"""What Python calls operator by operator where one compiled function would do.

Names as JAX and TensorFlow write them into their profiles (``seen.calls``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from lstmprof.diagnose import causes
from lstmprof.diagnose.causes import COMPILE
from lstmprof.diagnose.findings import Finding
from lstmprof.diagnose.remedies.told import (
    HOST,
    JAX,
    SERIES,
    TENSORFLOW,
    Example,
    Remedy,
    Told,
    each,
    is_retraced,
    often,
    series_of_launches,
    total,
)
from lstmprof.diagnose.seen import Fact
from lstmprof.diagnose.seen.calls import EAGER, FUNCTION, PROGRAM
from lstmprof.diagnose.step_profile import StepProfile, total_ns
from lstmprof.numbers import cropped, milliseconds

#: Programs that are operators and functions of JAX's own: the primitives of jax.lax, and those of
#: jax.numpy and jax.nn that a recurrent network needs. What a user compiled has other names.
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
#: So often an unmarked profile compiles for one call's sake: a warm-up does it once or, for a
#: gradient, twice.
_AGAIN = 3
#: What TensorFlow does to call one operator from Python; the operator itself is among it.
_CALLING = re.compile(
    r"EagerLocalExecute: (?!__).*|EagerExecute|EagerKernelExecute|KernelAndDeviceFunc::Run"
    r"|TFE_\w+|EagerCopyToDevice|ValidateInputTypeAndPlacement|convert_to_tensor|tf\.constant"
)


def jitted_whole(f: Finding) -> Told | None:
    """JAX runs a series of small programs, or compiles some of its own one by one."""
    if f.kind == COMPILE:
        return _compiled_alone(f)
    programs = small_programs(f.slow)
    if not programs or is_retraced(f.slow):
        return None
    if f.slow.device is None and f.kind == causes.DISPATCH and 2 * total(programs) < f.slow_ns:
        return None
    on_host = f.slow.device is None
    saves = _calling_ns(f.slow, programs) if on_host else series_of_launches(f)
    if saves is None:
        return None
    return Told(
        f"it calls compiled programs {often(f.slow, _calls(programs))}, such as "
        f"{_called(programs[0].name)}: one jax.jit around the whole step, gradients and optimizer "
        "included, makes them one",
        saves,
    )


def _compiled_alone(f: Finding) -> Told | None:
    """Most of compiling is for an operator of JAX's own, which no jit of the user's holds."""
    name = compiled_alone(f.slow)
    if name is None:
        return None
    return Told(
        f"outside of any jax.jit, {name} is traced and compiled {compiled_when(f.slow)}, as its "
        f"function or its shapes are new ones: {milliseconds(f.slow_ns)} ms{each(f.slow)}; put one "
        "jax.jit around the whole step, gradients and optimizer included, once before the loop",
        f.slow_ns,
    )


def compiled_when(profile: StepProfile) -> str:
    """In how many steps something was compiled; how often where none is marked."""
    if profile.marked:
        return f"in {profile.seen.compiled_steps} steps"
    return often(profile, profile.seen.compiled[0].count)


def compiled_alone(profile: StepProfile) -> str | None:
    """The operator of JAX's own that takes most of compiling again and again; None where none."""
    facts = profile.seen.compiled
    if not facts or not is_compiled_again(profile):
        return None
    match = PROGRAM.fullmatch(facts[0].within or "")
    return match["name"] if match and _OWN.fullmatch(match["name"]) else None


def is_compiled_again(profile: StepProfile) -> bool:
    """Whether something is compiled in several steps; unmarked, one function three times."""
    facts = profile.seen.compiled
    if profile.marked:
        return profile.seen.compiled_steps > 1
    known = profile.framework in (*JAX, *TENSORFLOW) and facts and facts[0].within is not None
    return bool(known) and facts[0].count >= _AGAIN


def small_programs(profile: StepProfile) -> Sequence[Fact]:
    """Programs of a series, JAX's own and what is called as often; empty where they are few.

    A step that is one program may have some of JAX's own beside it: without step markers ten of
    these for each call of a program that is the user's make a series.
    """
    programs = profile.seen.programs
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


def outside_of_a_function(f: Finding) -> Told | None:
    """TensorFlow runs a series of operators one by one at Python's call."""
    operators = eager_operators(f.slow)
    if not operators or is_retraced(f.slow):
        return None
    calling = [c for c in f.contributors if c.name and _CALLING.fullmatch(c.name)]
    if f.kind == causes.DISPATCH and 2 * total_ns(calling) < total_ns(f.contributors):
        return None
    return Told(
        f"outside of a function it runs operators one by one, {often(f.slow, _calls(operators))}, "
        f"such as {_called(operators[0].name)}: put the whole step, gradients and optimizer "
        "included, into one tf.function (Keras does, unless run_eagerly=True)",
        _calling_ns(f.slow, operators),
    )


def _calling_ns(profile: StepProfile, called: Sequence[Fact]) -> int:
    """What waits for these calls, with the Python before each."""
    names = {fact.name for fact in called}
    return total([fact for fact in profile.seen.called if fact.name in names])


def eager_operators(profile: StepProfile) -> Sequence[Fact]:
    """Operators that run outside of a function; empty where they are few beside functions."""
    eager = profile.seen.eager
    functions = [fact for fact in eager if FUNCTION.match(fact.name)]
    operators = [fact for fact in eager if not FUNCTION.match(fact.name)]
    return operators if _calls(operators) >= SERIES * max(1.0, _calls(functions)) else ()


JIT_THE_WHOLE = Remedy(
    name="jit the whole",
    cause="JAX runs a step as a series of small programs, outside of one jax.jit",
    condition="ten compiled programs or more per step, JAX's own operators or called as often, "
    "where a step is no program of the user's; on a GPU launches as for a CUDA graph, on a CPU "
    "half of the dispatch; of compiling, that most of it is for an operator of JAX's own, in "
    "several steps",
    kinds=(*HOST, COMPILE),
    frameworks=JAX,
    saves="on a GPU the usual gaps, on a CPU calling these programs and the usual Python between "
    "them; tracing and compiling",
    of_several=True,
    decide=jitted_whole,
    sources=(
        "https://docs.jax.dev/en/latest/jit-compilation.html",
        "https://docs.jax.dev/en/latest/_autosummary/jax.lax.scan.html",
    ),
    example=Example(
        "a training step of Flax 0.12 on JAX 0.10 that no jit holds, on a CPU",
        "outside of any jax.jit, scan is traced and compiled in 3 steps, as its function or its "
        "shapes are new ones: 5,883.8 ms per step; put one jax.jit around the whole step",
    ),
)
IN_ONE_FUNCTION = Remedy(
    name="one tf.function",
    cause="TensorFlow runs a step operator by operator, outside of a function",
    condition="ten operators or more per step executed eagerly, ten times as many as functions, "
    "and calling them is half of the dispatch; nothing traced or compiled",
    kinds=HOST,
    frameworks=TENSORFLOW,
    saves="calling these operators, and the usual Python between them",
    of_several=True,
    decide=outside_of_a_function,
    sources=(
        "https://www.tensorflow.org/guide/function",
        "https://github.com/tensorflow/tensorflow/issues/50488",
    ),
    example=Example(
        "a training step of an LSTM cell in operators of TensorFlow 2.21, on a CPU, 20 time steps",
        "outside of a function it runs operators one by one, 843 times per step, such as MatMul: "
        "put the whole step, gradients and optimizer included, into one tf.function",
    ),
)
