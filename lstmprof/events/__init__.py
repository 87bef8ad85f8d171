"""The events table, in the middle of all: one row an event, whatever profiler wrote it.

::

    profile ─ formats ─▶ Profile.events ─ annotate ─▶ events with every column ─ runs ─▶ Parquet

``schema`` says what the columns mean, ``table`` gives them to computations as arrays. What a
profile says of memory and other counters stands beside them (``counters``).
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
    """What a profile says of a device; None unknown.

    ``compute_capability`` is ``8.0``, of a GPU of AMD its own numbers. Of a slice of a GPU (MIG)
    the multiprocessors are the slice's.
    """

    compute_capability: str | None = None
    multiprocessors: int | None = None
    warp_size: int | None = None

    def __bool__(self) -> bool:
        return self != DeviceFacts()


@dataclass(frozen=True)
class Profile:
    """What a reader makes of one raw profile, before links and categories.

    The derived columns of ``events`` are all null. ``base_ns`` is the epoch time of
    ``start_ns`` 0, None where the file does not say. ``device_names`` maps a device number to the
    name the profile gives it, ``device_facts`` to what else it says of it. ``accelerators`` are the
    GPUs and their like that it names, whether or not anything was recorded on them;
    ``gpu_complaint`` is what its profiler logged where it recorded nothing there. ``notes`` are
    other sentences the user must be told (events that could not be read, and why). ``counters``
    stand beside the events.
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
