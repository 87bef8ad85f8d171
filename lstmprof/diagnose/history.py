"""Compare the step time of an implementation from run to run, and mark changes.

``Series.sentence``: ``torch-nn-lstm: 5 runs. Steps became 1.20× as long at v2. Last run: 9.61 ms
per step``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from lstmprof.base import names
from lstmprof.base.numbers import listed, milliseconds, number_of
from lstmprof.breakdown.clean.slot_times import Span
from lstmprof.breakdown.result import Table
from lstmprof.diagnose.certainty.pair import EQUAL_SHARE, Ratio, ratio_of, span_of
from lstmprof.diagnose.step_profile import StepProfile
from lstmprof.events.schema import Column, schema
from lstmprof.runs.metadata import condition

#: Relative change of the step time above which lstmprof reports a slower or faster step.
LEAST_CHANGE_SHARE = EQUAL_SHARE
_NOT_COMPARED = "no earlier run of the series can be compared"
_UNBOUNDED = f"{_NOT_COMPARED}, or the end is unbounded"
_NO_LABEL = "(no label) "
COLUMNS = (
    Column.text(
        "series", "implementation, workload, and other conditions that differ between series"
    ),
    Column.text("run", "name of the run"),
    Column.text("label", "value of --label", "no label was given"),
    Column.text("started_at", "start of the run, ISO 8601", "the run does not record it"),
    Column.real("step_ns", "length of the clean step"),
    Column.real("step_low_ns", "low end of the 95 % interval of step_ns"),
    Column.real("step_high_ns", "high end of the 95 % interval of step_ns"),
    Column.integer("rounds", "number of timed processes; 1 if the run was not timed"),
    Column.text("against", "earlier run that this run is compared with", _NOT_COMPARED),
    Column.real("ratio", "step_ns divided by step_ns of against", _NOT_COMPARED),
    Column.real("ratio_low", "low end of the 95 % interval of ratio", _NOT_COMPARED),
    Column.real("ratio_high", "high end of the 95 % interval of ratio", _UNBOUNDED),
    Column.text(
        "change", "slower or faster, if the step changes at this run", "it does not change"
    ),
)


@dataclass(frozen=True)
class Point:
    """One run of a series, and how its step compares with an earlier run."""

    profile: StepProfile
    step: Span
    against: StepProfile | None = None  # the earlier run
    ratio: Ratio | None = None

    @property
    def change(self) -> Literal["slower", "faster"] | None:
        """Return how the step changed, or None if the change may be small or noise."""
        if self.ratio is None:
            return None
        if self.ratio.low > 1 + LEAST_CHANGE_SHARE:
            return "slower"
        high = self.ratio.high
        return "faster" if high is not None and high < 1 / (1 + LEAST_CHANGE_SHARE) else None

    @property
    def when(self) -> str:
        """Return when the run started, in ISO 8601."""
        return self.profile.info.started_at or self.profile.info.created or ""

    @property
    def since(self) -> str:
        """Return the run's label; without a label, its start time or name."""
        return self.label.removeprefix(_NO_LABEL)

    @property
    def label(self) -> str:
        """Return the label, or a text such as ``(no label) 2026-05-01 12:30``."""
        name = self.when[:16].replace("T", " ") or self.profile.name
        return self.profile.info.label or f"{_NO_LABEL}{name}"


@dataclass(frozen=True)
class Series:
    title: str
    points: tuple[Point, ...]  # oldest first

    @property
    def changes(self) -> tuple[Point, ...]:
        return tuple(point for point in self.points if point.change)

    @property
    def sentence(self) -> str:
        """Return one sentence on the changes of the step time and its last value."""
        last, texts = self.points[-1], []
        for point in self.changes:
            assert point.ratio is not None
            times = max(point.ratio.value, 1 / point.ratio.value)
            as_long = f"{times:,.2f}× as {'long' if point.change == 'slower' else 'fast'}"
            texts.append(f"{as_long} at {point.since}")
        changed = f"Steps became {listed(texts)}" if texts else "No change"
        runs = number_of(len(self.points), "run", "runs")
        sizes = last.profile.info.workload.sizes
        title = f"{self.title} ({sizes})" if sizes else self.title
        return f"{title}: {runs}. {changed}. Last run: {milliseconds(last.step.ns, 2)} ms per step"


def history(profiles: Sequence[StepProfile]) -> list[Series]:
    """Return one series of runs per implementation, workload and conditions."""
    groups: dict[tuple[Any, ...], list[StepProfile]] = {}
    for profile in profiles:
        info = profile.info
        implementation = profile.implementation or f"{info.framework or ''} profiles".strip()
        conditions = (condition(name, info) for name in names.CONDITIONS)
        key = (implementation, info.workload.name, *conditions)
        groups.setdefault(key, []).append(profile)
    titles = _titles(list(groups))
    return [
        Series(title, tuple(_points(group)))
        for title, group in zip(titles, groups.values(), strict=True)
    ]


def _titles(keys: Sequence[tuple[Any, ...]]) -> list[str]:
    """Name each series after the conditions that differ between series."""
    columns = zip(names.CONDITIONS[1:], zip(*(key[3:] for key in keys), strict=True), strict=False)
    differing = [(name, values) for name, values in columns if len(set(values)) > 1]
    heads = [
        (*key[:2], *(f"{name} {values[n]}" for name, values in differing if values[n]))
        for n, key in enumerate(keys)
    ]
    return [", ".join(str(part) for part in head if part) for head in heads]


def _points(profiles: Sequence[StepProfile]) -> list[Point]:
    points: list[Point] = []
    level: list[Point] = []  # the runs since the last change
    started = sorted(
        (Point(p, span_of(p)) for p in profiles), key=lambda point: (point.when, point.profile.name)
    )
    for point in started:
        if level and point.profile.length_ns > 0:
            # compare with the run of the level that has the narrowest 95 % interval
            reference = min(level, key=_width).profile
            ratio = ratio_of(reference, point.profile)
            point = Point(point.profile, point.step, reference, ratio)
        if point.profile.length_ns > 0:
            level = [point] if point.change else [*level, point]
        points.append(point)
    return points


def _width(point: Point) -> float:
    return point.step.high_ns / point.step.low_ns if point.step.low_ns > 0 else float("inf")


def table(series: Sequence[Series]) -> Table:
    rows = [
        {
            "series": of.title,
            "run": point.profile.name,
            "label": point.profile.info.label,
            "started_at": point.when or None,
            "step_ns": point.step.ns,
            "step_low_ns": point.step.low_ns,
            "step_high_ns": point.step.high_ns,
            "rounds": point.profile.rounds,
            "against": point.against and point.against.name,
            "ratio": point.ratio and point.ratio.value,
            "ratio_low": point.ratio and point.ratio.low,
            "ratio_high": point.ratio and point.ratio.high,
            "change": point.change,
        }
        for of in series
        for point in of.points
    ]
    return Table("history", pa.Table.from_pylist(rows, schema(COLUMNS)), COLUMNS)
