"""The tables of an XPlane's names and stats, to which its events refer by number."""

from __future__ import annotations

from typing import Any

from lstmprof.formats.xplane import events


def text(content: bytes) -> str:
    """A text of the file; bytes of no encoding become U+FFFD."""
    return content.decode("utf-8", errors="replace")


class PlaneTables:
    """Names and stats of one plane's events; ``wanted`` names the stats that are read."""

    def __init__(self, plane: Any) -> None:
        self._stat_names = {e.key: text(e.value.name) for e in plane.stat_metadata}
        self.wanted = {k: n for k, n in self._stat_names.items() if n in events.STATS}
        self._metadata = {
            e.key: (text(e.value.name), self.stats(e.value.stats)) for e in plane.event_metadata
        }

    def described(self, event: Any) -> tuple[str, dict[str, Any]]:
        """The event's name and those of its stats that are read, its kind's own included."""
        name, shared = self._metadata.get(event.metadata_id, ("", {}))
        return name, {**shared, **self.stats(event.stats)}

    def stats(self, stats: Any) -> dict[str, Any]:
        """By name, those of these stats that are read."""
        found = ((self.wanted.get(stat.metadata_id), stat) for stat in stats)
        return {name: self.value(stat) for name, stat in found if name is not None}

    def all_stats(self, stats: Any) -> dict[str, Any]:
        """By name, all of these stats."""
        return {self._stat_names.get(s.metadata_id, ""): self.value(s) for s in stats}

    def value(self, stat: Any) -> Any:
        """What a stat holds."""
        field = stat.WhichOneof("value")
        if field == "ref_value":  # an id into the table of names: how repeated texts are stored
            return self._stat_names.get(stat.ref_value)
        if field == "str_value":
            return text(stat.str_value)
        return getattr(stat, field) if field else None
