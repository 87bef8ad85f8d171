"""How a layer is given its sequences: packed, one by one, time step by time step."""

from __future__ import annotations

import re

from lstmprof.diagnose.causes import COPY, DISPATCH, LAUNCH, MEMORY, PYTHON
from lstmprof.diagnose.findings import Finding
from lstmprof.diagnose.remedies.keras import is_keras
from lstmprof.diagnose.remedies.told import (
    HOST,
    TORCH,
    WORK,
    Example,
    Remedy,
    Told,
    each,
    often,
    often_in_all,
    total,
)
from lstmprof.numbers import milliseconds

_INDEXING = re.compile(r"(?:Select|Slice|Index)Backward|aten::(?:select|slice)_backward")
#: So many backward passes of indexing into tensors of one shape are those of a loop.
_LOOPED = 8
#: … and so many where no shapes tell whether they are of one.
_LOOPED_IF_UNKNOWN = 16


def indexed_time_steps(f: Finding) -> Told | None:
    """The backward pass of indexing fills a whole gradient with zeros in every time step."""
    if is_keras(f.slow):  # its own loop, which a user cannot change
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
    return Told(
        "x[t] in the loop has a backward pass that fills and adds a whole sequence in every time "
        "step: take x.unbind(0) once before the loop",
        total(f.slow.seen.indexed),
    )


def slices_in_a_loop(f: Finding) -> Told | None:
    """Slices are taken, or filled, one by one, each with a gradient as large as the whole."""
    sliced = f.slow.seen.sliced
    if not sliced:
        return None
    return Told(
        f"slices of a tensor are taken or filled one by one: the backward pass fills or copies all "
        f"of it for each ({often_in_all(f.slow, sliced)}, "
        f"{milliseconds(total(sliced))} ms{each(f.slow)}): split or unbind it once, put it "
        "together with stack or cat, or take what you need by one index or mask",
        total(sliced),
    )


def packed_sequences(f: Finding) -> Told | None:
    """Packed sequences on a CPU leave the layer's own op: a product a time step, and copies."""
    packed = f.slow.seen.packed
    if f.slow.device is not None or not packed:
        return None
    took = f"{packed[0].name} takes {milliseconds(total(packed))} ms{each(f.slow)}"
    return Told(
        f"packed sequences are computed time step by time step on a CPU ({took}): pad the "
        "sequences, in batches of similar length, and oneDNN runs the layer in one op",
        total(packed),
    )


def one_by_one(f: Finding) -> Told | None:
    """A layer is called for one sequence after the other."""
    calls = f.slow.seen.one_by_one
    if not calls:
        return None
    most = calls[0]
    packed = " (on a GPU pack them, pack_padded_sequence)" if f.slow.device is not None else ""
    return Told(
        f"{most.name} is called {often(f.slow, most.count)} for one sequence each: pad the "
        f"sequences to one length (pad_sequence) and give the layer all at once{packed}, unless "
        "one needs the output of another",
        total(calls),
    )


def another_layout(f: Finding) -> Told | None:
    """A layer copies its sequences into the layout in which it reads them."""
    relaid = f.slow.seen.relaid
    if not relaid:
        return None
    times = often_in_all(f.slow, relaid)
    return Told(
        f"{relaid[0].within} copies its sequences into another layout ({times} in all, "
        f"{milliseconds(total(relaid))} ms{each(f.slow)}): it reads (time, batch, features) one "
        "after the other; give it contiguous input in that order, without batch_first=True or a "
        "transpose",
        total(relaid),
    )


