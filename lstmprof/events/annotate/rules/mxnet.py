"""Operators of MXNet, by their names: ``mxnet::FullyConnected``, ``mxnet::_backward_RNN``.

The same names serve NDArrays and symbols; those of gradients begin with ``_backward_``. A segment
of a graph that the executor runs as one stands as the list of its operators, ``[a,b]``. Source: the
operators of mxnet 1.9.1 (``mx.operator.get_all_registered_operators()``).
"""

from __future__ import annotations

from lstmprof.events.annotate.rules.rule import Rule

#: What stands before a name: a gradient's, a namespace's, a kernel's by oneDNN.
_BEFORE = r"(?:_backward_)?(?:_contrib_|_npi_|_npx_|_np_|_sg_mkldnn_|_image_)?"


def _mxnet(category: str | None, operators: str, reason: str) -> Rule:
    return Rule(category, "MXNet", rf"mxnet::{_BEFORE}(?:{operators})", reason)


MXNET_RULES: tuple[Rule, ...] = (
    _mxnet("transfer", r"MXNDArraySyncCopyFromCPU", "memory of the host is copied"),
    _mxnet(None, r"MX[A-Z]\w*", "a call of the C API: hands work to the engine, or waits"),
    _mxnet(None, r"DeleteVariable|WaitForVar|WaitForAll|_?CachedOp\w*", "the engine's own"),
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
