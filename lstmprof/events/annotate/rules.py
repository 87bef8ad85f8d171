"""What time is for: the ordered table of rules, op names first, kernel names second.

The first rule that matches decides. An op rule without a category says that the op arranges work
(a view, a wrapper, an autograd node) and computes nothing itself; a kernel launched beneath it is
then decided by the op around it. Source: docs/ledger.md; names as found in profiles.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

#: Every category, in the order in which tables show them.
CATEGORIES = (
    "rnn",
    "gemm",
    "conv",
    "attention",
    "pointwise",
    "reduction",
    "softmax_loss",
    "ctc",
    "embedding",
    "normalization",
    "rng",
    "cast",
    "layout",
    "transfer",
    "memset",
    "optimizer",
    "collective",
    "other",
)


@dataclass(frozen=True)
class Rule:
    """One row: names that match ``pattern`` are ``category``; None: arranges work only."""

    category: str | None
    framework: str
    pattern: re.Pattern[str]
    reason: str


def _torch(category: str | None, names: str, reason: str) -> Rule:
    """A rule for aten ops of these names, their in-place and out variants, and their prims."""
    return Rule(category, "torch", re.compile(rf"(?:aten|prims)::(?:{names})_?(?:\.\w+)?"), reason)


def _tf(category: str | None, types: str, reason: str) -> Rule:
    """A rule for TensorFlow op types; nodes are profiled as ``<node>:<OpType>``."""
    return Rule(category, "tensorflow", re.compile(rf"[^:]*:(?:{types})"), reason)


def _any(category: str | None, framework: str, pattern: str, reason: str) -> Rule:
    return Rule(category, framework, re.compile(pattern), reason)


def _xla(category: str | None, names: str, reason: str) -> Rule:
    """A rule for HLO instructions: ``copy.38``, ``wrapped_add.3``, ``dot.1.clone``.

    A fusion's name lists its roots and largest parts: ``bitcast_multiply_fusion.2``.
    """
    return Rule(category, "XLA", re.compile(rf"(?:wrapped_)?(?:{names})(?:\.\d+|\.clone)*"), reason)


def _pytensor(category: str | None, ops: str, reason: str) -> Rule:
    """A rule for PyTensor's operators, whose properties stand in braces: ``Gemm{inplace}``."""
    return Rule(category, "PyTensor", re.compile(rf"pytensor::(?:{ops})(?:\{{.*)?", re.S), reason)


_MOVES = (
    r"(?:bitcast|copy(?:-start|-done)?|transpose|reshape|slice|dynamic-slice|dynamic-update-slice"
    r"|concatenate|broadcast|pad|reverse|gather|scatter|iota)"
)


#: On the host the kernel rules then look at its name; its kernels go by their own.
LIBRARY_OP = _any(
    "other", "torch", r"[a-z_]\w*::\w+(?:\.\w+)?", "an op of a library's own namespace"
)

