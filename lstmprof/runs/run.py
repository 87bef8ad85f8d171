"""Read and write the tables and run.json of a run on disk.

::

  <run>/run.json  timings.parquet  events.parquet  [counters.parquet]  [samples.parquet]  profile/

lstmprof validates each file once (``invariants``), because a run may come from somebody else.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from threading import Event

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec.structs import replace

from lstmprof.base.errors import PERMISSIONS, RunError, is_readable_folder
from lstmprof.events.counters import BATCH_ROWS, NO_COUNTERS, SCHEMA as COUNTERS, Counters
from lstmprof.events.narrow import Gathered, Packed, narrow_table
from lstmprof.events.schema import LACKING, SCHEMA, SCHEMA_VERSION, VERSION_KEY, schema
from lstmprof.events.table import EventTable
from lstmprof.runs.fields import ITERATIONS, SAMPLES
from lstmprof.runs.invariants import (
    COUNTER_BYTES,
    check_counters,
    check_counts,
    check_events,
    check_length,
    check_nulls,
    check_texts,
    check_types,
)
from lstmprof.runs.metadata import AGAIN, NEWER, UPGRADE, RunInfo, decoded, encoded

RUN_FILE = "run.json"
EVENTS_FILE = "events.parquet"
COUNTERS_FILE = "counters.parquet"

TIMINGS_SCHEMA = schema(ITERATIONS).with_metadata({VERSION_KEY: str(SCHEMA_VERSION).encode()})
SAMPLES_SCHEMA = schema(SAMPLES).with_metadata({VERSION_KEY: str(SCHEMA_VERSION).encode()})
#: Largest number of events for which reading all columns together is faster.
FEW_ROWS = 2**18
#: Columns to read first from a larger run, because validating the run needs these columns.
ALWAYS_READ = ("kind", "name", "start_ns", "dur_ns", "launch_id")
#: Largest size of a run.json in bytes; a run of a thousand ranks takes some MB.
MOST_BYTES = 32 * 2**20


@dataclass(frozen=True)
class Run:
    """A run's folder; files are read when first needed."""

    path: Path
    info: RunInfo = field(repr=False)

    @property
    def name(self) -> str:
        """Return the run's name in run.json, or the name of its folder."""
        return self.info.name or self.path.name

    def events(self) -> EventTable:
        """Read the events of the profiled steps."""
        return EventTable(_table(self.events_file, SCHEMA))

    def narrow_events(self, columns: Sequence[str]) -> pa.Table:
        """Read columns of the events as the narrowest integer types, to save memory."""
        return _Events(self.events_file).columns(columns)

    def packed(self, columns: Sequence[str]) -> Packed:
        """Validate all events, and return ``columns``; read some columns only when needed."""
        events = _Events(self.path / EVENTS_FILE)
        at_once = [name for name in columns if name != "event_id"]
        if events.count > FEW_ROWS or not at_once:
            at_once = [name for name in ALWAYS_READ if name in columns] or ["kind"]
        if "events_file" in vars(self):
            table = events.columns(at_once)
        else:
            table = events.checked_columns(at_once)
            vars(self)["events_file"] = events.path
        return Packed(table, lambda name: events.columns([name]).column(0))

    def timings(self) -> pa.Table | None:
        return self._timings

    def samples(self) -> pa.Table | None:
        """Read the sampled call stacks, if a sampler ran."""
        path = self.samples_file
        return None if path is None else _table(path, SAMPLES_SCHEMA)

    def counters(self, columns: Sequence[str] = COUNTERS.names) -> Iterator[pa.Table]:
        """Yield the counters in batches, sorted by rank and time."""
        path = self.counters_file
        if path is None:
            return
        types = pa.schema([COUNTERS.field(name) for name in columns])
        absent = [name for name in check_file(path, COUNTERS) if name in columns]
        present = [name for name in columns if name not in absent]
        try:
            with pq.ParquetFile(path, read_dictionary=_texts(types, absent)) as file:
                for batch in file.iter_batches(BATCH_ROWS, columns=present):
                    table = _with_nulls(pa.Table.from_batches([batch]), types, absent)
                    yield table.select(types.names).cast(types)
        except _DAMAGE as fault:
            raise _unreadable(path, fault) from fault

    @cached_property
    def event_count(self) -> int:
        path = self.path / EVENTS_FILE
        try:
            return int(pq.read_metadata(path).num_rows)
        except (OSError, pa.ArrowException) as fault:
            raise _unreadable(path, fault) from fault

    @cached_property
    def events_file(self) -> Path:
        """Validate the events file, and return its path."""
        events = _Events(self.path / EVENTS_FILE)
        events.check_events_file()
        return events.path

    @cached_property
    def timings_file(self) -> Path | None:
        """Validate the timings file, and return its path."""
        return _checked(self.path / "timings.parquet", TIMINGS_SCHEMA)

    @cached_property
    def samples_file(self) -> Path | None:
        """Validate the samples file, and return its path."""
        return _checked(self.path / "samples.parquet", SAMPLES_SCHEMA)

    @cached_property
    def _timings(self) -> pa.Table | None:
        path = self.timings_file
        return None if path is None else _table(path, TIMINGS_SCHEMA)

    @cached_property
    def counters_file(self) -> Path | None:
        """Validate the counters file, and return its path."""
        path = self.path / COUNTERS_FILE
        if not path.exists():
            return None
        check_file(path, COUNTERS)
        try:
            with pq.ParquetFile(path) as file:
                check_length(path, file, COUNTER_BYTES)
                check_counters(path, file)
        except _DAMAGE as fault:
            raise _unreadable(path, fault) from fault
        return path

    def file(self, table: str) -> Path | None:
        """Return the validated file of a table, such as ``"events"``."""
        path: Path | None = getattr(self, f"{table}_file")
        for column in _texts(SCHEMA) if table == "events" else ():
            self.narrow_events([column])  # checks the texts, one column at a time to save memory
        return path


