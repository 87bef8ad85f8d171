"""The distinct stacks of a run: who called whom on the host, and what was launched there.

A stack is of one sort of frame (modules, Python frames, or ranges) and of ops. Equal stacks are
one node, beneath that of the stack around it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lstmprof.breakdown.tables.modules import MODULE, SORTS, asked_by, sort_of_frames
from lstmprof.events.call_tree import Forest, own_time
from lstmprof.events.intervals import Ints
from lstmprof.events.schema import ACTIVITY_KINDS
from lstmprof.events.table import NONE, EventTable
from lstmprof.names import STACKS

#: The node that is around all others, of no stack.
ROOT = 0
_SORT_OF = dict(zip(STACKS, SORTS, strict=True))  # modules, python, ops


class Tree:
    """Distinct stacks by node: the node ``above`` each, and the name on top of it."""

    def __init__(self) -> None:
        self.above = [ROOT]
        self.names = [""]
        self._nodes: dict[tuple[int, str], int] = {}

    def beneath(self, node: int, name: str) -> int:
        """The stack ``node`` and ``name`` on top of it."""
        key = node, name
        if key not in self._nodes:
            self._nodes[key] = len(self.above)
            self.above.append(node)
            self.names.append(name)
        return self._nodes[key]


@dataclass(frozen=True)
class Stacks:
    """The nodes of a ``tree``, ``ROOT`` for none, in which ``rows`` of the events spend ``ns``."""

    tree: Tree
    rows: Ints
    node: Ints
    ns: Ints

    def spent_ns(self) -> Ints:
        """What each node takes itself; that of no stack is left out."""
        spent = np.zeros(len(self.tree.above), dtype=np.int64)
        np.add.at(spent, self.node, self.ns)
        spent[ROOT] = 0
        return spent


def recorded(events: EventTable) -> list[str]:
    """By which of ``STACKS`` the stacks can be, ops last, which always is."""
    sorts = set(np.unique(sort_of_frames(events)).tolist())
    frames = [by for by in STACKS[:-1] if SORTS.index(_SORT_OF[by]) in sorts]
    return [*frames, STACKS[-1]]


def stacks(events: EventTable, rows: Ints, by: str) -> tuple[Stacks, Stacks]:
    """The stacks of ``rows``, those of one rank, ``by`` one of ``STACKS``: of the host, of devices.

    On the host a stack takes what is in no event inside, on devices the activities launched there,
    each under its name.
    """
    drawn = events.is_kind("op") | (sort_of_frames(events) == SORTS.index(_SORT_OF[by]))
    if by == STACKS[-1]:
        drawn |= events.is_kind("step")
    host, node = _of_host(events, rows, drawn)
    return host, _of_devices(events, rows, host.tree, node)


def _of_host(events: EventTable, rows: Ints, drawn: np.ndarray) -> tuple[Stacks, Ints]:
    """The stacks of the host, and of each row of ``events`` its node."""
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
    """The stacks of devices; they begin with those of the host, which take no time there."""
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
