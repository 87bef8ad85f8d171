"""Where the early events of a big plain Kineto file stand, told by small samples of the file.

::

    time │      ╱│     ╱│      ╱│  ╱     what ran on the host, Python, calls and activities: a block
         │   ╱   │  ╱   │   ╱   │╱       each, in which times rise, but for some that are late
         │╱      │╱     │╱      │
         └─────────────────────────▶ byte

A sample is a few events that were read as whole elements of the array, so that it begins at a
border of events. Between two samples there may be an event that begins before an instant where one
of the two has such, or where times fall: there a block begins, which may have begun as much earlier
as times rise in as many bytes of it. Such stretches are halved until they are short. Whether a file
is written so is asked of the samples themselves: every second one must be where the others say.
"""

from __future__ import annotations

import bisect
import math
import re
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from lstmprof.formats.kineto.events import PROFILER_SPAN
from lstmprof.formats.raw_file import OpenFile, last_border
from lstmprof.formats.rows import MAX_NS

#: What is read of a file at first, in how many places at most, and how far apart at least.
SAMPLE_BYTES, _MOST_SAMPLES, _LEAST_APART = 2**13, 2**10, 2**15
#: No more is read for a sample where the first bytes hold no whole event.
_MOST_SAMPLE_BYTES = 2**17
#: A stretch so short is read rather than halved.
_SHORT_BYTES = 2**15
#: So many samples more are taken where stretches are halved, however many there are.
_MOST_HALVED = 2**10
#: A block may have begun so many times earlier than at the pace at which it goes on.
_SAFELY = 4
#: Its pace is the fastest of so many stretches.
_OF_PACE = 4
_BORDER = re.compile(rb"\}\s*+,\s*+(?=\{)")
_MOST_TRIES = 4
_NS_PER_US = 1000

Flags = NDArray[np.bool_]
Ints = NDArray[np.int64]


class Sample(NamedTuple):
    """Some events that stand from byte ``at`` on; the first of them begins at ``begins_ns``.

    That is to the microsecond below, and 0 at the start of a file where it is unknown.
    """

    at: int
    begins_ns: int


class _Begun(msgspec.Struct, gc=False, frozen=True):
    ph: str = ""
    cat: str = ""
    ts: float | str | None = None


_DECODER = msgspec.json.Decoder(list[_Begun])


class Samples:
    """Samples of the events that stand in ``file`` from byte ``start`` on, in their order."""

    def __init__(self, file: OpenFile, start: int) -> None:
        self._file = file
        apart = max(_LEAST_APART, (file.length - start) // _MOST_SAMPLES)
        places = range(start, max(file.length - SAMPLE_BYTES, start + 1), apart)
        self._samples: list[Sample] = []
        self._categories: set[str] = set()
        self.unreadable = 0  # places where no events were made out
        for number, place in enumerate(places):
            self._add(place, is_first=not number)
        self._first = np.array(self._samples, dtype=np.int64).reshape(-1, 2)
        self._most = 2 * len(places) + _MOST_HALVED

    def __len__(self) -> int:
        return len(self._samples)

    @property
    def begins_ns(self) -> list[int]:
        """When the events of those samples begin that stand equally far apart, sorted."""
        earliest: list[int] = sorted(self._first[:, 1].tolist())
        return earliest

    @property
    def categories(self) -> frozenset[str]:
        """The categories of their events, in lower case."""
        return frozenset(self._categories)

    @property
    def first_at(self) -> int:
        """Byte at which the first sample begins."""
        return self._samples[0].at

    @property
    def last_at(self) -> int:
        """Byte at which the last sample begins."""
        return self._samples[-1].at

    def before(self, until_ns: int) -> list[tuple[int, int]]:
        """Stretches (first byte, byte after) in which events may begin before ``until_ns``.

        They begin and end where events do; what follows the last sample is not told of.
        """
        while True:
            at, begins_ns = np.array(self._samples, dtype=np.int64).T
            early = _may_begin(at, begins_ns, until_ns)
            wholly = (begins_ns[:-1] < until_ns) & (begins_ns[1:] < until_ns)
            long = np.flatnonzero(early & ~wholly & (np.diff(at) > _SHORT_BYTES))
            halved = long.tolist() if len(at) + len(long) < self._most else []
            if not sum(self._add(int(at[n] + at[n + 1]) // 2) for n in halved):
                return [(int(at[n]), int(at[n + 1])) for n in np.flatnonzero(early).tolist()]

    def told(self, until_ns: int) -> bool:
        """Whether every second sample with an event before ``until_ns`` is where the others say."""
        at, begins_ns = self._first.T
        if len(at) < 2 * _OF_PACE:
            return False
        early = _may_begin(at[::2], begins_ns[::2], until_ns)
        others = np.flatnonzero(begins_ns[1 : 2 * len(early) : 2] < until_ns)
        return bool(early[others].all())

    def _add(self, place: int, *, is_first: bool = False) -> bool:
        """Add the sample at ``place``, or after it; False where none can be read, or is known."""
        sample = self._sample(place, is_first=is_first)
        if sample is None:
            return False
        number = bisect.bisect(self._samples, (sample.at, -math.inf))
        if number < len(self._samples) and self._samples[number].at == sample.at:
            return False
        self._samples.insert(number, sample)
        return True

    def _sample(self, place: int, *, is_first: bool) -> Sample | None:
        length = SAMPLE_BYTES
        while length <= _MOST_SAMPLE_BYTES:
            text = self._file.part(place, place + length)
            borders = [0] if is_first else [m.end() for m in _BORDER.finditer(text)][:_MOST_TRIES]
            for border in borders:
                events = _timed(text[border : last_border(text)])
                if events:
                    self._categories |= {category for category, _ in events}
                    return Sample(place + border, min(begins_ns for _, begins_ns in events))
                if events is not None:  # flows, counters, names of threads
                    return Sample(place, 0) if is_first else None
            length *= 4
        self.unreadable += 1
        return None


def _may_begin(at: Ints, begins_ns: Ints, until_ns: int) -> Flags:
    """Whether between each sample and the next events may begin before ``until_ns``."""
    before, after = begins_ns[:-1], begins_ns[1:]
    length = np.diff(at)
    pace = np.append(np.abs(after - before) / length, np.zeros(_OF_PACE))
    fastest = np.max([pace[n : n + len(length)] for n in range(_OF_PACE)], axis=0)
    began = after - _SAFELY * fastest * length
    return np.asarray((before < until_ns) | (began < until_ns), dtype=np.bool_)


def _timed(text: bytes) -> list[tuple[str, int]] | None:
    """Category and begin, to the µs below, of the events in ``text`` that took time.

    None where it is no whole elements, or none at all.
    """
    try:
        events = _DECODER.decode(b"[" + text + b"]")
    except (msgspec.DecodeError, RecursionError):
        return None
    timed = [(e.cat.lower(), _begins_ns(e.ts)) for e in events if e.ph == "X"]
    of_program = [(c, ns) for c, ns in timed if ns is not None and c != PROFILER_SPAN]
    return of_program if events else None


def _begins_ns(ts_us: float | str | None) -> int | None:
    """Whole µs of ``ts_us``, in ns; None where it is no possible time."""
    if ts_us is None:
        return None
    try:
        whole_ns = math.floor(float(ts_us)) * _NS_PER_US
    except (ValueError, OverflowError):
        return None
    return whole_ns if abs(whole_ns) <= MAX_NS else None
