"""The shapes that a worker recorded apart from its profile, joined to the profile's ops.

By the name of an op and its turn among those of the name in a step: a step has the same ops as any
other. Where a name has other numbers of ops in a step and in what was recorded, its ops get shapes
only if all that were recorded agree.
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

#: A node of a loop or branch, as TensorFlow names it where its function was put into the graph.
_INLINED = re.compile(r".*/(?:body|cond|then|else)/_\d+/")
_OP_TYPE = re.compile(r":\w+$")

#: Name of an op -> (shapes, types) of the inputs of each.
Recorded = dict[str, list[tuple[str, str]]]


def with_inputs(events: EventTable, path: Path | None) -> EventTable:
    """``events`` of a captured process with the shapes and types in the file at ``path``."""
    if path is None:
        return events
    recorded: Recorded = {}
    for name, shapes, dtypes in json.loads(path.read_text(encoding="utf-8")):
        recorded.setdefault(name, []).append((_compact(shapes), _compact(dtypes)))
    shapes, dtypes = (np.array(events.column(c).to_pylist(), object) for c in ("shapes", "dtypes"))
    for rows, inputs in _joined(events, recorded):
        shapes[rows], dtypes[rows] = inputs
    return events.with_columns({"shapes": list(shapes), "dtypes": list(dtypes)})


def _compact(values: Any) -> str:
    return json.dumps(values, separators=(",", ":"))


def _joined(
    events: EventTable, recorded: Recorded
) -> list[tuple[Ints, tuple[list[str], list[str]]]]:
    """(rows, their shapes and types), a pair for each name and step."""
    codes, names = events.texts("name")
    step = events.ints("step", UNKNOWN)
    rows = np.flatnonzero(
        events.is_kind("op") & events.where_name(lambda name: _plain(name) in recorded)
    )
    rows = rows[(step[rows] != UNKNOWN) & (events.texts("shapes")[0][rows] == NONE)]
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
    joined: list[tuple[Ints, tuple[list[str], list[str]]]] = []
    for members in Groups(codes[rows], step[rows]).members():
        alike = rows[members]
        inputs = _recorded(names[codes[alike[0]]], recorded)
        if len(inputs) != len(alike):
            inputs = inputs[:1] * len(alike) if len(set(inputs)) == 1 else []
        if inputs:
            joined.append((alike, ([s for s, _ in inputs], [d for _, d in inputs])))
    return joined


def _recorded(name: str, recorded: Recorded) -> list[tuple[str, str]]:
    plain = _plain(name)
    fused = recorded.get(plain + FUSED, []) if "Fused" in name else []
    return fused or recorded[plain]


def _plain(name: str) -> str:
    """``forward/while/MatMul`` of ``forward/while/body/_1/forward/while/MatMul:_MklMatMul``."""
    return _OP_TYPE.sub("", _INLINED.sub("", name)) if "/" in name else name
