"""One run of a recurrent layer or of a loop of cells, and when it ran.

A recogniser names the outermost events of the forward pass. All beneath them is theirs, and so is
the backward pass of each op among those, and the device's work that any of them launched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lstmprof.breakdown.host import computing
from lstmprof.breakdown.recurrent.network import Network
from lstmprof.events.groups import inherited
from lstmprof.events.intervals import Flags, Ints
from lstmprof.events.schema import ACTIVITY_KINDS
from lstmprof.events.table import NONE, EventTable

_LATEST = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Call:
    """One run of ``network``.

    ``form`` is one of ``implementations.FORMS``: one op for the layer, one op for a cell, or a loop
    of small ops. ``op`` is the op, or of a loop what it repeats; ``library`` whose kernels it runs.
    ``rows`` are its outermost events of the forward pass, ``backward`` those of the backward pass
    where the profile tells them in another way than by ``forward_id``. Not ``counted`` it is all of
    one step, however many calls those were.
    """

    form: str
    framework: str
    op: str
    library: str | None
    network: Network
    rank: int | None
    step: int | None
    rows: tuple[int, ...]
    backward: tuple[int, ...] = ()
    counted: bool = True


@dataclass(frozen=True)
class Spent:
    """What a call took: extents from its first event's start to the last one's end, counts of work.

    Of the device's activities, where the call launched some, else of the host's ops. None where the
    profile has none of that pass.
    """

    forward_ns: int | None
    backward_ns: int | None
    ops: int | None
    kernels: int | None


def spent(events: EventTable, calls: Sequence[Call]) -> list[Spent]:
    """What each of ``calls`` took."""
    passes = owners(events, calls)
    devices, count = bool(events.is_kind(*ACTIVITY_KINDS).any()), len(calls)
    forward, backward = (of_work(events, owner) if devices else owner for owner in passes)
    lengths = [_extents(events, owner, count) for owner in (forward, backward)]
    work = events.is_kind("kernel") if devices else computing(events)
    counts = _counts(forward, work, count).tolist()
    return [
        Spent(
            forward_ns=lengths[0][number],
            backward_ns=lengths[1][number],
            ops=None if devices else counts[number],
            kernels=counts[number] if devices else None,
        )
        for number in range(count)
    ]


def of_work(events: EventTable, owner: Ints) -> Ints:
    """The call that each activity of a device is of, by ``owner``: its own, else its issuer's."""
    activity, issuer = events.is_kind(*ACTIVITY_KINDS), events.rows_named("op_id")
    own = np.where(activity, owner, NONE)
    return np.where(activity & (issuer != NONE) & (own == NONE), owner[issuer], own)


def owners(events: EventTable, calls: Sequence[Call]) -> tuple[Ints, Ints]:
    """For each row the number of the call whose forward, and whose backward, pass it is in."""
    parent = events.rows_named("parent_id")
    forward = np.full(len(events), NONE, dtype=np.int64)
    backward = forward.copy()
    for number, call in enumerate(calls):
        forward[list(call.rows)] = number
        backward[list(call.backward)] = number
    forward = inherited(parent, forward)
    made = events.rows_named("forward_id")
    told = (made != NONE) & (backward == NONE)
    backward = np.where(told, forward[made], backward)
    return forward, inherited(parent, backward)


def _extents(events: EventTable, owner: Ints, count: int) -> list[int | None]:
    """Of each call from the first start to the last end of its rows; None without any."""
    rows = np.flatnonzero(owner != NONE)
    start = np.full(count, _LATEST, dtype=np.int64)
    end = np.full(count, -_LATEST, dtype=np.int64)
    np.minimum.at(start, owner[rows], events.start_ns[rows])
    np.maximum.at(end, owner[rows], events.end_ns[rows])
    return [int(b - a) if b >= a else None for a, b in zip(start, end, strict=True)]


def _counts(owner: Ints, which: Flags, count: int) -> Ints:
    return np.bincount(owner[which & (owner != NONE)], minlength=count)
