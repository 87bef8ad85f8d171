"""The names under which a recurrent layer shows: nodes and paths of its loop, frames of Keras.

A node of TensorFlow is ``encoder/lstm/while/body/_1/encoder/lstm/while/lstm_cell/MatMul:MatMul``,
an instruction of XLA has a path like ``jit(step)/jvp(lstm)/while/body/lstm_cell/dot_general``.
"""

from __future__ import annotations

import re

import numpy as np

from lstmprof.diagnose.seen.lane import Lane
from lstmprof.events.schema import ACTIVITY_KINDS
from lstmprof.events.table import NONE

_RECURRENT = re.compile(r"/.*while|while/|(?i:lstm|gru|rnn)")
_FRAMES = re.compile(r"(?:.*/)?keras/src/(?:layers/rnn|backend/\w+/rnn\.py)")


def paths(lane: Lane) -> dict[str, float]:
    """Paths with a loop or the name of a recurrent layer, and how often a step each runs."""
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
    """Whether Python functions of Keras's recurrent layers were recorded."""
    frames = lane.here & lane.events.is_kind("python")
    return bool((frames & lane.events.where_name(_FRAMES.match)).any())
