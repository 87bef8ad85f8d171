"""The layer table: recurrent layers and loops of cells, how they run, their network, their time.

Told by the events alone (``breakdown.recurrent``): the ops and their inputs' shapes, never by
run.json. Calls that agree in all of it are one row; times are means of a call. Of work on a device
a time is from the start of its first activity to the end of its last, else of its ops on the host.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any

import pyarrow as pa

from lstmprof.breakdown.recurrent import recurrent_calls
from lstmprof.breakdown.recurrent.call import Call, Spent, spent
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
)
SCHEMA = schema(COLUMNS)


def layers(events: EventTable, windows: list[Window], info: RunInfo) -> pa.Table:
    """One row a recurrent layer or loop of cells; ``SCHEMA``."""
    calls = recurrent_calls(events)
    groups: dict[tuple[Any, ...], list[tuple[Call, Spent]]] = {}
    for call, took in zip(calls, spent(events, calls), strict=True):
        key = (call.rank, call.form, call.framework, call.op, call.library, call.network)
        groups.setdefault(key, []).append((call, took))
    steps = {rank: sum(w.rank == rank for w in windows) for rank in {w.rank for w in windows}}
    marked = {w.rank for w in windows if w.step is not None}
    rows = [
        _row(members, steps[members[0][0].rank] if members[0][0].rank in marked else None, info)
        for members in groups.values()
    ]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def _row(members: list[tuple[Call, Spent]], steps: int | None, info: RunInfo) -> dict[str, Any]:
    call, network = members[0][0], members[0][0].network
    took = [each for _, each in members]
    forward, backward = _mean(t.forward_ns for t in took), _mean(t.backward_ns for t in took)
    flops = network.flops(backward=backward is not None)
    in_steps = sum(each.step is not None for each, _ in members)
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