OP_RULES: tuple[Rule, ...] = (
    # One op that holds a whole recurrent layer, or a whole cell.
    _torch("rnn", r"_cudnn_rnn\w*|miopen_rnn\w*|mkldnn_rnn_layer\w*", "vendor's recurrent layer"),
    _tf("rnn", r"CudnnRNN\w*|BlockLSTM\w*|LSTMBlockCell\w*|GRUBlockCell\w*", "fused recurrent op"),
    _any("rnn", "cuDNN", r"cudnn::RNN\w+", "cuDNN's recurrent layers without a framework"),
    _any("reduction", "cuDNN", r"cudnn::ReduceTensor", "many elements to one"),
    _any("pointwise", "cuDNN", r"cudnn::(?:Op|Add|Scale)Tensor", "element by element"),
    _torch("ctc", r"\w*ctc_loss\w*", "connectionist temporal classification"),
    _tf("ctc", r"CTC\w+", "connectionist temporal classification"),
    # Wrappers: the op inside does the work.
    _torch(None, r"linear|matmul|einsum|tensordot|conv[123]d|_?convolution", "calls the real op"),
    _torch(None, r"lstm(?:_cell)?|gru(?:_cell)?|rnn_\w+", "calls the cell's ops"),
    _torch(None, r"batch_norm|_batch_norm_impl_index|layer_norm|group_norm", "calls native_*_norm"),
    _torch(None, r"(?:log_)?softmax|cross_entropy_loss|nll_loss(?:_nd)?", "calls the _ variant"),
    _torch(None, r"to|contiguous|clone|_to_copy|type_as|item|is_nonzero|zeros|ones", "calls copy_"),
    _torch(None, r"dropout|reshape|flatten|stack|scaled_dot_product_attention", "calls the op"),
    # Views: only sizes and strides change.
    _torch(
        None,
        r"t|T|view|view_as\w*|_unsafe_view|_reshape_alias|transpose|permute|expand|expand_as|slice"
        r"|select|narrow|as_strided|unbind|chunk|split\w*|squeeze|unsqueeze|detach|alias|unflatten"
        r"|movedim|swapaxes|diagonal|unfold|resolve_\w+|lift_fresh|real|imag|broadcast_t\w+",
        "a view: no element moves",
    ),
    _torch(None, r"empty\w*|new_empty\w*|resize|set|result_type|record_stream", "memory, no work"),
    _torch(None, r"zeros_like|ones_like|full_like|new_zeros|new_ones|full|scalar_tensor", "fill_"),
    _torch(None, r"_has_\w+|is_\w+|_use_\w+|size|stride|_version|_local_scalar_dense", "asks"),
    _any(None, "torch", r"autograd::.*|torch::.*|\w+Backward\d*", "autograd node"),
    _any(None, "torch", r"Torch-Compiled.*|TorchDynamo.*|## .*|Pregraph.*|CompiledF.*", "wrapper"),
    # Work, by what it is.
    _any(
        "collective",
        "torch",
        r"(?:c10d|_c10d_functional|nccl|gloo)\b.*|record_param_comms",
        "between ranks",
    ),
    _torch("gemm", r"(?:add)?mm|(?:b?add)?bmm|_addmm_\w+|addmv|mv|dot|_scaled_mm|_int_mm", "GEMM"),
    _torch("gemm", r"mkldnn_linear\w*|_mkl_linear|mkldnn__?\w*linear\w*", "GEMM of oneDNN or MKL"),
    _torch("conv", r"\w*conv\w*", "convolution"),
    _torch("attention", r"\w*attention\w*|\w*scaled_dot_product\w*|\w*_qkv", "fused attention"),
    _torch("embedding", r"embedding\w*|index_select", "table look-up"),
    _torch("normalization", r"\w*_norm(?:_backward\w*)?|\w*batch_norm\w*", "normalisation layer"),
    _torch(
        "softmax_loss", r"_?\w*softmax\w*|nll_loss\w*|\w*cross_entropy\w*", "softmax or its loss"
    ),
    _torch("softmax_loss", r"\w*(?:mse|l1|smooth_l1|huber)_loss\w*", "loss"),
    _torch("rng", r"uniform|normal|bernoulli|rand\w*|native_dropout\w*|random|exponential", "RNG"),
    _torch(
        "reduction",
        r"sum|mean|prod|a?max|a?min|all|any|norm|linalg_\w*norm|std|var|var_mean|cum\w+|argm\w+"
        r"|topk|sort|logsumexp|count_nonzero|_?aminmax|\w*pool\w*|equal|dist|unique\w*|median",
        "many elements to one",
    ),
    _torch(
        "layout",
        r"copy|cat|_cat|gather\w*|scatter\w*|index|_?index_put\w*|index_copy|index_add"
        r"|constant_pad_nd|pad|flip|roll|repeat\w*|tril|triu|narrow_copy|slice_backward"
        r"|select_backward|\w*_pack_padded_sequence\w*|_pad_packed_sequence",
        "elements move and do not change",
    ),
    _torch(
        "pointwise",
        r"add|sub|rsub|mul|div|neg|abs|exp|log\d*|sqrt|rsqrt|pow|square|sin|cos|tanh|sigmoid|relu"
        r"|gelu|silu|elu|leaky_relu|hardsigmoid|hardtanh|clamp\w*|threshold|where|masked_fill|lerp"
        r"|addcmul|addcdiv|reciprocal|maximum|minimum|eq|ne|lt|le|gt|ge|logical_\w+|bitwise_\w+"
        r"|__\w+__|isnan|isfinite|isinf|nan_to_num|sign|floor|ceil|round|remainder|erf|logit"
        r"|(?:tanh|sigmoid|threshold|gelu|silu|elu|logit|hardsigmoid|hardtanh)_backward"
        r"|_thnn_(?:differentiable_)?(?:fused_)?(?:lstm|gru)_cell\w*|_foreach_\w+|fill|zero|arange"
        r"|_amp_\w+|_fused_\w+|_masked_scale|bucketize|searchsorted",
        "element by element",
    ),
    _torch("pointwise", r"_?upsample\w*|grid_sampler\w*|affine_grid\w*", "interpolation"),
    _any("pointwise", "torch.compile", r"triton_poi_.*", "Inductor's pointwise kernel"),
    _any("reduction", "torch.compile", r"triton_(?:red|per)_.*", "Inductor's reduction kernel"),
    _any("gemm", "torch.compile", r"triton_(?:tem|mm)_.*", "Inductor's GEMM template"),
    # TensorFlow and Keras.
    _tf(
        None,
        r"Identity(?:N)?|Const|_?Arg|_?Retval|_?(?:Host)?(?:Send|Recv)|_?Enter|_?Exit|_?Merge"
        r"|_?Switch|(?:Ref)?NextIteration|LoopCond|(?:Stateless)?While|(?:Stateless)?If|NoOp"
        r"|(?:Stateful)?PartitionedCall|_?ReadVariableOp|_?VarHandleOp|_Nodes?\w*|Placeholder\w*"
        r"|Reshape|(?:Variable)?Shape(?:N)?|Size|Rank|ExpandDims|Squeeze|StopGradient|PreventGradient|Less"
        r"|TensorListReserve|TensorListLength|TensorListElementShape|EmptyTensorList|TensorList"
        r"|TensorListPopBack|TensorListPushBack|TensorListGetItem|TensorListSetItem|ControlTrigger"
        r"|AssignAddVariableOp|AssignVariableOp|Assert|Range|BroadcastArgs|Unknown"
        r"|BroadcastGradientArgs|ZerosLike|OnesLike|_ParallelConcatStart|\w*Iterator\w*|Stack"
        r"|StackV2|StackPushV2|StackPopV2|TensorArray\w*V3|ConcatOffset|InvertPermutation"
        r"|RemoteCall|Optional\w+|Ref(?:Enter|Exit|Merge|Switch|Identity|Select)|RecvTensor"
        r"|(?:Temporary)?Variable(?:V2)?|VarIsInitializedOp|IsVariableInitialized|\w*Queue\w*"
        r"|\w*HashTable\w*|LookupTable\w*|\w*Summary\w*|Print(?:V2)?",
        "routes tensors, keeps books",
    ),
    _any(
        None,
        "tensorflow",
        r"[A-Z_]+:\d+ .*",
        "on the executor of a device other than the CPU, which enqueues the work",
    ),
    _tf("gemm", r"\w*MatMul\w*|Einsum|_Mkl\w*MatMul\w*", "GEMM"),
    _tf("conv", r"\w*Conv[123]D\w*|\w*Convolution\w*|DepthwiseConv\w*", "convolution"),
    _tf("softmax_loss", r"\w*Softmax\w*|SquaredDifference|L2Loss", "softmax or its loss"),
    _tf("embedding", r"Gather\w*|ResourceGather\w*", "table look-up"),
    _tf("normalization", r"FusedBatchNorm\w*|\w*LayerNorm\w*|LRN(?:Grad)?", "normalisation layer"),
    _tf("rng", r"\w*Random\w*|\w*TruncatedNormal\w*|Multinomial", "RNG"),
    _tf("cast", r"Cast|Bitcast|Dequantize|QuantizeV2", "the element type changes"),
    _tf("optimizer", r"(?:Resource|Sparse)*Apply\w+", "optimizer's fused update"),
    _tf("collective", r"Collective\w*|Nccl\w*|Horovod\w*", "collective"),
    _tf(
        "layout",
        r"\w*Transpose|Concat(?:V2)?|Split(?:V)?|Slice|StridedSlice\w*|Pack|Unpack|Pad(?:V2)?|Tile"
        r"|Reverse\w*|TensorListStack|TensorListFromTensor|TensorListConcat\w*|Dynamic\w+"
        r"|Scatter\w*|TensorScatter\w*|MirrorPad|Roll|Copy|_FusedConcat|SparseToDense|Where|Fill"
        r"|BroadcastTo|Empty|TensorListGather|TensorListScatter\w*|SparseReorder|Assign|OneHot"
        r"|MatrixBandPart|SpaceToBatch\w*|BatchToSpace\w*|_MklToTf|_MklInputConversion",
        "elements move and do not change",
    ),
    _tf(
        "reduction",
        r"Sum|Mean|Max|Min|Prod|All|Any|Arg(?:Max|Min)|BiasAddGrad|Cum(?:sum|prod)|TopK(?:V2)?"
        r"|InTopK(?:V2)?|Unique\w*|\w*Segment(?:Sum|Mean|Max|Min|Prod)\w*|\w*(?:Max|Avg)Pool\w*",
        "many to one",
    ),
    _tf(
        "pointwise",
        r"Add(?:V2|N)?|Sub|Mul(?:NoNan)?|(?:Real)?Div\w*|Neg|Abs|Exp|Log|Sqrt|Rsqrt|Pow|Square"
        r"|Sigmoid(?:Grad)?|Tanh(?:Grad)?|Relu\w*|Elu\w*|BiasAdd|Maximum|Minimum|Select(?:V2)?|Sign"
        r"|Equal|NotEqual|Less\w+|Greater\w*|Logical\w+|IsFinite|Floor\w*|_Fused\w+|Inv\w*"
        r"|Reciprocal\w*|AccumulateNV2|ClipByValue|Erf|Round|\w*XlaFusion\w*|Ceil|Sin|Cos|Mod"
        r"|Log1p|Expm1|Soft(?:plus|sign)(?:Grad)?|LeakyRelu\w*|Selu\w*|RsqrtGrad|SqrtGrad"
        r"|Is(?:Nan|Inf)|Assign(?:Add|Sub)|AssignSubVariableOp|ResourceScatter(?:Add|Sub)",
        "element by element",
    ),
    # PyTensor: one op a node; lstmprof's own worker names them.
    _pytensor(None, r"Scan|IfElse|OpFromGraph", "holds other operators"),
    _pytensor(
        None,
        r"Subtensor|Reshape|\w*Dim[Ss]\w*|Shape\w*|SpecifyShape|\w*FromTensor|TensorFrom\w+|Assert"
        r"|CheckAndRaise|MakeVector|AllocEmpty|ViewOp|Transpose|Unbroadcast|ScalarFrom\w+|ARange",
        "a view, a shape or a check",
    ),
    _pytensor("gemm", r"Dot\w*|Gem[mv]\w*|CGem[mv]\w*|Ger|CGer|BatchedDot|MatMul", "GEMM"),
    _pytensor("softmax_loss", r"\w*Softmax\w*", "softmax"),
    _pytensor(
        "reduction",
        r"Sum|Prod|Max|Min|Mean|All|Any|Arg\w+|CAReduce\w*|MaxAndArgmax",
        "many elements to one",
    ),
    _pytensor("cast", r"Cast", "the element type changes"),
    _pytensor("rng", r"\w*_rv|Random\w*", "RNG"),
    _pytensor(
        "layout",
        r"\w*IncSubtensor\d?|AdvancedSubtensor\d?|Alloc|Join|Split|DeepCopyOp|Flatten|Tile",
        "elements move and do not change",
    ),
    _pytensor("pointwise", r"[A-Z]\w*", "an Elemwise, under its scalar operator's name"),
    # XLA on a CPU: one op an instruction of the compiled module.
    _xla(
        None,
        r"while|call|conditional|tuple|get-tuple-element|parameter|constant|bitcast|after-all"
        r"|opt-barrier|async-\w+|partition-id|replica-id",
        "holds other instructions, or none",
    ),
    _xla("gemm", r"MatMul(?:_\d+)?|(?:[\w-]+_)?dot(?:_[\w-]+)?|gemm_fusion\w*|cublas-\w+", "GEMM"),
    _xla("conv", r"(?:[\w-]+_)?convolution(?:_[\w-]+)?", "convolution"),
    _xla("collective", r"(?:all|collective)-\w+(?:-\w+)*|reduce-scatter", "collective"),
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
        r"|sign|remainder|is-finite|[a-z][\w-]*_fusion",
        "element by element",
    ),
    _any("other", "tensorflow", r"[^:]*:[A-Za-z]\w*", "an op of no rule above"),
    LIBRARY_OP,
)

