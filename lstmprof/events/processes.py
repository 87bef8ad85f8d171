"""Join the profiles of several processes into one profile, and find each process's events again.

For example, a capture runs three processes (rounds), one after the other. Each process has its own
event ids and its own time 0, so code must not link or compare events of different processes.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from lstmprof.events import Profile
from lstmprof.events.counters import NO_COUNTERS
from lstmprof.events.intervals import Ints
from lstmprof.events.schema import SCHEMA
from lstmprof.events.table import UNKNOWN, EventTable
from lstmprof.events.threads import thread_ids

#: Columns with ids of events, which change when processes are joined.
_LINKS = ("event_id", "parent_id", "launch_id", "op_id", "forward_id")
#: Columns with ids that the profiler wrote; 0 and less mean unknown.
_OWN_IDS = ("correlation_id", "external_id")
#: Gap in ns between the last event of one process and the first event of the next process, when
#: lstmprof joins profiles without absolute times.
APART_NS = 1_000_000
#: Linux's largest pid (PID_MAX_LIMIT); adding multiples of this number makes pids distinct.
MOST_PID = 2**22
_MOST_ID = 2**62


@dataclass(frozen=True)
class Process:
    """The profile of one process, with links and categories."""

    profile: Profile
    pid: int | None


def joined(processes: Sequence[Process]) -> Profile:
    """Join the profiles of processes that ran one after the other."""
    profiles = [process.profile for process in processes]
    shifts = _absolute(profiles)
    placed = shifts is None
    # place profiles one after the other if the absolute times are unusable
    shifts = _one_after_the_other(profiles) if shifts is None else shifts
    tables = [p.events.arrow for p in profiles]
    for columns in (_LINKS, *((name,) for name in _OWN_IDS)):
        tables = _with_distinct_ids(tables, columns)
    tables = [_moved(table, shift) for table, shift in zip(tables, shifts, strict=True)]
    tables = _with_distinct_pids(tables, [process.pid for process in processes])
    whole = pa.concat_tables(tables).unify_dictionaries().combine_chunks()
    first = profiles[0]
    return replace(
        first,
        base_ns=None if placed else first.base_ns,
        events=EventTable(whole.cast(SCHEMA)),
        device_names={n: name for p in profiles[::-1] for n, name in p.device_names.items()},
        device_facts={n: facts for p in profiles[::-1] for n, facts in p.device_facts.items()},
        accelerators=tuple(dict.fromkeys(a for p in profiles for a in p.accelerators)),
        gpu_complaint=next((p.gpu_complaint for p in profiles if p.gpu_complaint), None),
        notes=tuple(_notes(profiles, placed)),
        counters=sum(
            (p.counters.shifted(shift) for p, shift in zip(profiles, shifts, strict=True)),
            NO_COUNTERS,
        ),
        metadata=_metadata(profiles),
    )


def _absolute(profiles: Sequence[Profile]) -> list[int] | None:
    """Return delays in ns after the first profile; None if unknown or overlapping."""
    bases = [p.base_ns for p in profiles if p.base_ns is not None]
    if len(profiles) == 1:
        return [0]
    if len(bases) < len(profiles):
        return None
    shifts = [base - bases[0] for base in bases]
    spans = [_span(profile) for profile in profiles]
    begins = [first + shift for (first, _), shift in zip(spans, shifts, strict=True)]
    ends = [last + shift for (_, last), shift in zip(spans, shifts, strict=True)]
    apart = all(end < begin for end, begin in zip(ends[:-1], begins[1:], strict=True))
    return shifts if apart else None


def _one_after_the_other(profiles: Sequence[Profile]) -> list[int]:
    shifts, free_ns = [], None
    for profile in profiles:
        first, last = _span(profile)
        shifts.append(0 if free_ns is None else free_ns - first)
        free_ns = shifts[-1] + last + APART_NS
    return shifts


def _span(profile: Profile) -> tuple[int, int]:
    """Return (first start, last end) of a profile's events in ns, or (0, 0) without events."""
    events = profile.events
    if not len(events):
        return 0, 0
    return int(events.start_ns.min()), int(events.end_ns.max())


