"""Decode Kineto's JSON into columns: events with a duration, and counters.

msgspec decodes the JSON in parts that fit into the processor's cache. Each part is packed into
arrays before msgspec decodes the next part.
"""

from __future__ import annotations

import copy
import struct
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from itertools import compress, repeat
from operator import is_not, ne, or_
from typing import Annotated, Any, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lstmprof.formats import rows
from lstmprof.formats.kineto.event_fields import COUNTER, INSTANT, MEMORY
from lstmprof.formats.raw_file import last_border

Ints = NDArray[np.int64]

#: Marks a missing integer.
ABSENT = -(2**63)
#: Number that stands for a value that is not an integer.
NULL = ABSENT + 1
#: Type of an integer or its text, without the integers ``ABSENT`` and ``NULL``.
_Integer = Annotated[int, msgspec.Meta(ge=NULL + 1)] | str

#: Code for events that have no launch configuration.
NO_LAUNCH = 0

#: Bytes of JSON to decode at once, few enough for a second-level cache.
PART_BYTES = 2**18
_RAW = msgspec.Raw(b"")
NO_VALUES = msgspec.Raw(b"{}")
#: Phases (``ph``) of events that lstmprof skips.
_OTHER_PHASES = "BEIbnePNODMVvRcSTpFsfta"


class OddError(Exception):
    """A value does not fit into a column, so the events must be read row by row."""


class _Args(msgspec.Struct, gc=False, frozen=True):
    correlation: _Integer = ABSENT
    external: _Integer = msgspec.field(name="External id", default=ABSENT)
    external_2021: _Integer = msgspec.field(name="external id", default=ABSENT)
    device: _Integer = ABSENT
    stream: _Integer = ABSENT
    graph_node: _Integer = msgspec.field(name="graph node id", default=ABSENT)
    bytes: _Integer = ABSENT
    bytes_2021: _Integer = msgspec.field(name="Bytes", default=ABSENT)
    shapes: msgspec.Raw = msgspec.field(name="Input Dims", default=_RAW)
    shapes_2021: msgspec.Raw = msgspec.field(name="Input dims", default=_RAW)
    dtypes: msgspec.Raw = msgspec.field(name="Input type", default=_RAW)
    dtypes_2021: msgspec.Raw = msgspec.field(name="Input Type", default=_RAW)
    sequence: _Integer = msgspec.field(name="Sequence number", default=ABSENT)
    forward_thread: _Integer = msgspec.field(name="Fwd thread id", default=ABSENT)
    block: tuple[int, ...] | str | None = None
    grid: tuple[int, ...] | str | None = None
    registers: int | str | None = msgspec.field(name="registers per thread", default=None)
    shared: int | str | None = msgspec.field(name="shared memory", default=None)
    occupancy: int | float | str | None = msgspec.field(
        name="est. achieved occupancy %", default=None
    )
    collective: str | None = msgspec.field(name="Collective name", default=None)
    elements_in: int | str | None = msgspec.field(name="In msg nelems", default=None)
    elements_out: int | str | None = msgspec.field(name="Out msg nelems", default=None)
    dtype: str | None = None
    ranks: int | str | None = msgspec.field(name="Group size", default=None)
    group: int | str | None = msgspec.field(name="Process Group Name", default=None)
    about: str | None = msgspec.field(name="Process Group Description", default=None)


_NO_ARGS = _Args()
_NO_LAUNCH = (None,) * 12
_LAUNCH = "launch"
_Key = TypeVar("_Key")


class _Event(msgspec.Struct, gc=False, frozen=True, tag_field="ph", tag="X"):
    cat: str = "none"
    name: str = ""
    ts: msgspec.Raw = _RAW
    dur: msgspec.Raw = _RAW
    pid: _Integer = ABSENT
    tid: _Integer = ABSENT
    args: _Args = _NO_ARGS


class Instant(msgspec.Struct, gc=False, frozen=True, tag_field="ph", tag=INSTANT):
    """An event without a duration, such as ``[memory]``."""

    name: str = ""
    ts: msgspec.Raw = _RAW  # JSON text
    pid: _Integer = ABSENT
    args: msgspec.Raw = NO_VALUES  # JSON text


class Counter(Instant, gc=False, frozen=True, tag_field="ph", tag=COUNTER):
    """An event with values of a counter."""


