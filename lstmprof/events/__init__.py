"""The events table: one row per event, with equal columns for every profiler.

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
    """Facts about one device from a profile."""

    compute_capability: str | None = None  # such as 8.0
    multiprocessors: int | None = None  # of a slice, if the GPU is divided (MIG)
    warp_size: int | None = None

    def __bool__(self) -> bool:
        return self != DeviceFacts()


@dataclass(frozen=True)
class Profile:
    """The events and facts that a reader in ``formats`` finds in one profile."""

    format: str
    base_ns: int | None  # epoch time of start_ns 0
    events: EventTable  # links, categories and steps are still null
    device_names: Mapping[int, str] = field(default_factory=dict)
    device_facts: Mapping[int, DeviceFacts] = field(default_factory=dict)
    accelerators: tuple[str, ...] = ()  # names of GPUs, even without GPU events
    gpu_complaint: str | None = None  # the profiler's message why it recorded no GPU events
    notes: tuple[str, ...] = ()  # sentences for the user
    metadata: Mapping[str, Any] = field(default_factory=dict)
    counters: Counters = NO_COUNTERS
    process_groups: frozenset[frozenset[int]] = frozenset()  # without the group of all ranks
