"""Calls of recurrent layers, the time of each call, and networks that several loops form.

A call consists of the forward pass, the backward pass, and the device work that both passes launch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lstmprof.breakdown.attribution.host import computing
from lstmprof.breakdown.recurrent.cells import PRODUCT, SIGMOID, TANH
from lstmprof.breakdown.recurrent.network import Network, stack
from lstmprof.events.groups import inherited
from lstmprof.events.intervals import Ints
from lstmprof.events.schema import ACTIVITY_KINDS
from lstmprof.events.table import NONE, EventTable
from lstmprof.implementations import LAYER_OP

_LATEST = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Call:
    """One call of a recurrent layer, or of a stack of layers."""

    form: str  # how the layers run, such as ``layer op``
    framework: str
    op: str
    library: str | None
    network: Network
    rank: int | None
    step: int | None
    rows: tuple[int, ...]  # outermost events of the forward pass
    backward: tuple[int, ...] = ()  # outermost events that ``forward_id`` does not link
    counted: bool = True  # False: all recurrent work of one step


@dataclass(frozen=True)
class Spent:
    """The times of a call, and the number of ops or kernels."""

    forward_ns: int | None  # from the first event's start to the last event's end
    backward_ns: int | None
    ops: int | None  # of the forward pass; None if a device was recorded
    kernels: int | None  # of the forward pass; None if no device was recorded


def spent(events: EventTable, forward: Ints, backward: Ints, count: int) -> list[Spent]:
    devices = bool(events.is_kind(*ACTIVITY_KINDS).any())
    lengths = [_extents(events, owner, count) for owner in (forward, backward)]
    work = events.is_kind("kernel") if devices else computing(events)
    counts = np.bincount(forward[work & (forward != NONE)], minlength=count).tolist()
    return [
        Spent(forward_ns, backward_ns, None if devices else n or None, n if devices else None)
        for forward_ns, backward_ns, n in zip(*lengths, counts, strict=True)
    ]


def owners(events: EventTable, calls: Sequence[Call]) -> tuple[Ints, Ints]:
    """Return the index of the call that contains each event, per pass (forward, backward)."""
    parent, issuer = events.rows_named("parent_id"), events.rows_named("op_id")
    forward = np.full(len(events), NONE, dtype=np.int64)
    backward = forward.copy()
    for number, call in enumerate(calls):
        forward[list(call.rows)] = number
        backward[list(call.backward)] = number
    forward = inherited(parent, forward)
    made = events.rows_named("forward_id")
    linked = (made != NONE) & (backward == NONE)
    backward = inherited(parent, np.where(linked, forward[made], backward))
    activity = events.is_kind(*ACTIVITY_KINDS)
    if not activity.any():
        return forward, backward
    # count only activities: in the activity's own call, else in the call of the launching op
    by_op = activity & (issuer != NONE)

    def with_activities(owner: Ints) -> Ints:
        own = np.where(activity, owner, NONE)
        return np.where(by_op & (own == NONE), owner[issuer], own)

    return with_activities(forward), with_activities(backward)


def _extents(events: EventTable, owner: Ints, count: int) -> list[int | None]:
    """Return the ns from each call's first start to its last end."""
    rows = np.flatnonzero(owner != NONE)
    start = np.full(count, _LATEST, dtype=np.int64)
    end = np.full(count, -_LATEST, dtype=np.int64)
    np.minimum.at(start, owner[rows], events.start_ns[rows])
    np.maximum.at(end, owner[rows], events.end_ns[rows])
    return [int(b - a) if b >= a else None for a, b in zip(start, end, strict=True)]


#: Most loops that are joined to one network: 32 layers with two directions.
MOST_LOOPS = 64


@dataclass(frozen=True)
class Loop:
    """A loop that runs its ``units`` (each a direction of a layer) ``count`` times."""

    form: str
    op: str
    count: int | None
    units: tuple[Network, ...]
    rows: Ints  # outermost events of the forward pass
    backward: Ints  # outermost backward events that ``forward_id`` does not link
    time_steps_certain: bool  # each repetition is certainly one time step
    batch_varies: bool = False  # some sequences end before others
    next_matmul_inputs: int | None = None  # input width of the next matmul
    library: str | None = None
    layer: str | None = None  # layer's name, if the loop is one of its two directions


