"""Rules for PyTorch's operators by name, and for Caffe2's by type (``caffe2::FC``)."""

from __future__ import annotations

from lstmprof.events.annotate.rules.rule import Rule


def _torch(category: str | None, names: str, reason: str) -> Rule:
    """Make a rule for ops with these names, and for their in-place and out variants."""
    return Rule(category, "torch", rf"(?:aten|prims)::(?:{names})_?(?:\.\w+)?", reason)


#: Rule for ops of other libraries, such as torchvision. Kernel names decide first.
LIBRARY_OP = Rule(
    "other", "torch", r"[a-z_]\w*::\w+(?:\.\w+)?", "an op of a library's own namespace"
)

TORCH_RULES: tuple[Rule, ...] = (
    # Single ops that compute a whole recurrent layer or cell.
    _torch("rnn", r"_cudnn_rnn\w*|miopen_rnn\w*|mkldnn_rnn_layer\w*", "vendor's recurrent layer"),
    Rule(
        "rnn",
        "AOTInductor",
        r"aoti_torch_\w+?_(?:mkldnn_rnn_layer|_cudnn_rnn|miopen_rnn)\w*",
        "vendor's recurrent layer, called from C++",
    ),
    Rule("gemm", "AOTInductor", r"aoti_torch_\w+?_(?:add)?b?mm(?:_out)?", "GEMM, called from C++"),
    Rule("rnn", "cuDNN", r"cudnn::RNN\w+", "cuDNN's recurrent layers without a framework"),
    Rule("reduction", "cuDNN", r"cudnn::ReduceTensor", "many elements to one"),
    Rule("pointwise", "cuDNN", r"cudnn::(?:Op|Add|Scale)Tensor", "element by element"),
    _torch("ctc", r"\w*ctc_loss\w*", "connectionist temporal classification"),
    # Wrapper ops have no category, because a wrapper op calls the op that does the work.
    _torch(None, r"linear|matmul|einsum|tensordot|conv[123]d|_?convolution", "calls the real op"),
    _torch(None, r"lstm(?:_cell)?|gru(?:_cell)?|rnn_\w+", "calls the cell's ops"),
    _torch(None, r"batch_norm|_batch_norm_impl_index|layer_norm|group_norm", "calls native_*_norm"),
    _torch(None, r"(?:log_)?softmax|cross_entropy_loss|nll_loss(?:_nd)?", "calls the _ variant"),
    _torch(
        None,
        r"to|contiguous|clone|_to_copy|type_as|item|is_nonzero|zeros|ones|_?pin_memory",
        "calls copy_",
    ),
    _torch(
        None,
        r"dropout|reshape|flatten|stack|scaled_dot_product_attention|fft_\w+|diff",
        "calls the op",
    ),
    # Views have no category, because a view changes only sizes and strides.
    _torch(
        None,
        r"t|T|view|view_as\w*|_unsafe_view|_reshape_alias|transpose|permute|expand|expand_as|slice"
        r"|select|narrow|as_strided|unbind|chunk|split(?:_with_sizes)?|[hvd]split|tensor_split"
        r"|squeeze|unsqueeze|detach|alias|unflatten|movedim|moveaxis|swap(?:axes|dims)|diagonal"
        r"|unfold|resolve_\w+|conj|lift_fresh|real|imag|broadcast_t\w+|numpy_T|m[TH]|adjoint",
        "a view: no element moves",
    ),
    _torch(
        None,
        r"empty\w*|new_empty\w*|resize|resize_as|set|result_type|record_stream",
        "memory, no work",
    ),
    _torch(None, r"zeros_like|ones_like|full_like|new_zeros|new_ones|full|scalar_tensor", "fill_"),
    _torch(
        None,
        r"_has_\w+|(?:cudnn_)?is_\w+|_use_\w+|size|stride|_version|_local_scalar_dense",
        "asks",
    ),
    Rule(None, "torch", r"autograd::.*|torch::.*|\w+Backward\d*", "autograd node"),
    Rule(None, "torch", r"profiler::_record_function_\w+", "begin or end of a range"),
    Rule(None, "torch", r"Torch-Compiled.*|TorchDynamo.*|## .*|Pregraph.*|CompiledF.*", "wrapper"),
    # Ops that compute, sorted by kind of work.
    Rule(
        "collective",
        "torch",
        r"(?:c10d|_c10d_functional|nccl|gloo)\b.*|record_param_comms",
        "between ranks",
    ),
    _torch(
        "gemm",
        r"(?:add)?mm|(?:b?add)?bmm|_addmm_\w+|addmv|mv|v?dot|_int_mm|addr|outer|ger|addbmm"
        r"|_(?:scaled|grouped|scaled_grouped|sparse|cslt_sparse|weight_int\d\w*|mixed_dtypes)_\w*mm"
        r"|_weight_int\d\w*mm\w*|_fp8_\w*mm",
        "GEMM",
    ),
    _torch("gemm", r"mkldnn_linear\w*|_mkl_linear|mkldnn__?\w*linear\w*", "GEMM of oneDNN or MKL"),
    _torch("conv", r"\w*conv(?!ert)\w*", "convolution"),
    _torch("attention", r"\w*attention\w*|\w*scaled_dot_product\w*|\w*_qkv", "fused attention"),
    _torch("embedding", r"_?embedding\w*|index_select", "table look-up"),
    _torch(
        "normalization",
        r"(?!linalg_|_foreach_)\w*_norm(?:_backward\w*)?|\w*batch_norm\w*",
        "normalisation layer",
    ),
    _torch(
        "softmax_loss", r"_?\w*softmax\w*|nll_loss\w*|\w*cross_entropy\w*", "softmax or its loss"
    ),
    _torch("softmax_loss", r"\w*(?:mse|l1|smooth_l1|huber|kl_div|margin)_loss\w*", "loss"),
    _torch(
        "rng",
        r"uniform|normal|bernoulli|rand\w*|native_dropout\w*|_fused_dropout|random|exponential"
        r"|multinomial|geometric|cauchy|log_normal|poisson",
        "RNG",
    ),
    _torch(
        "optimizer", r"_fused_(?:adam|adamw|sgd|adagrad)", "all parameters' update in one kernel"
    ),
    _torch(
        "cast",
        r"quantize_per_\w+|_?(?:choose_qparams|convert_weight)\w*|dequantize|fake_quantize\w*",
        "the element type changes",
    ),
    _torch(
        "reduction",
        r"sum|mean|prod|a?max|a?min|all|any|norm|linalg_\w*norm|std|var|var_mean|cum\w+|argm\w+"
        r"|topk|sort|argsort|logsumexp|count_nonzero|_?aminmax|\w*pool\w*|equal|dist|unique\w*"
        r"|median|_foreach_(?:norm|max)|bincount|histc|nansum|nanmean|mode|kthvalue",
        "many elements to one",
    ),
    _torch(
        "layout",
        r"copy|cat|_cat|_?chunk_cat|gather\w*|scatter\w*|index|_?index_put\w*|index_copy|index_add"
        r"|index_fill|take\w*|masked_(?:select|scatter)|constant_pad_nd|pad|flip|roll|repeat\w*"
        r"|tril|triu|narrow_copy|slice_backward|select_backward|\w*_pack_padded_sequence\w*"
        r"|_pad_packed_sequence|\w*_copy|_foreach_copy|nonzero\w*|im2col|col2im|one_hot"
        r"|_nested_\w*|_?(?:jagged|padded)_\w+|pixel_(?:un)?shuffle|channel_shuffle",
        "elements move and do not change",
    ),
    _torch("layout", r"unsafe_(?:split\w*|chunk)", "a tensor is split into parts"),
    _torch(
        "pointwise",
        r"add|sub|rsub|mul|div|neg|abs|exp|log\d*|sqrt|rsqrt|pow|square|sin|cos|tanh|sigmoid|relu"
        r"|gelu|silu|elu|leaky_relu|hardsigmoid|hardtanh|clamp\w*|threshold|where|masked_fill|lerp"
        r"|addcmul|addcdiv|reciprocal|maximum|minimum|eq|ne|lt|le|gt|ge|logical_\w+|bitwise_\w+"
        r"|__\w+__|isnan|isfinite|isinf|nan_to_num|sign|floor|ceil|round|remainder|erf|logit"
        r"|(?:tanh|sigmoid|threshold|gelu|silu|elu|logit|hardsigmoid|hardtanh)_backward"
        r"|_thnn_(?:differentiable_)?(?:fused_)?(?:lstm|gru)_cell\w*|_foreach_\w+|fill|zero|arange"
        r"|_amp_\w+|_fused_\w+|_masked_scale|bucketize|searchsorted|fmod|trunc|expm1|log1p|xlogy"
        r"|hardswish\w*|softplus\w*|mish\w*|selu|prelu\w*|glu\w*|relu6|log_sigmoid\w*|linspace"
        r"|polar|complex|conj_physical|atan2|copysign|sinc|angle|sgn|erfinv|logaddexp\w*|tan|acos"
        r"|asin|atan|tri[lu]_indices|sinh|cosh|float_power|true_divide|floor_divide",
        "element by element",
    ),
    _torch("pointwise", r"_?upsample\w*|grid_sampler\w*|affine_grid\w*", "interpolation"),
)

