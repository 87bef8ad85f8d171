"""Scatter plot of the duration of each kernel, and of the gap (idle time) before the kernel.

Above the line of equal times, the gap is longer than the kernel: a faster kernel would save
nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import altair as alt
import numpy as np

from lstmprof.base.numbers import number_of, percent
from lstmprof.report import drawing
from lstmprof.report.model import Figure, Report, Row, Rows
from lstmprof.report.palette import PARTS, order_of, part_of

TITLE = "Kernels and launch gaps"
COLUMNS = ("name", "category", "count", "dur_p50_ns", "gap_p50_ns")
ABOVE, BELOW = "gap longer than kernel", "kernel hides the next launch"
#: Height of the chart in pixels. Number of points of the line of equal times, which is curved.
HEIGHT, _LINE_POINTS = 360, 24


def figures(report: Report) -> Iterator[Figure]:
    """Yield one figure per run that has kernels on a device."""
    for place, (facts, rows) in enumerate(report.by_run(report.launch_gaps)):
        kernels = number_of(len(rows), "kernel name", "kernel names")
        yield Figure(
            key=f"launch-gaps-{place}",
            title=f"{TITLE}: {facts.run}",
            kind="Scatter plot of kernel duration and the gap before it",
            sentence=sentence(rows),
            caption=f"µs on logarithmic axes (gaps: linear below 1 µs) · medians of {kernels}",
            ran=drawing.ran([facts]),
            spec=drawing.specification(chart(rows)),
            legend=tuple(sorted({_base(row) for row in rows}, key=order_of)),
        )


def _base(row: Row) -> str:
    return part_of("busy", row["category"] or "other").name


def sentence(rows: Rows) -> str:
    """Count launches of kernels with a median gap above the median duration."""
    calls = sum(row["count"] for row in rows)
    above = sum(row["count"] for row in rows if row["gap_p50_ns"] > row["dur_p50_ns"])
    if not above:
        return "No kernel's median duration is shorter than its median gap."
    return (
        f"{percent(above / calls)} of the kernel launches ({above:,} of {calls:,}) run kernels "
        "above the line: the median gap before the kernel is longer than the kernel's median "
        "duration."
    )


def chart(rows: Rows) -> drawing.Drawn:
    """Draw one point per kernel name, and the line of equal times."""
    values = [
        {
            "name": row["name"],
            "base": _base(row),
            "words": PARTS[_base(row)].shown,
            "count": row["count"],
            "dur_us": row["dur_p50_ns"] / 1e3,
            "gap_us": row["gap_p50_ns"] / 1e3,
        }
        for row in sorted(rows, key=lambda row: -row["count"])  # small points last
    ]
    shortest = max(min(v["dur_us"] for v in values), 0.1)
    longest = max(*(v["dur_us"] for v in values), *(v["gap_us"] for v in values), 1.0)
    powers = range(-1, math.ceil(math.log10(longest)) + 1)
    ticks = [step * 10.0**power for power in powers for step in (1, 2, 5)]
    x = alt.X(
        "dur_us:Q",
        title="duration, µs",
        scale=alt.Scale(type="log", domain=[0.8 * shortest, 1.2 * longest], nice=False),
        axis=alt.Axis(values=ticks, format=",~r"),
    )
    y = alt.Y(
        "gap_us:Q",
        title="gap before the kernel, µs",
        scale=alt.Scale(type="symlog", constant=1, domain=[0, 1.6 * longest], nice=False),
        axis=alt.Axis(values=[0, *(t for t in ticks if t >= 1)], format=",~r"),
    )
    lengths_us = np.geomspace(shortest, longest, _LINE_POINTS).tolist()
    ends = [{"dur_us": length_us, "gap_us": length_us} for length_us in lengths_us]
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
                alt.Tooltip("words:N", title="category"),
                alt.Tooltip("count:Q", title="calls"),
                alt.Tooltip("dur_us:Q", format=",.2f", title="duration µs"),
                alt.Tooltip("gap_us:Q", format=",.2f", title="gap µs"),
            ],
        )
    )
    once = alt.Chart(alt.InlineData(values=[{}]))
    above = once.mark_text(text=ABOVE, x=8, y=10, align="left")
    below = once.mark_text(text=BELOW, x="width", dx=-8, y=HEIGHT - 30, align="right")
    return alt.layer(line, points, above, below).properties(width="container", height=HEIGHT)
