"""The tables of a breakdown, in the order in which a reader needs them.

Each is made by one function of the events and their windows, when it is first used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from lstmprof import names
from lstmprof.breakdown import ledger
from lstmprof.breakdown.mean_step import MeanStep
from lstmprof.breakdown.tables import (
    casts,
    copies,
    kernels,
    launch_gaps,
    launches,
    layers,
    memory,
    modules,
    ops,
    ranges,
    ranks,
    steps,
    streams,
    witness,
)
from lstmprof.breakdown.tables.database import Database, database
from lstmprof.errors import unknown_name
from lstmprof.events.annotate.steps import Window
from lstmprof.events.narrow import Packed, packed
from lstmprof.events.schema import Column, schema
from lstmprof.events.table import EventTable
from lstmprof.runs.metadata import RunInfo
from lstmprof.runs.run import Run

#: events, their windows, run.json → the table
Make = Callable[[pa.Table, list[Window], RunInfo], pa.Table]


class Account(Protocol):
    """What a table beside the events is made of: a breakdown."""

    @property
    def run(self) -> Run:
        """The run, with its samples and counters."""

    @property
    def windows(self) -> list[Window]:
        """Its steps."""

    def steps(self) -> list[MeanStep]:
        """Where its mean step goes."""

    def packed(self, columns: Sequence[str]) -> Packed:
        """These columns of its events."""


#: what a run has beside its events, and its account → the table
Beside = Callable[[Account], pa.Table]
#: all events, their windows → the table, made piece by piece
Pack = Callable[[Packed, Sequence[Window]], pa.Table]
#: tables, the windows → the table that is made of them
Join = Callable[..., pa.Table]


@dataclass(frozen=True)
class TableKind:
    """One table: what it is, its columns, how it is made, sorted and shown.

    ``select`` makes it in a ``Database``; where there is none ``make`` does of the columns
    ``reads`` of the events, or ``pack``, which looks at some of them at once. ``beside``: it is
    made of the run's samples or counters, and its account; ``record`` says how they come into it.
    ``join`` makes it of the tables ``joined`` alone.

    ``order`` names columns, the largest first where one begins with ``-``; empty: as made.
    ``shown`` are the columns that a terminal has room for, the others are in JSON and CSV.
    """

    name: str
    meaning: str
    columns: tuple[Column, ...]
    order: tuple[str, ...]
    shown: tuple[str, ...]
    select: str = ""
    make: Make | None = None
    reads: tuple[str, ...] = ()
    pack: Pack | None = None
    beside: Beside | None = None
    join: Join | None = None
    joined: tuple[str, ...] = ()
    record: str = ""

    def of(
        self, events: EventTable, windows: list[Window], info: RunInfo | None = None
    ) -> pa.Table:
        """This table of annotated ``events``, sorted; ``info`` is run.json, where there is one."""
        if self.beside:
            return schema(self.columns).empty_table()  # events tell nothing of it
        if self.join:
            of = (table_of(name).of(events, windows, info) for name in self.joined)
            return self.ordered(self.join(*of, windows))
        if self.pack:
            return self.ordered(self.pack(packed(events.select(self.reads)), windows))
        if self.make:
            return self.ordered(self.make(events, windows, info or RunInfo()))
        return tables_of([self.name], events, windows, info)[self.name]

    def selected(self, events: Database) -> pa.Table:
        """This table of ``events`` whose windows the database knows."""
        return events.table(self.select, self.columns, self.order)

    def ordered(self, table: pa.Table) -> pa.Table:
        """The rows of ``table`` as this kind sorts them."""
        keys = [
            (name.removeprefix("-"), "descending" if name.startswith("-") else "ascending")
            for name in self.order
        ]
        return table.sort_by(keys) if keys else table


def _plain(make: Callable[[pa.Table, list[Window]], pa.Table]) -> Make:
    return lambda events, windows, info: make(events, windows)


def _memory(account: Account) -> pa.Table:
    return memory.memory(account.run.counters(), account.packed(memory.READS), account.windows)


#: Columns of the events that several tables read.
_TIMED = ("event_id", "kind", "name", "start_ns", "dur_ns", "rank")
_LANES = (*_TIMED, "pid", "tid", "device", "stream")

_ALL = (
    TableKind(
        "ledger",
        "parts of each step that sum to its length: busy time by category, idle time by cause",
        ledger.COLUMNS,
        (),
        ("rank", "step", "device", "state", "part", "ns"),
        pack=ledger.packed_ledger,
        reads=ledger.READS,
    ),
    TableKind(
        "steps",
        "busy, idle and overlapping time of each step on each device",
        steps.COLUMNS,
        ("rank", "step", "device"),
        (
            *("rank", "step", "device", "dur_ns", "busy_ns", "idle_ns", "overlapped_ns"),
            *("spilled_ns", "activities", "launches", "host_ops"),
        ),
        make=_plain(steps.steps),
        reads=(*_LANES, "parent_id", "launch_id", "step", "category"),
    ),
    TableKind(
        "kernels",
        "time of each kernel and copy; on a CPU, self time of each computing op",
        kernels.COLUMNS,
        ("-total_ns", "name"),
        ("rank", "device", "total_ns", "share", "count", "p50_ns", "category", "rule", "name"),
        pack=kernels.kernels,
        reads=kernels.READS,
    ),
    TableKind(
        "ops",
        "host time of each framework op, and the device time that it caused",
        ops.COLUMNS,
        ("-device_total_ns", "-host_total_ns", "name"),
        (
            *("rank", "device_total_ns", "device_self_ns", "host_total_ns", "host_self_ns"),
            *("kernels_total", "count", "per_step", "name"),
        ),
        make=_plain(ops.ops),
        reads=("event_id", "kind", "name", "dur_ns", "rank", "parent_id", "op_id", "step"),
    ),
    TableKind(
        "layers",
        "form, size and time of each recurrent layer or loop of cells",
        layers.COLUMNS,
        (),
        (
            *("rank", "form", "time_steps", "batch", "inputs", "hidden", "layers", "directions"),
            *("cells", "ops_per_time_step", "kernels_per_time_step", "forward_ns", "backward_ns"),
            *("roofline_share", "algorithm_seen", "backward_algorithm_seen", "rung", "op"),
        ),
        make=layers.layers,
        reads=(
            *(*_LANES, "op_name", "shapes", "dtypes", "parent_id", "op_id", "forward_id", "step"),
            *("category", "family"),
        ),
    ),
    TableKind(
        "modules",
        "host and device time of each nn.Module, Python frame and range",
        modules.COLUMNS,
        (),
        (
            *("rank", "sort", "device_total_ns", "device_self_ns", "host_total_ns"),
            *("host_self_ns", "backward_device_ns", "backward_host_ns", "count", "name"),
        ),
        make=_plain(modules.modules),
        reads=(*_LANES, "parent_id", "launch_id", "op_id", "forward_id"),
    ),
    TableKind(
        "launches",
        "time of launch calls, launch latency, and how far the host is ahead",
        launches.COLUMNS,
        ("-call_total_ns", "name"),
        (
            *("rank", "call_total_ns", "latency_p50_ns", "latency_negative", "queue_mean"),
            *("count", "per_step", "per_time_step", "kind", "name"),
        ),
        launches.SELECT,
    ),
    TableKind(
        "launch_gaps",
        "duration of each kernel and copy, and the device's idle gap before it",
        launch_gaps.COLUMNS,
        ("-dur_total_ns", "name"),
        tuple(c.name for c in launch_gaps.COLUMNS),
        launch_gaps.SELECT,
    ),
    TableKind(
        "casts",
        "time and size of casts by op: the cost of mixed precision",
        casts.COLUMNS,
        ("-total_ns", "op", "within"),
        (
            *("rank", "device", "total_ns", "count", "per_step", "bytes", "from_dtype"),
            *("to_dtype", "op", "within"),
        ),
        make=_plain(casts.casts),
        reads=(
            *("event_id", "kind", "name", "dur_ns", "rank", "device", "op_name", "shapes"),
            *("dtypes", "parent_id", "op_id", "step", "category"),
        ),
    ),
    TableKind(
        "copies",
        "time and size of copies (host, devices) and memsets",
        copies.COLUMNS,
        ("-total_ns", "kind", "direction"),
        tuple(c.name for c in copies.COLUMNS),
        pack=copies.copies,
        reads=copies.READS,
    ),
    TableKind(
        "streams",
        "activities and busy time of each stream of a device",
        streams.COLUMNS,
        ("rank", "device", "stream"),
        tuple(c.name for c in streams.COLUMNS[:-2]),
        make=_plain(streams.streams),
        reads=("kind", "start_ns", "dur_ns", "rank", "device", "stream"),
    ),
    TableKind(
        "collectives",
        "time of each rank in each collective, and how long it waits for the last rank",
        ranks.COLLECTIVE_COLUMNS,
        (),
        (
            *("rank", "device", "step", "collective", "dur_ns", "waits_ns", "last_rank"),
            *("last_device", "overlapped_ns", "name"),
        ),
        pack=ranks.collectives,
        reads=ranks.COLLECTIVE_READS,
    ),
    TableKind(
        "ranks",
        "comparison of ranks and devices: time busy, waiting and late to collectives; imbalance",
        ranks.COLUMNS,
        (),
        (
            *("rank", "device", "step_ns", "busy_ns", "work_ns", "imbalance_share"),
            *("collective_ns", "overlapped_share", "waits_ns", "waits_for_rank", "last_in"),
            *("late_ns",),
        ),
        join=ranks.ranks,
        joined=("ledger", "collectives"),
        reads=(*ledger.READS, "step"),
    ),
    TableKind(
        "ranges",
        "host time of ranges, phases and steps, and the device time launched in them",
        ranges.COLUMNS,
        ("-total_ns", "name"),
        (
            *("rank", "total_ns", "self_ns", "device_total_ns", "device_self_ns", "count"),
            *("mean_ns", "kind", "name"),
        ),
        make=_plain(ranges.ranges),
        reads=(*_TIMED, "device", "parent_id", "launch_id", "op_id"),
    ),
    TableKind(
        "memory",
        "memory of each device: peak per step and phase, allocations and frees",
        memory.COLUMNS,
        (),
        tuple(c.name for c in memory.COLUMNS),
        beside=_memory,
        record="record with profile_memory=True (torch.profiler) or --cuda-memory-usage=true "
        "(Nsight Systems); TensorFlow and JAX need no option: they record memory use if their "
        "allocator reports it",
    ),
    TableKind(
        "witness",
        "shares of the step by a sampler (capture --sampler), compared with the breakdown",
        witness.COLUMNS,
        (),
        tuple(c.name for c in witness.COLUMNS),
        beside=lambda account: witness.witness(account.run.samples(), account.steps()),
        record="record samples with lstmprof capture --sampler",
    ),
)

#: Name → table, in the order in which a reader needs them.
TABLES: Mapping[str, TableKind] = {
    kind.name: kind for kind in sorted(_ALL, key=lambda kind: names.TABLES.index(kind.name))
}


def table_of(name: str) -> TableKind:
    """The table of this name.

    Raises:
        UsageError: there is none; says which is nearest.
    """
    if name not in TABLES:
        raise unknown_name("table", name, TABLES)
    return TABLES[name]


def tables_of(
    named: Sequence[str], events: EventTable, windows: list[Window], info: RunInfo | None = None
) -> dict[str, pa.Table]:
    """These tables of annotated ``events``, by one database: opening it costs as much as a table.

    Raises:
        UsageError: no table has one of these names.
    """
    info = info or RunInfo()
    kinds = [table_of(name) for name in named]
    made = {kind.name: kind.of(events, windows, info) for kind in kinds if not kind.select}
    if len(made) < len(kinds):
        with database(events) as opened:
            opened.account_for(windows, info.workload.time_steps)
            made |= {kind.name: kind.selected(opened) for kind in kinds if kind.select}
    return made