def layer_loop(
    network: Network,
    op: str,
    row: int,
    *,
    units: int = 1,  # directions or layers, all with the sizes of ``network``
    backward: Sequence[int] = (),
    next_matmul_inputs: int | None = None,
    library: str | None = None,
) -> Loop:
    """Return a ``Loop`` for one op that runs a whole layer."""
    return Loop(
        form=LAYER_OP,
        op=op,
        count=network.time_steps,
        units=(replace(network, time_steps=None),) * units,
        rows=np.array([row]),
        backward=np.array(backward, dtype=np.int64),
        time_steps_certain=network.time_steps is not None,
        next_matmul_inputs=next_matmul_inputs,
        library=library,
    )


def rank_and_step(events: EventTable, row: int) -> tuple[int | None, int | None]:
    rank, step = (events.column(name)[row].as_py() for name in ("rank", "step"))
    return rank, step


def calls_of(events: EventTable, framework: str, loops: Sequence[Loop]) -> Iterator[Call]:
    """Join neighbouring loops to stacks of layers, and yield one call per stack."""
    first = 0
    while first < len(loops):
        for last in range(min(len(loops), first + MOST_LOOPS), first, -1):
            members = loops[first:last]
            if last == first + 1 or _is_stack(members):
                yield _call(events, framework, members)
                first = last
                break


def _is_stack(members: Sequence[Loop]) -> bool:
    alike = len({(member.form, member.count) for member in members}) == 1
    steady = not any(member.batch_varies for member in members)
    return alike and steady and _stacked(members) is not None


def _stacked(members: Sequence[Loop]) -> Network | None:
    units = [unit for member in members for unit in member.units]
    names = {member.layer for member in members}
    if len(members) == 2 == len(units) and None not in names and len(names) == 1:
        first, second = (replace(unit, inputs=None) for unit in units)
        return replace(units[0], layers=1, directions=2) if first == second else None
    hidden = units[0].projection or units[0].hidden
    # use the last loop that a matmul follows: parallel loops may end after the matmul began
    after = next(
        (m.next_matmul_inputs for m in reversed(members) if m.next_matmul_inputs is not None), None
    )
    beside = hidden is not None and after == 2 * hidden
    return stack(units, side_by_side=beside)


def network_of(members: Sequence[Loop]) -> Network:
    """Derive the sizes of a stack of layers from the loops of the stack."""
    units = [unit for member in members for unit in member.units]
    whole = _stacked(members)
    certain = members[0].time_steps_certain or (whole is not None and len(units) > 1)
    if whole is None or not certain:
        kinds = {unit.cell for unit in units}
        alone = Network(cell=kinds.pop()) if len(kinds) == 1 else Network()
        whole = units[0] if len(set(units)) == 1 else alone
    counts = [member.count * len(member.units) for member in members if member.count]
    steps = members[0].count if certain else None
    batch = None if any(member.batch_varies for member in members) else whole.batch
    return replace(
        whole,
        time_steps=steps,
        batch=batch,
        rows=None if steps is None or batch is None else steps * batch,
        cells=sum(counts) if len(counts) == len(members) else None,
        packed=False if batch else None,
    )


def _call(events: EventTable, framework: str, members: Sequence[Loop]) -> Call:
    rows = np.concatenate([member.rows for member in members])
    backward = np.concatenate([member.backward for member in members])
    first = members[0]
    rank, step = rank_and_step(events, int(first.rows[0]))
    return Call(
        form=first.form,
        framework=framework,
        op=first.op,
        library=first.library,
        network=network_of(members),
        rank=rank,
        step=step,
        rows=tuple(rows.tolist()),
        backward=tuple(backward.tolist()),
    )


def in_words(roles: Sequence[int]) -> str:
    """Count ops by role, in words: ``2 products, 3 sigmoid, 2 tanh``."""
    counts = Counter(roles)
    products = counts[PRODUCT]
    words = [f"{products} product" + "s" * (products != 1)]
    activations = ((SIGMOID, "sigmoid"), (TANH, "tanh"))
    words += [f"{counts[role]} {word}" for role, word in activations if counts[role]]
    return ", ".join(words)