_OTHERS = [
    msgspec.defstruct(f"_Other{number}", [], gc=False, tag_field="ph", tag=phase)
    for number, phase in enumerate(_OTHER_PHASES)
]
_DECODER = msgspec.json.Decoder(
    list[reduce(or_, [Instant, Counter, *_OTHERS], _Event)]  # type: ignore[misc]
)

_NUMBERS = (
    *("correlation", "external", "external_2021", "device", "stream", "graph_node"),
    *("bytes", "bytes_2021", "sequence", "forward_thread"),
)
_LISTS = {"shapes": "shapes_2021", "dtypes": "dtypes_2021"}  # field -> its name in 2021
#: Launch fields of ``_Args``, in the order of ``event_fields.launched_with``'s parameters.
_LAUNCHED_WITH = (
    *("block", "grid", "registers", "shared", "occupancy"),
    *("collective", "elements_in", "elements_out", "dtype", "ranks", "group", "about"),
)
#: Names of the integer fields outside an event's ``args``.
_EVENT_NUMBERS = ("pid", "tid")


class _Codes(dict[_Key, int]):
    """Assigns numbers to keys in order of first use: 0, 1, 2 …"""

    def __missing__(self, key: _Key) -> int:
        self[key] = len(self)
        return self[key]


class Records:
    """Events with a duration as columns, decoded from a JSON array without brackets."""

    def __init__(self, text: bytes) -> None:
        try:
            self._unpack(_parts(text))
        except msgspec.DecodeError:
            self._unpack((b"".join((b"[", text, b"]")),))

    def _unpack(self, parts: Iterable[bytes]) -> None:
        self._chosen: slice | Ints = slice(None)
        self._count = 0
        self._codes: dict[str, _Codes[str]] = {"cat": _Codes(), "name": _Codes()}
        self._launches: _Codes[tuple[Any, ...]] = _Codes()
        self._launches[_NO_LAUNCH] = NO_LAUNCH
        self._fields: dict[str, list[Any]] = defaultdict(list)
        self.counters: list[Instant] = []
        with_args: list[Ints] = []
        for part in parts:
            decoded = _DECODER.decode(part)
            events = [e for e in decoded if type(e) is _Event]
            if len(events) < len(decoded):
                others = [e for e in decoded if type(e) is not _Event]
                instants = [e for e in others if type(e) is Instant or type(e) is Counter]
                self.counters += [e for e in instants if type(e) is Counter or e.name == MEMORY]
            if events:
                args = self._append(events)
                has_args = np.fromiter(map(ne, args, repeat(_NO_ARGS)), np.bool_, len(args))
                if has_args.any():
                    self._append_args(list(compress(args, has_args)))
                with_args.append(np.flatnonzero(has_args) + self._count)
                self._count += len(events)
                del args
            del decoded, events  # the records of two parts would not fit into the cache
        self._with_args = _concatenated(with_args)

    def _append(self, events: Sequence[_Event]) -> tuple[_Args, ...]:
        """Append events to the columns; return the events' arguments."""
        add, values = self._fields, _by_field(_Event, events)
        for name, codes in self._codes.items():
            numbers = map(codes.__getitem__, values[name])
            add[name].append(np.fromiter(numbers, np.int64, len(events)))
        for name in ("ts", "dur"):
            add[name].append(b"\0".join(values[name]))
        for name in _EVENT_NUMBERS:
            add[name].append(_packed_if_whole(values[name]))
        return values["args"]

    def _append_args(self, args: Sequence[_Args]) -> None:
        add, values = self._fields, _by_field(_Args, args)
        for name in _NUMBERS:
            add[name].append(_packed_if_whole(values[name]))
        for name, older in _LISTS.items():
            add[name].append(b"\0".join(_either(values[name], values[older])))
        add[_LAUNCH].append(self._launch_codes([values[name] for name in _LAUNCHED_WITH]))

    def _launch_codes(self, columns: Sequence[Sequence[Any]]) -> Ints:
        """Return for each event the number of its launch configuration, or ``NO_LAUNCH``."""
        codes = np.full(len(columns[0]), NO_LAUNCH)
        if columns[0].count(None) < len(codes):
            has_block = np.fromiter(map(is_not, columns[0], repeat(None)), np.bool_, len(codes))
            launches = compress(zip(*columns, strict=True), has_block)
            numbers = map(self._launches.__getitem__, launches)
            codes[has_block] = np.fromiter(numbers, np.int64)
        return codes

    def only(self, chosen: Ints) -> Records:
        """Return the records of the events at these positions."""
        records = copy.copy(self)
        records._chosen = chosen
        return records

    def texts(self, field: str) -> tuple[Ints, list[str]]:
        """Return (codes, texts) of a text field: event n has ``texts[codes[n]]``."""
        return _concatenated(self._fields[field])[self._chosen], list(self._codes[field])

    def ints(self, field: str) -> Ints:
        """Return an integer field of all events; ``ABSENT`` means missing, ``NULL`` no integer."""
        return self.numbers(field, rows.int64)

    def either(self, field: str, older: str) -> Ints:
        """Return an integer field that had another name (``older``) in 2021."""
        newer = self.ints(field)
        return np.where(newer == ABSENT, self.ints(older), newer)

    def numbers(self, field: str, meaning: Callable[[object], int | None]) -> Ints:
        """Return a field of all events, parsed by ``meaning``; ``NULL`` for unreadable values."""
        values = _concatenated([_meant(part, meaning) for part in self._fields[field]])
        return (values if field in _EVENT_NUMBERS else self._spread(values, ABSENT))[self._chosen]

    def launches(self) -> tuple[Ints, list[tuple[Any, ...]]]:
        """Return (codes, launch configurations): event n has ``configurations[codes[n]]``."""
        codes = self._spread(_concatenated(self._fields[_LAUNCH]), NO_LAUNCH)
        return codes[self._chosen], list(self._launches)

    def _spread(self, arg_values: Ints, absent: int) -> Ints:
        """Return a value for every event: ``absent`` for events without arguments."""
        values = np.full(self._count, absent)
        values[self._with_args] = arg_values
        return values

    def numerals(self, field: str) -> bytes:
        """Join the JSON texts of a field, each followed by a null byte."""
        return b"".join(part + b"\0" for part in self._fields[field])

    def lists(self, field: str) -> tuple[Ints, list[bytes]]:
        """Return (codes, JSON texts) of a list field; code −1 marks events without arguments."""
        encoded = _binary(self.numerals(field)).dictionary_encode()
        codes = self._spread(encoded.indices.to_numpy(), -1)
        return codes[self._chosen], encoded.dictionary.to_pylist()


