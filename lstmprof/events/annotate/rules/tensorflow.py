"""Rules for TensorFlow's operators by type, for Keras on TensorFlow, and for XLA.

The ``op_name`` of an XLA instruction is a path: ``jit(step)/jvp(lstm)/while/body/dot_general`` with
JAX, ``model/lstm/while/MatMul_1`` with TensorFlow. Rules use only the last part: ``dot_general``.
"""

from __future__ import annotations

from lstmprof.events.annotate.rules.rule import Rule


def _tf(category: str | None, types: str, reason: str) -> Rule:
    """Make a rule for types of ops: ``MatMul`` matches ``dense/MatMul:_MklMatMul``."""
    pattern = rf"(?:.*[^:])?:(?:_Mkl(?:Native)?|_Native)?(?:{types})"
    return Rule(category, "tensorflow", pattern, reason)


TENSORFLOW_RULES: tuple[Rule, ...] = (
    Rule(
        None,
        "tensorflow",
        r"[A-Z_]+:\d+ .*",
        "an op on a host thread that only enqueues work for an accelerator, such as a GPU",
    ),
    _tf("rnn", r"CudnnRNN\w*|BlockLSTM\w*|LSTMBlockCell\w*|GRUBlockCell\w*", "fused recurrent op"),
    _tf("ctc", r"CTC\w+", "connectionist temporal classification"),
    _tf(
        None,
        r"Identity(?:N)?|Const|_?Arg|_?Retval|_?(?:Host)?(?:Send|Recv)|_?Enter|_?Exit|_?Merge"
        r"|_?Switch|(?:Ref)?NextIteration|LoopCond|(?:Stateless)?While|(?:Stateless)?If|NoOp"
        r"|(?:Stateful)?PartitionedCall|_?ReadVariableOp|_?VarHandleOp|_Nodes?\w*|Placeholder\w*"
        r"|Reshape|(?:Variable)?Shape(?:N)?|Size|Rank|ExpandDims|Squeeze|StopGradient"
        r"|PreventGradient|Less"
        r"|TensorListReserve|TensorListLength|TensorListElementShape|EmptyTensorList|TensorList"
        r"|TensorListPopBack|TensorListPushBack|TensorListGetItem|TensorListSetItem|ControlTrigger"
        r"|AssignAddVariableOp|AssignVariableOp|Assert|Range|BroadcastArgs|Unknown"
        r"|BroadcastGradientArgs|_ParallelConcatStart|_Device(?:Arg|Retval)|\w*Iterator\w*|Stack"
        r"|StackV2|StackPushV2|StackPopV2|TensorArray(?!Gather|Scatter|Concat|Split)\w*V3|ConcatOffset"
        r"|InvertPermutation"
        r"|RemoteCall|Optional\w+|Ref(?:Enter|Exit|Merge|Switch|Identity|Select)|RecvTensor"
        r"|(?:Temporary)?Variable(?:V2)?|VarIsInitializedOp|IsVariableInitialized|\w*Queue\w*"
        r"|\w*HashTable\w*|LookupTable\w*|\w*Summary\w*|Print(?:V2)?",
        "control flow, variables or shapes",
    ),
    _tf("gemm", r"\w*MatMul\w*|(?:Xla)?Einsum|XlaDot\w*", "GEMM"),
    _tf("conv", r"\w*Conv[123]D\w*|\w*Convolution\w*|XlaConv\w*", "convolution"),
    _tf("attention", r"\w*FusedAttention\w*|\w*FusedMHA\w*", "fused attention"),
    _tf("softmax_loss", r"\w*Softmax\w*|L2Loss", "softmax or its loss"),
    _tf("embedding", r"Gather\w*|ResourceGather\w*", "table look-up"),
    _tf("normalization", r"_?FusedBatchNorm\w*|\w*LayerNorm\w*|LRN(?:Grad)?", "normalisation"),
    _tf("rng", r"\w*Random\w*|\w*TruncatedNormal\w*|(?:Stateless)?Multinomial", "RNG"),
    _tf(
        "cast",
        r"Cast|Bitcast|Dequantize|Quantize(?:V2|AndDequantize\w*)|Requantize\w*",
        "the element type changes",
    ),
    _tf("optimizer", r"(?:Resource|Sparse)*Apply\w+", "optimizer's fused update"),
    _tf("collective", r"Collective\w*|Nccl\w*|Horovod\w*", "collective"),
    _tf(
        "layout",
        r"\w*Transpose|Concat(?:V2)?|Split(?:V)?|Slice|StridedSlice\w*|Pack|Unpack|Pad(?:V2)?|Tile"
        r"|Reverse\w*|TensorListStack|TensorListFromTensor|TensorListConcat\w*|Dynamic\w+"
        r"|Scatter\w*|TensorScatter\w*|MirrorPad|Roll|Copy|Snapshot|_FusedConcat|SparseToDense"
        r"|Where|TensorArray(?:Gather|Scatter|Concat|Split)V3"
        r"|BroadcastTo|Empty|TensorListGather|TensorListScatter\w*|SparseReorder|Assign|OneHot"
        r"|MatrixBandPart|SpaceToBatch\w*|BatchToSpace\w*|ToTf|InputConversion|SpaceToDepth"
        r"|DepthToSpace",
        "elements move and do not change",
    ),
    _tf(
        "reduction",
        r"Sum|Mean|Max|Min|Prod|All|Any|Arg(?:Max|Min)|BiasAddGrad|Cum(?:sum|prod)|TopK(?:V2)?"
        r"|InTopK(?:V2)?|Unique\w*|\w*Segment(?:Sum|Mean|Max|Min|Prod)\w*|\w*(?:Max|Avg)Pool\w*"
        r"|EuclideanNorm|Bincount|CumulativeLogsumexp",
        "many elements to one",
    ),
    _tf(
        "pointwise",
        r"Add(?:V2|N)?|Sub|Mul(?:NoNan)?|(?:Real)?Div\w*|Neg|Abs|Exp|Log|Sqrt|Rsqrt|Pow|Square"
        r"|Sigmoid(?:Grad)?|Tanh(?:Grad)?|Relu\w*|Elu\w*|BiasAdd(?:V1)?|Maximum|Minimum"
        r"|Select(?:V2)?|Sign|Equal|NotEqual|Less\w+|Greater\w*|Logical\w+|IsFinite|Floor\w*"
        r"|_Fused\w+|Inv\w*|Reciprocal\w*|AccumulateNV2|ClipByValue|Erf\w*|Round|\w*XlaFusion\w*"
        r"|Ceil|Sin|Cos|Mod|Log1p|Expm1|Soft(?:plus|sign)(?:Grad)?|LeakyRelu\w*|Selu\w*|RsqrtGrad"
        r"|SqrtGrad|Is(?:Nan|Inf)|Assign(?:Add|Sub)|AssignSubVariableOp|SquaredDifference"
        r"|ResourceScatter(?:Add|Sub)|Fill|ZerosLike|OnesLike|X(?:divy|logy|log1py)|Bitwise\w+"
        r"|Gelu\w*|Atan2?|Rint|Bucketize|Swish\w*",
        "element by element",
    ),
)

