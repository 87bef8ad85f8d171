"""The distinct stacks of a run, and these stacks as a speedscope file (https://www.speedscope.app).

A stack has frames of one sort (modules, Python frames or ranges) and ops: who called whom on the
host, and what was launched there. Equal stacks are one node, beneath the node of the stack around
it. File format: speedscope's file-format-spec.ts.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lstmprof import __version__
from lstmprof.breakdown import Breakdown
from lstmprof.breakdown.tables.modules import MODULE, SORTS, asked_by, sort_of_frames
from lstmprof.errors import RunError, UsageError
from lstmprof.events.groups import Forest, own_time
from lstmprof.events.intervals import Ints
from lstmprof.events.schema import ACTIVITY_KINDS
from lstmprof.events.table import NONE, EventTable
from lstmprof.host.scratch import check_file, write_file
from lstmprof.names import STACKS

#: The node around all others, which is no stack.
ROOT = 0
_SORT_OF = dict(zip(STACKS, SORTS, strict=True))  # modules, python, ops


class Tree:
    """Distinct stacks as nodes: the parent node ``above`` each, and its name."""

    def __init__(self) -> None:
        self.above = [ROOT]
        self.names = [""]
        self._nodes: dict[tuple[int, str], int] = {}

    def beneath(self, node: int, name: str) -> int:
        """Return the node for the stack ``node`` with ``name`` on top."""
        key = node, name
        if key not in self._nodes:
            self._nodes[key] = len(self.above)
            self.above.append(node)
            self.names.append(name)
        return self._nodes[key]


@dataclass(frozen=True)
class Stacks:
    """The nodes of a ``tree`` (``ROOT`` for none) in which ``rows`` of the events spend ``ns``."""

    tree: Tree
    rows: Ints
    node: Ints
    ns: Ints

    def spent_ns(self) -> Ints:
        """Return the self time of each node; time outside of stacks is omitted."""
        spent = np.zeros(len(self.tree.above), dtype=np.int64)
        np.add.at(spent, self.node, self.ns)
        spent[ROOT] = 0
        return spent


def recorded(events: EventTable) -> list[str]:
    """Return which of ``STACKS`` the profile has; ops, which every profile has, are last."""
    sorts = set(np.unique(sort_of_frames(events)).tolist())
    frames = [by for by in STACKS[:-1] if SORTS.index(_SORT_OF[by]) in sorts]
    return [*frames, STACKS[-1]]


def stacks(events: EventTable, rows: Ints, by: str) -> tuple[Stacks, Stacks]:
    """Return the stacks of ``rows`` of one rank, ``by`` one of ``STACKS``: of the host, of devices.

    On the host, a stack has the time outside of inner events; on devices, the activities launched
    there, each under its name.
    """
    drawn = events.is_kind("op") | (sort_of_frames(events) == SORTS.index(_SORT_OF[by]))
    if by == STACKS[-1]:
        drawn |= events.is_kind("step")
    host, node = _of_host(events, rows, drawn)
    return host, _of_devices(events, rows, host.tree, node)


def _of_host(events: EventTable, rows: Ints, drawn: np.ndarray) -> tuple[Stacks, Ints]:
    """Return the host's stacks, and each row's node."""
    parent = events.rows_named("parent_id")
    node = np.zeros(len(events), dtype=np.int64)
    codes, names = events.texts("name")
    tree = Tree()
    on_host = rows[~events.is_kind(*ACTIVITY_KINDS)[rows]]
    on_host = on_host[events.column("device").is_null().to_numpy(zero_copy_only=False)[on_host]]
    for row in on_host[np.argsort(Forest(parent).place[on_host])].tolist():
        around = int(node[parent[row]]) if parent[row] != NONE else ROOT
        name = names[codes[row]].removeprefix(MODULE) if codes[row] != NONE else "?"
        node[row] = tree.beneath(around, name) if drawn[row] else around
    return Stacks(tree, on_host, node[on_host], own_time(events)[on_host]), node


def _of_devices(events: EventTable, rows: Ints, host: Tree, node: Ints) -> Stacks:
    """Return the devices' stacks, which begin with the host's frames."""
    asked = asked_by(events)
    codes, names = events.texts("name")
    tree = Tree()
    tree.above, tree.names = list(host.above), list(host.names)
    activities = rows[events.is_kind(*ACTIVITY_KINDS)[rows]]
    of_activity = [
        tree.beneath(
            int(node[asked[row]]) if asked[row] != NONE else ROOT,
            names[codes[row]] if codes[row] != NONE else "?",
        )
        for row in activities.tolist()
    ]
    nodes = np.array(of_activity, dtype=np.int64)
    return Stacks(tree, activities, nodes, events.dur_ns[activities])


#: Deeper stacks end with a frame that says so, because the file grows with the square of the depth.
_MOST_FRAMES, _DEEPER = 256, "(deeper calls)"
_SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def write(breakdown: Breakdown, path: Path, *, by: str | None = None, force: bool = False) -> str:
    """Write the stacks of ``breakdown`` to ``path``; return by which of ``STACKS`` they are.

    Without ``by``, the first one that the profile has is used.

    Raises:
        RunError: ``path`` exists and ``force`` is False, or cannot be written.
        UsageError: the profile has no such stacks.
    """
    check_file(path, force=force, next_step="add --force to overwrite it, or choose another file")
    events = breakdown.events()
    can = recorded(events)
    chosen = by or can[0]
    if chosen not in can:
        raise UsageError(
            f"{breakdown.run.name}: the profile has no stacks of {by}",
            "record it with with_stack, or choose another --stack",
        )
    try:
        write_file(path, json.dumps(_document(breakdown, events, chosen)).encode())
    except OSError as fault:
        raise RunError(f"{path}: {fault.strerror}", "choose a writable file") from fault
    return chosen


def _document(breakdown: Breakdown, events: EventTable, by: str) -> dict[str, Any]:
    frames: dict[str, int] = {}
    profiles = []
    for rank in events.ranks():
        where = "" if rank is None else f" of rank {rank}"
        both = stacks(events, events.of_rank(rank), by)
        for name, of in zip(("host time", "device time"), both, strict=True):
            if profile := _profile(of, name + where, frames):
                profiles.append(profile)
    return {
        "$schema": _SCHEMA,
        "name": breakdown.run.name,
        "exporter": f"lstmprof {__version__}",
        "shared": {"frames": [{"name": name} for name in frames]},
        "profiles": profiles,
    }


def _profile(stacks: Stacks, name: str, frames: dict[str, int]) -> dict[str, Any] | None:
    """Return the stacks that have time as a profile, or None; ``frames`` continues numbering."""
    spent = stacks.spent_ns()
    nodes = np.flatnonzero(spent).tolist()
    of_node = _frames(stacks.tree, frames) if nodes else []
    weight: dict[tuple[int, ...], int] = {}
    for node, ns in zip(nodes, spent[nodes].tolist(), strict=True):
        weight[of_node[node]] = weight.get(of_node[node], 0) + ns
    samples, weights = list(weight), list(weight.values())
    bounds = {"startValue": 0, "endValue": sum(weights)}
    head = {"type": "sampled", "name": name, "unit": "nanoseconds"}
    return {**head, **bounds, "samples": samples, "weights": weights} if nodes else None


def _frames(tree: Tree, frames: dict[str, int]) -> list[tuple[int, ...]]:
    """Return the frames of each node, the outermost first."""
    found: list[tuple[int, ...]] = [()]
    for above, name in zip(tree.above[1:], tree.names[1:], strict=True):
        outer = found[above]
        if len(outer) < _MOST_FRAMES:
            outer = (*outer, frames.setdefault(name, len(frames)))
        elif len(outer) == _MOST_FRAMES:
            outer = (*outer, frames.setdefault(_DEEPER, len(frames)))
        found.append(outer)
    return found
