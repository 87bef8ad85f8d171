"""What a framework asked cuDNN for in the calls of a profile, and what cuDNN ran.

::

    Call ─ layer_of ─▶ Layer ─ algorithm ─▶ what was asked for ┐
         ─ its kernels' names ─ seen_in ──▶ what ran           ┴▶ Pass, forward and backward
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from lstmprof.breakdown.recurrent.call import Call, of_work, owners
from lstmprof.breakdown.recurrent.cudnn_algorithm import (
    CUDNN,
    Choice,
    Layer,
    algorithm,
    gpu_of,
    seen_in,
)
from lstmprof.events.intervals import Ints
from lstmprof.events.table import NONE, UNKNOWN, EventTable
from lstmprof.runs.metadata import RunInfo


@dataclass(frozen=True)
class Pass:
    """The forward or the backward pass of a call: what was ``asked`` for, what its kernels are of.

    ``seen`` is empty where their names do not tell.
    """

    asked: Choice
    seen: tuple[str, ...]


@dataclass(frozen=True)
class Passes:
    """Both passes of a call of cuDNN; None where no kernel of it was recorded."""

    forward: Pass | None = None
    backward: Pass | None = None


def layer_of(call: Call) -> Layer | None:
    """The layer as its framework gave it to cuDNN; None where it gave it to none."""
    network = call.network
    if call.library != CUDNN:
        return None
    unprojected = None if network.hidden is None else 0
    return Layer(
        framework=call.framework,
        mode=network.cell,
        dtype=network.dtype,
        time_steps=network.time_steps,
        batch=network.batch,
        inputs=network.inputs,
        hidden=network.hidden,
        layers=network.layers,
        directions=network.directions,
        packed=network.packed,
        projection=network.projection or unprojected,
        op=call.op,
    )


def passes_of(events: EventTable, calls: Sequence[Call], info: RunInfo) -> list[Passes]:
    """The passes of each call."""
    layers = [layer_of(call) for call in calls]
    if not any(layers):
        return [Passes()] * len(calls)
    both = zip(owners(events, calls), (True, False), strict=True)
    forward, backward = (dict(_passes(events, layers, owner, info, way)) for owner, way in both)
    return [Passes(forward.get(i), backward.get(i)) for i in range(len(calls))]


def _passes(
    events: EventTable, layers: Sequence[Layer | None], owner: Ints, info: RunInfo, forward: bool
) -> Iterator[tuple[int, Pass]]:
    """(number of the call, its pass) where one of cuDNN's launched a kernel in it."""
    of_call = of_work(events, owner)
    rows = np.flatnonzero(events.is_kind("kernel") & (of_call != NONE))
    rows = rows[np.argsort(of_call[rows], kind="stable")]
    names, texts = events.texts("name")
    device = events.ints("device", UNKNOWN)
    for number in np.unique(of_call[rows]).tolist():
        layer = layers[number]
        if layer is None:
            continue
        own = rows[slice(*np.searchsorted(of_call[rows], [number, number + 1]))]
        gpu = gpu_of(info.device_facts.get(str(int(device[own[0]]))))
        kernels = [texts[code] for code in np.unique(names[own]).tolist()]
        yield number, Pass(algorithm(layer, gpu, forward), seen_in(kernels))


def told(passes: Sequence[Passes]) -> dict[str, str | None]:
    """What the calls of one layer say of its algorithm, by the layer table's columns."""
    ways = (
        ("", [both.forward for both in passes if both.forward]),
        ("backward_", [both.backward for both in passes if both.backward]),
    )
    row: dict[str, str | None] = {}
    for prefix, some in ways:
        asked = some[0].asked if some else None
        seen = dict.fromkeys(name for one in some for name in one.seen)
        unmet = [f"{r.algorithm}: {r.need}" for r in asked.refusals] if asked else []
        row[f"{prefix}algorithm"] = asked.algorithm if asked else None
        row[f"{prefix}algorithm_seen"] = " or ".join(seen) or None
        row[f"{prefix}algorithm_unmet"] = "; ".join(unmet) or None
    return row
