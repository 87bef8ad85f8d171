"""Bar chart of the least time at peak rates, as a share of the step time."""

from __future__ import annotations

from collections.abc import Iterator

import altair as alt

from lstmprof.base.numbers import milliseconds, percent
from lstmprof.report import drawing
from lstmprof.report.model import Figure, Report, Rows

TITLE = "Roofline"
COLUMNS = ("run", "label", "least_ns", "step_ns", "share", "gemm_flops_per_s")


def figures(report: Report) -> Iterator[Figure]:
    """Yield one figure per group of runs with measured peak rates."""
    for group, rows in report.by_group(report.roofline):
        rows.sort(key=lambda row: -row["share"])
        yield Figure(
            key=f"roofline-{group.number}",
            title=f"{TITLE}: {group.conditions}",
            kind="Bar chart of the share of the roofline",
            sentence=sentence(rows),
            caption="% of the roofline: least time at measured peak rates / clean step",
            ran=drawing.ran(report.members(group)),
            spec=drawing.specification(chart(rows)),
        )


def sentence(rows: Rows) -> str:
    """Name the runs with the largest and the smallest share of the roofline."""
    best, last = rows[0], rows[-1]
    ends = f"{milliseconds(best['least_ns'])} of {milliseconds(best['step_ns'])} ms"
    nearest = f"{best['label']} reaches {percent(best['share'])} of the roofline ({ends})"
    others = f", {last['label']} {percent(last['share'])}" if len(rows) > 1 else ""
    return f"{nearest}{others}."


def chart(rows: Rows) -> drawing.Drawn:
    """Draw one bar per run with its share of the roofline."""
    largest = max(100 * row["share"] for row in rows)
    base = (
        alt.Chart(drawing.inline(rows, COLUMNS))
        .transform_calculate(
            percent="100 * datum.share",
            least="datum.least_ns / 1e6",
            step="datum.step_ns / 1e6",
            rate="datum.gemm_flops_per_s / 1e9",
            said="format(datum.percent, '.2~r') + ' %'",
        )
        .encode(y=drawing.label_axis([row["label"] for row in rows]))
    )
    bars = base.mark_bar(height={"band": 0.6}, color=drawing.ACCENT).encode(
        x=alt.X(
            "percent:Q",
            title="% of the roofline",
            scale=alt.Scale(domain=[0, 1.25 * largest], nice=False),
        ),
        tooltip=[
            alt.Tooltip("run:N"),
            alt.Tooltip("percent:Q", format=".3f", title="% of the roofline"),
            alt.Tooltip("least:Q", format=",.4f", title="ms at peak rates"),
            alt.Tooltip("step:Q", format=",.4f", title="ms per step"),
            alt.Tooltip("rate:Q", format=",.2f", title="GFLOP/s of matmuls"),
        ],
    )
    labels = base.mark_text(align="left", dx=6).encode(x=alt.X("percent:Q"), text="said:N")
    return alt.layer(bars, labels).properties(width="container", height=drawing.height(len(rows)))
