"""XSpaces under construction, event by event."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lstmprof.events import Profile
from lstmprof.formats import read
from lstmprof.formats.xplane import schema

#: Of GPU 1.
GPU = "GPU_1_bfc"
#: (name, start in ps, length in ps, stats)
Event = tuple[str, int, int, Mapping[str, object]]


class Space:
    """An XSpace under construction; names and stats get their ids on first use."""

    def __init__(self) -> None:
        self.message = schema.xspace()()

    def plane(self, name: str, stats: Mapping[str, object] | None = None) -> Any:
        plane = self.message.planes.add(name=name.encode())
        self.add_stats(plane, plane, stats or {})
        return plane

    def line(self, plane: Any, name: str, timestamp_ns: int, *events: Event, **more: int) -> None:
        line = plane.lines.add(name=name.encode(), timestamp_ns=timestamp_ns, **more)
        for event_name, offset_ps, duration_ps, stats in events:
            key = len(plane.event_metadata) + 1
            plane.event_metadata.add(key=key, value={"id": key, "name": event_name.encode()})
            event = line.events.add(metadata_id=key, offset_ps=offset_ps, duration_ps=duration_ps)
            self.add_stats(plane, event, stats)

    def add_stats(self, plane: Any, owner: Any, stats: Mapping[str, object]) -> None:
        for name, value in stats.items():
            stat = owner.stats.add(metadata_id=self.stat_id(plane, name))
            if isinstance(value, int):
                stat.int64_value = value
            elif isinstance(value, bytes):
                stat.ref_value = self.stat_id(plane, value.decode())
            else:
                stat.str_value = str(value).encode()

    @staticmethod
    def stat_id(plane: Any, name: str) -> int:
        key = len(plane.stat_metadata) + 1
        plane.stat_metadata.add(key=key, value={"id": key, "name": name.encode()})
        return key

    def read(self, path: Path) -> Profile:
        file = path / "host.xplane.pb"
        file.write_bytes(self.message.SerializeToString())
        return read(file)


def mark(at_ns: int, by: int, total: int, whose: object = GPU) -> Event:
    """An allocation or free of ``by`` bytes, after which ``total`` are allocated."""
    name = "MemoryAllocation" if by > 0 else "MemoryDeallocation"
    stats: Mapping[str, object] = {
        **{"allocator_name": whose, "bytes_reserved": 0, "bytes_allocated": total},
        **{"bytes_available": 10**9 - total, "peak_bytes_in_use": 10**9, "addr": 2**40},
        **{"requested_bytes": abs(by) - 1, "allocation_bytes": abs(by), "tf_op": "MatMul"},
    }
    return (name, at_ns * 1000, 0, stats)
