"""Causes: PyTorch layers that run one time step or one sequence at a time.

Either the program calls the layer for parts of its input, or oneDNN cannot run the layer on a CPU.
oneDNN runs only nn.LSTM in float32 or bfloat16 without a projection. For other layers, ATen loops
over time steps (aten/src/ATen/native/RNN.cpp).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from lstmprof.base.numbers import count, number_of
from lstmprof.diagnose.findings import Finding
from lstmprof.diagnose.findings.causes import CAST, COPY, DISPATCH, LAUNCH, MEMORY, PYTHON
from lstmprof.diagnose.remedies.cells import one_time_step_per_call
from lstmprof.diagnose.remedies.keras import is_keras
from lstmprof.diagnose.remedies.rows import (
    HOST,
    TORCH,
    WORK,
    Match,
    Remedy,
    from_facts,
    is_mostly_calls,
    layers_ns,
    often,
    total,
)
from lstmprof.implementations import LAYER_OP

_INDEXING = re.compile(r"(?:Select|Slice|Index)Backward|aten::(?:select|slice)_backward")
#: Smallest number of backward ops of x[t] per step at which lstmprof assumes a loop over time: of
#: the most frequent shape, or of all shapes if shapes are unknown. Chosen by hand.
_LOOPED, _LOOPED_IF_UNKNOWN = 8, 16
#: Value of the column ``library`` for layers that ATen computes itself.
_NO_LIBRARY = "ATen"
_RNN = "https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/native/RNN.cpp"
_PAD_ALL = "pad the sequences to one length (pad_sequence), and call the layer once for all"


@Remedy(
    name="unbind before the loop",
    cause="for each x[t] in the loop, the backward pass writes a gradient as large as the whole x",
    fix="iterate over x.unbind(0) instead of indexing x[t]",
    condition="The backward op of x[t] (aten::select_backward) runs once per time step of the "
    "recurrent network",
    kinds=(MEMORY, COPY, DISPATCH, LAUNCH),
    frameworks=TORCH,
    several_kinds=True,
    sources=("https://github.com/pytorch/pytorch/pull/48474",),
)
def indexed_time_steps(f: Finding) -> Match | None:
    # other causes cover loops of Keras, and layers that are called once per time step
    if is_keras(f.slow) or one_time_step_per_call.decide(f):
        return None
    ops = f.slow.rows("ops")
    calls = next((r for r in ops if r["name"] == "aten::select_backward"), None)
    if calls is None or not any(_INDEXING.search(r["name"]) for r in ops):
        return None
    times, steps = calls["count"] / f.slow.steps, f.slow.time_steps
    selected = f.slow.seen.selected
    unknown = _LOOPED_IF_UNKNOWN if selected is None else _LOOPED
    if (times < steps - 1) if steps else (times if selected is None else selected) < unknown:
        return None
    seen = f"aten::select_backward runs {often(f.slow, times)}"
    return Match(seen, total(f.slow.seen.indexed))


@Remedy(
    name="batch the sequences",
    cause="the layer is called for one sequence after another",
    fix=_PAD_ALL,
    condition="A step calls the op of a layer eight or more times, each time for a single sequence",
    kinds=(*HOST, *WORK, COPY),
    frameworks=TORCH,
    several_kinds=True,
    instead="one call for all sequences",
    sources=(
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.rnn.pad_sequence.html",
        "https://github.com/pytorch/pytorch/issues/1788",
    ),
)
def one_by_one(f: Finding) -> Match | None:
    calls = f.slow.seen.one_by_one
    if not calls:
        return None
    seen = f"{calls[0].name} runs {often(f.slow, calls[0].count)}, each time for one sequence"
    packed = f"{_PAD_ALL}, with pack_padded_sequence" if f.slow.runs_on == "cuda" else ""
    return Match(seen, total(calls), fix=packed)


@Remedy(
    name="slice at once",
    cause="the code slices a tensor many times, and each slice's gradient is as large as the "
    "tensor",
    fix="read all slices with one split or unbind; write them with one stack, cat or torch.where",
    condition="A step runs eight or more backward nodes named SliceBackward or CopySlices, outside "
    "PyTorch's own layers",
    kinds=(*WORK, COPY, DISPATCH, LAUNCH),
    frameworks=TORCH,
    several_kinds=True,
    sources=(
        "https://github.com/pytorch/pytorch/issues/1788",
        "https://github.com/pytorch/pytorch/pull/48474",
    ),
)
def slices(f: Finding) -> Match | None:
    return from_facts(f, f.slow.seen.sliced, "{n} gradients of slices take {ms}")


@Remedy(
    name="pad instead of pack",
    cause="a CPU computes packed sequences one time step at a time",
    fix="group sequences by length, and pad each batch: oneDNN then runs the layer in one op",
    condition="A CPU runs a layer over packed sequences, and each time step op by op",
    kinds=(*WORK, COPY, DISPATCH, PYTHON),
    frameworks=TORCH,
    several_kinds=True,
    instead="the padded layer",
    sources=("https://github.com/pytorch/pytorch/issues/149194",),
)
def packed_on_cpu(f: Finding) -> Match | None:
    packed = f.slow.seen.packed if f.slow.runs_on == "cpu" else ()
    return from_facts(f, packed, "{name} takes {ms} and runs over packed sequences")


@Remedy(
    name="time first",
    cause="the layer copies its input into another layout on every call",
    fix="pass contiguous input of shape (time, batch, features), without batch_first=True",
    condition="The op of a recurrent layer, or the op of its gradient, copies a tensor by "
    "aten::contiguous or aten::reshape",
    kinds=(COPY, MEMORY, LAUNCH, DISPATCH),
    frameworks=TORCH,
    sources=(
        "https://github.com/pytorch/pytorch/issues/621",
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.LSTM.html",
    ),
)
def relaid_input(f: Finding) -> Match | None:
    return from_facts(f, f.slow.seen.relaid, "{within} copies its input into another layout {cost}")


def _off_library(finding: Finding, is_reason: Callable[[dict[str, Any]], bool]) -> Match | None:
    """Match layers that ATen runs op by op on a CPU for the given reason."""
    profile = finding.slow
    rows = [
        row
        for row in profile.rows("layers")
        if row["form"] == LAYER_OP and row["library"] == _NO_LIBRARY and is_reason(row)
    ]
    if not rows or profile.runs_on != "cpu":
        return None
    first = max(rows, key=lambda row: row["calls"] or 0)
    steps = f" its {count(first['time_steps'])} time steps" if first["time_steps"] else ""
    number = number_of(sum(row["calls"] or 0 for row in rows) / profile.steps, "call", "calls")
    seen = f"{first['op']} runs{steps} op by op, in {number}{profile.per_step}"
    return Match(seen, layers_ns(profile, rows))


@Remedy(
    name="float32 instead of bfloat16",
    cause="the LSTM computes in bfloat16 without oneDNN's op, which needs a CPU with AVX-512",
    fix="compute in float32 on this CPU: oneDNN has a float32 LSTM op on every CPU",
    condition="A CPU runs each time step of a PyTorch LSTM op by op, in bfloat16. The layer has no "
    "projection and no packed sequences",
    kinds=(*HOST, *WORK, COPY, CAST),
    frameworks=TORCH,
    several_kinds=True,
    instead="the layer in float32",
    sources=("https://github.com/pytorch/pytorch/issues/118499", _RNN),
)
def in_bfloat16(finding: Finding) -> Match | None:
    if finding.slow.seen.packed:
        return None

    def is_reason(row: dict[str, Any]) -> bool:
        return row["dtype"] == "bfloat16" and row["cell"] == "lstm" and not row["projection"]

    return _off_library(finding, is_reason)


@Remedy(
    name="LSTM on a CPU",
    cause="PyTorch has no CPU op for a whole nn.GRU or nn.RNN: it runs each time step op by op",
    fix="if you can change the model, use nn.LSTM; for inference, use ONNX Runtime or OpenVINO",
    condition="A CPU runs each time step of nn.GRU or nn.RNN op by op. Dispatch and Python take "
    "half of the step or more",
    kinds=(*HOST, *WORK, COPY),
    frameworks=TORCH,
    several_kinds=True,
    instead="nn.LSTM",
    sources=(_RNN,),
)
def no_lstm(finding: Finding) -> Match | None:
    # nn.LSTM saves calls (64 units: nn.GRU 14.6 ms, nn.LSTM 9.7 ms), but no matmuls (256 units)
    if not is_mostly_calls(finding.slow):
        return None
    return _off_library(finding, lambda row: str(row["cell"]).startswith(("gru", "rnn")))


@Remedy(
    name="float32",
    cause="the layer computes in float64, for which PyTorch has no LSTM op on a CPU",
    fix="compute in float32: model.float() and inputs.float()",
    condition="A CPU runs each time step of a PyTorch LSTM op by op, in float64",
    kinds=(*HOST, *WORK, COPY),
    frameworks=TORCH,
    several_kinds=True,
    instead="the layer in float32",
    sources=(_RNN,),
)
def in_float64(f: Finding) -> Match | None:
    return _off_library(f, lambda row: row["dtype"] == "float64")


@Remedy(
    name="project afterwards",
    cause="with proj_size, nn.LSTM cannot run as one op on a CPU",
    fix="if you can change the model, omit proj_size and project the outputs by nn.Linear",
    condition="A PyTorch LSTM has a projection (proj_size), and a CPU runs each time step op by op",
    kinds=(*HOST, *WORK, COPY),
    frameworks=TORCH,
    several_kinds=True,
    instead="the layer without projection and of the nn.Linear after it",
    sources=(_RNN,),
)
def projected(f: Finding) -> Match | None:
    return _off_library(f, lambda row: bool(row["projection"]))
