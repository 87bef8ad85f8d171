"""The pieces of a step in which its input is prepared, and the pieces between them.

Input is prepared in the range ``input`` of lstmprof's own captures, while PyTorch's DataLoader
hands out a batch, and in the ops by which TensorFlow takes the next element of a dataset.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa

from lstmprof.events.annotate.steps import Window, is_kind
from lstmprof.events.intervals import Ints
from lstmprof.events.lanes import Covered
from lstmprof.events.schema import ints, texts
from lstmprof.events.threads import thread_ids

_INPUT = re.compile(r"input|enumerate\(DataLoader\)#.*__next__|.*:IteratorGetNext\w*")


def pieces(events: pa.Table, windows: list[Window]) -> list[tuple[Window, bool]]:
    """Every window cut at the borders of its input; True where a piece is input."""
    return [piece for window in windows for piece in _cut(window, *_input_times(events, window))]


def _input_times(events: pa.Table, window: Window) -> tuple[Ints, Ints]:
    """(starts, ends) of the input that the thread of ``window`` prepares, disjoint, by time."""
    codes, names = texts(events, "name")
    named = np.array([bool(_INPUT.fullmatch(n)) for n in names] + [False])[codes]
    thread = -1 if window.thread is None else window.thread
    mine = named & is_kind(events, "range", "op") & (thread_ids(events) == thread) & (thread >= 0)
    rows = np.flatnonzero(mine)
    start = ints(events, "start_ns", 0)[rows]
    end = start + ints(events, "dur_ns", 0)[rows]
    start, end = np.maximum(start, window.start_ns), np.minimum(end, window.end_ns)
    inside = end > start
    return Covered(start[inside], end[inside]).bounds


def _cut(window: Window, starts: Ints, ends: Ints) -> Iterator[tuple[Window, bool]]:
    borders = [window.start_ns, *np.stack([starts, ends], axis=1).ravel().tolist(), window.end_ns]
    for number, (begin, end) in enumerate(pairwise(borders)):
        if end > begin:
            yield replace(window, start_ns=begin, end_ns=end), number % 2 == 1
