"""How a layer is given its sequences: packed, sliced, one by one, time step by time step."""

from __future__ import annotations

import re

from lstmprof.diagnose.causes import COPY, DISPATCH, LAUNCH, MEMORY, PYTHON
from lstmprof.diagnose.findings import Finding
from lstmprof.diagnose.remedies.keras import is_keras
from lstmprof.diagnose.remedies.told import TORCH, WORK, Remedy, Told, times_called

_INDEXING = re.compile(r"(?:Select|Slice|Index)Backward|aten::(?:select|slice)_backward")
#: So many backward passes of indexing into tensors of one shape are those of a loop.
_LOOPED = 8
_LAYER = re.compile(r"aten::(?:mkldnn_rnn_layer|_cudnn_rnn|miopen_rnn)")


def indexed_time_steps(f: Finding) -> Told | None:
    """The backward pass of indexing fills a whole gradient with zeros in every time step."""
    if is_keras(f.slow):  # its own loop, which a user cannot change
        return None
    ops = f.slow.rows("ops")
    calls = next((r for r in ops if r["name"] == "aten::select_backward"), None)
    if calls is None or not any(_INDEXING.search(r["name"]) for r in ops):
        return None
    times, steps = calls["count"] / f.slow.steps, f.slow.time_steps
    looped = times >= steps - 1 if steps else f.slow.seen.selected >= _LOOPED
    if not looped:
        return None
    spent = "host_total_ns" if f.slow.device is None else "device_total_ns"
    took = calls.get(spent)
    return Told(
        "x[t] in the loop has a backward pass that fills and adds a whole sequence in every time "
        "step: take x.unbind(0) once before the loop",
        None if took is None else round(took / f.slow.steps),
    )


def packed_sequences(f: Finding) -> Told | None:
    """A packed sequence on a CPU leaves the layer's own op: a product a time step, and copies."""
    if f.slow.device is not None or not f.slow.seen.packed or times_called(f.slow, _LAYER):
        return None
    return Told(
        "a packed sequence is computed time step by time step on a CPU: pad the sequences, "
        "in batches of similar length, and oneDNN runs the layer in one op"
    )


UNBIND = Remedy(
    name="unbind before the loop",
    cause="x[t] in a loop: its backward pass fills and adds the whole sequence in every time step",
    condition="select_backward runs for every time step, or eight times on tensors of one shape",
    kinds=(MEMORY, COPY, DISPATCH, LAUNCH),
    frameworks=TORCH,
    saves="the backward passes of indexing",
    decide=indexed_time_steps,
    sources=("https://github.com/pytorch/pytorch/pull/48474",),
)
PAD = Remedy(
    name="pad instead of pack",
    cause="packed sequences on a CPU: the layer leaves its own op for a product a time step",
    condition="sequences are packed on a CPU, and no op holds the whole layer",
    kinds=(*WORK, COPY, DISPATCH, PYTHON),
    frameworks=TORCH,
    decide=packed_sequences,
    sources=("https://github.com/pytorch/pytorch/issues/149194",),
)
