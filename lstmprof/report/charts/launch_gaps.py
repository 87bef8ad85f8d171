"""How long each kernel runs against how long its device waited before it: who is launch-bound.

Above the line the gap is the longer of both: a faster kernel would change nothing there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import altair as alt

from lstmprof.report import drawing
from lstmprof.report.model import Figure, GapRow, Group, Report
from lstmprof.report.palette import order_of, part_of

TITLE = "Kernels against the gaps before them"
#: Pixels.
HEIGHT = 360


def figures(report: Report) -> list[Figure]:
    """One a run with a device."""
    found: list[Figure] = []
    for facts in report.runs:
        rows = [r for r in report.gaps if r.run == facts.run]
        if rows:
            said = f"median of all calls of each kernel, {len(rows)} kernels"
            alone = Group(facts.group, "", facts.device, (facts.run,))
            found.append(
                Figure(
                    key=f"launch-gaps-{len(found)}",
                    title=f"{TITLE}: {facts.run}",
                    sentence=sentence(rows),
                    alt=f"Scatter plot of kernel duration and gap. {sentence(rows)}",
                    caption=drawing.caption(
                        "µs, logarithmic; gaps linear below 1 µs", said, report, alone
                    ),
                    spec=drawing.specification(chart(rows)),
                    legend=tuple(sorted({_base(r) for r in rows}, key=order_of)),
                )
            )
    return found


def _base(row: GapRow) -> str:
    return part_of("busy", row.category or "other").name


def sentence(rows: Sequence[GapRow]) -> str:
    """How many of the calls are of kernels shorter than the gap before them."""
    calls = sum(r.count for r in rows)
    bound = sum(r.count for r in rows if r.gap_p50_ns > r.dur_p50_ns)
    return (
        f"{bound:,} of {calls:,} calls ({drawing.percent(bound / calls)}) are of kernels that run "
        "shorter than the device waited for them: they lie above the line and are launch-bound."
    )


def chart(rows: Sequence[GapRow]) -> drawing.Drawn:
    """One point a kernel, its area the number of calls, and the line on which both are equal."""
    values: list[dict[str, Any]] = [
        {
            "name": r.name,
            "base": _base(r),
            "count": r.count,
            "dur_us": r.dur_p50_ns / 1e3,
            "gap_us": r.gap_p50_ns / 1e3,
        }
        for r in sorted(rows, key=lambda r: -r.count)  # small points over large ones
    ]
    shortest = max(min(v["dur_us"] for v in values), 0.1)
    longest = max(*(v["dur_us"] for v in values), *(v["gap_us"] for v in values), 1.0)
    ticks = _ticks(longest)
    x = alt.X(
        "dur_us:Q",
        title="duration, µs",
        scale=alt.Scale(type="log"),
        axis=alt.Axis(values=ticks, format=",~r"),
    )
    y = alt.Y(
        "gap_us:Q",
        title="gap before it, µs",
        scale=alt.Scale(type="symlog", constant=1, domain=[0, 1.6 * longest], nice=False),
        axis=alt.Axis(values=[0, *(t for t in ticks if t >= 1)], format=",~r"),
    )
    ends = [{"dur_us": one, "gap_us": one} for one in _between(shortest, longest)]
    line = alt.Chart(alt.InlineData(values=ends)).mark_line(strokeDash=[6, 4]).encode(x=x, y=y)
    points = (
        alt.Chart(drawing.inline(values))
        .transform_filter("datum.dur_us > 0")
        .mark_circle(opacity=1)
        .encode(
            x=x,
            y=y,
            size=alt.Size("count:Q", legend=None, scale=alt.Scale(range=[30, 600])),
            color=drawing.part_colour(v["base"] for v in values),
            tooltip=[
                alt.Tooltip("name:N"),
                alt.Tooltip("base:N", title="category"),
                alt.Tooltip("count:Q", title="calls"),
                alt.Tooltip("dur_us:Q", format=",.2f", title="duration µs"),
                alt.Tooltip("gap_us:Q", format=",.2f", title="gap µs"),
            ],
        )
    )
    end = alt.Chart(alt.InlineData(values=ends[-1:]))
    name = end.mark_text(
        text="gap = duration: launch-bound above", align="right", dx=-6, dy=-14
    ).encode(x=x, y=y)
    return alt.layer(line, points, name).properties(width="container", height=HEIGHT)


def _ticks(longest: float) -> list[float]:
    """1, 2, 5, 10, … µs up to ``longest``, which both scales would leave bare."""
    powers = range(-1, math.ceil(math.log10(max(longest, 1))) + 1)
    return [step * 10.0**power for power in powers for step in (1, 2, 5)]


def _between(low: float, high: float, points: int = 24) -> list[float]:
    """Points of a line that is straight where both axes are logarithmic."""
    return [low * (high / low) ** (i / (points - 1)) for i in range(points)]
