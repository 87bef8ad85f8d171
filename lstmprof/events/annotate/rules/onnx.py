"""Nodes of engines that run ONNX graphs, by their types: ``onnxruntime::LSTM``.

ONNX Runtime has ONNX's types and those of its own fusions, OpenVINO its own (``LSTMSequence``,
``FullyConnected``, ``Reorder``). Source: ONNX's operators, ONNX Runtime's contrib operators, and
the node types of OpenVINO's CPU plugin (src/plugins/intel_cpu/src/cpu_types.cpp).
"""

from __future__ import annotations

from lstmprof.events.annotate.rules.rule import Rule


def _onnx(category: str | None, types: str, reason: str) -> Rule:
    return Rule(category, "ONNX", rf"(?:onnxruntime|openvino)::(?:{types})", reason)


ONNX_RULES: tuple[Rule, ...] = (
    _onnx("rnn", r"(?:Dynamic(?:Quantize)?)?(?:LSTM|GRU|RNN)(?:Sequence|Cell)?", "recurrent layer"),
    _onnx(None, r"Loop|Scan|If|TensorIterator|Subgraph|model_run|Execute", "holds other nodes"),
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