#: Rule for a TensorFlow op that no other rule matches.
UNKNOWN_TYPE = Rule(
    "other", "tensorflow", r"(?:.*[^:])?:_?[A-Za-z]\w*", "an op that no other rule matches"
)


def _xla(category: str | None, names: str, reason: str) -> Rule:
    """Make a rule for HLO instructions and fusions: ``copy.38``, ``loop_transpose_fusion``."""
    return Rule(
        category,
        "XLA",
        rf"(?:wrapped_|loop_|input_)?(?:{names})(?:\.\d+|\.clone)*",
        reason,
    )


def _primitive(category: str, names: str, reason: str) -> Rule:
    """Make a rule for the last part of an ``op_name``, as ``/dot_general``."""
    return Rule(category, "XLA", rf"/(?:{names})(?:_\d+)?", f"{reason}, by its path")


_MOVES = (
    r"(?:bitcast|copy(?:-start|-done)?|transpose|reshape|slice|dynamic-slice|dynamic-update-slice"
    r"|concatenate|broadcast|pad|reverse|gather|scatter|iota)"
)

#: Rules for XLA's instructions on a CPU, but not for its passes (``all-reduce-simplifier``).
XLA_RULES: tuple[Rule, ...] = (
    _xla(
        None,
        r"while|call|conditional|tuple|get-tuple-element|parameter|constant|bitcast|after-all"
        r"|opt-barrier|async-\w+|partition-id|replica-id",
        "contains other instructions, or none",
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
    _xla(
        "other",
        r"(?:\w+nn_)?fusion|custom-call|loop_fusion|input_fusion",
        "by the name of its path",
    ),
    _xla(
        "pointwise",
        r"add|subtract|multiply|divide|negate|abs|exponential(?:-minus-one)?|log(?:-plus-one)?|tanh"
        r"|logistic|sqrt|rsqrt|power|maximum|minimum|select|compare|and|or|not|xor|clamp|floor|ceil"
        r"|sign|remainder|is-finite|(?!multi_output)[a-z][\w-]*_fusion",
        "element by element",
    ),
)

#: Rules for the last part of the ``op_name`` that JAX or TensorFlow gives an XLA instruction.
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
