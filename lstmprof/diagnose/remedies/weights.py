"""Whether a layer's weights lie as its library wants them: in one piece of memory.

``_cudnn_rnn`` copies them together at every call where they do not (torch/csrc, copy_weights_to_
flat_buf_views in aten/src/ATen/native/cudnn/RNN.cpp); flatten_parameters() lays them out once, and
does nothing where two of them share memory or differ in type (torch/nn/modules/rnn.py).
``miopen_rnn`` copies them at every call (aten/src/ATen/native/miopen/RNN_miopen.cpp).
"""

from __future__ import annotations

from lstmprof.diagnose.causes import COPY, DISPATCH, LAUNCH, MEMORY
from lstmprof.diagnose.findings import Finding
from lstmprof.diagnose.remedies.told import TORCH, Example, Remedy, Told, often_in_all, total
from lstmprof.diagnose.seen import Fact

#: Weights of a layer: fewer copies in its op are others.
_WEIGHTS = 4
_FLATTENS = "aten::_cudnn_rnn_flatten_weight"
_MIOPEN = "aten::miopen_rnn"


def copied_at_every_call(f: Finding) -> Told | None:
    """The weights are copied together inside the layer's op, and nobody tried to flatten them."""
    copies = _copies(f)
    if not copies or f.slow.seen.flattens:
        return None
    times = often_in_all(f.slow, copies)
    if copies[0].within == _MIOPEN:
        how = "PyTorch does so on MIOpen wherever they lie; fewer and longer calls do it less often"
    else:
        how = "call flatten_parameters() once the model is on its device; where layers share "
        how += "weights it does nothing, so share none"
    return Told(
        f"{copies[0].within} copies its weights together at every call ({times}): {how}",
        total(copies),
    )


def shared(f: Finding) -> Told | None:
    """The same, although flatten_parameters() is called: it refuses to."""
    copies = _copies(f)
    if not copies or not f.slow.seen.flattens or copies[0].within == _MIOPEN:
        return None
    times = often_in_all(f.slow, copies)
    return Told(
        f"{copies[0].within} copies its weights together at every call ({times}), and "
        "flatten_parameters() does nothing: it does nothing where weights are shared or of "
        "several types; give every layer weights of its own, of one type",
        total(copies),
    )


def flattened_in_every_step(f: Finding) -> Told | None:
    """flatten_parameters() copies the weights in the steps."""
    copies = [h for h in f.slow.seen.weights if h.within == _FLATTENS]
    if not copies:
        return None
    times = often_in_all(f.slow, copies)
    return Told(
        f"flatten_parameters() copies the weights ({times}): once the model is on its device they "
        "stay where they are; call it there, not in forward()",
        total(copies),
    )


def _copies(f: Finding) -> list[Fact]:
    """Copies of all weights in a layer's op; none where there are fewer a call."""
    copies = [h for h in f.slow.seen.weights if h.within and h.within != _FLATTENS]
    calls = sum(
        r["count"] for r in f.slow.rows("ops") if r["name"] in {h.within for h in copies}
    ) / max(f.slow.steps, 1)
    few = not calls or sum(h.count for h in copies) < _WEIGHTS * calls
    return [] if few else copies


FLATTEN_PARAMETERS = Remedy(
    name="flatten_parameters",
    cause="a layer's weights are not one piece of memory and are copied together at every call",
    condition="four copies or more inside each call of a cuDNN or MIOpen layer, none of them for "
    "contiguous input",
    kinds=(COPY, MEMORY, LAUNCH, DISPATCH),
    frameworks=TORCH,
    saves="these copies",
    decide=copied_at_every_call,
    sources=(
        "https://github.com/pytorch/examples/issues/248",
        "https://github.com/salesforce/awd-lstm-lm/issues/120",
        "https://github.com/pytorch/pytorch/blob/main/torch/nn/modules/rnn.py",
    ),
    example=Example(
        of="drawn by the tests' simulator: nn.LSTM on cuDNN with eight weights apart",
        told="aten::_cudnn_rnn copies its weights together at every call (8 times per step): "
        "call flatten_parameters() once the model is on its device; where layers share "
        "weights it does nothing, so share none",
    ),
)
UNTIE = Remedy(
    name="no shared weights",
    cause="layers share weights, which can then not be one piece of memory",
    condition="such copies, although frames of flatten_parameters are in the profile, and "
    "_cudnn_rnn_flatten_weight is not",
    kinds=(COPY, MEMORY, LAUNCH, DISPATCH),
    frameworks=TORCH,
    saves="these copies",
    decide=shared,
    sources=(
        "https://github.com/pytorch/pytorch/pull/3752",
        "https://github.com/pytorch/pytorch/issues/3751",
    ),
    example=Example(
        of="drawn by the tests' simulator: the same, with frames of flatten_parameters",
        told="aten::_cudnn_rnn copies its weights together at every call (8 times per step), and "
        "flatten_parameters() does nothing: it does nothing where weights are shared or "
        "of several types; give every layer weights of its own, of one type",
    ),
)
FLATTEN_ONCE = Remedy(
    name="flatten once",
    cause="flatten_parameters() is called in every step and copies the weights each time",
    condition="copies inside _cudnn_rnn_flatten_weight in the profiled steps",
    kinds=(COPY, MEMORY, LAUNCH, DISPATCH),
    frameworks=TORCH,
    saves="these copies",
    decide=flattened_in_every_step,
    sources=("https://github.com/pytorch/pytorch/blob/main/torch/nn/modules/rnn.py",),
    example=Example(
        of="drawn by the tests' simulator: flatten_parameters() in every forward pass",
        told="flatten_parameters() copies the weights (8 times per step): once the model is on "
        "its device they stay where they are; call it there, not in forward()",
    ),
)
