"""How long a batch takes: the step of each implementation with its interval, the fastest first.

The figure of the seed study, for each group of runs that can be compared.
"""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from lstmprof.diagnose.diagnosis import Diagnosis
from lstmprof.numbers import milliseconds
from lstmprof.report import drawing
from lstmprof.report.model import Figure, Report, Row, Rows

TITLE = "Time per batch"
COLUMNS = (*("run", "label", "step_ns", "step_low_ns", "step_high_ns", "slowdown", "iterations"),)

#: Pixels to the right of the longest label.
_MARGIN = 20


def figures(report: Report) -> list[Figure]:
    """One a group that has timed runs."""
    group_figures = []
    for group, rows in report.by_group(report.times):
        rows.sort(key=_step_ns)
        steps = drawing.span((facts.steps for facts in report.members(group)), "profiled steps")
        group_figures.append(
            Figure(
                key=f"times-{group.number}",
                title=f"{TITLE}: {group.conditions}",
                kind=f"Bar chart of the time per batch of {len(rows)} runs",
                sentence=sentence(rows, report.diagnoses),
                caption=drawing.caption(
                    "ms a batch",
                    f"clean step of {steps}, line: its 95 % interval",
                    report.members(group),
                ),
                spec=drawing.specification(chart(rows)),
            )
        )
    return group_figures


def _step_ns(row: Row) -> float:
    step_ns: float = row["step_ns"]
    return step_ns


def sentence(rows: Rows, diagnoses: Sequence[Diagnosis] = ()) -> str:
    """The fastest and the slowest with their numbers; ``rows`` are sorted.

    By how much they differ is not said of runs that the ``diagnoses`` do not tell apart.
    """
    fast, slow = rows[0], rows[-1]
    begin = f"{fast['label']} takes {milliseconds(fast['step_ns'])} ms a batch"
    if slow is fast:
        return f"{begin}; no other run here can be compared with it."
    times = f", {slow['slowdown']:.2f}× as long" if slow["slowdown"] is not None else ""
    if any(d.slow.name == slow["run"] and not d.outcome.differs for d in diagnoses if d.fast):
        times = "; they cannot be told apart"
    return f"{begin}, {slow['label']} {milliseconds(slow['step_ns'])} ms{times}."


def chart(rows: Rows) -> drawing.Drawn:
    """Bars of the steps, their intervals, and the slowdown as label."""
    largest = max(row["step_high_ns"] or row["step_ns"] for row in rows) / 1e6
    x = alt.X("ms:Q", title="ms a batch", scale=alt.Scale(domain=[0, 1.02 * largest], nice=False))
    base = (
        alt.Chart(drawing.inline(rows, COLUMNS))
        .transform_calculate(
            ms="datum.step_ns / 1e6",
            low="datum.step_low_ns / 1e6",
            high="datum.step_high_ns / 1e6",
            right="max(datum.step_ns, datum.step_high_ns) / 1e6",
            said="format(datum.ms, ',.3r') + ' ms'"
            " + (datum.slowdown > 1 ? '  ' + format(datum.slowdown, '.2f') + '×' : '')",
        )
        .encode(y=drawing.label_axis([row["label"] for row in rows]))
    )
    tips = [
        alt.Tooltip("run:N"),
        alt.Tooltip("ms:Q", format=",.4f", title="step ms"),
        alt.Tooltip("low:Q", format=",.4f", title="low end of its 95 %"),
        alt.Tooltip("high:Q", format=",.4f", title="high end"),
        alt.Tooltip("slowdown:Q", format=".3f"),
        alt.Tooltip("iterations:Q"),
    ]
    bars = base.mark_bar(color=drawing.ACCENT, height={"band": 0.6}).encode(x=x, tooltip=tips)
    timed = base.transform_filter("isValid(datum.step_low_ns)")
    interval = timed.mark_rule(strokeWidth=3).encode(x=alt.X("low:Q"), x2=alt.X2("high:Q"))
    labels = base.mark_text(align="left", dx=8).encode(x=alt.X("right:Q"), text="said:N")
    return alt.layer(bars, interval, labels).properties(
        width="container",
        height=drawing.height(len(rows)),
        padding={"left": 5, "top": 5, "right": _MARGIN, "bottom": 5},
    )
