"""Rules for frameworks that run graphs: PyTensor, Theano, Chainer, MXNet and ONNX engines."""

from __future__ import annotations

import re

from lstmprof.events.annotate.rules.rule import Rule

#: Pattern of the names of ops that run a loop: ``Scan{l0, …}`` in PyTensor, ``for{cpu,l0}`` or
#: ``forall_inplace,cpu,l0}`` in Theano.
SCAN = re.compile(
    r"^(?:pytensor::Scan\{(?P<pytensor>[^,}]*)"
    r"|theano::(?:for|do_while)(?:all_inplace,|\{inplace\{[\d,]*\},|\{)(?:cpu|gpu),(?P<theano>[^}]*))"
)
#: Beginning of the name of a loop that computes another loop's gradient (PyTensor, Theano).
GRADIENT = "grad_of_"


def scan_label(name: str) -> str | None:
    """Return the name of the loop that an op runs: ``pytensor::Scan{l0, …}`` -> ``l0``."""
    match = SCAN.match(name)
    return None if match is None else match["pytensor"] or match["theano"] or ""


def _pytensor(category: str | None, ops: str, reason: str) -> Rule:
    """Make a rule for operators such as ``Gemm{inplace}`` and ``Elemwise{<operator>…}``."""
    pattern = (
        rf"(?s)(?:pytensor|theano)::(?:Elemwise\{{)?(?:Gpu|InplaceGpu)?(?:{ops})(?:[{{,}}].*)?"
    )
    return Rule(category, "PyTensor", pattern, reason)


def _chainer(category: str | None, functions: str, reason: str) -> Rule:
    return Rule(category, "Chainer", rf"chainer::(?:{functions})", reason)


PYTENSOR_RULES: tuple[Rule, ...] = (
    _pytensor(
        None,
        r"Scan|(?:for|do_while)(?:all_inplace)?|IfElse|OpFromGraph",
        "contains other operators",
    ),
    _pytensor(
        None,
        r"Subtensor|Reshape|\w*Dim[Ss]\w*|Shape\w*|SpecifyShape|\w*FromTensor|TensorFrom\w+|Assert"
        r"|CheckAndRaise|MakeVector|AllocEmpty|ViewOp|Transpose|Unbroadcast|Rebroadcast"
        r"|ScalarFrom\w+|ARange",
        "a view, a shape or a check",
    ),
    _pytensor("gemm", r"[Dd]ot\w*|Gem[mv]\w*|CGem[mv]\w*|Ger|CGer|BatchedDot|MatMul", "GEMM"),
    _pytensor("conv", r"(?:Dnn|Abstract|Corr)\w*Conv\w*|ConvOp|CorrMM\w*", "convolution"),
    _pytensor("softmax_loss", r"\w*Softmax\w*", "softmax or its loss"),
    _pytensor(
        "reduction",
        r"Sum|Prod|Max|Min|Mean|All|Any|Arg\w+|CAReduce\w*|MaxAndArgmax|CumOp|Pool\w*",
        "many elements to one",
    ),
    _pytensor("cast", r"Cast", "the element type changes"),
    _pytensor("rng", r"\w*_rv|Random\w*|mrg_uniform\w*", "RNG"),
    _pytensor(
        "layout",
        r"\w*IncSubtensor\d?|AdvancedSubtensor\d?|Alloc|Join|Split|DeepCopyOp|Flatten|Tile",
        "elements move and do not change",
    ),
    _pytensor("pointwise", r"[A-Za-z]\w*", "an Elemwise, under its scalar operator's name"),
    _chainer(None, r"\w+Backward|_ \W+ _Backward", "calls the functions of the gradient"),
    _chainer(None, r"GetItem|Reshape|Separate|BroadcastTo|Squeeze|ExpandDims", "a view"),
    _chainer("rnn", r"NStep(?:Bi)?(?:LSTM|GRU|RNN)\w*", "a whole recurrent layer"),
    _chainer("gemm", r"Linear\w+|MatMul\w*|BatchMatMul\w*", "GEMM"),
    _chainer("conv", r"(?:Dec|C)onvolution\w*", "convolution"),
    _chainer("ctc", r"ConnectionistTemporalClassification(?:Grad)?", "CTC loss"),
    _chainer("softmax_loss", r"_?\w*Softmax\w*|\w*CrossEntropy\w*|MeanSquaredError", "loss"),
    _chainer("normalization", r"\w*Normalization\w*", "normalisation"),
    _chainer("embedding", r"EmbedID\w*|SelectItem", "table look-up"),
    _chainer("rng", r"Dropout\w*", "random numbers"),
    _chainer(
        "reduction", r"Sum|Max|Min|ArgMax|Average|\w*Pooling\w*|LogSumExp", "many elements to one"
    ),
    _chainer(
        "layout",
        r"Permutate|Stack|Concat|Split\w*|Transpose\w*|GetItemGrad|Copy|Pad\w*|Where|Tile|Repeat",
        "elements move and do not change",
    ),
    _chainer("cast", r"Cast", "the element type changes"),
    # pointwise and not rnn, because Chainer's LSTM computes only a cell's elementwise part
    _chainer("pointwise", r"(?:LSTM|SLSTM|TreeLSTM|\w*GRU)(?:Grad)?", "a cell's gates"),
    _chainer("pointwise", r"[A-Z]\w*|_ \W+ _|-_", "element by element"),
)