class _Events:
    """An open events.parquet. The open file stays readable after a replacement."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._absent = check_file(path, SCHEMA)
        try:
            self._file = pq.ParquetFile(path, read_dictionary=_texts(SCHEMA, self._absent))
        except _DAMAGE as fault:
            raise _unreadable(path, fault) from fault
        self.count: int = self._file.metadata.num_rows

    def columns(self, names: Sequence[str]) -> pa.Table:
        """Read columns with the narrowest integer types."""
        return self._read_table(lambda: narrow_table(self._file, self._present(names)), names)

    def checked_columns(self, names: Sequence[str]) -> pa.Table:
        """Read columns, and validate the events while reading."""
        gathered = Gathered(self._file, self._present(names))
        self.check_events_file(gathered)
        return self._read_table(gathered.table, names)

    def check_events_file(self, gathered: Gathered | None = None) -> None:
        """Validate the events, and add the events to ``gathered``."""
        try:
            check_length(self.path, self._file)
            check_events(self.path, self._file, gathered)
        except _DAMAGE as fault:
            raise _unreadable(self.path, fault) from fault

    def _present(self, names: Sequence[str]) -> list[str]:
        # return at least one column, because a table without columns has no rows
        return [name for name in names if name not in self._absent] or ["dur_ns"]

    def _read_table(self, read: Callable[[], pa.Table], names: Sequence[str]) -> pa.Table:
        try:
            table = read()
            check_texts(self.path, table)
        except _DAMAGE as fault:
            raise _unreadable(self.path, fault) from fault
        absent = [name for name in names if name in self._absent]
        return _with_nulls(table, SCHEMA, absent).select(list(names))


#: Errors that pyarrow raises for damaged files.
_DAMAGE = (OSError, ValueError, pa.ArrowException, MemoryError, OverflowError)


def _texts(schema: pa.Schema, absent: Sequence[str] = ()) -> list[str]:
    """Return the names of text columns, which pyarrow reads as dictionaries."""
    texts = [field.name for field in schema if pa.types.is_dictionary(field.type)]
    return [name for name in texts if name not in absent]


def _checked(path: Path, schema: pa.Schema) -> Path | None:
    """Validate the file of a table, and return its path; return None without a file."""
    if not path.exists():
        return None
    check_file(path, schema)
    try:
        with pq.ParquetFile(path) as file:
            check_length(path, file)
    except _DAMAGE as fault:
        raise _unreadable(path, fault) from fault
    table = _table(path, schema)
    check_counts(path, table)
    return path


def _unreadable(path: Path, fault: Exception) -> RunError:
    if isinstance(fault, FileNotFoundError):
        return RunError(f"{path}: is missing", AGAIN)
    if isinstance(fault, UnicodeEncodeError):  # Parquet's library cannot open it
        return RunError(f"{path}: cannot be read (its path is not UTF-8)", "rename it")
    if isinstance(fault, PermissionError):
        return RunError(f"{path}: permission denied", PERMISSIONS)
    reason = str(fault).split("\n")[0].rstrip(".") or type(fault).__name__
    return RunError(f"{path}: is damaged ({reason})", AGAIN)


def _table(path: Path, schema: pa.Schema) -> pa.Table:
    absent = check_file(path, schema)
    try:
        # avoid pq.read_table, which takes four times as long (10 million events, pyarrow 26)
        with pq.ParquetFile(path) as file:
            table = _with_nulls(file.read(), schema, absent).select(schema.names)
        check_nulls(path, table, schema)
        table = table.cast(schema)
        check_texts(path, table)
        return table
    except _DAMAGE as fault:
        raise _unreadable(path, fault) from fault


def _with_nulls(table: pa.Table, schema: pa.Schema, columns: Sequence[str]) -> pa.Table:
    for name in columns:
        type_ = schema.field(name).type
        table = table.append_column(name, pa.nulls(table.num_rows, type_))
    return table


def check_file(path: Path, schema: pa.Schema) -> list[str]:
    """Check a file's version and columns; return columns that the old version lacks."""
    if path.exists() and not path.is_file():
        raise RunError(f"{path}: is not a regular file", AGAIN)
    try:
        actual = pq.read_schema(path)
    except _DAMAGE as fault:
        raise _unreadable(path, fault) from fault
    version = (actual.metadata or {}).get(VERSION_KEY, b"none").decode(errors="replace")
    lacking = {str(number): names for number, names in LACKING.items()}
    if version.isascii() and version.isdigit() and int(version[:9]) > SCHEMA_VERSION:
        raise RunError(f"{path}: {NEWER.format(version[:9], SCHEMA_VERSION)}", UPGRADE)
    if version not in lacking:
        read = f"{', '.join(sorted(lacking))}"
        raise RunError(f"{path}: has schema version {version}; this lstmprof reads {read}", AGAIN)
    absent = [name for name in schema.names if name in lacking[version]]
    if actual.names != [name for name in schema.names if name not in absent]:
        raise RunError(f"{path}: columns differ from the schema", AGAIN)
    check_types(path, actual, schema)
    return absent


