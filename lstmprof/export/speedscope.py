"""A run's stacks as speedscope draws them: https://www.speedscope.app, JSON of its own.

Stacks are of the host: modules and ops, Python frames and ops, or ranges and ops. Equal stacks are
one, with the time that all have together: on the host what is in no call inside, on devices the
activities launched there, each under its name. Format: speedscope's file-format-spec.ts.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from lstmprof import __version__
from lstmprof.breakdown import Breakdown
from lstmprof.breakdown.tables.modules import MODULE, SORTS, asked_by, sort_of_frames
from lstmprof.errors import RunError, UsageError
from lstmprof.events.call_tree import Forest, own_time
from lstmprof.events.intervals import Ints
from lstmprof.events.schema import ACTIVITY_KINDS
from lstmprof.events.table import NONE, EventTable
from lstmprof.names import STACKS
from lstmprof.scratch import check_file, write_file

_SCHEMA = "https://www.speedscope.app/file-format-schema.json"
_SORT_OF = dict(zip(STACKS, SORTS, strict=True))  # modules, python, ops
_ROOT = 0


def write(breakdown: Breakdown, path: Path, *, by: str | None = None, force: bool = False) -> str:
    """Write the stacks of ``breakdown`` to ``path``; by which they are: of ``STACKS``.

    Without ``by`` it is the first of these that the profile has.

    Raises:
        RunError: ``path`` is there already and ``force`` is not given, or cannot be written.
        UsageError: the profile has no such stacks.
    """
    check_file(path, force=force, next_step="give --force to replace it, or another file")
    events = breakdown.events()
    chosen = by or _first(events)
    if by and by != STACKS[-1] and not (sort_of_frames(events) == SORTS.index(_SORT_OF[by])).any():
        raise UsageError(
            f"{breakdown.run.name}: the profile has no {by}",
            "record it with_stack and with_modules, or give another --stack",
        )
    try:
        write_file(path, json.dumps(_document(breakdown, events, chosen)).encode())
    except OSError as fault:
        raise RunError(f"{path}: {fault.strerror}", "name a file that can be written") from fault
    return chosen


def _first(events: EventTable) -> str:
    sorts = set(np.unique(sort_of_frames(events)).tolist())
    frames = [by for by in STACKS[:-1] if SORTS.index(_SORT_OF[by]) in sorts]
    return frames[0] if frames else STACKS[-1]


def _document(breakdown: Breakdown, events: EventTable, by: str) -> dict[str, Any]:
    frames: dict[str, int] = {}
    profiles = []
    sort = SORTS.index(_SORT_OF[by])
    drawn = events.is_kind("op") | (sort_of_frames(events) == sort)
    if by == STACKS[-1]:
        drawn |= events.is_kind("step")
    for rank in events.ranks():
        where = "" if rank is None else f" of rank {rank}"
        host, device = _stacks(events, events.of_rank(rank), drawn)
        for name, tree in (("host time", host), ("device time", device)):
            if tree.spent_ns:
                profiles.append(tree.profile(name + where, frames))
    return {
        "$schema": _SCHEMA,
        "name": breakdown.run.name,
        "exporter": f"lstmprof {__version__}",
        "shared": {"frames": [{"name": name} for name in frames]},
        "profiles": profiles,
    }


@dataclass
class _Tree:
    """Distinct stacks: each a node beneath that of the stack around it."""

    above: list[int] = field(default_factory=lambda: [_ROOT])
    names: list[str] = field(default_factory=lambda: [""])
    spent_ns: dict[int, int] = field(default_factory=dict)
    _nodes: dict[tuple[int, str], int] = field(default_factory=dict)

    def beneath(self, node: int, name: str) -> int:
        """The stack ``node`` and ``name`` on top of it."""
        key = node, name
        if key not in self._nodes:
            self._nodes[key] = len(self.above)
            self.above.append(node)
            self.names.append(name)
        return self._nodes[key]

    def add(self, node: int, ns: int) -> None:
        """Time in the stack ``node``; of no stack it is left out."""
        if node != _ROOT and ns:
            self.spent_ns[node] = self.spent_ns.get(node, 0) + ns

    def profile(self, name: str, frames: dict[str, int]) -> dict[str, Any]:
        """The stacks that have time as a profile; ``frames`` are numbered on."""
        samples = [self._stack(node, frames) for node in self.spent_ns]
        weights = list(self.spent_ns.values())
        bounds = {"startValue": 0, "endValue": sum(weights)}
        head = {"type": "sampled", "name": name, "unit": "nanoseconds"}
        return {**head, **bounds, "samples": samples, "weights": weights}

    def _stack(self, node: int, frames: dict[str, int]) -> list[int]:
        stack = []
        while node != _ROOT:
            stack.append(frames.setdefault(self.names[node], len(frames)))
            node = self.above[node]
        return stack[::-1]


def _stacks(events: EventTable, rows: Ints, drawn: np.ndarray) -> tuple[_Tree, _Tree]:
    """The stacks of the ``rows`` of a rank: of the host's time, and of devices'."""
    parent = events.rows_named("parent_id")
    node = np.zeros(len(events), dtype=np.int64)
    codes, names = events.texts("name")
    host, device = _Tree(), _Tree()
    own = own_time(events)
    on_host = rows[~events.is_kind(*ACTIVITY_KINDS)[rows]]
    on_host = on_host[events.column("device").is_null().to_numpy(zero_copy_only=False)[on_host]]
    for row in on_host[np.argsort(Forest(parent).place[on_host])].tolist():
        around = int(node[parent[row]]) if parent[row] != NONE else _ROOT
        name = names[codes[row]].removeprefix(MODULE) if codes[row] != NONE else "?"
        node[row] = host.beneath(around, name) if drawn[row] else around
        host.add(int(node[row]), int(own[row]))
    asked = asked_by(events)
    # the stacks of devices begin with those of the host, which have no time there
    device.above, device.names = list(host.above), list(host.names)
    for row in rows[events.is_kind(*ACTIVITY_KINDS)[rows]].tolist():
        around = int(node[asked[row]]) if asked[row] != NONE else _ROOT
        name = names[codes[row]] if codes[row] != NONE else "?"
        device.add(device.beneath(around, name), int(events.dur_ns[row]))
    return host, device
