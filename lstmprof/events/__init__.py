"""The events table: one row per event, whatever profiler wrote it.

::

    profile ─ formats ─▶ Profile.events ─ annotate ─▶ events with every column ─ runs ─▶ Parquet

``schema`` describes the columns. ``table`` gives them to computations as arrays. ``counters`` has
memory and other counters of the profile.
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
    """Properties of a device from a profile; None if unknown.

    ``compute_capability`` is text such as ``8.0``; AMD GPUs have their own numbers. For a slice of
    a GPU (MIG), ``multiprocessors`` counts those of the slice.
    """

    compute_capability: str | None = None
    multiprocessors: int | None = None
    warp_size: int | None = None

    def __bool__(self) -> bool:
        return self != DeviceFacts()


@dataclass(frozen=True)
class Profile:
    """The content of one raw profile, as a reader returns it, before links and categories.

    The derived columns of ``events`` are all null. ``base_ns`` is the epoch time of ``start_ns`` 0,
    or None if the file does not record it. ``device_names`` and ``device_facts`` describe each
    device number. ``accelerators`` are the GPUs that the profile names, even if nothing was
    recorded on them. ``gpu_complaint`` is the profiler's log message if it recorded nothing on
    them. ``notes`` are sentences for the user, such as which events could not be read, and why.
    ``counters`` are the counters of the profile.
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