def _with_distinct_ids(tables: Sequence[pa.Table], columns: Sequence[str]) -> list[pa.Table]:
    """Change ids so that no two tables share an id."""
    links = columns[0] == "event_id"
    ids = [{name: EventTable(t).ints(name, UNKNOWN) for name in columns} for t in tables]
    none = -1 if links else 0
    highest = [max(int(i.max(initial=none)) for i in of.values()) for of in ids]
    # Renumber large ids as 0, 1, 2 …, because sums of large ids could overflow.
    if sum(h + 1 for h in highest) >= _MOST_ID:
        ids = [{n: _dense(i, none) for n, i in of.items()} for of in ids]
        highest = [max(int(i.max(initial=none)) for i in of.values()) for of in ids]
    first, moved_tables = 0, []
    for table, of, most in zip(tables, ids, highest, strict=True):
        for name, values in of.items():
            moved = np.where(values > none, values + first, values)
            table = _with(table, name, pa.array(moved, mask=values == UNKNOWN))
        moved_tables.append(table)
        first += most + 1 if links else most
    return moved_tables


def _dense(ids: Ints, none: int) -> Ints:
    _, places = np.unique(ids[ids > none], return_inverse=True)
    counted = ids.copy()
    counted[ids > none] = places + none + 1
    return counted


def _with(table: pa.Table, name: str, values: pa.Array) -> pa.Table:
    place = table.schema.get_field_index(name)
    return table.set_column(place, SCHEMA.field(name), values.cast(SCHEMA.field(name).type))


def _moved(table: pa.Table, shift_ns: int) -> pa.Table:
    start = EventTable(table).start_ns
    return _with(table, "start_ns", pa.array(start + shift_ns)) if shift_ns else table


def _with_distinct_pids(tables: Sequence[pa.Table], pids: Sequence[int | None]) -> list[pa.Table]:
    """Change pids so that no two tables share a pid, and fill in missing pids."""
    used: set[int] = set()
    changed = []
    for number, (table, own) in enumerate(zip(tables, pids, strict=True)):
        events = EventTable(table)
        pid, on_host = events.ints("pid", UNKNOWN), thread_ids(events) >= 0
        if own is not None:
            pid = np.where(on_host & (pid == UNKNOWN), own, pid)
        own_pids = set(np.unique(pid[pid != UNKNOWN]).tolist())
        if own_pids & used:
            pid = np.where(pid == UNKNOWN, UNKNOWN, pid + number * MOST_PID)
            own_pids = set(np.unique(pid[pid != UNKNOWN]).tolist())
        used |= own_pids
        changed.append(_with(table, "pid", pa.array(pid, mask=pid == UNKNOWN)))
    return changed


def _notes(profiles: Sequence[Profile], placed: bool) -> list[str]:
    everywhere = [note for note in profiles[0].notes if all(note in p.notes for p in profiles)]
    notes = everywhere + [
        f"round {number}: {note}"
        for number, profile in enumerate(profiles, 1)
        for note in profile.notes
        if note not in everywhere
    ]
    if placed:
        notes.append(
            "the rounds (processes of the run) have no common clock, so their events are shown "
            "one round after another, with arbitrary gaps between the rounds"
        )
    return notes


def _metadata(profiles: Sequence[Profile]) -> dict[str, Any]:
    """Return the first profile's metadata, with thread names on which profiles agree."""
    metadata = dict(profiles[0].metadata)
    threads = [p.metadata["threads"] for p in profiles if p.metadata.get("threads")]
    names: dict[str, set[str]] = {}
    for tid, name in itertools.chain.from_iterable(of.items() for of in threads):
        names.setdefault(tid, set()).add(name)
    if threads:
        metadata["threads"] = {tid: next(iter(of)) for tid, of in names.items() if len(of) == 1}
    return metadata


def successive_processes(events: EventTable, rows: Ints) -> list[Ints]:
    """Split a rank's rows by process if its processes ran one after the other."""
    host = rows[(thread_ids(events) >= 0)[rows]]
    pid = events.ints("pid", UNKNOWN)[host]
    if not len(pid) or pid.min() == pid.max():
        return [rows]
    numbers, process = np.unique(pid, return_inverse=True)
    first = np.full(len(numbers), np.iinfo(np.int64).max)
    last = np.full(len(numbers), UNKNOWN)
    np.minimum.at(first, process, events.start_ns[host])
    np.maximum.at(last, process, events.end_ns[host])
    order = np.argsort(first, kind="stable")
    first, last = first[order], last[order]
    if (first[1:] < last[:-1]).any():
        return [rows]
    turn = np.searchsorted(first, events.start_ns[rows], side="right") - 1
    return [rows[np.maximum(turn, 0) == number] for number in range(len(numbers))]
