"""XLA: instructions of its compiled modules, and the operators that their paths end in.

An instruction's ``op_name`` is the path of the operator that it was compiled from: of JAX
``jit(step)/jvp(lstm)/while/body/dot_general``, of TensorFlow ``model/lstm/while/MatMul_1``. What
stands before the last slash are names of functions and scopes, which say nothing of the work.
"""

from __future__ import annotations

from lstmprof.events.annotate.rules.rule import Rule


def _xla(category: str | None, names: str, reason: str) -> Rule:
    """A rule for HLO instructions: ``copy.38``, ``wrapped_add.3``, ``dot.1.clone``.

    A fusion's name lists its roots and largest parts: ``bitcast_multiply_fusion.2``; on a GPU how
    it is emitted comes first: ``loop_transpose_fusion``.
    """
    return Rule(
        category,
        "XLA",
        rf"(?:wrapped_|loop_|input_)?(?:{names})(?:\.\d+|\.clone)*",
        reason,
    )


def _primitive(category: str, names: str, reason: str) -> Rule:
    """A rule for the last part of a path, with its slash; TensorFlow numbers equal names."""
    return Rule(category, "XLA", rf"/(?:{names})(?:_\d+)?", f"{reason}, by its path")


_MOVES = (
    r"(?:bitcast|copy(?:-start|-done)?|transpose|reshape|slice|dynamic-slice|dynamic-update-slice"
    r"|concatenate|broadcast|pad|reverse|gather|scatter|iota)"
)

#: XLA on a CPU: one op an instruction of the compiled module. Its compiler's passes, which have
#: events too, are called after what they rewrite: ``all-reduce-simplifier``, ``dot_canonicalizer``.
XLA_RULES: tuple[Rule, ...] = (
    _xla(
        None,
        r"while|call|conditional|tuple|get-tuple-element|parameter|constant|bitcast|after-all"
        r"|opt-barrier|async-\w+|partition-id|replica-id",
        "holds other instructions, or none",
    ),
    _xla(
        "gemm",
        r"MatMul(?:_\d+)?|(?:[\w-]+_)?dot(?:_general|(?:_[\w-]+)?_fusion)?|gemm_fusion\w*"
        r"|cublas-\w+",
        "GEMM",
    ),
    _xla("conv", r"(?:[\w-]+_)?convolution(?:(?:_[\w-]+)?_fusion)?", "convolution"),
    _xla(
        "collective",
        r"(?:all-(?:reduce|gather)|(?:ragged-)?all-to-all|collective-(?:permute|broadcast)"
        r"|reduce-scatter|send|recv)(?:-start|-done)?",
        "collective",
    ),
    _xla("rng", r"rng(?:-[\w-]+)?|(?:\w+_)?threefry\w*", "RNG"),
    _xla("layout", rf"{_MOVES}(?:_{_MOVES})*(?:_fusion)?", "elements move and do not change"),
    _xla("cast", rf"(?:{_MOVES}_)*convert(?:_{_MOVES})*(?:_fusion)?", "the element type changes"),
    _xla(
        "reduction",
        r"(?:[\w-]+_)?(?:reduce(?:-window)?|sort|topk)(?:_[\w-]+)?",
        "many elements to one",
    ),
    _xla("other", r"(?:\w+nn_)?fusion|custom-call|loop_fusion|input_fusion", "its path tells"),
    _xla(
        "pointwise",
        r"add|subtract|multiply|divide|negate|abs|exponential(?:-minus-one)?|log(?:-plus-one)?|tanh"
        r"|logistic|sqrt|rsqrt|power|maximum|minimum|select|compare|and|or|not|xor|clamp|floor|ceil"
        r"|sign|remainder|is-finite|(?!multi_output)[a-z][\w-]*_fusion",
        "element by element",
    ),
)

#: JAX's primitives, and what TensorFlow calls nodes of its operators' types.
PRIMITIVE_RULES: tuple[Rule, ...] = (
    _primitive("rnn", r"rnn(?:_fwd|_bwd)?", "the primitive of cuDNN's recurrent layers"),
    _primitive("gemm", r"dot_general|dot|ragged_dot(?:_general)?|scaled_(?:dot|matmul)", "GEMM"),
    _primitive("conv", r"conv_general_dilated", "convolution"),
    _primitive(
        "collective",
        r"p(?:sum|max|min|permute|mean)\w*|all_gather\w*|all_to_all|reduce_scatter",
        "between devices",
    ),
    _primitive("rng", r"random_\w+|threefry2x32|rng_\w+", "random numbers"),
    _primitive(
        "cast", r"convert_element_type|reduce_precision|Cast|cast", "the element type changes"
    ),
    _primitive(
        "reduction",
        r"reduce(?:_\w+)?|arg(?:max|min)|cum(?:sum|prod|max|min|logsumexp)|sort|(?:approx_)?top_k",
        "many elements to one",
    ),
    _primitive(
        "layout",
        r"transpose|broadcast_in_dim|concatenate|concat|slice|dynamic_(?:update_)?slice|gather"
        r"|scatter(?:[-_]\w+)?|rev|pad|squeeze|reshape|expand_dims|copy(?:_p)?|strided_slice|split"
        r"|stack|unstack|tile",
        "elements move and do not change",
    ),
    _primitive(
        "pointwise",
        r"add(?:_any)?|sub|mul|div|neg|exp2?|log|tanh|logistic|max|min|select(?:_n)?|and|or|not|xor"
        r"|[gln][et]|eq|pow|integer_pow|r?sqrt|cbrt|square|abs|sign|floor|ceil|round|clamp|erf\w*"
        r"|sin"
        r"|cos|tan|log1p|expm1|is_finite|rem|shift_\w+|iota|real|imag|truediv|floordiv|zeros|ones"
        r"|zeros_like|ones_like|fill|stop_gradient",
        "element by element",
    ),
)
