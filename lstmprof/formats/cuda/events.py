"""Convert the databases of nvprof and Nsight Systems into the events table, column by column.

A ``Batch`` contains some events of a database table, such as ``CUPTI_ACTIVITY_KIND_KERNEL``.
``CudaEvents`` contains all events of the database.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from lstmprof.events import DeviceFacts, launch_config
from lstmprof.events.groups import Groups
from lstmprof.events.spool import Chunks, Spool
from lstmprof.formats import rows
from lstmprof.formats.cuda.database_tables import UNKNOWN, Database, Ints

_TEXT = pa.dictionary(pa.int32(), pa.string())
_INTS = (
    *("pid", "tid", "device", "stream", "correlation_id", "external_id"),
    *("graph_node_id", "bytes"),
)
#: Columns of CUPTI's kernel table that contain the launch configuration.
LAUNCH_COLUMNS = (
    *("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ"),
    *("registersPerThread", "staticSharedMemory", "dynamicSharedMemory"),
)


@dataclass(frozen=True)
class Batch:
    """Some events of one table, as arrays of equal length."""

    ints: Mapping[str, Ints]  # start_ns, end_ns and columns of the events table
    texts: Mapping[str, pa.DictionaryArray]  # kind, name, shapes (ops), launch_config (kernels)

    def __len__(self) -> int:
        return len(self.ints["start_ns"])

    def only(self, wanted: np.ndarray) -> Batch:
        mask = pa.array(wanted)
        return Batch(
            {name: values[wanted] for name, values in self.ints.items()},
            {name: values.filter(mask) for name, values in self.texts.items()},
        )

    def with_ints(self, **columns: Ints) -> Batch:
        return replace(self, ints={**self.ints, **columns})


def constant(text: str, length: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(np.zeros(length, np.int32), [text])


def named(keys: Ints, name_of: Callable[[int], str | None]) -> pa.DictionaryArray:
    """Return ``name_of(key)`` for each key, with one call per distinct key."""
    distinct, codes = np.unique(keys, return_inverse=True)
    texts = pa.array([name_of(key) for key in distinct.tolist()], pa.string())
    return texts.dictionary_encode().take(pa.array(codes))


def looked_up(keys: Ints, numbers: Mapping[int, int]) -> Ints:
    """Return ``numbers[key]`` for each key, or ``UNKNOWN``."""
    distinct, codes = np.unique(keys, return_inverse=True)
    return np.array([numbers.get(key, UNKNOWN) for key in distinct.tolist()], np.int64)[codes]


def launch_configs(
    read: Mapping[str, Ints], names: Sequence[str], config: Callable[..., str | None]
) -> pa.DictionaryArray:
    """Return each row's launch configuration; ``config`` runs once per distinct row."""
    columns = [read[name] for name in names]
    group = Groups(*columns)
    distinct = zip(*(column[group.first].tolist() for column in columns), strict=True)
    texts = pa.array([config(*numbers) for numbers in distinct], pa.string())
    return texts.dictionary_encode().take(pa.array(group.of))


def cupti_launch_config(*numbers: int) -> str | None:
    """Return a kernel's launch configuration from its ``LAUNCH_COLUMNS``."""
    values = [None if number == UNKNOWN else number for number in numbers]
    *sizes, registers, static, dynamic = values
    shared = None if static is None or dynamic is None else static + dynamic
    return launch_config.text(
        {
            "grid": None if None in sizes[:3] else sizes[:3],
            "block": None if None in sizes[3:] else sizes[3:],
            "registers": registers,
            "shared_bytes": shared,
            "dynamic_shared_bytes": dynamic,
        }
    )


def natural(values: Ints) -> Ints:
    """Replace negative numbers, and CUPTI's 2**32 − 1 (unsigned −1), by ``UNKNOWN``."""
    return np.where((values >= 0) & (values != 2**32 - 1), values, UNKNOWN)


def positive(values: Ints) -> Ints:
    """Replace ids of 0 or less by ``UNKNOWN``."""
    return np.where(values > 0, values, UNKNOWN)


def _timed(batch: Batch) -> Batch:
    """Drop events whose time is invalid."""
    start, end = batch.ints["start_ns"], batch.ints["end_ns"]
    possible = (start >= -rows.MAX_NS) & (end <= rows.MAX_NS) & (end >= start)
    return batch if possible.all() else batch.only(possible)


def _within(batch: Batch, first_ns: int, last_ns: int) -> Batch:
    return batch.only((batch.ints["end_ns"] >= first_ns) & (batch.ints["start_ns"] <= last_ns))


