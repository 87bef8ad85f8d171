"""What must hold of every input: it is read, and then its ledger is exact, or refused in one line.

An accepted profile's events are accounted for by rank: many inputs as the ranks of one job are one
pass of ``annotated`` and ``ledger``, where each alone would take twenty times as long. Where a
whole fails, each of its parts is tried alone, which finds the input to blame.
"""

from __future__ import annotations

import resource
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from lstmprof.base.errors import LstmprofError
from lstmprof.breakdown.attribution.ledger import ledger
from lstmprof.events import EventTable, Profile
from lstmprof.events.annotate import annotated
from lstmprof.events.annotate.steps import Window, windows
from lstmprof.events.schema import KINDS, PHASES
from lstmprof.formats import sources

#: The bounds of an input: what a machine under load may take is left to them.
MOST_SECONDS, MOST_BYTES, MOST_LETTERS = 10, 2**30, 2000
_JOB = 24
_NOBODY = -1


class BrokenPromiseError(AssertionError):
    """An input did what no input may do."""


class BusyError(Exception):
    """An input took long, by a clock that other processes turn too."""


@dataclass
class Tally:
    """What became of the inputs of a target, and the profiles still to be accounted for."""

    inputs: int = 0
    accepted: int = 0
    refused: int = 0
    ledgers: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    waiting: list[tuple[bytes, Profile]] = field(default_factory=list)
    every: int = 1  # of so many that are accepted, one is accounted for

    def accept(self, content: bytes, profile: Profile) -> None:
        """Check the events of ``profile``, and keep it for an account."""
        holds(len(profile.events) or profile.counters, "a profile without events is accepted")
        check_events(profile.events)
        self.accepted += 1
        if self.is_account_due():
            self.waiting.append((content, profile))

    def is_account_due(self) -> bool:
        """Whether the one that was accepted last is to be accounted for."""
        return self.accepted % self.every == 0

    def refuse(self, error: LstmprofError, file: str) -> None:
        """Check what a refusal of ``file`` says."""
        check_refusal(error, file)
        self.refused += 1
        self.faults[error.fault.partition(": ")[2][:24]] += 1

    def account(self, *, least: int = _JOB) -> Iterator[tuple[bytes, Exception]]:
        """Account for those that wait, once they are ``least``; yields the inputs that fail."""
        if len(self.waiting) < max(1, least):
            return
        waiting, self.waiting = self.waiting, []
        self.ledgers += len(waiting)
        try:
            check_job([profile for _, profile in waiting])
        except Exception as whole:
            alone = [*_failing(waiting)]
            yield from alone or [(waiting[0][0], whole)]


def _failing(waiting: Iterable[tuple[bytes, Profile]]) -> Iterator[tuple[bytes, Exception]]:
    for content, profile in waiting:
        try:
            check_job([profile])
        except Exception as error:
            yield content, error


def check_refusal(error: LstmprofError, file: str) -> None:
    """The error is one line that names the file, and not without end."""
    text = str(error)
    holds(text.isprintable(), f"a message with control characters: {text!r}")
    holds(file in text, f"a message that does not name {file}: {text!r}")
    holds(len(text) < MOST_LETTERS, f"a message of {len(text)} letters: {text[:200]!r}")


def holds(promise: object, otherwise: str) -> None:
    """``promise`` is true.

    Raises:
        BrokenPromiseError: it is not.
    """
    if not promise:
        raise BrokenPromiseError(otherwise)


def check_events(events: EventTable) -> None:
    """The table of a reader is whole: sorted, numbered, and no time in it runs backwards."""
    events.validate(full=True)
    start = events.start_ns
    check_times(events)
    holds((np.diff(start) >= 0).all(), "the events are not sorted by start")
    holds((events.ints("event_id", _NOBODY) == np.arange(len(events))).all(), "event ids are off")
    holds(set(events.texts("kind")[1]) <= set(KINDS), "an event of a kind that is none")
    holds(not events.column("name").null_count, "an event without a name")


def check_times(events: EventTable) -> None:
    """No event ends before it starts."""
    forwards = (events.dur_ns >= 0) & (events.end_ns >= events.start_ns)
    holds(forwards.all(), "an event ends before it starts")


def check_job(profiles: Sequence[Profile]) -> None:
    """The profiles, as the ranks of one job, are annotated and accounted for exactly."""
    alone = len(profiles) == 1
    job = profiles[0] if alone else sources.join_ranks(range(len(profiles)), _fitting(profiles))
    check_account(annotated(job.events, captured=False))


def _fitting(profiles: Sequence[Profile]) -> list[Profile]:
    """The same without their epochs: between those of damaged files may lie centuries."""
    return [replace(profile, base_ns=None) for profile in profiles]


def check_account(events: EventTable) -> None:
    """The derived columns of ``events`` are in range, and the ledger of its steps is exact."""
    for column in ("parent_id", "launch_id", "op_id", "forward_id"):
        number = events.ints(column, _NOBODY)
        holds(((number >= _NOBODY) & (number < len(events))).all(), f"{column} out of range")
    parent = events.ints("parent_id", _NOBODY)
    holds(not _has_cycle(parent), "a cycle in parent_id")
    holds(set(events.texts("phase")[1]) <= set(PHASES), "a phase that is none")
    steps = windows(events, captured=False)
    check_ledger(ledger(events, steps).to_pylist(), steps)


def _has_cycle(parent: np.ndarray) -> bool:
    """Whether one comes back to an event by going from parent to parent."""
    ancestor = parent.copy()
    for _ in range(len(parent).bit_length() + 1):
        known = ancestor != _NOBODY
        if not known.any():
            return False
        ancestor = np.where(known, ancestor[ancestor], _NOBODY)
    return bool((ancestor != _NOBODY).any())


def check_ledger(rows: Sequence[dict[str, Any]], steps: Sequence[Window]) -> None:
    """Every nanosecond of each step and lane is counted once."""
    lengths: Counter[tuple[Any, Any]] = Counter()
    for window in steps:
        holds(window.end_ns > window.start_ns, "a step without a length")
        lengths[window.rank, window.step] += window.end_ns - window.start_ns
    lanes: defaultdict[tuple[Any, Any, Any], int] = defaultdict(int)
    for row in rows:
        holds(row["ns"] > 0, f"a row of {row['ns']} ns")
        lanes[row["rank"], row["step"], row["device"]] += row["ns"]
    for (rank, step, device), ns in lanes.items():
        whole = lengths[rank, step]
        holds(ns == whole, f"device {device}: {ns} ns of a step of {whole} ns")
    accounted = {(rank, step) for rank, step, _ in lanes}
    holds(accounted == set(lengths), "a step without an account")


@contextmanager
def bounded() -> Iterator[None]:
    """What runs within takes no more time and no more new memory than an input may.

    Raises:
        BrokenPromiseError: it took more.
        BusyError: it took more time, of which others may have had a part.
    """
    began, held = time.monotonic(), _peak_bytes()
    yield
    grew = _peak_bytes() - held
    holds(grew < MOST_BYTES, f"it took {grew / 2**20:.0f} MiB more memory")
    if time.monotonic() - began > MOST_SECONDS:
        raise BusyError


@contextmanager
def bounded_alone() -> Iterator[None]:
    """What runs within takes no more processor time than an input may.

    Raises:
        BrokenPromiseError: it took more.
    """
    began = time.process_time()
    yield
    took = time.process_time() - began
    holds(took < MOST_SECONDS, f"it took {took:.1f} s of processor time")


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
