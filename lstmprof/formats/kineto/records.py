"""The complete events (``"ph": "X"``) of a chunk of Kineto's JSON, a field of all at a time.

Beside them its counters: instants of memory, and ``"ph": "C"``.

The chunk is decoded into typed records (msgspec) a part of it at a time, each part small enough
for a processor's cache, and each part's fields are packed into arrays before the next is decoded.
A part ends where the chunk looks like the border of two events; where a part turns out to be no
whole elements, the chunk is decoded as one.
"""

from __future__ import annotations

import copy
import struct
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from operator import attrgetter, or_
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lstmprof.formats import rows
from lstmprof.formats.kineto.counters import COUNTER, INSTANT, MEMORY
from lstmprof.formats.raw_file import last_border

Ints = NDArray[np.int64]

#: The value of an integer field that is not there; a chunk in which it is written is ``OddError``.
ABSENT = -(2**63)
#: A value that means nothing.
NULL = ABSENT + 1

#: 1 MB of second-level cache holds a part and the records made of it.
PART_BYTES = 2**18
_RAW = msgspec.Raw(b"")
#: Phases of the trace event format that are neither (Kineto writes ``i s f t M``).
_OTHER_PHASES = "BEIbnePNODMVvRcSTpFsfta"


class OddError(Exception):
    """The chunk holds something that only the plain reader understands."""


class _Args(msgspec.Struct, gc=False, frozen=True):
    correlation: int | str = ABSENT
    external: int | str = msgspec.field(name="External id", default=ABSENT)
    external_2021: int | str = msgspec.field(name="external id", default=ABSENT)
    device: int | str = ABSENT
    stream: int | str = ABSENT
    graph_node: int | str = msgspec.field(name="graph node id", default=ABSENT)
    bytes: int | str = ABSENT
    bytes_2021: int | str = msgspec.field(name="Bytes", default=ABSENT)
    shapes: msgspec.Raw = msgspec.field(name="Input Dims", default=_RAW)
    shapes_2021: msgspec.Raw = msgspec.field(name="Input dims", default=_RAW)
    dtypes: msgspec.Raw = msgspec.field(name="Input type", default=_RAW)
    dtypes_2021: msgspec.Raw = msgspec.field(name="Input Type", default=_RAW)
    sequence: int | str = msgspec.field(name="Sequence number", default=ABSENT)
    forward_thread: int | str = msgspec.field(name="Fwd thread id", default=ABSENT)


_NO_ARGS = _Args()


class _Event(msgspec.Struct, gc=False, frozen=True, tag_field="ph", tag="X"):
    cat: str = "none"
    name: str = ""
    ts: msgspec.Raw = _RAW
    dur: msgspec.Raw = _RAW
    pid: int | str = ABSENT
    tid: int | str = ABSENT
    args: _Args = _NO_ARGS


class Instant(msgspec.Struct, gc=False, frozen=True, tag_field="ph", tag=INSTANT):
    """An event that may be an allocation, as it is written."""

    name: str = ""
    ts: msgspec.Raw = _RAW
    pid: msgspec.Raw = _RAW
    args: msgspec.Raw = _RAW


class Counter(Instant, gc=False, frozen=True, tag_field="ph", tag=COUNTER):
    """Values of a counter, as they are written."""


def _other(number: int, phase: str) -> Any:
    return msgspec.defstruct(f"_Other{number}", [], gc=False, tag_field="ph", tag=phase)


_OTHERS = [_other(number, phase) for number, phase in enumerate(_OTHER_PHASES)]
_DECODER = msgspec.json.Decoder(
    list[reduce(or_, [Instant, Counter, *_OTHERS], _Event)]  # type: ignore[misc]
)

_NUMBERS = (
    *("correlation", "external", "external_2021", "device", "stream", "graph_node"),
    *("bytes", "bytes_2021", "sequence", "forward_thread"),
)
_LISTS = {"shapes": "shapes_2021", "dtypes": "dtypes_2021"}  # to their name in 2021
_FIELD = {name: attrgetter(name) for name in (*_Event.__struct_fields__, *_Args.__struct_fields__)}


class _Codes(dict[str, int]):
    """Texts, numbered as they come."""

    def __missing__(self, text: str) -> int:
        self[text] = len(self)
        return self[text]


