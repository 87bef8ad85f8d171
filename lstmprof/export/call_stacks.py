"""Find the distinct call stacks of a run or a step, and write a speedscope file.

Example of a stack: ``step, aten::linear, gemm``. The last frame may be a kernel or a copy. Stacks
form a tree: the parent of the stack in the example is ``step, aten::linear``.
File format: speedscope's file-format-spec.ts (https://www.speedscope.app).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lstmprof.base.errors import RunError, UsageError
from lstmprof.base.names import STACKS
from lstmprof.base.package import __version__
from lstmprof.base.scratch import check_file, write_file
from lstmprof.breakdown import Breakdown
from lstmprof.breakdown.clean.slots import VARYING
from lstmprof.breakdown.mean_step import mean_of
from lstmprof.breakdown.tables.ops import MODULE, SORTS, issued_by, sort_of_frames
from lstmprof.events.groups import Forest, own_time
from lstmprof.events.intervals import Flags, Ints
from lstmprof.events.schema import ACTIVITY_KINDS
from lstmprof.events.table import NONE, EventTable

#: Number of a tree's root, the empty stack.
ROOT = 0
_SORT_OF = dict(zip(STACKS, SORTS, strict=True))  # ops -> range, and so on


class Tree:
    """A tree of call stacks: stack ``n`` is stack ``above[n]`` plus the frame ``names[n]``."""

    def __init__(self) -> None:
        self.above = [ROOT]
        self.names = [""]
        self._nodes: dict[tuple[int, str], int] = {}

    def beneath(self, node: int, name: str) -> int:
        """Return the stack that adds the frame ``name`` to the stack ``node``."""
        key = node, name
        if key not in self._nodes:
            self._nodes[key] = len(self.above)
            self.above.append(node)
            self.names.append(name)
        return self._nodes[key]


@dataclass(frozen=True)
class Stacks:
    """The call stack of each event."""

    tree: Tree
    rows: Ints  # event ``rows[i]`` has stack ``node[i]`` and takes ``ns[i]``
    node: Ints
    ns: Ints

    def spent_ns(self) -> Ints:
        """Return the self time of each stack."""
        spent = np.zeros(len(self.tree.above), dtype=np.int64)
        np.add.at(spent, self.node, self.ns)
        spent[ROOT] = 0
        return spent


@dataclass(frozen=True)
class StepStacks:
    """Self time in ns of each call stack in one step, on a device or on the host."""

    tree: Tree
    ns: Ints


def step_stacks(breakdown: Breakdown, rank: int | None, device: int | None, by: str) -> StepStacks:
    """Return each call stack's mean self time per step, on a device or on the host."""
    events, windows, intervals = breakdown.attributed_steps(rank, device)
    host, node = _host_stacks(events, events.rows_of_rank(rank), _drawn(events, by))
    tree = host.tree
    if device is not None:
        of = _device_stacks(events, events.rows_of_rank(rank), host.tree, node)
        tree = of.tree
        node[of.rows] = of.node
    around = np.where(intervals.row == NONE, ROOT, node[intervals.row])
    total: dict[int, int] = {}
    spent = (intervals.end_ns - intervals.start_ns).tolist()
    for place, label, ns in zip(around.tolist(), intervals.label.tolist(), spent, strict=True):
        state, part = intervals.labels[label]
        # add a frame that names time outside all calls, or why the device is idle
        if place == ROOT or (device is not None and state != "busy"):
            place = tree.beneath(place, part if state == "busy" else f"{state}: {part}")
        total[place] = total.get(place, 0) + ns
    ns = np.zeros(len(tree.above), dtype=np.int64)
    ns[list(total)] = mean_of(list(total.values()), len(windows))
    return StepStacks(tree, ns)


def over_one_tree(steps: Sequence[StepStacks]) -> list[StepStacks]:
    """Merge the trees of several steps, so that equal stacks are one node."""
    tree, places = Tree(), []
    for step in steps:
        place = [ROOT]
        for above, name in zip(step.tree.above[1:], step.tree.names[1:], strict=True):
            place.append(tree.beneath(place[above], name))
        places.append(place)
    every = [np.zeros(len(tree.above), dtype=np.int64) for _ in steps]
    for ns, step, place in zip(every, steps, places, strict=True):
        ns[place] = step.ns
    return [StepStacks(tree, ns) for ns in every]


def recorded(events: EventTable) -> list[str]:
    """Return the kinds of call stacks that a profile supports: ``["python", "ops"]``."""
    sorts = set(np.unique(sort_of_frames(events)).tolist())
    frames = [by for by in STACKS[:-1] if SORTS.index(_SORT_OF[by]) in sorts]
    return [*frames, STACKS[-1]]


def stacks(events: EventTable, rows: Ints, by: str) -> tuple[Stacks, Stacks]:
    """Return the call stacks of a rank's host and of its devices."""
    host, node = _host_stacks(events, rows, _drawn(events, by))
    # give each kernel the stack of its launch
    return host, _device_stacks(events, rows, host.tree, node)


def _drawn(events: EventTable, by: str) -> Flags:
    """Mark events that become frames: ops and, if ``by`` is ``python``, Python calls."""
    drawn = events.is_kind("op") | (sort_of_frames(events) == SORTS.index(_SORT_OF[by]))
    return np.asarray(drawn | events.is_kind("step") if by == STACKS[-1] else drawn, np.bool_)


def _names(events: EventTable) -> list[str]:
    """Name each event's frame, without parts that vary between steps, such as ``#3``."""
    codes, texts = events.texts("name")
    frames = [VARYING.sub("", text.removeprefix(MODULE)) or text for text in texts]
    steps = events.is_kind("step").tolist()
    return [
        "step" if is_step else frames[code] if code != NONE else "?"
        for code, is_step in zip(codes.tolist(), steps, strict=True)
    ]