#: Pattern of the prefixes that MXNet puts before an operator's name.
_BEFORE = r"(?:_backward_)?(?:_contrib_|_npi_|_npx_|_np_|_sg_mkldnn_|_image_)?"


def _mxnet(category: str | None, operators: str, reason: str) -> Rule:
    return Rule(category, "MXNet", rf"mxnet::{_BEFORE}(?:{operators})", reason)


MXNET_RULES: tuple[Rule, ...] = (
    _mxnet("transfer", r"MXNDArraySyncCopyFromCPU", "memory of the host is copied"),
    _mxnet(None, r"MX[A-Z]\w*", "a call of the C API: enqueues work, or waits"),
    _mxnet(None, r"DeleteVariable|WaitForVar|WaitForAll|_?CachedOp\w*", "the engine's own work"),
    _mxnet("optimizer", r"\w+_update(?:_phase[12])?|all_finite|reset_arrays", "fused update"),
    _mxnet("rnn", r"RNN", "a whole recurrent layer"),
    _mxnet(
        "gemm",
        r"FullyConnected|fully_connected|dot|batch_dot|matmul|_?linalg_\w*gemm2?|tensordot\w*"
        r"|interleaved_matmul\w*|khatri_rao",
        "GEMM",
    ),
    _mxnet("conv", r"(?:Dec|C)onvolution\w*|conv", "convolution"),
    _mxnet("ctc", r"CTCLoss|ctc_loss", "CTC loss"),
    _mxnet(
        "softmax_loss",
        r"\w*[Ss]oft(?:max|min)\w*|\w+RegressionOutput|SVMOutput|smooth_l1",
        "softmax or a loss",
    ),
    _mxnet("normalization", r"\w*Norm(?:V1|ReLU)?|L2Normalization|LRN|moments", "normalisation"),
    _mxnet("embedding", r"(?:Sparse)?Embedding", "table look-up"),
    _mxnet("rng", r"Dropout|_?(?:random|sample)_\w+|_?shuffle|uniform|normal", "random numbers"),
    _mxnet("cast", r"[Cc]ast|amp_(?:multi)?cast|cast_storage|_?quantize\w*", "the type changes"),
    _mxnet(
        "reduction",
        r"(?:nan)?(?:sum|prod)(?:_axis)?|mean|(?:max|min)(?:_axis)?|arg(?:max|min)\w*|norm"
        r"|Pooling\w*|topk|sort|argsort|_?square_sum|multi_sum_sq|cumsum",
        "many elements to one",
    ),
    _mxnet(
        "layout",
        r"[Cc]oncat|_rnn_param_concat|stack|(?:v|h|d)stack|split\w*|_split_v2|SliceChannel|slice\w*"
        r"|_slice_\w+|_?crop\w*|transpose|SwapAxis|swapaxes|reverse|flip|[Pp]ad|tile|repeat|where"
        r"|take|batch_take|pick|gather_nd|_?scatter_\w+|one_hot|Sequence(?:Mask|Reverse|Last)"
        r"|[Rr]eshape(?:_like)?|Flatten|expand_dims|squeeze|_copy\w*|_copyto|CopyCPU2CPU|identity"
        r"|BlockGrad|broadcast_(?:to|like|axis|axes)|_set_value|depth_to_space|space_to_depth|diag",
        "elements move and do not change",
    ),
    _mxnet(
        "pointwise",
        r"_?(?:zeros|ones|full|arange|eye)(?:_like|_without_dtype)?|SetValueOp|Activation"
        r"|LeakyReLU|relu|\w*sigmoid|softsign|tanh|erf\w*|exp|expm1|log\w*|r?sqrt|r?cbrt|square"
        r"|reciprocal|negative|abs|sign|round|rint|ceil|floor|trunc|fix|clip|gamma\w*"
        r"|(?:arc)?(?:sin|cos|tan)h?|degrees|radians|elemwise_\w+|add_n|ElementWiseSum|_grad_add"
        r"|broadcast_\w+|_?(?:r|l)?(?:plus|minus|mul|div|add|sub|power|mod|maximum|minimum|equal"
        r"|not_equal|greater|lesser|hypot|logical_\w+)\w*|(?:add|subtract|multiply|true_divide"
        r"|power|mod|maximum|minimum)(?:_scalar)?|MakeLoss|make_loss|IdentityAttach\w*|\w+_scalar",
        "element by element",
    ),
)


