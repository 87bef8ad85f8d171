"""Assign each sampled call stack to a part of the breakdown and to a Python line.

The first rule that matches any frame decides. Rules for ops come first, because all time inside an
op belongs to that op (docs/ledger.md). A rule for a library routine decides only if the stack ends
before the op's frame, as in MKL's assembly and in generated code. Names are from the wheels of
torch 2.13, TensorFlow 2.21 and jax 0.11.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from lstmprof.events.annotate.rules import op_rule
from lstmprof.events.annotate.rules.torch import LIBRARY_OP

DISPATCH, PYTHON = "dispatch", "python"
#: Part for stacks in code that XLA generated for an unknown op.
COMPILED = "compiled"
#: Parts for stacks that match no rule, and for stacks of a thread that waits.
UNKNOWN, WAITING = "unknown", "waiting"
#: Part that stands for the category of the op in the pattern's group ``op``.
BY_OP = "by op"

#: Frameworks that run a step as a single call of a compiled function.
_ONE_CALL_FRAMEWORKS = ("tensorflow", "jax", "pytensor", "theano")


@dataclass(frozen=True)
class FrameRule:
    """A regular expression that assigns stack frames to a part of the breakdown."""

    part: str
    frameworks: tuple[str, ...]  # empty: for all frameworks
    expression: str
    reason: str

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        return re.compile(self.expression)


def _rule(part: str, frameworks: str, pattern: str, reason: str) -> FrameRule:
    return FrameRule(part, tuple(frameworks.split()), pattern, reason)


def _functor(part: str, functors: str, reason: str) -> FrameRule:
    """Make a rule for functors of TensorFlow's elementwise kernels, as ``less<int>``."""
    pattern = rf"^tensorflow::(?:Simple)?(?:Unary|Binary)\w*Op<.*functor::(?:{functors})"
    return _rule(part, "tensorflow", pattern, reason)


def _kernel(part: str, classes: str, reason: str) -> FrameRule:
    """Make a rule for the classes of TensorFlow's kernels, such as ``MatMulOp``."""
    pattern = rf"^tensorflow::(?:\(anonymous namespace\)::)?(?:{classes})(?:<.*>)?::Compute\b"
    return _rule(part, "tensorflow", pattern, reason)