def _table(batch: Batch) -> pa.Table:
    """Convert a batch to columns of the events table."""
    start, end = batch.ints["start_ns"], batch.ints["end_ns"]
    columns = {"start_ns": pa.array(start), "dur_ns": pa.array(end - start)}
    for name in _INTS:
        if name in batch.ints:
            values = batch.ints[name]
            columns[name] = pa.array(values, mask=values == UNKNOWN)
    return pa.table(columns | {name: texts.cast(_TEXT) for name, texts in batch.texts.items()})


@dataclass(frozen=True)
class CudaEvents:
    """The events of a database that have a valid time; times are as in the file."""

    columns: pa.Table | Spool | None
    origin_ns: int | None  # first start
    activities: int
    untimed: int  # omitted, because their time is invalid
    open_ranges: int

    def notes(self) -> Iterator[str]:
        """Yield notes about repaired and omitted events."""
        if self.untimed:
            yield f"{self.untimed} events were left out because their time is invalid"
        if self.open_ranges:
            yield (
                f"{self.open_ranges} NVTX ranges were still open when the capture ended; "
                "lstmprof ends"
                " them at the last event"
            )


def gathered(
    busy: Iterable[Batch],
    calls: Iterable[Batch],
    ranges: Iterable[Batch],
    others: Iterable[Batch],
    last_times: Callable[[], Iterable[Batch]],
) -> CudaEvents:
    """Collect a database's events: activities, calls, ranges, waits and overheads."""
    gathering = _Gathering(last_times)
    for batch in busy:
        gathering.add(batch)
    activities = gathering.count
    for batch in itertools.chain(calls, map(gathering.closed, ranges)):
        gathering.add(batch)
    program = gathering.span
    # add waits and overheads only inside the program, because the profiler waits outside
    for batch in others if program else ():
        gathering.add(batch, within=program)
    return CudaEvents(
        gathering.chunks.columns(),
        gathering.span[0] if gathering.span else None,
        activities,
        gathering.untimed,
        gathering.open_ranges,
    )


class _Gathering:
    """Collects batches of events, and their first start and last end (``span``)."""

    def __init__(self, last_times: Callable[[], Iterable[Batch]]) -> None:
        self._last_times = last_times
        self._last_ns = UNKNOWN
        self._is_last_known = False
        self.chunks = Chunks()
        self.span: tuple[int, int] | None = None
        self.count = self.untimed = self.open_ranges = 0

    def add(self, batch: Batch, within: tuple[int, int] | None = None) -> None:
        """Add the events that have a valid time and overlap ``within`` (if given)."""
        self._last_ns = max(self._last_ns, _last_ns(batch))
        timed = _timed(batch)
        self.untimed += len(batch) - len(timed)
        chosen = _within(timed, *within) if within else timed
        if not len(chosen):
            return
        self.count += len(chosen)
        first, last = int(chosen.ints["start_ns"].min()), int(chosen.ints["end_ns"].max())
        self.span = (
            (min(first, self.span[0]), max(last, self.span[1])) if self.span else (first, last)
        )
        self.chunks.add(_table(chosen))

    def closed(self, ranges: Batch) -> Batch:
        """End each range without an end at the end of the last event."""
        start, end = ranges.ints["start_ns"], ranges.ints["end_ns"]
        is_open = end == UNKNOWN
        if not is_open.any():
            return ranges
        if not self._is_last_known:
            self._last_ns = max([self._last_ns, *map(_last_ns, self._last_times())])
            self._is_last_known = True
        self.open_ranges += int(is_open.sum())
        return ranges.with_ints(end_ns=np.where(is_open, np.maximum(start, self._last_ns), end))


def _last_ns(batch: Batch) -> int:
    """Return the latest valid time in ``batch``, or ``UNKNOWN``."""
    times = np.concatenate([batch.ints["start_ns"], batch.ints["end_ns"]])
    return int(times[times <= rows.MAX_NS].max(initial=UNKNOWN))


def device_facts(
    database: Database, table: str, columns: tuple[str, str, str, str]
) -> dict[int, DeviceFacts]:
    """Return facts about each GPU, such as its compute capability, by the GPU's id."""
    if table not in database.columns:
        return {}
    read = database.ints(table, "id", *columns)
    values = [[None if v == UNKNOWN else v for v in read[name].tolist()] for name in columns]
    facts = {
        number: rows.device_facts(*of_device)
        for number, *of_device in zip(read["id"].tolist(), *values, strict=True)
    }
    return {number: of_device for number, of_device in facts.items() if of_device and number >= 0}