def _onnx(category: str | None, types: str, reason: str) -> Rule:
    return Rule(category, "ONNX", rf"(?:onnxruntime|openvino)::(?:{types})", reason)


ONNX_RULES: tuple[Rule, ...] = (
    _onnx("rnn", r"(?:Dynamic(?:Quantize)?)?(?:LSTM|GRU|RNN)(?:Sequence|Cell)?", "recurrent layer"),
    _onnx(None, r"Loop|Scan|If|TensorIterator|Subgraph|model_run|Execute", "contains other nodes"),
    _onnx(
        None,
        r"Reshape|Squeeze|Unsqueeze|Flatten|Shape\w*|Size|Identity|Constant|Const|Input|Output"
        r"|Parameter|Result|Assert",
        "a view, a shape or a name",
    ),
    _onnx("transfer", r"MemcpyFromHost|MemcpyToHost", "a copy between host and device"),
    _onnx("gemm", r"\w*MatMul\w*|\w*Gemm\w*|FullyConnected|Einsum", "GEMM"),
    _onnx("conv", r"\w*Conv(?!ert)\w*|Deconvolution", "convolution"),
    _onnx("attention", r"\w*Attention\w*", "attention"),
    _onnx("softmax_loss", r"(?:Log)?Softmax\w*|NegativeLogLikelihoodLoss", "softmax or its loss"),
    _onnx("normalization", r"\w*Norm(?:alization)?(?:V\d+)?|MVN|LRN", "normalisation"),
    _onnx(
        "reduction",
        r"Reduce\w*|Arg(?:Max|Min)|\w*Pool\w*|TopK|CumSum|NonZero|Unique|NonMaxSuppression",
        "many elements to one",
    ),
    _onnx("embedding", r"Embedding\w*|EmbedLayer\w*", "table look-up"),
    _onnx("cast", r"Cast\w*|Convert\w*|\w*QuantizeLinear|FakeQuantize", "the element type changes"),
    _onnx("rng", r"Random\w*|Multinomial|Dropout|Bernoulli", "random numbers"),
    _onnx(
        "layout",
        r"Transpose\w*|Reorder\w*|Concat\w*|Split\w*|(?:Strided)?Slice\w*|\w*Gather\w*|\w*Scatter\w*"
        r"|Pad|Expand|Broadcast|Tile|Roll|ReverseSequence|OneHot|Compress|DepthToSpace"
        r"|SpaceToDepth|ShuffleChannels|MemoryInput|MemoryOutput",
        "elements move and do not change",
    ),
    _onnx("pointwise", r"[A-Z]\w*", "element by element"),
)