#: Pattern of views: a name of Inductor's kernels lists the fused ops, views included.
_VIEW = r"(?:_unsafe_view|view|permute|expand|unsqueeze|squeeze|select|slice|t|detach|alias)"
_MOVE = r"(?:clone|copy_?|cat|stack|transpose|constant_pad_nd|index|roll|flip|split|repeat)"
_VIEWS_ONLY = rf"triton_poi_fused_(?:{_VIEW}_)*"

#: Beginning of the names of Inductor's C++ kernels for CPUs, with the graph's number if any.
_CPP = r"(?:graph_\d+_)?cpp_fused_"

#: (category, pattern, reason) for names of Inductor's kernels: ``triton_poi_fused_add_sigmoid``.
_INDUCTOR = (
    ("softmax_loss", rf"{_CPP}\w*softmax\w*", "softmax or loss, in C++"),
    ("reduction", rf"{_CPP}\w*(?:sum|mean|amax|amin|var)_\w*", "reduction, in C++"),
    (
        "layout",
        rf"{_CPP}(?:(?:cat|clone|copy_?|zeros|full|view|permute|select)_)+\d+",
        "copy or fill, in C++",
    ),
    ("pointwise", rf"{_CPP}\w*", "pointwise kernel, in C++"),
    ("cast", rf"{_VIEWS_ONLY}_to_copy(?:_{_VIEW}|__to_copy)*_\d+", "copy to another type"),
    ("layout", rf"{_VIEWS_ONLY}{_MOVE}(?:_(?:{_VIEW}|{_MOVE}))*_\d+", "copy of elements"),
    (
        "embedding",
        rf"{_VIEWS_ONLY}embedding(?:_dense_backward)?(?:_(?:{_VIEW}|_to_copy))*_\d+",
        "table look-up",
    ),
    ("pointwise", r"triton_(?:poi|for)_.*", "pointwise kernel"),
    (
        "softmax_loss",
        r"triton_(?:red|per)_\w*(?:softmax|nll_loss|cross_entropy)\w*",
        "softmax or loss",
    ),
    ("normalization", r"triton_(?:red|per)_\w*(?:native_\w+_norm|rms_norm)\w*", "normalisation"),
    ("reduction", r"triton_(?:red|per|split_scan)_.*", "reduction kernel"),
    ("attention", r"triton_tem_\w*flex_(?:attention|decoding)\w*", "attention template"),
    ("conv", r"triton_tem_\w*convolution\w*", "convolution template"),
    ("gemm", r"triton_(?:tem|mm)_.*", "GEMM template"),
)
#: Rules for ops that have the name of one of Inductor's kernels.
INDUCTOR_OPS = tuple(
    Rule(category, "torch.compile", names, f"Inductor's {reason}")
    for category, names, reason in _INDUCTOR
)
INDUCTOR_KERNELS = tuple(
    Rule(category, "torch.compile", rf"^{names}$", f"Inductor's {reason}")
    for category, names, reason in _INDUCTOR
)


