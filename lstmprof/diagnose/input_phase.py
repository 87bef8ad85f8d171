"""When the input of a step is prepared.

Input is prepared in the range ``input`` of lstmprof's own captures, while PyTorch's DataLoader
hands out a batch, and in the ops by which TensorFlow takes the next element of a dataset.
"""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa

from lstmprof.events.annotate.steps import Window, is_kind
from lstmprof.events.intervals import Covered, Ints
from lstmprof.events.schema import ints, texts
from lstmprof.events.threads import thread_ids

_INPUT = re.compile(r"input|enumerate\(DataLoader\)#.*__next__|.*:IteratorGetNext\w*")


def input_times(events: pa.Table, windows: list[Window]) -> tuple[Ints, Ints]:
    """(starts, ends) of the input that the threads of ``windows`` prepare, disjoint, by time."""
    times = zip(*(_of_window(events, window) for window in windows), strict=True)
    return Covered(*(np.concatenate(column) for column in times)).bounds


def _of_window(events: pa.Table, window: Window) -> tuple[Ints, Ints]:
    codes, names = texts(events, "name")
    named = np.array([bool(_INPUT.fullmatch(n)) for n in names] + [False])[codes]
    thread = -1 if window.thread is None else window.thread
    mine = named & is_kind(events, "range", "op") & (thread_ids(events) == thread) & (thread >= 0)
    start = ints(events, "start_ns", 0)[mine]
    end = np.minimum(start + ints(events, "dur_ns", 0)[mine], window.end_ns)
    start = np.maximum(start, window.start_ns)
    return start[end > start], end[end > start]
