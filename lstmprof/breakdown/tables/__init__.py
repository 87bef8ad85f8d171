"""The tables of a breakdown, most important first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lstmprof.base import names
from lstmprof.base.errors import unknown_name
from lstmprof.breakdown.attribution import ledger
from lstmprof.breakdown.tables import (
    casts,
    collectives,
    critical_path,
    kernels,
    launches,
    layers,
    memory,
    ops,
    ranks,
    steps,
    witness,
)
from lstmprof.events.annotate.steps import Window
from lstmprof.events.event_types import event_types, rows_of_ranks
from lstmprof.events.narrow import Packed, packed
from lstmprof.events.schema import Column, schema
from lstmprof.events.table import EventTable
from lstmprof.runs.metadata import RunInfo

if TYPE_CHECKING:
    from lstmprof.breakdown import Breakdown


class Source:
    """Data from which tables are computed: events, steps and run.json."""

    def __init__(
        self,
        events: EventTable | Packed,
        windows: list[Window],
        info: RunInfo | None = None,
        *,
        account: Breakdown | None = None,
        made: dict[str, pa.Table] | None = None,
    ) -> None:
        self._events, self.windows, self.info = events, windows, info or RunInfo()
        self.account = account
        self._made = {} if made is None else made

    def events(self, columns: Sequence[str]) -> EventTable:
        """Return the events, with ``columns`` and perhaps more columns."""
        return self._events.table(columns) if isinstance(self._events, Packed) else self._events

    def for_each_rank(
        self, make: Callable[[EventTable, list[Window]], pa.Table], columns: Sequence[str]
    ) -> pa.Table:
        """Compute a table rank by rank, which limits memory."""
        events = self._events
        ranks = event_types(events).ranks.tolist() if isinstance(events, Packed) else []
        if not isinstance(events, Packed) or len(ranks) < 2:
            return make(self.events(columns), self.windows)
        tables = []
        for rank in (None if number < 0 else number for number in ranks):
            # include a few events of other ranks, or the numbers of threads would change
            part = events.table(columns, rows_of_ranks(events, [rank]))
            table = make(part, [window for window in self.windows if window.rank == rank])
            own = pc.field("rank").is_null() if rank is None else pc.field("rank") == rank
            tables.append(table.filter(own))
        return pa.concat_tables(tables)

    def packed(self, columns: Sequence[str]) -> Packed:
        if isinstance(self._events, Packed):
            return self._events
        return packed(self._events.select(columns))

    def table(self, name: str) -> pa.Table:
        """Return the table ``name``. Tables that need files are empty without ``account``."""
        kind = table_of(name)
        if kind.needs_files and self.account is None:
            return schema(kind.columns).empty_table()
        if name not in self._made:
            self._made[name] = kind.ordered(kind.make(self, kind.reads))
        return self._made[name]


#: Function that computes a table from a ``Source`` and the event columns to read.
Make = Callable[[Source, Sequence[str]], pa.Table]


@dataclass(frozen=True)
class TableKind:
    """Definition of a table: meaning, columns, and the function that computes rows."""

    name: str
    meaning: str
    columns: tuple[Column, ...]
    order: tuple[str, ...]  # columns to sort by (``-``: descending)
    shown: tuple[str, ...]  # columns in a terminal
    make: Make
    reads: tuple[str, ...] = ()  # event columns that ``make`` needs
    joined: tuple[str, ...] = ()  # tables that ``make`` needs
    needs_files: bool = False  # also reads other files of the run
    record: str = ""  # tells users how to record these files

    def of(
        self, events: EventTable, windows: list[Window], info: RunInfo | None = None
    ) -> pa.Table:
        return Source(events, windows, info).table(self.name)

    def ordered(self, table: pa.Table) -> pa.Table:
        keys = [
            (name.removeprefix("-"), "descending" if name.startswith("-") else "ascending")
            for name in self.order
        ]
        return table.sort_by(keys) if keys else table


def _from_events(make: Callable[[EventTable, list[Window]], pa.Table]) -> Make:
    return lambda source, reads: source.for_each_rank(make, reads)


def _from_packed(make: Callable[[Packed, list[Window]], pa.Table]) -> Make:
    return lambda source, reads: make(source.packed(reads), source.windows)


def _from_account(make: Callable[[Breakdown], pa.Table]) -> Make:
    def made(source: Source, reads: Sequence[str]) -> pa.Table:
        assert source.account is not None  # else ``Source.table`` returns an empty table
        return make(source.account)

    return made


def _memory(account: Breakdown) -> pa.Table:
    return memory.memory(account.run.counters(), account.packed(memory.READS), account.windows)


_TIMED = ("event_id", "kind", "name", "start_ns", "dur_ns", "rank")
_ON_DEVICES = (*_TIMED, "pid", "tid", "device", "stream")

_ALL = (
    TableKind(
        "ledger",
        "time of each step, split into busy time by category of work and idle time by cause",
        ledger.COLUMNS,
        (),
        ("rank", "step", "device", "state", "part", "ns"),
        make=_from_packed(ledger.packed_ledger),
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
        make=_from_events(steps.steps),
        reads=(*_ON_DEVICES, "parent_id", "launch_id", "step", "category"),
    ),
    TableKind(
        "kernels",
        "time of each kernel and copy (GPU), or self time of each op that computes (CPU)",
        kernels.COLUMNS,
        ("-total_ns", "name"),
        ("rank", "device", "total_ns", "share", "count", "p50_ns", "category", "rule", "name"),
        make=_from_packed(kernels.kernels),
        reads=kernels.READS,
    ),
    TableKind(
        "ops",
        "host time of each framework op, and device time of the activities that it launched",
        ops.COLUMNS,
        ("-device_total_ns", "-host_total_ns", "name"),
        (
            *("rank", "device_total_ns", "device_self_ns", "host_total_ns", "host_self_ns"),
            *("kernels_total", "count", "per_step", "name"),
        ),
        make=_from_events(ops.ops),
        reads=(*_TIMED, "pid", "graph_node_id", "parent_id", "op_id", "step"),
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
        make=lambda source, reads: source.for_each_rank(
            lambda events, windows: layers.layers(events, windows, source.info), reads
        ),
        reads=(
            *(*_ON_DEVICES, "op_name", "shapes", "dtypes", "parent_id", "op_id", "forward_id"),
            *("step", "category", "family"),
        ),
    ),
    TableKind(
        "modules",
        "host and device time of each nn.Module, Python frame and range",
        ops.MODULE_COLUMNS,
        (),
        (
            *("rank", "sort", "device_total_ns", "device_self_ns", "host_total_ns"),
            *("host_self_ns", "backward_device_ns", "backward_host_ns", "count", "name"),
        ),
        make=_from_events(ops.modules),
        reads=(*(*_ON_DEVICES, "graph_node_id", "parent_id", "launch_id", "op_id", "forward_id"),),
    ),
    TableKind(
        "launches",
        "time of launch calls, launch latency, and number of enqueued activities not yet ended",
        launches.COLUMNS,
        ("-call_total_ns", "name"),
        (
            *("rank", "call_total_ns", "latency_p50_ns", "latency_negative", "queue_mean"),
            *("count", "per_step", "per_time_step", "kind", "name"),
        ),
        make=lambda source, reads: launches.launches(
            source.packed(reads), source.windows, source.info.workload.time_steps
        ),
        reads=launches.READS,
    ),
    TableKind(
        "launch_gaps",
        "duration of each kernel and copy, and the idle gap of the device before it",
        launches.GAP_COLUMNS,
        ("-dur_total_ns", "name"),
        tuple(c.name for c in launches.GAP_COLUMNS),
        make=_from_packed(launches.launch_gaps),
        reads=launches.GAP_READS,
    ),
    TableKind(
        "casts",
        "time and size of casts (dtype conversions), by the op that casts",
        casts.COLUMNS,
        ("-total_ns", "op", "within"),
        (
            *("rank", "device", "total_ns", "count", "per_step", "bytes", "from_dtype"),
            *("to_dtype", "op", "within"),
        ),
        make=_from_events(casts.casts),
        reads=(
            *("event_id", "kind", "name", "dur_ns", "rank", "device", "op_name", "shapes"),
            *("dtypes", "parent_id", "op_id", "step", "category"),
        ),
    ),
    TableKind(
        "copies",
        "time and size of copies and memsets",
        casts.COPY_COLUMNS,
        ("-total_ns", "kind", "direction"),
        tuple(c.name for c in casts.COPY_COLUMNS),
        make=_from_packed(casts.copies),
        reads=casts.COPY_READS,
    ),
    TableKind(
        "streams",
        "number of activities and busy time of each stream of a device",
        steps.STREAM_COLUMNS,
        ("rank", "device", "stream"),
        tuple(c.name for c in steps.STREAM_COLUMNS[:-2]),
        make=_from_events(steps.streams),
        reads=("kind", "start_ns", "dur_ns", "rank", "device", "stream"),
    ),
    TableKind(
        "collectives",
        "time and bandwidth of each collective, and how long each rank waited for the last rank",
        collectives.COLUMNS,
        (),
        (
            *("rank", "device", "step", "collective", "operation", "bytes", "dur_ns", "waits_ns"),
            *("last_rank", "exposed_ns", "algorithm_bytes_per_s", "bus_bytes_per_s", "name"),
        ),
        make=lambda source, reads: collectives.collectives(
            source.packed(reads), source.windows, source.info
        ),
        reads=collectives.READS,
    ),
    TableKind(
        "ranks",
        "busy time, waits, late arrivals at collectives, and imbalance of each rank and device",
        ranks.COLUMNS,
        (),
        (
            *("rank", "device", "step_ns", "busy_ns", "work_ns", "imbalance_share"),
            *("collective_ns", "overlapped_share", "waits_ns", "waits_for_rank", "last_in"),
            *("late_ns",),
        ),
        make=lambda source, reads: ranks.ranks(
            source.table("ledger"), source.table("collectives"), source.windows
        ),
        joined=("ledger", "collectives"),
        reads=tuple(dict.fromkeys((*ledger.READS, *collectives.READS))),
    ),
    TableKind(
        "critical_path",
        "time of each part of the critical path (longest chain of dependent work and waits) in the "
        "step of median length, and the saving if the part takes half as long",
        critical_path.COLUMNS,
        ("rank", "-path_ns", "part"),
        (
            *("rank", "step", "state", "part", "path_ns", "path_share", "halved_saves_ns"),
            *("stretches", "longest_ns", "longest_name"),
        ),
        make=lambda source, reads: critical_path.critical_path(
            source.packed(reads), source.windows, reads
        ),
        reads=(
            *(*_ON_DEVICES, "correlation_id", "parent_id", "launch_id", "op_id", "forward_id"),
            *("phase", "category", "family"),
        ),
    ),
    TableKind(
        "ranges",
        "host time of ranges, phases and steps, and device time of the work launched in them",
        ops.RANGE_COLUMNS,
        ("-total_ns", "name"),
        (
            *("rank", "total_ns", "self_ns", "device_total_ns", "device_self_ns", "count"),
            *("mean_ns", "kind", "name"),
        ),
        make=_from_events(ops.ranges),
        reads=(*_TIMED, "device", "parent_id", "launch_id", "op_id"),
    ),
    TableKind(
        "memory",
        "peak memory, allocations and frees of each device, per step, per phase and in total",
        memory.COLUMNS,
        (),
        tuple(c.name for c in memory.COLUMNS),
        make=_from_account(_memory),
        needs_files=True,
        record="record with profile_memory=True (torch.profiler) or --cuda-memory-usage=true "
        "(Nsight Systems); TensorFlow and JAX record memory use without an option if the allocator "
        "reports memory use",
    ),
    TableKind(
        "witness",
        "each part of the step: share of the stack samples (capture --sampler), and share of the "
        "step time",
        witness.COLUMNS,
        (),
        tuple(c.name for c in witness.COLUMNS),
        make=_from_account(lambda account: witness.witness(account.run.samples(), account.steps())),
        needs_files=True,
        record="record samples with lstmprof capture --sampler",
    ),
)

#: Name → kind of table, the most important tables first.
TABLES: Mapping[str, TableKind] = {
    kind.name: kind for kind in sorted(_ALL, key=lambda kind: names.TABLES.index(kind.name))
}


def table_of(name: str) -> TableKind:
    if name not in TABLES:
        raise unknown_name("table", name, TABLES)
    return TABLES[name]


def tables_of(
    named: Sequence[str], events: EventTable, windows: list[Window], info: RunInfo | None = None
) -> dict[str, pa.Table]:
    source = Source(events, windows, info)
    return {name: source.table(name) for name in named}
