"""Operators of Caffe2, by their types: ``caffe2::FC``, ``caffe2::FCGradient``.

Source: the operators of caffe2/operators and caffe2/sgd of PyTorch 1.8.
"""

from __future__ import annotations

from lstmprof.events.annotate.rules.rule import Rule


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
