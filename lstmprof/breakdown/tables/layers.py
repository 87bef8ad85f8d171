"""The layer table: recurrent layers and loops of cells, how they run, their network, their time.

Told by the events alone (``breakdown.recurrent``): the ops and their inputs' shapes, never by
run.json. Calls that agree in all of it are one row; times are means of a call. Of work on a device
a time is from the start of its first activity to the end of its last, else of its ops on the host.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Any

import pyarrow as pa

from lstmprof.breakdown.recurrent.call import Call, Spent, spent
from lstmprof.breakdown.recurrent.cudnn_algorithm import STANDARD
from lstmprof.breakdown.recurrent.cudnn_calls import Passes, passes_of, told
from lstmprof.breakdown.recurrent.ladder import RUNGS, Work, floor_ns, standing, works
from lstmprof.breakdown.recurrent.network import Network
from lstmprof.events.annotate.steps import Window
from lstmprof.events.schema import PER_STEP, RANK, Column, schema
from lstmprof.events.table import EventTable
from lstmprof.implementations import FORMS
from lstmprof.runs.metadata import RunInfo

_UNTOLD = "the profile does not tell: shapes of inputs are not recorded, or leave it open"
_NO_STEPS = "time steps are not known"
_NETWORK = (
    Column("cell", pa.string(), "", "lstm, gru, rnn_tanh or rnn_relu", _UNTOLD),
    Column("time_steps", pa.int64(), "", "time steps of a call; of the longest sequence", _UNTOLD),
    Column("batch", pa.int64(), "", "sequences of a call", _UNTOLD),
    Column("inputs", pa.int64(), "", "width of what the first layer reads", _UNTOLD),
    Column("hidden", pa.int64(), "", "units of a layer and direction", _UNTOLD),
    Column("layers", pa.int64(), "", "layers on top of each other in a call", _UNTOLD),
    Column("directions", pa.int64(), "", "2 where it runs both ways through time", _UNTOLD),
    Column("dtype", pa.string(), "", "element type of what it reads", _UNTOLD),
    Column("packed", pa.bool_(), "", "sequences of several lengths without padding", _UNTOLD),
    Column(
        "projection",
        pa.int64(),
        "",
        "width of the projected output",
        "there is none, or it is not told",
    ),
)

_NOT_CUDNN = "it is no layer of cuDNN's, or a fact that decides is not known"
_UNSEEN = "no kernel's name tells, or it is no layer of cuDNN's"
_ALGORITHM = tuple(
    column
    for prefix, way in (("", "forward"), ("backward_", "backward"))
    for column in (
        Column(
            f"{prefix}algorithm",
            pa.string(),
            "",
            f"algorithm that the framework asks cuDNN for in the {way} pass",
            _NOT_CUDNN,
        ),
        Column(
            f"{prefix}algorithm_seen",
            pa.string(),
            "",
            f"algorithm that the kernels of the {way} pass are of, by their names",
            _UNSEEN,
        ),
        Column(
            f"{prefix}algorithm_unmet",
            pa.string(),
            "",
            "of each algorithm that is not asked for the first condition that is not met",
            _NOT_CUDNN,
        ),
    )
)
_LADDER = (
    Column(
        "rung",
        pa.string(),
        "",
        f"where the forward pass stands on the ladder: {', '.join(RUNGS)}",
        "its products and what is between them are not seen apart, or its cells not known",
    ),
    Column("next_rung", pa.string(), "", "the first rung that is missing", "there is no rung"),
    Column(
        "next_rung_saves_ns",
        pa.float64(),
        "ns",
        "what that would save at least of a mean forward pass: ops or kernels left out, and the "
        "gaps before them",
        "it cannot be told",
    ),
    Column(
        "floor_ns",
        pa.float64(),
        "ns",
        "the recurrence alone of a call, at the peaks measured: time steps × (product of the state "
        "+ work element by element), of both passes if there is a backward one",
        f"the peaks were not measured, or {_UNTOLD}",
    ),
)

COLUMNS = (
    RANK,
    Column("form", pa.string(), "", f"how a layer runs: {', '.join(FORMS)}"),
    Column("framework", pa.string(), "", "whose ops they are"),
    Column("op", pa.string(), "", "the op; of a loop, what a time step repeats"),
    Column("library", pa.string(), "", "whose layer the op calls", "no op of a library is in it"),
    *_NETWORK,
    Column(
        "calls",
        pa.int64(),
        "",
        "calls of this layer in the profile",
        "kernels alone show it: a row is then all calls of a step",
    ),
    PER_STEP,
    Column("cells", pa.int64(), "", "cells of a call: time steps × layers × directions", _UNTOLD),
    Column(
        "ops_per_time_step",
        pa.float64(),
        "",
        "ops that compute on the host, forward, a time step",
        f"the work ran on a device, or {_NO_STEPS}",
    ),
    Column(
        "kernels_per_time_step",
        pa.float64(),
        "",
        "kernels of the forward pass, a time step",
        f"the work ran on host threads, or {_NO_STEPS}",
    ),
    Column(
        "forward_ns", pa.float64(), "ns", "mean length of a forward pass", "it launched nothing"
    ),
    Column(
        "backward_ns",
        pa.float64(),
        "ns",
        "mean length of a backward pass",
        "there is none, or the profile does not link it",
    ),
    Column(
        "flops",
        pa.int64(),
        "",
        "operations of the products of a call, the least that forward, and backward if there is "
        "one, can do",
        _UNTOLD,
    ),
    Column(
        "roofline_share",
        pa.float64(),
        "share",
        "time of these operations at the device's highest rate, over the time of the call",
        "the rate was not measured, or flops or a time are not known",
    ),
    *_ALGORITHM,
    *_LADDER,
)
SCHEMA = schema(COLUMNS)


@dataclass(frozen=True)
class _Member:
    """One call of a row, and what is known of it beside its network."""

    call: Call
    spent: Spent
    passes: Passes
    work: Work | None


def layers(events: EventTable, windows: list[Window], info: RunInfo) -> pa.Table:
    """One row a recurrent layer or loop of cells; ``SCHEMA``."""
    groups: dict[tuple[Any, ...], list[_Member]] = {}
    for member in _members(events, info):
        call = member.call
        key = (call.rank, call.form, call.framework, call.op, call.library, call.network)
        groups.setdefault(key, []).append(member)
    steps = {rank: sum(w.rank == rank for w in windows) for rank in {w.rank for w in windows}}
    marked = {w.rank for w in windows if w.step is not None}
    rows = [
        _row(members, steps[rank] if (rank := members[0].call.rank) in marked else None, info)
        for members in groups.values()
    ]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def _members(events: EventTable, info: RunInfo) -> Iterator[_Member]:
    from lstmprof.breakdown.recurrent.profiles import recurrent_calls  # many, for this table alone

    calls = recurrent_calls(events)
    passes = passes_of(events, calls, info)
    persistent = [bool(p.forward and set(p.forward.seen) - {STANDARD}) for p in passes]
    columns = (calls, spent(events, calls), passes, works(events, calls, persistent))
    return itertools.starmap(_Member, zip(*columns, strict=True))


def _row(members: list[_Member], steps: int | None, info: RunInfo) -> dict[str, Any]:
    call, network = members[0].call, members[0].call.network
    took = [member.spent for member in members]
    forward, backward = _mean(t.forward_ns for t in took), _mean(t.backward_ns for t in took)
    flops = network.flops(backward=backward is not None)
    in_steps = sum(member.call.step is not None for member in members)
    return {
        "rank": call.rank,
        "form": call.form,
        "framework": call.framework,
        "op": call.op,
        "library": call.library,
        **{name: getattr(network, name) for name in _NETWORK_FIELDS},
        "calls": len(members) if call.counted else None,
        "per_step": None if steps is None or not call.counted else in_steps / steps,
        "cells": network.cells,
        "ops_per_time_step": _a_time_step(network, [t.ops for t in took]),
        "kernels_per_time_step": _a_time_step(network, [t.kernels for t in took]),
        "forward_ns": forward,
        "backward_ns": backward,
        "flops": flops,
        "roofline_share": _share(flops, forward, backward, info),
        **told([member.passes for member in members]),
        **_ladder(members, floor_ns(network, info.peaks)),
        "floor_ns": floor_ns(network, info.peaks, backward=backward is not None),
    }


def _ladder(members: list[_Member], floor: float | None) -> dict[str, Any]:
    """Where the forward passes of a row stand: all on the rung of the first."""
    stand = [one for m in members if m.work and (one := standing(m.work, floor))]
    if not stand:
        return dict.fromkeys(("rung", "next_rung", "next_rung_saves_ns"))
    return {
        "rung": stand[0].rung,
        "next_rung": stand[0].missing,
        "next_rung_saves_ns": _mean(one.saves_ns for one in stand),
    }


_NETWORK_FIELDS = tuple(c.name for c in _NETWORK)
assert set(_NETWORK_FIELDS) <= {field.name for field in fields(Network)}


def _mean(values: Iterable[int | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _a_time_step(network: Network, counts: list[int | None]) -> float | None:
    mean = _mean(counts)
    return None if mean is None or not network.time_steps else mean / network.time_steps


def _share(
    flops: int | None, forward: float | None, backward: float | None, info: RunInfo
) -> float | None:
    rate = info.peaks.gemm_flops_per_s if info.peaks else None
    if not flops or not rate or not forward:
        return None
    return flops / rate * 1e9 / (forward + (backward or 0.0))