class Records:
    """The complete events in ``text``, the elements of a JSON array without its brackets.

    Raises:
        msgspec.DecodeError: ``text`` is no such elements, or one has a type of no use here.
    """

    def __init__(self, text: bytes) -> None:
        try:
            self._unpack(_parts(text))
        except msgspec.DecodeError:
            self._unpack((text,))

    def _unpack(self, parts: Iterable[bytes]) -> None:
        self._rows: slice | Ints = slice(None)
        self._codes: dict[str, _Codes] = {"cat": _Codes(), "name": _Codes()}
        self._fields: dict[str, list[Any]] = defaultdict(list)
        self.counters: list[Instant] = []
        for part in parts:
            decoded = _DECODER.decode(b"[" + part + b"]")
            events = [e for e in decoded if type(e) is _Event]
            if events:
                self._append(events)
            if len(events) < len(decoded):
                beside = [e for e in decoded if isinstance(e, Instant)]
                self.counters += [e for e in beside if type(e) is Counter or e.name == MEMORY]

    def _append(self, events: Sequence[_Event]) -> None:
        add, count = self._fields, len(events)
        args = list(map(_FIELD["args"], events))
        for name, codes in self._codes.items():
            values = map(codes.__getitem__, map(_FIELD[name], events))
            add[name].append(np.fromiter(values, np.int64, count))
        for name in ("ts", "dur"):
            add[name].append(b"\0".join(map(_FIELD[name], events)))
        for name in ("pid", "tid"):
            add[name].append(_packed_if_whole(list(map(_FIELD[name], events))))
        for name in _NUMBERS:
            add[name].append(_packed_if_whole(list(map(_FIELD[name], args))))
        for name, older in _LISTS.items():
            add[name].append(b"\0".join(_either(args, name, older)))

    def only(self, kept: Ints) -> Records:
        """Those of the events that ``kept`` numbers."""
        records = copy.copy(self)
        records._rows = kept
        return records

    def texts(self, field: str) -> tuple[Ints, list[str]]:
        """(codes, distinct texts) of a text; it may be that some of these texts have no code."""
        return _whole(self._fields[field])[self._rows], list(self._codes[field])

    def ints(self, field: str) -> Ints:
        """An integer of each event, or the text of one; ``ABSENT`` where it is not there."""
        parts = self._fields[field]
        if any(isinstance(part, list) for part in parts):
            return self.numbers(field, rows.int64)
        return _whole(parts)[self._rows]

    def either(self, field: str, older: str) -> Ints:
        """The integer ``field``, where it is not there ``older``."""
        newer = self.ints(field)
        return np.where(newer == ABSENT, self.ints(older), newer)

    def numbers(self, field: str, meaning: Callable[[object], int | None]) -> Ints:
        """What each number or text means: ``NULL`` for None, ``ABSENT`` where there is none."""
        return _meant(self._fields[field], meaning)[self._rows]

    def numerals(self, field: str) -> bytes:
        """A number of each event as it is written, a null byte after each."""
        return b"".join(part + b"\0" for part in self._fields[field])

    def lists(self, field: str) -> tuple[Ints, list[bytes]]:
        """(codes, distinct texts) of a list as it is written; empty where there is none."""
        encoded = _binary(self.numerals(field)).dictionary_encode()
        return encoded.indices.to_numpy()[self._rows], encoded.dictionary.to_pylist()


def _parts(text: bytes) -> Iterator[bytes]:
    """``text`` in parts that end where two events seem to meet."""
    start = 0
    while len(text) - start > PART_BYTES:
        border = last_border(text[start : start + PART_BYTES])
        if not border:
            break
        yield text[start : start + border]
        start += border + 1
    yield text[start:]


def _packed_if_whole(values: list[Any]) -> Ints | list[Any]:
    """``values`` as an array, if all are int64."""
    try:
        return np.frombuffer(struct.pack(f"{len(values)}q", *values), dtype=np.int64)
    except struct.error:
        return values


def _meant(parts: Sequence[Ints | list[Any]], meaning: Callable[[object], int | None]) -> Ints:
    """What each value means; parts that hold texts are lists."""
    packed = [part for part in parts if not isinstance(part, list)]
    if len(packed) < len(parts):
        lists = (part if isinstance(part, list) else part.tolist() for part in parts)
        values = [value for part in lists for value in part]
        means = _meanings(set(values), meaning)
        return np.array(list(map(means.__getitem__, values)), dtype=np.int64)
    encoded = pa.array(_whole(packed)).dictionary_encode()
    means = _meanings(encoded.dictionary.to_pylist(), meaning)
    numbers: Ints = np.array(list(means.values()), dtype=np.int64)[encoded.indices.to_numpy()]
    return numbers


def _meanings(distinct: Iterable[Any], meaning: Callable[[object], int | None]) -> dict[Any, int]:
    numbers = {value: meaning(value) for value in distinct}
    means = {value: NULL if number is None else number for value, number in numbers.items()}
    return means | {ABSENT: ABSENT} if ABSENT in means else means


def _either(args: Sequence[_Args], field: str, older: str) -> list[Any]:
    newest, of_2021 = list(map(_FIELD[field], args)), list(map(_FIELD[older], args))
    if of_2021.count(_RAW) == len(of_2021):
        return newest
    return [old if new is _RAW else new for new, old in zip(newest, of_2021, strict=True)]


def _whole(parts: Sequence[Ints]) -> Ints:
    return np.concatenate([np.empty(0, dtype=np.int64), *parts])


def _binary(ended: bytes) -> pa.BinaryArray:
    """The texts in ``ended``; JSON holds no null byte, which so keeps them apart."""
    ends = np.flatnonzero(np.frombuffer(ended, dtype=np.uint8) == 0)
    bounds = np.concatenate([[0], ends - np.arange(len(ends))]).astype(np.int32)
    whole = pa.py_buffer(ended.replace(b"\0", b""))
    return pa.BinaryArray.from_buffers(pa.binary(), len(ends), [None, pa.py_buffer(bounds), whole])
