"""How long a batch takes: the median of each implementation with its interval, the fastest first.

The figure of the seed study, for each group of runs that can be compared.
"""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from lstmprof.report import drawing
from lstmprof.report.model import Figure, Report, TimeRow

TITLE = "Time per batch"


def figures(report: Report) -> list[Figure]:
    """One a group that has timed runs."""
    found = []
    for group in report.groups:
        rows = sorted((r for r in report.times if r.group == group.number), key=_median)
        if rows:
            n = f"median of {drawing.span((r.iterations for r in rows), 'iterations')}"
            said = drawing.caption(
                "ms a batch", f"{n} after warm-up, line: its 95 % interval", report, group
            )
            found.append(
                Figure(
                    key=f"times-{group.number}",
                    title=f"{TITLE}: {group.conditions}",
                    sentence=sentence(rows),
                    alt=f"Bar chart of the time per batch of {len(rows)} runs. {sentence(rows)}",
                    caption=said,
                    spec=drawing.specification(chart(rows)),
                )
            )
    return found


def _median(row: TimeRow) -> float:
    return row.median_ns


def sentence(rows: Sequence[TimeRow]) -> str:
    """The fastest and the slowest with their numbers; ``rows`` are sorted."""
    fast, slow = rows[0], rows[-1]
    said = f"{fast.label} takes {drawing.milliseconds(fast.median_ns)} a batch"
    if slow is fast:
        return f"{said}; no other run here can be compared with it."
    times = f", {slow.slowdown:.2f}× as long" if slow.slowdown is not None else ""
    return f"{said}, {slow.label} {drawing.milliseconds(slow.median_ns)}{times}."


def chart(rows: Sequence[TimeRow]) -> drawing.Drawn:
    """Bars of the medians, their intervals, and the slowdown as label."""
    largest = max(r.median_high_ns or r.median_ns for r in rows) / 1e6
    x = alt.X("ms:Q", title="ms a batch", scale=alt.Scale(domain=[0, 1.3 * largest], nice=False))
    base = (
        alt.Chart(drawing.inline(rows))
        .transform_calculate(
            ms="datum.median_ns / 1e6",
            low="datum.median_low_ns / 1e6",
            high="datum.median_high_ns / 1e6",
            right="max(datum.median_ns, datum.median_high_ns) / 1e6",
            said="format(datum.ms, ',.3~r') + ' ms'"
            " + (datum.slowdown > 1 ? '  ' + format(datum.slowdown, '.2f') + '×' : '')",
        )
        .encode(y=drawing.label_axis([r.label for r in rows]))
    )
    tips = [
        alt.Tooltip("run:N"),
        alt.Tooltip("ms:Q", format=",.4f", title="median ms"),
        alt.Tooltip("low:Q", format=",.4f", title="low end of its 95 %"),
        alt.Tooltip("high:Q", format=",.4f", title="high end"),
        alt.Tooltip("slowdown:Q", format=".3f"),
        alt.Tooltip("iterations:Q"),
    ]
    bars = base.mark_bar(color=drawing.ACCENT, height={"band": 0.6}).encode(x=x, tooltip=tips)
    timed = base.transform_filter("isValid(datum.median_low_ns)")
    interval = timed.mark_rule(strokeWidth=3).encode(x=alt.X("low:Q"), x2=alt.X2("high:Q"))
    labels = base.mark_text(align="left", dx=8).encode(x=alt.X("right:Q"), text="said:N")
    return alt.layer(bars, interval, labels).properties(
        width="container", height=drawing.height(len(rows))
    )
