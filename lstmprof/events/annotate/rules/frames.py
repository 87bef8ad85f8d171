"""What a sampled stack was at: the ordered table of rules on frames, native and Python.

A rule looks at every frame of a stack, the innermost first; the first rule of the table that finds
one decides. So an op decides before a routine, as in the ledger, where all that an op calls is the
op's; a routine decides for itself where the way to its op is lost: code without unwinding tables
(MKL's assembly, what oneDNN and XLA generate) ends a stack. Names as found in the wheels of torch
2.13, TensorFlow 2.21 and jax 0.11.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

DISPATCH, PYTHON = "dispatch", "python"
#: Of code that XLA generated, whose name no table of symbols has: some fusion.
COMPILED = "compiled"
#: What no rule knows, and a thread that waits for another: neither is of any part of the ledger.
UNKNOWN, WAITING = "unknown", "waiting"
#: The part is that of the op in the frame: of group ``op`` of the pattern.
BY_OP = "by op"

#: Frameworks whose step is one call of a compiled function (``breakdown.host``).
_OF_ONE_CALL = ("tensorflow", "jax", "pytensor", "theano")


@dataclass(frozen=True)
class FrameRule:
    """One row: a stack with a frame that ``pattern`` finds is at ``part``."""

    part: str
    frameworks: tuple[str, ...]  # empty: any
    expression: str
    reason: str

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """``expression``, compiled when a frame is first asked about."""
        return re.compile(self.expression)


def _rule(part: str, frameworks: str, pattern: str, reason: str) -> FrameRule:
    return FrameRule(part, tuple(frameworks.split()), pattern, reason)


def _functor(part: str, functors: str, reason: str) -> FrameRule:
    """TensorFlow's kernels of one or two inputs are one class, by the functor that they apply."""
    pattern = rf"^tensorflow::(?:Simple)?(?:Unary|Binary)\w*Op<.*functor::(?:{functors})"
    return _rule(part, "tensorflow", pattern, reason)


def _kernel(part: str, classes: str, reason: str) -> FrameRule:
    """TensorFlow's kernels by their class, which is called much as the op's type."""
    pattern = rf"^tensorflow::(?:\(anonymous namespace\)::)?(?:{classes})(?:<.*>)?::Compute\b"
    return _rule(part, "tensorflow", pattern, reason)


FRAME_RULES: tuple[FrameRule, ...] = (
    _rule(
        WAITING,
        " ".join(_OF_ONE_CALL),
        r"FutexWaiter|pthread_cond_(?:timed)?wait|sem_(?:timed|clock)?wait|WaitForWork|PosixSem",
        "waits for another thread, which has samples of its own",
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
    _kernel("reduction", r"ReductionOp|Arg(?:Max|Min)Op|BiasGradOp|\w*Cum\w+", "many to one"),
    _kernel("embedding", r"Gather\w*", "table look-up"),
    _kernel("rng", r"\w*Random\w*", "RNG"),
    _kernel("cast", r"\w*CastOp\w*", "the element type changes"),
    _kernel(
        DISPATCH,
        r"TensorList(?:Reserve|Length|ElementShape|PopBack|PushBack|GetItem|SetItem)\w*|EmptyTensor"
        r"List\w*|(?:Read|Assign)\w*VariableOp|\w*(?:Switch|Merge|Enter|Exit|NextIteration)Op"
        r"|\w*Call\w*|\w*(?:While|If)Op|(?:Reshape|Shape|Size|Rank|ExpandDims|Squeeze|Identity|Const"
        r"ant|NoOp|Range|Arg|Retval|BCastGradArgs|BCastArgs|Stack\w*|ConcatOffset)\w*",
        "routes tensors, keeps books",
    ),
    _kernel(
        "layout",
        r"\w*(?:Concat|Split|Slice|Transpose|Pack|Pad|Tile|Reverse|Scatter|OneHot|Broadcast)\w*"
        r"|TensorList\w+|\w*Copy\w*",
        "elements move and do not change",
    ),
    _kernel("pointwise", r"AddN\w*|BiasOp|Fill\w*|\w*Like\w*|Select\w*|\w*Relu\w*", "each element"),
    _kernel("other", r"\w+", "an op of no rule above"),
    _rule("gemm", "jax", r"\bynn::|\bslinky::|YnnFusionThunk", "XNNPACK's products in XLA"),
    _rule("gemm", "jax", r"\bxla::cpu::(?:\w*Dot\w*|OneDnnOp\w*)::", "XLA's product"),
    _rule("layout", "jax", r"\bxla::cpu::CopyThunk::", "XLA's copy"),
    _rule("reduction", "jax", r"\bxla::cpu::(?:Sort|TopK)Thunk::", "XLA's sort"),
    _rule(COMPILED, "jax", r"\bxla::cpu::(?:internal::)?Kernel(?:Thunk)?\b", "XLA's fusion"),
    # Routines, where the way to their op is lost.
    _rule("rnn", "", r"jit_\w*(?:lstm|rnn|gru)|\bdnnl::\w*.*(?:rnn|lstm|gru)", "oneDNN's layer"),
    _rule(
        "gemm",
        "",
        r"(?i)^mkl_\w*(?:gemm|gemv)|^cblas_|^\w?gem[mv]_|openblas|^jit_brgemm|jit_\w*matmul",
        "a product of MKL, oneDNN or OpenBLAS",
    ),
    _rule(
        "rnn",
        "torch",
        r"^jit_\w+|^direct_copy_kernel_t|\bdnnl::",
        "of oneDNN's other code PyTorch's float32 runs its recurrent layers alone",
    ),
    _rule("layout", "tensorflow jax", r"^jit_\w*reorder", "oneDNN's reordering"),
    _rule("gemm", "tensorflow jax", r"^jit_\w*gem[mv]|^jit_\w*copy_[ab]|\bdnnl::", "oneDNN's GEMM"),
    _rule("gemm", "tensorflow jax", r"TensorContraction|gebp_kernel", "Eigen's product"),
    _rule("pointwise", "", r"^mkl_vml_|^vm[sd][A-Z]|^Sleef_", "a vector function"),
    # Generated code without a name.
    _rule(COMPILED, "jax", r"^0x[0-9a-f]+ \((?:\?|[^()]*perf-\d+\.map)\)", "XLA's fusion"),
    _rule(UNKNOWN, "", r"^0x[0-9a-f]+ \((?:\?|[^()]*perf-\d+\.map)\)", "code without a name"),
    # Who arranges.
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
        " ".join(_OF_ONE_CALL),
        r"ExecutorState|ThunkExecutor|WhileThunk|ThreadPool|EventMgr|tensorflow::|tsl::|xla::|pjrt"
        r"|\(\S*\.py:\d+\)$|^_PyEval_|\(libpython[\d.]+",
        "a step is one call of a compiled function: the framework, between its ops",
    ),
)
