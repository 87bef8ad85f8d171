"""Ops of PyTorch one after the other, and the layer table of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from events.rows import Row, row

from lstmprof.breakdown.tables.layers import layers
from lstmprof.events.annotate import annotated
from lstmprof.events.annotate.steps import windows
from lstmprof.events.schema import SCHEMA
from lstmprof.events.table import events_table
from lstmprof.runs.metadata import RunInfo, run_info

HOST = {"pid": 1, "tid": 1}


class Timeline:
    """Ops on one thread, each 10 ns long and after the last one."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.now = 0

    def op(
        self,
        name: str,
        shapes: Sequence[Any] | None = None,
        dtypes: Sequence[str] | None = None,
        inside: Sequence[tuple[str, Sequence[Any] | None]] = (),
    ) -> None:
        """One op, and the ops in it."""
        length = 10 * (len(inside) + 1)
        self.rows.append(self._row(name, self.now, self.now + length, shapes, dtypes))
        for place, (inner, of_inner) in enumerate(inside):
            start = self.now + 2 + 10 * place
            self.rows.append(self._row(inner, start, start + 8, of_inner, None))
        self.now += length + 1

    def _row(
        self,
        name: str,
        start: int,
        end: int,
        shapes: Sequence[Any] | None,
        dtypes: Sequence[str] | None,
    ) -> Row:
        if dtypes is None:
            dtypes = ["float"] * len(shapes or ())
        recorded = {} if shapes is None else {"shapes": json.dumps(shapes)}
        recorded |= {"dtypes": json.dumps(dtypes)} if shapes is not None else {}
        return row("op", name, start, end, **HOST, **recorded)

    def layers(self, info: RunInfo | None = None) -> list[dict[str, Any]]:
        """The layer table of them."""
        return layers_of(self.rows, info)


def layers_of(rows: list[Row], info: RunInfo | None = None) -> list[dict[str, Any]]:
    """The layer table of these rows."""
    columns = [n for n in SCHEMA.names if n != "event_id"]
    events = annotated(events_table({n: [r[n] for r in rows] for n in columns}), captured=False)
    table = layers(events, windows(events, captured=False), info or run_info({}))
    return list(table.to_pylist())


def known(layer: dict[str, Any], *names: str) -> tuple[Any, ...]:
    """The values of these columns."""
    return tuple(layer[name] for name in names)
