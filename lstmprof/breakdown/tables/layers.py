"""The layer table: how each recurrent layer or loop of cells runs, its sizes and its time.

Layers are found from ops and the shapes of their inputs (``breakdown.recurrent``), never from
run.json. A call lasts from the start of its first activity to the end of its last one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pyarrow as pa

from lstmprof.breakdown.recurrent.call import Call, Spent, owners, spent
from lstmprof.breakdown.recurrent.cudnn_algorithm import (
    CUDNN,
    STANDARD,
    Choice,
    Layer,
    algorithm,
    algorithms_of_kernels,
    gpu_of,
)
from lstmprof.breakdown.recurrent.ladder import RUNGS, Work, floor_ns, standing, works
from lstmprof.breakdown.recurrent.network import Network
from lstmprof.events.annotate.steps import Window
from lstmprof.events.intervals import Ints
from lstmprof.events.schema import PER_STEP, RANK, Column, schema
from lstmprof.events.table import NONE, UNKNOWN, EventTable
from lstmprof.implementations import CELL_OP, LAYER_OP, LOOP
from lstmprof.runs.metadata import RunInfo

_NO_SIZES = "the input shapes do not show it"
_NO_STEPS = "the number of time steps is unknown"
_NETWORK = (
    Column.text("cell", "kind of cell: lstm, gru, rnn_tanh or rnn_relu", _NO_SIZES),
    Column.integer(
        "time_steps", "number of time steps of the longest sequence in a call", _NO_SIZES
    ),
    Column.integer("batch", "number of sequences per call", _NO_SIZES),
    Column.integer("inputs", "number of inputs of the first layer per time step", _NO_SIZES),
    Column.integer("hidden", "number of units per layer and direction", _NO_SIZES),
    Column.integer("layers", "number of stacked layers in a call", _NO_SIZES),
    Column.integer("directions", "2 if the layer is bidirectional, else 1", _NO_SIZES),
    Column.text("dtype", "element type of the inputs", _NO_SIZES),
    Column.flag(
        "packed", "whether sequences of different lengths are packed without padding", _NO_SIZES
    ),
    Column.integer(
        "projection",
        "width of the output after the projection (proj_size)",
        "there is no projection",
    ),
)

_NOT_CUDNN = "the layer does not use cuDNN, or a size is unknown"
_UNSEEN = "the kernel names do not show it"
_ALGORITHM = tuple(
    column
    for prefix, way in (("", "forward"), ("backward_", "backward"))
    for column in (
        Column.text(
            f"{prefix}algorithm",
            f"algorithm that the framework requests from cuDNN ({way} pass)",
            _NOT_CUDNN,
        ),
        Column.text(
            f"{prefix}algorithm_seen",
            f"algorithm of the kernels that ran ({way} pass)",
            _UNSEEN,
        ),
        Column.text(
            f"{prefix}algorithm_unmet",
            "for each cuDNN algorithm that the framework did not request: how to meet the "
            f"algorithm's first unmet condition ({way} pass)",
            _NOT_CUDNN,
        ),
    )
)
_LADDER = (
    Column.text(
        "rung",
        f"optimization level of the forward pass, from slowest to fastest: {', '.join(RUNGS)}",
        "the matmuls or cells cannot be identified",
    ),
    Column.text(
        "next_rung",
        "next optimization level, which the forward pass does not reach",
        "rung is null or the last level",
    ),
    Column.real(
        "next_rung_saves_ns",
        "least time that next_rung saves per forward pass (for a persistent kernel: largest time)",
        "next_rung is null, or the time is unknown",
    ),
    Column.real(
        "floor_ns",
        "shortest possible time of a call: time steps run in sequence at the device's peak rates",
        "the peak rates or the sizes of the layer are unknown",
    ),
)

COLUMNS = (
    RANK,
    Column.text(
        "form",
        f"how a layer runs: {LOOP} (several ops per time step), "
        f"{CELL_OP} (one op per time step) or {LAYER_OP} (one op for all time steps)",
    ),
    Column.text("framework", "framework of the ops"),
    Column.text("op", "name of the op; for a loop, the ops that each time step repeats"),
    Column.text(
        "library",
        "library that computes the layer, such as cuDNN",
        "no op of such a library was recorded",
    ),
    *_NETWORK,
    Column.integer(
        "calls",
        "number of calls of this layer in all profiled steps",
        "the profile has only kernels, no ops",
    ),
    PER_STEP,
    Column.integer(
        "cells", "number of cells per call: time steps × layers × directions", _NO_SIZES
    ),
    Column.real(
        "ops_per_time_step",
        "number of computing ops per time step in the forward pass",
        f"the layer ran on a device, or {_NO_STEPS}",
    ),
    Column.real(
        "kernels_per_time_step",
        "number of kernels per time step in the forward pass",
        f"the layer ran on the host, or {_NO_STEPS}",
    ),
    Column.real("forward_ns", "mean length of a forward pass", "the layer launched nothing"),
    Column.real(
        "backward_ns",
        "mean length of a backward pass",
        "the layer has no backward pass, or the profile does not link it with the forward pass",
    ),
    Column.integer(
        "flops",
        "floating-point operations of the matmuls in a call, forward and backward",
        _NO_SIZES,
    ),
    Column.real(
        "roofline_share",
        "share of the device's peak matmul rate that the call reaches",
        "the peak rate or flops is unknown",
    ),
    *_ALGORITHM,
    *_LADDER,
)
SCHEMA = schema(COLUMNS)


@dataclass(frozen=True)
class _Member:
    """One call of a layer, with its times, cuDNN algorithms and work."""

    call: Call
    spent: Spent
    passes: Passes
    work: Work | None


def layers(events: EventTable, windows: list[Window], info: RunInfo) -> pa.Table:
    """Return one row per recurrent layer, from calls in marked steps if there are any."""
    groups: dict[tuple[Any, ...], list[_Member]] = {}
    members = list(_members(events, info))
    within = {member.call.rank for member in members if member.call.step is not None}
    for member in members:
        call = member.call
        if call.rank in within and call.step is None:
            continue
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
    from lstmprof.breakdown.recurrent.profiles import recurrent_calls  # only this table needs it

    calls = recurrent_calls(events)
    forward, backward = owners(events, calls)
    passes = _passes_of(events, calls, forward, backward, info)
    persistent = [bool(p.forward and set(p.forward.possible) - {STANDARD}) for p in passes]
    times = spent(events, forward, backward, len(calls))
    columns = (calls, times, passes, works(events, calls, forward, persistent))
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
        "ops_per_time_step": _per_time_step(network, [t.ops for t in took]),
        "kernels_per_time_step": _per_time_step(network, [t.kernels for t in took]),
        "forward_ns": forward,
        "backward_ns": backward,
        "flops": flops,
        "roofline_share": _share(flops, forward, backward, info),
        **_algorithm_columns([member.passes for member in members]),
        **_ladder(members, floor_ns(network, info.peaks)),
        "floor_ns": floor_ns(network, info.peaks, backward=backward is not None),
    }


def _ladder(members: list[_Member], floor: float | None) -> dict[str, Any]:
    """Return the first call's rung, the next rung, and what the next rung saves on average."""
    positions = [position for m in members if m.work and (position := standing(m.work, floor))]
    if not positions:
        return dict.fromkeys(("rung", "next_rung", "next_rung_saves_ns"))
    return {
        "rung": positions[0].rung,
        "next_rung": positions[0].missing,
        "next_rung_saves_ns": _mean(position.saves_ns for position in positions),
    }