FRAME_RULES: tuple[FrameRule, ...] = (
    _rule(
        WAITING,
        " ".join(_ONE_CALL_FRAMEWORKS),
        r"FutexWaiter|pthread_cond_(?:timed)?wait|sem_(?:timed|clock)?wait|WaitForWork|PosixSem",
        "waits for another thread, which is sampled, too",
    ),
    # Ops.
    _rule(BY_OP, "torch", r"^at::_ops::(?P<op>\w+)::call\b", "PyTorch's op"),
    _rule(
        BY_OP,
        "torch",
        r"^torch::autograd::VariableType::\(anonymous namespace\)::(?P<op>\w+)(?: \(|$)",
        "PyTorch's op, called by TorchScript",
    ),
    _functor(DISPATCH, "less<int>", "the loop's condition"),
    _functor("cast", r"cast\b", "the element type changes"),
    _functor("pointwise", r"\w+", "element by element"),
    _kernel("rnn", r"\w*BlockLSTM\w*|\w*LSTMBlock\w*", "fused recurrent op"),
    _kernel("gemm", r"\w*MatMul\w*", "GEMM"),
    _kernel("softmax_loss", r"\w*(?:Softmax|Xent)\w*", "softmax or its loss"),
    _kernel("optimizer", r"(?:Sparse)?Apply\w+", "optimizer's fused update"),
    _kernel(
        "reduction", r"ReductionOp|Arg(?:Max|Min)Op|BiasGradOp|\w*Cum\w+", "many elements to one"
    ),
    _kernel("embedding", r"Gather\w*", "table look-up"),
    _kernel("rng", r"\w*Random\w*", "RNG"),
    _kernel("cast", r"\w*CastOp\w*", "the element type changes"),
    _kernel(
        DISPATCH,
        r"TensorList(?:Reserve|Length|ElementShape|PopBack|PushBack|GetItem|SetItem)\w*|EmptyTensor"
        r"List\w*|(?:Read|Assign)\w*VariableOp|\w*(?:Switch|Merge|Enter|Exit|NextIteration)Op"
        r"|\w*Call\w*|\w*(?:While|If)Op|(?:Reshape|Shape|Size|Rank|ExpandDims|Squeeze|Identity|Const"
        r"ant|NoOp|Range|Arg|Retval|BCastGradArgs|BCastArgs|Stack\w*|ConcatOffset)\w*",
        "control flow, variables or shapes",
    ),
    _kernel(
        "layout",
        r"\w*(?:Concat|Split|Slice|Transpose|Pack|Pad|Tile|Reverse|Scatter|OneHot|Broadcast)\w*"
        r"|TensorList\w+|\w*Copy\w*",
        "elements move and do not change",
    ),
    _kernel(
        "pointwise", r"AddN\w*|BiasOp|Fill\w*|\w*Like\w*|Select\w*|\w*Relu\w*", "element by element"
    ),
    _kernel("other", r"\w+", "an op that no other rule matches"),
    _rule("gemm", "jax", r"\bynn::|\bslinky::|YnnFusionThunk", "XNNPACK's matmuls in XLA"),
    _rule("gemm", "jax", r"\bxla::cpu::(?:\w*Dot\w*|OneDnnOp\w*)::", "XLA's matmul"),
    _rule("layout", "jax", r"\bxla::cpu::CopyThunk::", "XLA's copy"),
    _rule("reduction", "jax", r"\bxla::cpu::(?:Sort|TopK)Thunk::", "XLA's sort"),
    _rule(COMPILED, "jax", r"\bxla::cpu::(?:internal::)?Kernel(?:Thunk)?\b", "XLA's fusion"),
    # Library routines, which decide only if the stack ends before the op's frame.
    _rule("rnn", "", r"jit_\w*(?:lstm|rnn|gru)|\bdnnl::\w*.*(?:rnn|lstm|gru)", "oneDNN's layer"),
    _rule(
        "gemm",
        "",
        r"(?i)^mkl_\w*(?:gemm|gemv)|^cblas_|^\w?gem[mv]_|openblas|^jit_brgemm|jit_\w*matmul",
        "a matmul of MKL, oneDNN or OpenBLAS",
    ),
    _rule(
        "rnn",
        "torch",
        r"^jit_\w+|^direct_copy_kernel_t|\bdnnl::",
        "other oneDNN code: PyTorch uses oneDNN in float32 only for recurrent layers",
    ),
    _rule("layout", "tensorflow jax", r"^jit_\w*reorder", "oneDNN's reordering"),
    _rule("gemm", "tensorflow jax", r"^jit_\w*gem[mv]|^jit_\w*copy_[ab]|\bdnnl::", "oneDNN's GEMM"),
    _rule("gemm", "tensorflow jax", r"TensorContraction|gebp_kernel", "Eigen's matmul"),
    _rule("pointwise", "", r"^mkl_vml_|^vm[sd][A-Z]|^Sleef_", "a vector function"),
    # Frames of generated code that has no name.
    _rule(COMPILED, "jax", r"^0x[0-9a-f]+ \((?:\?|[^()]*perf-\d+\.map)\)", "XLA's fusion"),
    _rule(UNKNOWN, "", r"^0x[0-9a-f]+ \((?:\?|[^()]*perf-\d+\.map)\)", "code without a name"),
    # Frames of frameworks and Python between two ops.
    _rule(
        DISPATCH,
        "torch",
        r"^(?:THPEngine_run_backward|torch::autograd::Engine::|Tensor\.backward|_engine_run_backward"
        r"|backward \(torch/autograd/)",
        "the autograd engine, between its ops",
    ),
    _rule(
        DISPATCH,
        "torch",
        r"\btorch::jit::(?:Interpreter\w*|GraphFunction|GraphExecutor\w*|ProfilingGraph\w*)\b",
        "TorchScript's interpreter, between its ops",
    ),
    _rule(
        PYTHON, "torch", r"\(\S*\.py:\d+\)$|^_PyEval_|\(libpython[\d.]+", "Python, or called by it"
    ),
    _rule(
        DISPATCH,
        " ".join(_ONE_CALL_FRAMEWORKS),
        r"ExecutorState|ThunkExecutor|WhileThunk|ThreadPool|EventMgr|tensorflow::|tsl::|xla::|pjrt"
        r"|\(\S*\.py:\d+\)$|^_PyEval_|\(libpython[\d.]+",
        "the framework's code between ops, if a step is one call of a compiled function",
    ),
)