def is_run(path: Path) -> bool:
    """Return whether a folder is a run that this user may read."""
    return os.path.isfile(path / RUN_FILE)  # noqa: PTH113, no error if locked


def open_run(path: Path) -> Run:
    file = path / RUN_FILE
    if not is_run(path):
        if os.path.isdir(path) and not is_readable_folder(path):  # noqa: PTH112
            raise RunError(f"{path}: permission denied", PERMISSIONS)
        raise RunError(
            f"{path}: not a run (it has no {RUN_FILE})",
            "give a run, a folder of runs, or a profile",
        )
    try:
        if file.stat().st_size > MOST_BYTES:
            raise RunError(f"{file}: is larger than {MOST_BYTES >> 20} MiB", AGAIN)
        text = file.read_bytes()
    except OSError as fault:
        raise _unreadable(file, fault) from fault
    return Run(path, decoded(text, file))


def runs_in(folder: Path) -> list[Run]:
    """Open the runs directly in ``folder``, sorted by name."""
    return [open_run(place) for place in run_folders_in(folder)]


def run_folders_in(folder: Path) -> list[Path]:
    """Return the runs' folders, then unreadable folders; if there is no run, nothing."""
    places = [p for p in sorted(folder.iterdir()) if not p.name.startswith(".")]
    runs = [p for p in places if is_run(p)]
    locked = [p for p in places if os.path.isdir(p) and not is_readable_folder(p)]  # noqa: PTH112
    return [*runs, *locked] if runs else []


def write_tables(
    folder: Path,
    info: RunInfo,
    events: EventTable,
    timings: pa.Table | None = None,
    samples: pa.Table | None = None,
    counters: Counters = NO_COUNTERS,
) -> None:
    """Write the tables of a run, and run.json last."""
    write_events(folder, events, counters)
    if timings is not None:
        pq.write_table(timings.cast(TIMINGS_SCHEMA), folder / "timings.parquet", compression="zstd")
    if samples is not None:
        pq.write_table(samples.cast(SAMPLES_SCHEMA), folder / "samples.parquet", compression="zstd")
    write_info(folder, info)


def write_events(
    folder: Path, events: EventTable, counters: Counters, stop: Event | None = None
) -> None:
    """Write the events and the counters; setting ``stop`` ends the writing early."""
    events.write_parquet(folder / EVENTS_FILE, stop)
    if counters:
        counters.write_parquet(folder / COUNTERS_FILE)


def write_info(folder: Path, info: RunInfo) -> None:
    """Write run.json, after a check that lstmprof can read the text."""
    text = encoded(replace(info, schema_version=SCHEMA_VERSION))
    decoded(text, folder / RUN_FILE)
    (folder / RUN_FILE).write_bytes(text)