_NETWORK_FIELDS = tuple(c.name for c in _NETWORK)
assert set(_NETWORK_FIELDS) <= {field.name for field in fields(Network)}


def _mean(values: Iterable[int | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return sum(numbers) / len(numbers) if numbers else None


def _per_time_step(network: Network, counts: list[int | None]) -> float | None:
    mean = _mean(counts)
    return None if mean is None or not network.time_steps else mean / network.time_steps


def _share(
    flops: int | None, forward: float | None, backward: float | None, info: RunInfo
) -> float | None:
    rate = info.peaks.gemm_flops_per_s if info.peaks else None
    if not flops or not rate or not forward:
        return None
    return flops / rate * 1e9 / (forward + (backward or 0.0))


@dataclass(frozen=True)
class Pass:
    """The cuDNN algorithms of the forward or backward pass of a call."""

    requested: Choice  # algorithm that the framework requests
    possible: tuple[str, ...]  # algorithms that fit the kernels' names


@dataclass(frozen=True)
class Passes:
    forward: Pass | None = None
    backward: Pass | None = None


def layer_of(call: Call) -> Layer | None:
    """Convert a call of cuDNN into a ``Layer`` (None for calls of other libraries)."""
    network = call.network
    if call.library != CUDNN:
        return None
    own = {name: getattr(network, name) for name in _NETWORK_FIELDS if name != "cell"}
    own["projection"] = network.projection or (None if network.hidden is None else 0)
    return Layer(framework=call.framework, mode=network.cell, op=call.op, **own)


def _passes_of(
    events: EventTable, calls: Sequence[Call], forward: Ints, backward: Ints, info: RunInfo
) -> list[Passes]:
    layers = [layer_of(call) for call in calls]
    if not any(layers):
        return [Passes()] * len(calls)
    first = dict(_passes(events, layers, forward, info, True))
    second = dict(_passes(events, layers, backward, info, False))
    return [Passes(first.get(i), second.get(i)) for i in range(len(calls))]


def _passes(
    events: EventTable, layers: Sequence[Layer | None], owner: Ints, info: RunInfo, forward: bool
) -> Iterator[tuple[int, Pass]]:
    """Yield (index of the call, ``Pass``) for cuDNN calls with recorded kernels."""
    rows = np.flatnonzero(events.is_kind("kernel") & (owner != NONE))
    rows = rows[np.argsort(owner[rows], kind="stable")]
    names, texts = events.texts("name")
    device = events.ints("device", UNKNOWN)
    for number in np.unique(owner[rows]).tolist():
        layer = layers[number]
        if layer is None:
            continue
        own = rows[slice(*np.searchsorted(owner[rows], [number, number + 1]))]
        gpu = gpu_of(info.device_facts.get(str(int(device[own[0]]))))
        kernels = [texts[code] for code in np.unique(names[own]).tolist()]
        yield number, Pass(algorithm(layer, gpu, forward), algorithms_of_kernels(kernels))


def _algorithm_columns(passes: Sequence[Passes]) -> dict[str, str | None]:
    ways = (
        ("", [call.forward for call in passes if call.forward]),
        ("backward_", [call.backward for call in passes if call.backward]),
    )
    row: dict[str, str | None] = {}
    for prefix, choices in ways:
        requested = choices[0].requested if choices else None
        possible = dict.fromkeys(name for choice in choices for name in choice.possible)
        unmet = [f"{r.algorithm}: {r.need}" for r in requested.refusals] if requested else []
        row[f"{prefix}algorithm"] = requested.algorithm if requested else None
        row[f"{prefix}algorithm_seen"] = " or ".join(possible) or None
        row[f"{prefix}algorithm_unmet"] = "; ".join(unmet) or None
    return row
