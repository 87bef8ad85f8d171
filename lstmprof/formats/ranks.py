"""Profiles of several ranks as one: ``rank`` filled, times from one origin."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa

from lstmprof.events import Profile
from lstmprof.events.schema import COLUMNS
from lstmprof.events.table import events_table

_RANK = re.compile(r"(?:rank|worker|node|host|proc(?:ess)?)[-_]?(\d+)", re.IGNORECASE)
_OF_HOSTS = ("xplane", "trace_viewer")  # TensorFlow's profiler writes a file a host
_KEPT = tuple(c.name for c in COLUMNS if not c.derived and c.name not in ("event_id", "rank"))


def ranks_of(names: Sequence[str], profiles: Sequence[Profile]) -> list[int] | None:
    """The rank of each profile of one job; None where they are not ranks of one job.

    What the profiles say themselves counts, else the files' names; TensorFlow's profiler numbers
    no hosts, so they are counted in the order of their names.
    """
    if len({profile.format for profile in profiles}) > 1:
        return None
    said = [profile.metadata.get("rank") for profile in profiles]
    if all(rank is None for rank in said):
        found = [_RANK.search(name) for name in names]
        said = [int(match.group(1)) if match else None for match in found]
    if all(rank is None for rank in said) and profiles[0].format in _OF_HOSTS:
        return list(range(len(profiles)))
    whole = [rank for rank in said if isinstance(rank, int)]
    return whole if len(set(whole)) == len(profiles) else None


def of_one_job(ranks: Sequence[int], profiles: Sequence[Profile]) -> Profile:
    """The profiles of ``ranks`` as one.

    Where every profile says when it was taken, times count from the earliest; else each rank's
    from its own beginning, and a note says that they cannot be compared.
    """
    order = sorted(range(len(ranks)), key=lambda i: ranks[i])
    ranks, profiles = [ranks[i] for i in order], [profiles[i] for i in order]
    bases = [p.base_ns for p in profiles if p.base_ns is not None]
    aligned = len(bases) == len(profiles)
    base_ns = min(bases) if aligned else None
    shifts = [base - min(bases) for base in bases] if aligned else [0] * len(profiles)
    tables = [
        _moved(profile.events, rank, shift)
        for rank, profile, shift in zip(ranks, profiles, shifts, strict=True)
    ]
    whole = pa.concat_tables(tables).unify_dictionaries()
    names = {number: name for profile in profiles for number, name in profile.device_names.items()}
    notes = [
        f"rank {rank}: {note}"
        for rank, profile in zip(ranks, profiles, strict=True)
        for note in profile.notes
    ]
    notes += [] if aligned else ["ranks have clocks of their own: compare no times between them"]
    return Profile(
        format=profiles[0].format,
        base_ns=base_ns,
        events=events_table({n: whole.column(n) for n in whole.column_names}),
        device_names=names,
        notes=tuple(notes),
        metadata={"ranks": {str(r): p.metadata for r, p in zip(ranks, profiles, strict=True)}},
    )


def _moved(events: pa.Table, rank: int, shift_ns: int) -> pa.Table:
    start = pa.compute.add(events.column("start_ns"), shift_ns)
    kept = events.select(_KEPT)
    kept = kept.set_column(kept.schema.get_field_index("start_ns"), "start_ns", start)
    return kept.append_column("rank", pa.array([rank] * len(events), pa.int64()))
