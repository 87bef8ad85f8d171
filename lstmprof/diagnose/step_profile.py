"""One run as the diagnosis sees it: where its mean step goes, item by item, and its tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

#: (state, part): those of the ledger, and ``input`` with what its phase held.
Part = tuple[str, str]


@dataclass(frozen=True)
class Item:
    """Time of the mean step that goes to one thing; ``ns`` in it, ``count`` calls of it.

    ``name`` of the op or activity, None for time that none holds; ``serves`` the category that an
    op is for. ``short``: its calls compute next to nothing. ``before``: the time is that between
    ops, just before it was called.
    """

    state: str
    part: str
    ns: int
    count: float = 0.0
    name: str | None = None
    serves: str | None = None
    family: str | None = None
    short: bool = False
    before: bool = False


@dataclass(frozen=True)
class Case:
    """One lane of a run: a device of a rank, or the host (``device`` None).

    ``facts`` is run.json. ``median_ns`` is that of the undisturbed steps with its 95 % interval,
    None where it was not timed. ``steps`` were profiled; ``marked`` is False where the profile has
    no step markers and its whole is taken as one. ``items`` sum to the length of the mean profiled
    step. ``sync_calls`` are the blocking runtime calls of a step, None where no runtime call was
    recorded. ``tables`` are those of a breakdown, of this lane's rank, windows and device alone.
    """

    name: str
    facts: Mapping[str, Any]
    median_ns: int | None
    interval_ns: tuple[float, float] | None
    steps: int
    marked: bool
    rank: int | None
    device: int | None
    items: tuple[Item, ...]
    sync_calls: float | None = None
    tables: Mapping[str, pa.Table] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def profiled_ns(self) -> int:
        """Length of the mean profiled step."""
        return sum(item.ns for item in self.items)

    @property
    def length_ns(self) -> int:
        """Length of an undisturbed step, of a profiled one where none was timed."""
        return self.profiled_ns if self.median_ns is None else self.median_ns

    @property
    def parts(self) -> dict[Part, int]:
        """(state, part) → nanoseconds of the mean profiled step."""
        found: dict[Part, int] = {}
        for item in self.items:
            found[item.state, item.part] = found.get((item.state, item.part), 0) + item.ns
        return found

    @property
    def busy_ns(self) -> int:
        """Busy time of the mean profiled step."""
        return sum(item.ns for item in self.items if item.state == "busy")

    @property
    def time_steps(self) -> int | None:
        """Time steps of a sequence; None unknown."""
        return (self.facts.get("workload") or {}).get("time_steps")

    def rows(self, table: str) -> list[dict[str, Any]]:
        """The rows of one of its tables; none where it has no such table."""
        return list(self.tables[table].to_pylist()) if table in self.tables else []


def mean_of(totals: Sequence[int], steps: int) -> list[int]:
    """Each of ``totals`` over ``steps``, in integers whose sum is that of the whole, rounded.

    Method of the largest remainder (Hamilton).
    """
    floors = [total // steps for total in totals]
    missing = round(sum(totals) / steps) - sum(floors)
    by_remainder = sorted(range(len(totals)), key=lambda i: -(totals[i] % steps))
    for i in by_remainder[:missing]:
        floors[i] += 1
    return floors


def total_ns(items: Iterable[Item]) -> int:
    """Nanoseconds of ``items``."""
    return sum(item.ns for item in items)


def labels(fast: Case, slow: Case) -> tuple[str, str]:
    """What tells the two apart: the implementation where that is enough, else the run's name."""
    one, other = (_label(case) for case in (fast, slow))
    return (one, other) if one != other else (fast.name, slow.name)


def _label(case: Case) -> str:
    return str(case.facts.get("implementation") or case.name)
