"""Bar chart of the time per step of compared runs, with the numbers of the verdicts."""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter

import altair as alt

from lstmprof.base.numbers import milliseconds
from lstmprof.report import drawing
from lstmprof.report.model import Figure, Report, Rows

TITLE = "Time per step"
COLUMNS = ("run", "label", "step_ns", "low_ns", "high_ns", "times", "iterations")

#: Free space to the right of the longest label, in pixels.
_MARGIN = 20


def figures(report: Report) -> Iterator[Figure]:
    """Yield one figure per group of compared runs."""
    for group, rows in report.by_group(report.times):
        rows.sort(key=itemgetter("step_ns"))
        runs = report.members(group)
        steps = drawing.span((facts.steps for facts in runs), "profiled steps")
        yield Figure(
            key=f"times-{group.number}",
            title=f"{TITLE}: {group.conditions}",
            kind=f"Bar chart of the time per step of {len(rows)} runs",
            sentence=sentence(rows),
            caption=f"ms per step · clean step from {steps}; line: 95 % interval",
            ran=drawing.ran(runs),
            spec=drawing.specification(chart(rows)),
        )


def sentence(rows: Rows) -> str:
    """Compare the slowest run with the baseline."""
    fast, slow = rows[0], rows[-1]
    ends = f"{milliseconds(slow['step_ns'])} and {milliseconds(fast['step_ns'])} ms per step"
    if not slow["differs"]:
        return f"{slow['label']} and {fast['label']} take {ends}: the difference is within noise."
    return f"{slow['label']} takes {slow['times']} as long as {fast['label']}: {ends}."


def chart(rows: Rows) -> drawing.Drawn:
    """Draw one bar per run with its 95 % interval, its time, and its ratio to the baseline."""
    largest = max(row["high_ns"] or row["step_ns"] for row in rows) / 1e6
    x = alt.X("ms:Q", title="ms per step", scale=alt.Scale(domain=[0, 1.02 * largest], nice=False))
    values = [
        {
            **{name: row[name] for name in COLUMNS},
            "said": " · ".join(
                text for text in (f"{milliseconds(row['step_ns'])} ms", row["times"]) if text
            ),
        }
        for row in rows
    ]
    base = (
        alt.Chart(drawing.inline(values))
        .transform_calculate(
            ms="datum.step_ns / 1e6",
            low="datum.low_ns / 1e6",
            high="datum.high_ns / 1e6",
            right="max(datum.step_ns, datum.high_ns) / 1e6",
        )
        .encode(y=drawing.label_axis([row["label"] for row in rows]))
    )
    tips = [
        alt.Tooltip("run:N"),
        alt.Tooltip("ms:Q", format=",.4f", title="ms per step"),
        alt.Tooltip("low:Q", format=",.4f", title="95 % interval from"),
        alt.Tooltip("high:Q", format=",.4f", title="to"),
        alt.Tooltip("times:N", title="as long as the baseline"),
        alt.Tooltip("iterations:Q"),
    ]
    bars = base.mark_bar(color=drawing.ACCENT, height={"band": 0.6}).encode(x=x, tooltip=tips)
    timed = base.transform_filter("isValid(datum.low_ns)")
    interval = timed.mark_rule(strokeWidth=3).encode(x=alt.X("low:Q"), x2=alt.X2("high:Q"))
    labels = base.mark_text(align="left", dx=8).encode(x=alt.X("right:Q"), text="said:N")
    return alt.layer(bars, interval, labels).properties(
        width="container",
        height=drawing.height(len(rows)),
        padding={"left": 5, "top": 5, "right": _MARGIN, "bottom": 5},
    )