#: What XLA's op names say (JAX, TensorFlow with XLA); searched in ``op_name`` and kernel names.
KERNEL_RULES: tuple[Rule, ...] = (
    _any(
        "collective",
        "NCCL, RCCL",
        r"(?i)nccl|rccl|all_?reduce|all_?gather|reduce_?scatter",
        "collective",
    ),
    _any(
        "rnn",
        "cuDNN",
        r"(?i)rnncell|lstm_?elementwise|_rnn_|^rnn|persist.*rnn|lstm|gru_",
        "recurrent kernel",
    ),
    _any("ctc", "cuDNN, torch", r"(?i)ctc_?loss|_ctc_", "CTC kernel"),
    _any("attention", "any", r"(?i)fmha|flash|attention|attn", "fused attention"),
    _any(
        "conv",
        "cuDNN, MIOpen",
        r"(?i)scudnn|conv(?!er[ts])|dgrad|wgrad|winograd|fprop|igemm_(?:fwd|bwd|wrw)|im(?:3d)?2col|implicit_"
        r"|cask_cudnn",
        "convolution",
    ),
    _any(
        "gemm",
        "cuBLAS, rocBLAS, Triton",
        r"(?i)gemm|gemv|cutlass|cublas|cijk_|matmul|splitkreduce|nvjet|wmma|dot_general|\bdot_kernel"
        r"|::dot|/dot|triton_(?:tem|mm)_",
        "GEMM",
    ),
    _any(
        "normalization",
        "any",
        r"(?i)bn_(?:fw|bw)|batch_?norm|layer_?norm|rms_?norm",
        "normalisation by name",
    ),
    _any(
        "normalization",
        "torch",
        r"RowwiseMoments|GammaBeta|ComputeInternalGradients",
        "normalisation's moments",
    ),
    _any(
        "softmax_loss",
        "any",
        r"(?i)softmax|nll_?(?:loss|crit)|cross_?entropy|(?:mse|l1)_?(?:loss|crit)|sparsexent",
        "softmax or its loss",
    ),
    _any("embedding", "any", r"(?i)embedding|indexselect|embs", "table look-up"),
    _any(
        "rng", "any", r"(?i)philox|curand|dropout|distribution_|random|threefry", "random numbers"
    ),
    _any(
        "optimizer",
        "any",
        r"(?i)multi_tensor_apply|apply_?adam|applygradient|adagrad|sgd_",
        "fused update",
    ),
    _any(
        "cast",
        "any",
        r"(?i)float16_copy|convert_element_type|castkernel|convertkernel|to_copy",
        "copy to another type",
    ),
    _any("cast", "any", r"(?i)quantize|to_float|float_to", "the element type changes"),
    _any(
        "layout",
        "any",
        r"(?i)transpose|copybuffer|catarray|concat|copy_kernel|copykernel|permute|gather|scatter|index|roll_|flip|pad_"
        r"|nchwtonhwc|nhwctonchw|swapdim|stridedslice|splitv?_?(?:op|kernel)|subtensor|copy_fusion"
        r"|wrapped_slice|dynamic_(?:update_)?slice|broadcast_in_dim|memcpy",
        "elements move",
    ),
    _any(
        "reduction",
        "any",
        r"(?i)reduc(?:e|tion)|scan|radixsort|sort|topk|pool|cumsum|argmax|triton_(?:red|per)_",
        "many elements to one",
    ),
    _any("reduction", "nvFuser", r"nvfuser_\w*persistent", "reduction kept in registers"),
    _any(
        "pointwise", "any", r"(?i)upsample|interpolat|bilinear|bicubic|grid_sampl", "interpolation"
    ),
    _any(
        "pointwise",
        "any",
        r"(?i)elementwise|element_wise|functor|pointwise|triton_poi",
        "element by element",
    ),
    _any(
        "pointwise",
        "Eigen",
        r"Eigen|BiasNHWC|BiasNCHW|BiasGrad|Relu|Sigmoid|Tanh",
        "Eigen's functor",
    ),
    _any(
        "pointwise",
        "XLA",
        r"(?i)fusion|fused|/(?:add|mul|sub|div|tanh|logistic|max|select)",
        "fused element by element",
    ),
    _any(
        "pointwise",
        "any",
        r"(?i)fill|memset|set_|zero_|iota|where|scale|rotary|activation",
        "sets or scales",
    ),
)