def _host_stacks(events: EventTable, rows: Ints, drawn: Flags) -> tuple[Stacks, Ints]:
    """Return the host's call stacks, and the number of each event's stack."""
    parent = events.rows_named("parent_id")
    node = np.zeros(len(events), dtype=np.int64)
    names = _names(events)
    tree = Tree()
    on_host = rows[~events.is_kind(*ACTIVITY_KINDS)[rows]]
    on_host = on_host[events.column("device").is_null().to_numpy(zero_copy_only=False)[on_host]]
    for row in on_host[np.argsort(Forest(parent).preorder[on_host])].tolist():
        around = int(node[parent[row]]) if parent[row] != NONE else ROOT
        node[row] = tree.beneath(around, names[row]) if drawn[row] else around
    return Stacks(tree, on_host, node[on_host], own_time(events)[on_host]), node


def _device_stacks(events: EventTable, rows: Ints, host: Tree, node: Ints) -> Stacks:
    """Return each kernel's or copy's stack: the stack of its launch plus its own name."""
    issuers = issued_by(events)
    names = _names(events)
    tree = Tree()
    tree.above, tree.names = list(host.above), list(host.names)
    activities = rows[events.is_kind(*ACTIVITY_KINDS)[rows]]
    activity_nodes = [
        tree.beneath(int(node[issuers[row]]) if issuers[row] != NONE else ROOT, names[row])
        for row in activities.tolist()
    ]
    nodes = np.array(activity_nodes, dtype=np.int64)
    return Stacks(tree, activities, nodes, events.dur_ns[activities])


#: Largest number of frames of a stack, and name for deeper frames. The file grows with the
#: square of the depth.
_MOST_FRAMES, _DEEPER = 256, "(deeper calls)"
_SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def write(breakdown: Breakdown, path: Path, *, by: str | None = None, force: bool = False) -> str:
    """Write a run's call stacks; return their detail, such as ``modules``."""
    events = breakdown.events()
    chosen = by or recorded(events)[0]
    _check(breakdown, chosen)
    document = _Document(breakdown.run.name)
    for rank in events.ranks():
        where = "" if rank is None else f" of rank {rank}"
        both = stacks(events, events.rows_of_rank(rank), chosen)
        for name, of in zip(("host time", "device time"), both, strict=True):
            document.add(name + where, of.tree, of.spent_ns())
    document.write(path, force=force)
    return chosen


def write_pair(
    lanes: Sequence[tuple[Breakdown, int | None, int | None]],  # rank, device
    path: Path,
    *,
    by: str | None = None,
    force: bool = False,
) -> str:
    """Write a file with the call stacks of two steps, and the differences."""
    chosen = by or STACKS[-1]
    for breakdown, *_ in lanes:
        _check(breakdown, chosen)
    names = [breakdown.run.name for breakdown, *_ in lanes]
    steps = over_one_tree([step_stacks(*lane, chosen) for lane in lanes])
    document = _Document(" beside ".join(names))
    for name, step in zip(names, steps, strict=True):
        document.add(f"one step of {name}", step.tree, step.ns)
    for name, own, other in zip(names, steps, reversed(steps), strict=True):
        document.add(f"more in {name}", own.tree, np.maximum(own.ns - other.ns, 0))
    document.write(path, force=force)
    return chosen


def _check(breakdown: Breakdown, by: str) -> None:
    if by not in recorded(breakdown.events()):
        raise UsageError(
            f"{breakdown.run.name}: the profile has no stacks of {by}",
            "record it with with_stack, or choose another --stack",
        )


class _Document:
    """A speedscope file, to which profiles are added one by one."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._frames: dict[str, int] = {}
        self._profiles: list[dict[str, Any]] = []

    def add(self, name: str, tree: Tree, spent: Ints) -> None:
        """Add a profile with the self time of each stack, unless all times are 0."""
        nodes = np.flatnonzero(spent).tolist()
        if not nodes:
            return
        node_frames = _frames(tree, self._frames)
        weight: dict[tuple[int, ...], int] = {}
        for node, ns in zip(nodes, spent[nodes].tolist(), strict=True):
            weight[node_frames[node]] = weight.get(node_frames[node], 0) + ns
        samples, weights = list(weight), list(weight.values())
        bounds = {"startValue": 0, "endValue": sum(weights)}
        head = {"type": "sampled", "name": name, "unit": "nanoseconds"}
        self._profiles.append({**head, **bounds, "samples": samples, "weights": weights})

    def write(self, path: Path, *, force: bool) -> None:
        next_step = "add --force to overwrite it, or choose another file"
        check_file(path, force=force, next_step=next_step)
        document = {
            "$schema": _SCHEMA,
            "name": self._name,
            "exporter": f"lstmprof {__version__}",
            "shared": {"frames": [{"name": name} for name in self._frames]},
            "profiles": self._profiles,
        }
        try:
            write_file(path, json.dumps(document).encode())
        except OSError as fault:
            raise RunError(f"{path}: {fault.strerror}", "choose a writable file") from fault


def _frames(tree: Tree, frames: dict[str, int]) -> list[tuple[int, ...]]:
    """Return each stack as numbers of frames, and add new names to ``frames``."""
    node_frames: list[tuple[int, ...]] = [()]
    for above, name in zip(tree.above[1:], tree.names[1:], strict=True):
        outer = node_frames[above]
        if len(outer) < _MOST_FRAMES:
            outer = (*outer, frames.setdefault(name, len(frames)))
        elif len(outer) == _MOST_FRAMES:
            outer = (*outer, frames.setdefault(_DEEPER, len(frames)))
        node_frames.append(outer)
    return node_frames
