"""nvprof's traces as CSV: what ``nvprof --print-gpu-trace --csv`` prints, with calls or without.

To know when reading the events:

- Lines that begin with ``==`` are nvprof's, before them the program's own may stand; then a line of
  headings, one of units, a row an activity. ``--print-api-trace`` adds the calls, without device.
- The unit of times depends on how long the program ran: of one of seconds they are rounded to
  microseconds. They count from the first event.
- A row tells no thread and no NVTX range: the steps are not marked.
- Until CUDA 8 the correlation stands behind a kernel's name, ``gemm(…) [115]``, later in a column.

Source: docs.nvidia.com/cuda/profiler-users-guide, "GPU-Trace and API-Trace Modes" and "CSV"; no
profile recorded by us was at hand.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal

from lstmprof.errors import ProfileError
from lstmprof.events import Profile, launch_config
from lstmprof.formats import rows
from lstmprof.formats.cuda.names import call_name
from lstmprof.formats.raw_file import RawFile
from lstmprof.formats.rows import Row

_HEAD_BYTES = 2**16
_HEADINGS = re.compile(rb'^"?Start"?,"?Duration"?,(?=.*\bName\b)', re.MULTILINE)
_PROCESS = re.compile(rb"^==(\d{1,9})==", re.MULTILINE)
_NS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_BYTES = {"B": 1, "KB": 2**10, "MB": 2**20, "GB": 2**30}
_NUMBER = re.compile(r"\d{1,18}(?:\.\d{1,12})?", re.ASCII)
_DEVICE = re.compile(r"(.*\S)\s*\((\d{1,9})\)", re.ASCII | re.DOTALL)
_CORRELATED = re.compile(r"(.+) \[(\d{1,18})\]", re.ASCII | re.DOTALL)
_COPY = re.compile(r"\[(?:CUDA memcpy|Unified Memory Memcpy) (\w+)\]")
_MEMSET = "[CUDA memset]"
_NO_THREADS = (
    "nvprof's CSV has no threads and no NVTX ranges; record with nvprof -o FILE to get both"
)
_NEXT_STEP = "record again: nvprof --print-gpu-trace --print-api-trace --csv --log-file FILE"


def recognises(raw: RawFile) -> bool:
    """Whether ``raw`` has nvprof's headings at a line's beginning."""
    return _HEADINGS.search(raw.part(0, _HEAD_BYTES)) is not None


def read(raw: RawFile) -> Profile:
    """The profile in nvprof's CSV.

    Raises:
        ProfileError: it has no unit of its times, or no activity and no call.
    """
    table = _Table(raw)
    events = list(table.rows())
    if not events:
        raise ProfileError(raw.path, "has no GPU activity and no CUDA call", _NEXT_STEP)
    origin_ns = min(event.start_ns for event in events)
    return Profile(
        format="nvprof",
        base_ns=None,
        events=rows.table(events, origin_ns),
        device_names=table.device_names,
        accelerators=tuple(dict.fromkeys(table.device_names.values())),
        notes=tuple(_notes(table)),
    )


def _notes(table: _Table) -> Iterator[str]:
    yield rows.NO_DATE
    yield _NO_THREADS
    if table.left_out:
        yield (
            f"{table.left_out} lines were left out: not a kernel, copy, memset or call, or "
            "without a"
            " valid time"
        )
    coarse_ns = table.unit_ns("Start") // 10**6
    if coarse_ns > 1:
        yield (
            f"start times are rounded to {coarse_ns:,} ns; use nvprof --normalized-time-unit us for"
            " nanoseconds"
        )


class _Table:
    """The lines of the file below its headings; ``left_out`` counts those that are no event."""

    def __init__(self, raw: RawFile) -> None:
        head = _HEADINGS.search(raw.content)
        assert head is not None  # recognises() saw it
        process = _PROCESS.search(raw.content[: head.start()])
        self.path, self.left_out = raw.path, 0
        self.pid = rows.positive(process[1].decode()) if process else None
        self.device_names: dict[int, str] = {}
        self._records = _records(raw.content[head.start() :])
        headings, units = next(self._records, []), next(self._records, [])
        self._place = {name: place for place, name in enumerate(headings)}
        self._units = dict(zip(headings, units, strict=False))
        for name in ("Start", "Duration"):
            self.unit_ns(name)

    def rows(self) -> Iterator[Row]:
        """Its events, in the order of the lines."""
        for record in self._records:
            row = self._row(record)
            if row is None:
                self.left_out += 1
            else:
                yield row

    def unit_ns(self, heading: str) -> int:
        """Nanoseconds of one unit of a column of times."""
        unit = self._units.get(heading, "")
        if unit not in _NS:
            raise ProfileError(self.path, f"column {heading} has no time unit", _NEXT_STEP)
        return _NS[unit]

    def _row(self, record: Sequence[str]) -> Row | None:
        """Return one event, or None for an unread kind or an impossible time."""
        cell = _Cells(self._place, record)
        start_ns = _scaled(cell["Start"], self.unit_ns("Start"))
        dur_ns = _scaled(cell["Duration"], self.unit_ns("Duration"))
        written = rows.clean(cell["Name"])
        if start_ns is None or dur_ns is None or not written:
            return None
        correlated = _CORRELATED.fullmatch(written)
        name, number = correlated.groups() if correlated else (written, cell["Correlation_ID"])
        correlation = rows.positive(number)
        place = _DEVICE.fullmatch(cell["Device"])
        if place is None:
            if cell["Device"] or not re.match(r"cu[A-Z]|cuda[A-Z]", name):
                return None
            call = call_name(name.partition(" ")[0])
            return Row("runtime", call, start_ns, dur_ns, self.pid, correlation_id=correlation)
        kind, name = _activity(name, cell)
        if not kind:
            return None
        device = int(place[2])
        self.device_names.setdefault(device, rows.clean(place[1]))
        return Row(
            kind,
            name,
            start_ns,
            dur_ns,
            device=device,
            stream=rows.natural(cell["Stream"]),
            correlation_id=correlation,
            bytes=self._bytes(cell, "Size"),
            launch_config=self._launched_with(cell) if kind == "kernel" else None,
        )

    def _launched_with(self, cell: _Cells) -> str | None:
        static, dynamic = self._bytes(cell, "Static SMem"), self._bytes(cell, "Dynamic SMem")
        return launch_config.text(
            {
                "grid": _three(cell, "Grid"),
                "block": _three(cell, "Block"),
                "registers": rows.int64(cell["Registers Per Thread"]),
                "shared_bytes": None if static is None or dynamic is None else static + dynamic,
                "dynamic_shared_bytes": dynamic,
            }
        )

    def _bytes(self, cell: _Cells, heading: str) -> int | None:
        return _scaled(cell[heading], _BYTES.get(self._units.get(heading, ""), 0))


class _Cells:
    """The cells of a row; empty where it has none of that heading."""

    def __init__(self, place: Mapping[str, int], record: Sequence[str]) -> None:
        self._place, self._record = place, record

    def __getitem__(self, heading: str) -> str:
        place = self._place.get(heading, len(self._record))
        return self._record[place].strip() if place < len(self._record) else ""


def _three(cell: _Cells, what: str) -> list[int | None] | None:
    """Return the sizes of a grid or block, or None if the trace lacks their columns."""
    written = [cell[f"{what} {axis}"] for axis in "XYZ"]
    return [rows.int64(size) for size in written] if any(written) else None


def _records(table: bytes) -> Iterator[list[str]]:
    """Yield the cells of each line, without nvprof's messages and empty lines.

    Names have no line break. A line that is no CSV has no cell.
    """
    for line in io.TextIOWrapper(io.BytesIO(table), "utf-8", "replace", newline="\n"):
        if line.strip() and not line.startswith("=="):
            try:
                yield next(csv.reader([line.rstrip("\r\n")]), [])
            except csv.Error:
                yield []


def _scaled(text: str, unit: int) -> int | None:
    """Return ``text`` times ``unit`` rounded, or None if the text is no number."""
    if not unit or not _NUMBER.fullmatch(text):
        return None
    number = round(Decimal(text) * unit)
    return number if number <= rows.MAX_NS else None


def _activity(name: str, cell: _Cells) -> tuple[str, str]:
    """Return kind and name in Kineto's form; the kind is empty if nothing ran on the device."""
    source, target = cell["SrcMemType"], cell["DstMemType"]
    copy = _COPY.fullmatch(name)
    if copy:
        kinds = f" ({source} -> {target})" if source and target else ""
        return "memcpy", f"Memcpy {copy[1]}{rows.clean(kinds)}"
    if name == _MEMSET:
        return "memset", f"Memset ({rows.clean(source or target) or 'Unknown'})"
    return ("", name) if name.startswith("[") else ("kernel", name)
