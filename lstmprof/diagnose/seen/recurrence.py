"""The names that show a recurrent layer: nodes and paths of its loop, frames, modules.

Examples: the TensorFlow node
``encoder/lstm/while/body/_1/encoder/lstm/while/lstm_cell/MatMul:MatMul``, and the path of an XLA
instruction ``jit(step)/jvp(lstm)/while/body/lstm_cell/dot_general``.
"""

from __future__ import annotations

import re

import numpy as np

from lstmprof.diagnose.seen.lane import Lane
from lstmprof.events.groups import Groups
from lstmprof.events.schema import ACTIVITY_KINDS
from lstmprof.events.table import NONE

_RECURRENT = re.compile(r"/.*while|while/|(?i:lstm|gru|rnn)")
_FRAMES = re.compile(r"(?:.*/)?keras/src/(?:layers/rnn|backend/\w+/rnn\.py)")

#: Modules and functions of recurrent networks that have a form for all time steps at once: modules
#: by PyTorch's profiler, functions of Python, ranges.
_PARALLEL = re.compile(
    r"(?:nn\.Module: |.*\.py\(\d+\): )?_?(?i:(?P<family>[msx]lstm|min_?gru|min_?lstm|mamba"
    r"|selective_scan))\w*"
)
#: Ops and kernels that compute all time steps of such a network at once.
_KERNELS = re.compile(
    r"(?i)selective_scan_(?:fwd|bwd|cuda)|chunk_(?:scan|state)|mamba_\w*kernel|mlstm_(?:chunk|par|sig)"
    r"|flashrnn|forward_scan|warpscan"
)
#: This many calls of one op in one module are a loop over time steps. Chosen by hand.
_LOOPED = 32


def looped_module(lane: Lane) -> tuple[str, int] | None:
    """Return a module of a parallel network that loops over time, and how often it calls one op.

    None if there is none, or if kernels compute all time steps at once.
    """
    events = lane.events
    named = lane.here & events.is_kind("python", "range") & events.where_name(_PARALLEL.fullmatch)
    if not named.any() or (lane.here & events.where_name(_KERNELS.search)).any():
        return None
    module = lane.inside(np.asarray(named, np.bool_))
    rows = np.flatnonzero(lane.here & events.is_kind("op") & (module != NONE))
    if not len(rows):
        return None
    calls = Groups(module[rows], lane.names[rows])
    most = int(np.argmax(calls.sizes()))
    number = int(calls.sizes()[most])
    name = str(lane.text(int(module[rows[calls.first[most]]])))
    return (_short(name), number) if number >= _LOOPED else None


def _short(name: str) -> str:
    """Return ``mLSTMCell`` for ``nn.Module: mLSTMCell_0``."""
    return re.sub(r"_\d+$", "", name.rpartition(": ")[2])


def paths(lane: Lane) -> dict[str, float]:
    """Return paths with a loop or the name of a recurrent layer, and the runs per step of each."""
    times: dict[str, float] = {}
    for column in ("name", "op_name"):
        codes, texts = lane.events.texts(column)
        rows = lane.here & (codes != NONE) & lane.events.is_kind("op", *ACTIVITY_KINDS)
        counts = np.bincount(codes[rows], minlength=len(texts)).tolist()
        for text, count in zip(texts, counts, strict=True):
            if count and "/" in text and _RECURRENT.search(text):
                times[text] = max(times.get(text, 0.0), count / lane.steps)
    return times


def keras_frames(lane: Lane) -> bool:
    """Return whether Python functions of Keras's recurrent layers were recorded."""
    frames = lane.here & lane.events.is_kind("python")
    return bool((frames & lane.events.where_name(_FRAMES.match)).any())