UNBIND = Remedy(
    name="unbind before the loop",
    cause="x[t] in a loop: its backward pass fills and adds the whole sequence in every time step",
    condition="select_backward runs for every time step, or eight times on tensors of one shape, "
    "or, where shapes were not recorded, 16 times",
    kinds=(MEMORY, COPY, DISPATCH, LAUNCH),
    frameworks=TORCH,
    saves="the backward passes of indexing, adding up what they make, and indexing itself",
    of_several=True,
    decide=indexed_time_steps,
    sources=("https://github.com/pytorch/pytorch/pull/48474",),
    example=Example(
        of="nn.LSTMCell over x[t] for 150 time steps, PyTorch 2.13 on a CPU",
        told="x[t] in the loop has a backward pass that fills and adds a whole sequence in "
        "every time step: take x.unbind(0) once before the loop",
    ),
)
SLICE_AT_ONCE = Remedy(
    name="slice at once",
    cause="slices taken or filled in a loop: each has a gradient as large as the whole tensor",
    condition="eight nodes SliceBackward or CopySlices a step or more, none of PyTorch's own "
    "layers",
    kinds=(*WORK, COPY, DISPATCH, LAUNCH),
    frameworks=TORCH,
    saves="these nodes",
    of_several=True,
    decide=slices_in_a_loop,
    sources=(
        "https://github.com/pytorch/pytorch/issues/1788",
        "https://github.com/pytorch/pytorch/pull/48474",
    ),
    example=Example(
        of="32 sequences put into one padded tensor by assignment, PyTorch 2.13 on a CPU",
        told="slices of a tensor are taken or filled one by one: the backward pass fills or "
        "copies all of it for each (63 times per step, 145.4 ms per step): split or unbind it "
        "once, put it together with stack or cat, or take what you need by one index or "
        "mask",
    ),
)
PAD = Remedy(
    name="pad instead of pack",
    cause="a CPU computes packed sequences by a product a time step, not in the layer's own op",
    condition="sequences are packed on a CPU, and no op of a library holds the layer",
    kinds=(*WORK, COPY, DISPATCH, PYTHON),
    frameworks=TORCH,
    saves="the layer, with its backward pass where the profile tells which it is",
    of_several=True,
    instead="the padded layer, padding included,",
    decide=packed_sequences,
    sources=("https://github.com/pytorch/pytorch/issues/149194",),
    example=Example(
        of="nn.LSTM over 8 packed sequences of up to 40 time steps, PyTorch 2.13 on a CPU",
        told="packed sequences are computed time step by time step on a CPU (aten::lstm takes "
        "47.7 ms per step): pad the sequences, in batches of similar length, and oneDNN "
        "runs the layer in one op",
    ),
)
BATCH_SEQUENCES = Remedy(
    name="batch the sequences",
    cause="a layer is called for one sequence after the other",
    condition="eight calls per step or more of a layer's op with the same shapes of weights, each "
    "for a batch of one and several time steps",
    kinds=(*HOST, *WORK, COPY),
    frameworks=TORCH,
    saves="these calls, with their backward passes where the profile tells which they are",
    of_several=True,
    decide=one_by_one,
    sources=(
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.rnn.pad_sequence.html",
        "https://github.com/pytorch/pytorch/issues/1788",
    ),
    example=Example(
        of="nn.LSTM called for each of 8 sequences, PyTorch 2.13 on a CPU",
        told="aten::lstm is called 8 times per step for one sequence each: pad the sequences to "
        "one length (pad_sequence) and give the layer all at once, unless one needs the "
        "output of another",
    ),
)
TIME_FIRST = Remedy(
    name="time first",
    cause="a layer's input is batch first or not contiguous, and is copied at every call",
    condition="copies inside contiguous or reshape inside the op of a recurrent layer or its "
    "gradient",
    kinds=(COPY, MEMORY, LAUNCH, DISPATCH),
    frameworks=TORCH,
    saves="these copies",
    decide=another_layout,
    sources=(
        "https://github.com/pytorch/pytorch/issues/621",
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.LSTM.html",
    ),
    example=Example(
        of="nn.LSTM(512, 2, batch_first=True) without gradients, PyTorch 2.13 on a CPU",
        told="aten::lstm copies its sequences into another layout (once per step in all, 1.7 "
        "ms per step): it reads (time, batch, features) one after the other; give it "
        "contiguous input in that order, without batch_first=True or a transpose",
    ),
)
