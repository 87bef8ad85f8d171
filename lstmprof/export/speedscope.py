"""A run's stacks as speedscope draws them: https://www.speedscope.app, JSON of its own.

Stacks are of the host: modules and ops, Python frames and ops, or ranges and ops. Equal stacks are
one, with the time that all have together: on the host what is in no call inside, on devices the
activities launched there, each under its name. Format: speedscope's file-format-spec.ts.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from lstmprof import __version__
from lstmprof.breakdown import Breakdown
from lstmprof.errors import RunError, UsageError
from lstmprof.events.table import EventTable
from lstmprof.export.stacks import Stacks, Tree, recorded, stacks
from lstmprof.scratch import check_file, write_file

#: Stacks that are deeper end with a frame that says so: a file grows with its square.
_MOST_FRAMES, _DEEPER = 256, "(deeper calls)"
_SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def write(breakdown: Breakdown, path: Path, *, by: str | None = None, force: bool = False) -> str:
    """Write the stacks of ``breakdown`` to ``path``; by which they are: of ``STACKS``.

    Without ``by`` it is the first of these that the profile has.

    Raises:
        RunError: ``path`` is there already and ``force`` is not given, or cannot be written.
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
    """The stacks that have time as a profile, None where none has; ``frames`` are numbered on."""
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
    """Return the frames of each node of ``tree``, the outermost first."""
    found: list[tuple[int, ...]] = [()]
    for above, name in zip(tree.above[1:], tree.names[1:], strict=True):
        outer = found[above]
        if len(outer) < _MOST_FRAMES:
            outer = (*outer, frames.setdefault(name, len(frames)))
        elif len(outer) == _MOST_FRAMES:
            outer = (*outer, frames.setdefault(_DEEPER, len(frames)))
        found.append(outer)
    return found
