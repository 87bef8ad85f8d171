"""The rows of many breakdowns, for programs and pages: every run's tables, ``run`` in front."""

from __future__ import annotations

import dataclasses
from typing import Any

from lstmprof.breakdown import Breakdown
from lstmprof.breakdown.tables import TABLES
from lstmprof.breakdown.timings import Timings, slowdowns

#: What must agree for two runs to be compared.
_COMPARABLE = ("workload", "precision", "mode", "device_name", "threads", "seed")
#: run.json fields that stand beside the times.
_FACTS = ("implementation", "precision", "mode", "device", "device_name", "kernels_used", "threads")


def columns(table: str) -> list[str]:
    """The columns of one table, in order."""
    if table == "timings":
        measured = [field.name for field in dataclasses.fields(Timings)]
        return ["run", *_FACTS[:1], "workload", *_FACTS[1:], *measured, "slowdown"]
    return ["run", *(column.name for column in TABLES[table].columns)]


def rows(breakdowns: list[Breakdown], table: str, top: int | None = None) -> list[dict[str, Any]]:
    """The rows of one table over all runs, the first ``top`` of each; unknown is None.

    Times and the ledger of a step are given whole.
    """
    if table == "timings":
        return _timing_rows(breakdowns)
    most = None if table == "ledger" else top
    return [
        {"run": breakdown.run.name, **row}
        for breakdown in breakdowns
        for row in breakdown.table(table).slice(0, most).to_pylist()
    ]


def _timing_rows(breakdowns: list[Breakdown]) -> list[dict[str, Any]]:
    slowdown = compared(breakdowns)
    timings = []
    for position, breakdown in enumerate(breakdowns):
        if breakdown.timings is None:
            continue
        info = breakdown.run.info
        row = {
            "run": breakdown.run.name,
            "workload": info.workload.name,
            **{name: getattr(info, name) for name in _FACTS},
            **dataclasses.asdict(breakdown.timings),
            "slowdown": slowdown.get(position),
        }
        timings.append({name: row[name] for name in columns("timings")})
    return timings


def comparable(breakdowns: list[Breakdown]) -> list[list[int]]:
    """Positions of the timed breakdowns in groups that can be compared: the same conditions."""
    groups: dict[str, list[int]] = {}
    for position, breakdown in enumerate(breakdowns):
        if breakdown.timings is not None:
            key = repr([getattr(breakdown.run.info, name) for name in _COMPARABLE])
            groups.setdefault(key, []).append(position)
    return list(groups.values())


def compared(breakdowns: list[Breakdown]) -> dict[int, float]:
    """Position of a breakdown -> its slowdown against the fastest comparable one.

    A run with none to compare with is left out.
    """
    ratios: dict[int, float] = {}
    for group in comparable(breakdowns):
        medians = {i: t.median_ns for i in group if (t := breakdowns[i].timings) is not None}
        ratios |= slowdowns(medians) if len(medians) > 1 else {}
    return ratios