def _caffe2(category: str | None, operators: str, reason: str) -> Rule:
    return Rule(category, "Caffe2", rf"caffe2::(?:{operators})(?:Gradient)?", reason)


CAFFE2_RULES: tuple[Rule, ...] = (
    _caffe2(None, r"Net", "calls its operators, one after the other"),
    _caffe2("rnn", r"RecurrentNetwork|Recurrent", "a recurrent layer, its time steps within"),
    _caffe2("gemm", r"FC\w*|MatMul|BatchMatMul\w*", "GEMM"),
    _caffe2("conv", r"Conv\w*", "convolution"),
    _caffe2(
        "softmax_loss",
        r"Softmax\w*|SquaredL2Distance|\w*CrossEntropy\w*|AveragedLoss",
        "softmax or its loss",
    ),
    _caffe2("ctc", r"CTC\w*", "CTC loss"),
    _caffe2("normalization", r"\w*Norm\w*|SpatialBN", "normalisation"),
    _caffe2("optimizer", r"Adam|\w*Momentum\w*|Adagrad|RmsProp|LearningRate|Iter", "its updates"),
    _caffe2("embedding", r"Gather\w*|SparseLengths\w*", "table look-up"),
    _caffe2("rng", r"Dropout|(?:Gaussian|Uniform|Xavier|MSRA)Fill", "RNG"),
    _caffe2("cast", r"Cast|\w*To(?:Half|Float)", "the element type changes"),
    _caffe2(
        "reduction",
        r"Reduce\w*|Sum(?:Elements|Sqr\w*)|ArgMax|\w*Pool",
        "many elements to one",
    ),
    _caffe2(
        "layout",
        r"Concat|Split|Slice|Transpose|Copy\w*|Pad\w*|(?:Unp|P)ack\w*",
        "elements move and do not change",
    ),
    _caffe2(None, r"Reshape|Squeeze|ExpandDims|StopGradient|Alias|EnsureDense", "a view"),
    _caffe2(
        "pointwise",
        r"\w*Fill|LSTMUnit|GRUUnit|Sum|WeightedSum|Scale|Add|Mul|Sub|Div|Sigmoid"
        r"|Tanh|Relu|Exp|Log|Sqr|Negative|Clip",
        "element by element",
    ),
)