GARBAGE_COLLECTOR = "garbage collector"
_COLLECTS = re.compile(r"^(?:gc_collect_\w+|deduce_unreachable|_PyGC_\w+)\b")
_PYTHON = re.compile(r"\.py:\d+\)$")
#: Pattern of the step function's frame; frames around the step function are lstmprof's own loop.
_STEP = re.compile(r"^(?:\w+\.)?step \(lstmprof/capture/worker/loops/\w+\.py:\d+\)$")
_OPTIMIZER = re.compile(r"\(torch/optim/")
#: Parts that become ``optimizer`` if torch.optim is on the stack, as in categories.py.
_OPTIMIZER_WORK = ("pointwise", "reduction", "layout", "other")
_NO_RULE = "no rule matches a frame of the stack"


@dataclass(frozen=True)
class StackPart:
    """Where a sampled stack's time belongs: part of the breakdown and Python line."""

    part: str
    rule: str  # reason for the part
    line: str | None  # innermost Python frame, or GARBAGE_COLLECTOR


def within_step(frames: Sequence[str]) -> Sequence[str] | None:
    """Drop frames outside the step function; return None if Python ran other code."""
    for place, frame in enumerate(frames):
        if _STEP.match(frame):
            return frames[place:]
    return None if any(map(is_python, frames)) else frames


def part_of_stack(frames: Sequence[str], framework: str) -> StackPart:
    """Find the part of the breakdown and the Python line to which a stack belongs."""
    line = next(filter(is_python, reversed(frames)), None)
    if any(_COLLECTS.match(frame) for frame in frames):
        line = GARBAGE_COLLECTOR
    for rule in FRAME_RULES:
        if rule.frameworks and framework not in rule.frameworks:
            continue
        for frame in reversed(frames):
            part = _part(rule, frame)
            if part in _OPTIMIZER_WORK and any(map(_OPTIMIZER.search, frames)):
                part = "optimizer"
            if part is not None:
                return StackPart(part, rule.reason, line)
    return StackPart(UNKNOWN, _NO_RULE, line)


def is_python(frame: str) -> bool:
    return bool(_PYTHON.search(frame))


@lru_cache(maxsize=65536)
def _part(rule: FrameRule, frame: str) -> str | None:
    match = rule.pattern.search(frame)
    if match is None:
        return None
    return part_of_torch_op(match["op"]) if rule.part == BY_OP else rule.part


def part_of_torch_op(symbol: str) -> str | None:
    """Find the breakdown part of a PyTorch op by its C++ symbol in ``at::_ops``."""
    words = symbol.split("_")
    # Split op and overload (``add__Tensor`` is aten::add_.Tensor), and try the longest op first.
    for length in range(len(words), 0, -1):
        rule = op_rule("aten::" + "_".join(words[:length]))
        if rule is not None and rule is not LIBRARY_OP:
            return rule.category or DISPATCH
    return "other"
