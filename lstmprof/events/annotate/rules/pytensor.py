"""Operators of PyTensor, and of Theano before it: one op a node of the graph; Chainer's too."""

from __future__ import annotations

import re

from lstmprof.events.annotate.rules.rule import Rule

#: A loop of either, and what it is called: ``Scan{l0, while_loop=False}`` of PyTensor; of Theano
#: ``for{cpu,l0}``, ``for{inplace{0,1,},cpu,l0}`` or ``forall_inplace,cpu,l0}``.
SCAN = re.compile(
    r"^(?:pytensor::Scan\{(?P<pytensor>[^,}]*)"
    r"|theano::(?:for|do_while)(?:all_inplace,|\{inplace\{[\d,]*\},|\{)(?:cpu|gpu),(?P<theano>[^}]*))"
)
#: How both call the loop that computes the gradient of the loop of this name.
GRADIENT = "grad_of_"


def scan_label(name: str) -> str | None:
    """What the loop that the op ``name`` runs is called; None where it runs none."""
    match = SCAN.match(name)
    return None if match is None else match["pytensor"] or match["theano"] or ""


def _pytensor(category: str | None, ops: str, reason: str) -> Rule:
    """A rule for operators whose properties stand in braces: ``Gemm{inplace}``.

    Theano writes an Elemwise as such, with the scalar operator as its first property.
    """
    pattern = (
        rf"(?s)(?:pytensor|theano)::(?:Elemwise\{{)?(?:Gpu|InplaceGpu)?(?:{ops})(?:[{{,}}].*)?"
    )
    return Rule(category, "PyTensor", pattern, reason)


def _chainer(category: str | None, functions: str, reason: str) -> Rule:
    return Rule(category, "Chainer", rf"chainer::(?:{functions})", reason)


PYTENSOR_RULES: tuple[Rule, ...] = (
    _pytensor(
        None, r"Scan|(?:for|do_while)(?:all_inplace)?|IfElse|OpFromGraph", "holds other operators"
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
    _chainer("reduction", r"Sum|Max|Min|ArgMax|Average|\w*Pooling\w*|LogSumExp", "many to one"),
    _chainer(
        "layout",
        r"Permutate|Stack|Concat|Split\w*|Transpose\w*|GetItemGrad|Copy|Pad\w*|Where|Tile|Repeat",
        "elements move and do not change",
    ),
    _chainer("cast", r"Cast", "the element type changes"),
    # The function LSTM is what comes after a cell's products.
    _chainer("pointwise", r"(?:LSTM|SLSTM|TreeLSTM|\w*GRU)(?:Grad)?", "a cell's gates"),
    _chainer("pointwise", r"[A-Z]\w*|_ \W+ _|-_", "element by element"),
)
