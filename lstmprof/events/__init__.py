"""The events table: one row per event, whatever profiler wrote it.

::

    profile ─ formats ─▶ Profile.events ─ annotate ─▶ events with every column ─ runs ─▶ Parquet

``schema`` describes the columns. ``table`` returns columns as NumPy arrays. ``counters`` has the
profile's memory counters and other counters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lstmprof.events.counters import NO_COUNTERS, Counters
from lstmprof.events.table import EventTable

__all__ = ["DeviceFacts", "EventTable", "Profile"]


@dataclass(frozen=True)
class DeviceFacts:
    """What a profile says about one device; a value is None if it is unknown.

    ``compute_capability`` is text such as ``8.0``. In a slice of a GPU (MIG), ``multiprocessors``
    are those of the slice.
    """

    compute_capability: str | None = None
    multiprocessors: int | None = None
    warp_size: int | None = None

    def __bool__(self) -> bool:
        return self != DeviceFacts()


@dataclass(frozen=True)
class Profile:
    """The content of one raw profile, as its reader returns it.

    The derived columns of ``events`` (links, categories, steps) are still null. ``base_ns`` is the
    epoch time at which ``start_ns`` is 0. ``accelerators`` are the GPUs that the profile names,
    even without GPU events; ``gpu_complaint`` is the profiler's message about its failure to record
    them. ``notes`` are sentences for the user. ``process_groups`` are groups of some but not all
    ranks.
    """

    format: str
    base_ns: int | None
    events: EventTable
    device_names: Mapping[int, str] = field(default_factory=dict)
    device_facts: Mapping[int, DeviceFacts] = field(default_factory=dict)
    accelerators: tuple[str, ...] = ()
    gpu_complaint: str | None = None
    notes: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    counters: Counters = NO_COUNTERS
    process_groups: frozenset[frozenset[int]] = frozenset()
