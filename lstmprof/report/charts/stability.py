"""Draw a heat map with one row per run: iterations, coloured by the deviation from the median.

A drift changes the colour from left to right. Two alternating colours are two modes, and a single
cell of another colour is a preempted iteration. A row has a gap at a profiled step, and where a
new process begins.
"""

from __future__ import annotations

from collections.abc import Iterator

import altair as alt

from lstmprof.base.numbers import percent
from lstmprof.report import drawing
from lstmprof.report.model import Figure, Report, Rows

TITLE = "Stability over iterations"
COLUMNS = ("run", "label", "place", "iteration", "iterations", "wall_ns", "off_share")


def figures(report: Report) -> Iterator[Figure]:
    """Yield one figure per group of comparable runs with timings."""
    for group, rows in report.by_group(report.stability):
        runs = report.members(group)
        n = drawing.span((facts.iterations for facts in runs), "iterations")
        unit = f"% above or below the run's median; colour scale ends at ±{drawing.MOST_PERCENT} %"
        yield Figure(
            key=f"stability-{group.number}",
            title=f"{TITLE}: {group.conditions}",
            kind="Heat map of iterations by their deviation from the median",
            sentence=sentence(rows),
            caption=f"{unit} · {n} after warm-up",
            ran=drawing.ran(runs),
            spec=drawing.specification(chart(rows)),
        )


def sentence(rows: Rows) -> str:
    """Name the run with the largest interquartile range relative to the median."""
    labels = sorted({row["label"] for row in rows})
    label = max(labels, key=lambda label: _middle_half(rows, label))
    most = " varies most" if len(labels) > 1 else ""
    half = percent(_middle_half(rows, label))
    return f"{label}{most}: the interquartile range of the iteration times is {half} of the median."


def _middle_half(rows: Rows, label: str) -> float:
    off: list[float] = sorted(row["off_share"] for row in rows if row["label"] == label)
    return off[(3 * (len(off) - 1)) // 4] - off[(len(off) - 1) // 4]


def chart(rows: Rows) -> drawing.Drawn:
    """Draw one row of cells per run, with iterations from left to right."""
    labels = sorted({row["label"] for row in rows})
    values = [{**row, "off_share": round(row["off_share"], 5)} for row in rows]
    whole: drawing.Drawn = (
        alt.Chart(drawing.inline(values, COLUMNS))
        .transform_calculate(percent="100 * datum.off_share", ms="datum.wall_ns / 1e6")
        .transform_calculate(next="datum.iteration + datum.iterations")
        .mark_rect(height={"band": 0.7})
        .encode(
            x=alt.X("iteration:Q", title="iteration", scale=alt.Scale(zero=False, nice=False)),
            x2="next:Q",
            y=drawing.label_axis(labels),
            color=drawing.off_colour("% above or below the median"),
            tooltip=[
                alt.Tooltip("run:N"),
                alt.Tooltip("place:N"),
                alt.Tooltip("iteration:Q"),
                alt.Tooltip("iterations:Q", title="iterations in this cell"),
                alt.Tooltip("ms:Q", format=",.4f", title="median ms"),
                alt.Tooltip("percent:Q", format="+.1f", title="% above or below the median"),
            ],
        )
        .properties(width="container", height=drawing.height(len(labels)))
    )
    return whole
