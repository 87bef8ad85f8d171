"""TensorFlow's operators, by the type of a graph's node; Keras on TensorFlow."""

from __future__ import annotations

from lstmprof.events.annotate.rules.rule import Rule


def _tf(category: str | None, types: str, reason: str) -> Rule:
    """A rule for TensorFlow op types; nodes are profiled as ``<node>:<OpType>``.

    The node's name, with its scopes, says nothing: anyone may call a scope ``lstm``. oneDNN's
    variants of a type have a prefix.
    """
    pattern = rf"(?:.*[^:])?:(?:_Mkl(?:Native)?|_Native)?(?:{types})"
    return Rule(category, "tensorflow", pattern, reason)


TENSORFLOW_RULES: tuple[Rule, ...] = (
    Rule(
        None,
        "tensorflow",
        r"[A-Z_]+:\d+ .*",
        "on the executor of a device other than the CPU, which enqueues the work",
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
        "routes tensors, keeps books",
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
        "many to one",
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

#: After those of every framework: a type, alone or with what a vendor writes before it.
UNKNOWN_TYPE = Rule("other", "tensorflow", r"(?:.*[^:])?:_?[A-Za-z]\w*", "an op of no rule above")
