"""Add recorded input shapes to the ops of a profile.

The third ``MatMul`` of a profiled step gets the shapes of the third recorded ``MatMul``. A capture
repeats one step, so one recorded step suffices. The steps of a user's training differ, so each
recorded op has a step number.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from lstmprof.capture.worker.shapes import FUSED
from lstmprof.events.groups import Groups
from lstmprof.events.intervals import Ints
from lstmprof.events.table import NONE, UNKNOWN, EventTable

#: Prefix of a node's name that shows an inlined TensorFlow loop or branch: ``while/body/_1/``.
_INLINED = re.compile(r".*/(?:body|cond|then|else)/_\d+/")
_OP_TYPE = re.compile(r":\w+$")
#: Prefix of a node's name that shows an inlined TensorFlow function: ``PartitionedCall/``.
_CALLED = re.compile(r"^(?:(?:Stateful)?PartitionedCall(?:_\d+)?/)+")

#: An op's inputs: shapes as JSON, element types as JSON, number of the step (None: all steps).
Entry = tuple[str, str, int | None]
Recorded = dict[str, list[Entry]]


def with_inputs(events: EventTable, path: Path | None, rank: int | None = None) -> EventTable:
    """Add the recorded input shapes and dtypes to the ops of ``rank`` (None: all ops)."""
    if path is None:
        return events
    recorded: Recorded = {}
    for name, shapes, dtypes, *step in json.loads(path.read_text(encoding="utf-8")):
        entry = (_compact(shapes), _compact(dtypes), step[0] if step else None)
        recorded.setdefault(name, []).append(entry)
    shapes, dtypes = (np.array(events.column(c).to_pylist(), object) for c in ("shapes", "dtypes"))
    for rows, inputs in _joined(events, recorded, rank):
        shapes[rows], dtypes[rows] = inputs
    return events.with_columns({"shapes": list(shapes), "dtypes": list(dtypes)})


def _compact(values: Any) -> str:
    return json.dumps(values, separators=(",", ":"))


def _joined(
    events: EventTable, recorded: Recorded, rank: int | None
) -> list[tuple[Ints, tuple[list[str], list[str]]]]:
    """Return (rows, (shapes, dtypes)) for the ops of each name in each step."""
    codes, names = events.texts("name")
    step = events.ints("step", UNKNOWN)
    if rank is not None:
        step = np.where(events.ints("rank", UNKNOWN) == rank, step, UNKNOWN)
    rows = np.flatnonzero(
        events.is_kind("op") & events.where_name(lambda name: _plain(name) in recorded)
    )
    # replace the profiler's shapes of ops that were recorded with a step number
    exact = {name for name, entries in recorded.items() if entries[0][2] is not None}
    wanted = (events.texts("shapes")[0] == NONE) | events.where_name(exact.__contains__)
    rows = rows[(step[rows] != UNKNOWN) & wanted[rows]]
    parent = events.rows_named("parent_id")
    nested = (parent != NONE) & (codes[parent] == codes)  # autocast nests an op in its namesake
    rows = rows[~nested[rows]]
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
    numbers = np.unique(step[step != UNKNOWN])
    joined: list[tuple[Ints, tuple[list[str], list[str]]]] = []
    for members in Groups(codes[rows], step[rows]).members():
        alike = rows[members]
        number = int(np.searchsorted(numbers, step[alike[0]]))
        inputs = _inputs_in_step(_recorded(names[codes[alike[0]]], recorded), number, len(alike))
        if inputs:
            joined.append((alike, ([s for s, *_ in inputs], [d for _, d, _ in inputs])))
    return joined


def _inputs_in_step(recorded: list[Entry], number: int, count: int) -> list[Entry]:
    """Return one entry per op of a step, or [] if entries may belong to other ops."""
    if any(step is not None for _, _, step in recorded):
        entries = [entry for entry in recorded if entry[2] == number]
        return entries if len(entries) == count else []
    if len(recorded) == count:
        return recorded
    return recorded[:1] * count if len(set(recorded)) == 1 else []


def _recorded(name: str, recorded: Recorded) -> list[Entry]:
    plain = _plain(name)
    fused = recorded.get(plain + FUSED, []) if "Fused" in name else []
    return fused or recorded[plain]


def _plain(name: str) -> str:
    """Shorten ``PartitionedCall/forward/MatMul:MatMul`` to ``forward/MatMul``."""
    if "/" not in name:
        return name
    return _OP_TYPE.sub("", _CALLED.sub("", _INLINED.sub("", name)))