def _parts(text: bytes) -> Iterator[bytes]:
    """Split the text at commas between events into JSON arrays."""
    start, view = 0, memoryview(text)
    while len(text) - start > PART_BYTES:
        border = last_border(text, start, start + PART_BYTES)
        if not border:
            break
        yield b"".join((b"[", view[start:border], b"]"))
        start = border + 1
    yield b"".join((b"[", view[start:], b"]"))


def _by_field(struct: type[msgspec.Struct], values: Sequence[Any]) -> dict[str, tuple[Any, ...]]:
    fields = zip(*map(msgspec.structs.astuple, values), strict=True)
    return dict(zip(struct.__struct_fields__, fields, strict=True))


def _packed_if_whole(values: Sequence[Any]) -> Ints | Sequence[Any]:
    """Convert values to an array if all are int64."""
    if values.count(ABSENT) == len(values):
        return np.full(len(values), ABSENT)
    try:
        return np.frombuffer(struct.pack(f"{len(values)}q", *values), dtype=np.int64)
    except struct.error:
        return values


def _meant(part: Ints | Sequence[Any], meaning: Callable[[object], int | None]) -> Ints:
    """Parse numbers that may be texts, such as ``"7"``."""
    if isinstance(part, np.ndarray):
        return part
    means = {value: meaning(value) for value in set(part)}
    numbers = {value: NULL if number is None else number for value, number in means.items()}
    if ABSENT in numbers:
        numbers[ABSENT] = ABSENT
    return np.array([numbers[value] for value in part], dtype=np.int64)


def _either(newest: Sequence[Any], older: Sequence[Any]) -> Sequence[Any]:
    if older.count(_RAW) == len(older):
        return newest
    return [old if new is _RAW else new for new, old in zip(newest, older, strict=True)]


def _concatenated(parts: Sequence[Ints]) -> Ints:
    return np.concatenate([np.empty(0, dtype=np.int64), *parts])


def _binary(ended: bytes) -> pa.BinaryArray:
    """Split null-terminated texts."""
    ends = np.flatnonzero(np.frombuffer(ended, dtype=np.uint8) == 0)
    bounds = np.concatenate([[0], ends - np.arange(len(ends))]).astype(np.int32)
    whole = pa.py_buffer(ended.replace(b"\0", b""))
    return pa.BinaryArray.from_buffers(pa.binary(), len(ends), [None, pa.py_buffer(bounds), whole])