#: What decides where no name does.
COPY_THAT_CASTS = _any("cast", "torch", r"aten::copy_", "a copy to another element type")
COPY_ON_DEVICE = _any("layout", "any", r"(?i)memcpy", "a copy on or between devices")
TRANSFER = _any("transfer", "any", r"(?i)memcpy", "a copy between host and device")
MEMSET = _any("memset", "any", r"(?i)memset", "memory is set")
OPTIMIZER_WORK = _any("optimizer", "any", r"", "small work of the optimizer's phase")
UNNAMED = _any("other", "any", r"", "no rule knows op or kernel")

#: Every rule; its place here is its number.
RULES: tuple[Rule, ...] = (
    *OP_RULES,
    *KERNEL_RULES,
    *(COPY_THAT_CASTS, COPY_ON_DEVICE, TRANSFER, MEMSET, OPTIMIZER_WORK, UNNAMED),
)

#: Within ``rnn``: what a kernel launched beneath a recurrent op does. The first match decides.
RNN_FAMILIES: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("persistent", re.compile(r"(?i)persist")),
    ("gemm", re.compile(r"(?i)gemm|cutlass|cublas|cijk_|xmma|splitk|nvjet")),
    ("pointwise", re.compile(r"(?i)element|pointwise|rnncell|lstm|gru|functor|fill|copy")),
)


@lru_cache(maxsize=65536)
def op_rule(name: str) -> Rule | None:
    """The first op rule that matches the whole of ``name``."""
    return next((rule for rule in OP_RULES if rule.pattern.fullmatch(name)), None)


@lru_cache(maxsize=65536)
def kernel_rule(name: str) -> Rule | None:
    """The first kernel rule that matches anywhere in ``name``."""
    return next((rule for rule in KERNEL_RULES if rule.pattern.search(name)), None)


def rnn_family(name: str) -> str | None:
    """gemm, pointwise or persistent, for a kernel beneath a recurrent op."""
    return next((family for family, pattern in RNN_FAMILIES if pattern.search(name)), None)


def rule_text(number: int) -> str:
    """What a table says of the rule of this number, different for each: its kind and reason."""
    rule = RULES[number]
    subject = "op" if number < len(OP_RULES) else "kernel name"
    subject = subject if number < len(OP_RULES) + len(KERNEL_RULES) else "activity"
    return f"{subject}: {rule.reason} ({rule.framework})"
