"""Which events prepare the input of a step, by their names."""

from __future__ import annotations

import re

import numpy as np

from lstmprof.events.intervals import Flags
from lstmprof.events.table import EventTable

#: What TensorFlow calls the op in which a step takes the next element, on a thread of its own that
#: launches nothing (``tf_data_iterator_get_next``): ``IteratorGetNextOp::DoCompute``.
NEXT_OP = re.compile(r"IteratorGetNext\w*Op::DoCompute")
_PREPARES = re.compile(
    rf"input|enumerate\(DataLoader\)#.*__next__|.*torch/utils/data/dataloader\.py\(\d+\): __next__"
    rf"|{NEXT_OP.pattern}"
    r"|(.*[:/ ])?IteratorGetNext\w*|(.*[].])?\w*dataloader_next"  # the last is Lightning's
    r"|(?i:(.*: )?\W*((get|next|fetch|load|prepare)_?(next_?)?(batch|data|inputs?)"
    r"|(data|batch)[_ -]?load(er|ing)?|input_?pipeline)\W*)"
)


def prepares(events: EventTable) -> Flags:
    """Return whether each event prepares the input of a step, or takes it."""
    named = events.where_name(_PREPARES.fullmatch)
    return np.asarray(named & events.is_kind("range", "op", "python"), dtype=np.bool_)
