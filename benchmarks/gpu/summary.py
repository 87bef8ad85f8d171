"""A table of the session's captures: one line per run, or per raw capture that is not yet a run."""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu import packing, raw_captures

UNKNOWN = "–"
#: Maximum size in bytes of a run's events for which the table has a breakdown, which takes seconds
#: per million events.
MOST_EVENTS_BYTES = 20_000_000
HEADS = ("step ms", "device ms", "busy", "waits for host", "kernels/step", "n", "MB", "capture")


@dataclasses.dataclass(frozen=True)
class Line:
    """One capture in the table.

    A value is None if the profile was not read, or if the step ran on the CPU.
    """

    name: str
    step_ms: float
    device_ms: float | None
    busy_share: float | None
    waits_for_host_share: float | None
    activities: float | None  # device activities per profiled step
    iterations: int
    size_bytes: int

    def cells(self) -> tuple[str, ...]:
        """Return the texts in the columns ``HEADS``; a star marks a run below ``SAMPLE_BYTES``."""
        sample = "*" if self.size_bytes < packing.SAMPLE_BYTES else ""
        return (
            f"{self.step_ms:.3f}",
            UNKNOWN if self.device_ms is None else f"{self.device_ms:.3f}",
            UNKNOWN if self.busy_share is None else f"{self.busy_share:.0%}",
            UNKNOWN if self.waits_for_host_share is None else f"{self.waits_for_host_share:.0%}",
            UNKNOWN if self.activities is None else f"{self.activities:.0f}",
            str(self.iterations),
            f"{self.size_bytes / 1e6:.2f}{sample}",
            self.name,
        )


def lines(out: Path, names: Sequence[str]) -> list[Line]:
    """Return a line for each of ``names`` that exists as a run or raw capture."""
    return [
        _line(out, name, folder)
        for name in names
        for folder in [packing.folder_of(out, name)]
        if folder is not None
    ]


def text(rows: Sequence[Line]) -> list[str]:
    """Return the lines of the table, with a header."""
    cells = [HEADS, *(row.cells() for row in rows)]
    widths = [max(len(row[n]) for row in cells) for n in range(len(HEADS) - 1)]
    return [
        "  ".join([*(c.rjust(w) for c, w in zip(row[:-1], widths, strict=True)), row[-1]])
        for row in cells
    ]


def _line(out: Path, name: str, folder: Path) -> Line:
    made = (out / name / "run.json").is_file()
    timings = _timings_of_run(folder) if made else raw_captures.read(out, name)["timings"]
    counted = [n for n, warmup in enumerate(timings["warmup"]) if not warmup]
    device = [timings["device_ns"][n] for n in counted]
    return Line(
        name,
        statistics.median(timings["wall_ns"][n] for n in counted) / 1e6,
        None if None in device else statistics.median(device) / 1e6,
        *(_account(folder) if made and _is_quick(folder) else (None, None, None)),
        iterations=len(counted),
        size_bytes=packing.size_bytes(folder),
    )


def _timings_of_run(folder: Path) -> dict[str, list[Any]]:
    from lstmprof.runs.run import open_run

    timings = open_run(folder).timings()
    assert timings is not None  # every capture has timings
    found: dict[str, list[Any]] = timings.to_pydict()
    return found


def _is_quick(folder: Path) -> bool:
    return (folder / "events.parquet").stat().st_size <= MOST_EVENTS_BYTES


def _account(folder: Path) -> tuple[float | None, float | None, float | None]:
    """Return (busy share, share of waits for the host, device activities per step).

    All are None if no device was used.
    """
    from lstmprof.breakdown import break_down
    from lstmprof.breakdown.mean_step import mean_steps
    from lstmprof.runs.run import open_run

    breakdown = break_down(open_run(folder), None, ["ledger", "steps"])
    launched = [step["activities"] for step in breakdown.table("steps").to_pylist()]
    found = [step for step in mean_steps(breakdown.ledger) if step.device is not None]
    if not found:
        return None, None, None
    return found[0].busy_share, found[0].waits_for_host_share, statistics.mean(launched)


def hardware(out: Path, names: Sequence[str]) -> str:
    """Return the device and the versions of the first existing capture, in one line."""
    for name in names:
        folder = packing.folder_of(out, name)
        if folder is not None:
            file = "run.json" if (folder / "run.json").is_file() else raw_captures.FILE
            found = json.loads((folder / file).read_text(encoding="utf-8"))
            facts = found.get("metadata", found)
            versions = {k: v for k, v in facts["versions"].items() if v}
            told = ", ".join(f"{name} {version}" for name, version in versions.items())
            return f"{facts['device_name']}; {told}"
    return "nothing was captured"
