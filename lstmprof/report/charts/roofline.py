"""How near each step came to the least time that its device's peaks allow: the roofline's share."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from lstmprof.report import drawing
from lstmprof.report.model import Figure, Report, RooflineRow

TITLE = "Share of the roofline"


def figures(report: Report) -> list[Figure]:
    """One a group with a run whose peaks were measured."""
    found = []
    for group in report.groups:
        rows = sorted((r for r in report.roofline if r.group == group.number), key=_share)
        if rows:
            said = "least time of a step by measured peaks over its undisturbed median"
            found.append(
                Figure(
                    key=f"roofline-{group.number}",
                    title=f"{TITLE}: {group.conditions}",
                    sentence=sentence(rows),
                    alt=f"Bar chart of the share of the roofline. {sentence(rows)}",
                    caption=drawing.caption("% of the roofline", said, report, group),
                    spec=drawing.specification(chart(rows)),
                )
            )
    return found


def _share(row: RooflineRow) -> float:
    return -row.share


def sentence(rows: Sequence[RooflineRow]) -> str:
    """How near the nearest comes; ``rows`` are sorted."""
    best = rows[0]
    said = (
        f"{best.label} comes nearest: its step needs at least "
        f"{drawing.milliseconds(best.least_ns)} and takes {drawing.milliseconds(best.median_ns)}, "
        f"{drawing.percent(best.share)} of the roofline"
    )
    if len(rows) == 1:
        return said + "."
    return f"{said}; {rows[-1].label} reaches {drawing.percent(rows[-1].share)}."


def chart(rows: Sequence[RooflineRow]) -> drawing.Drawn:
    """Bars of the share, the nearest first."""
    largest = max(100 * r.share for r in rows)
    base = (
        alt.Chart(drawing.inline(rows))
        .transform_calculate(
            percent="100 * datum.share",
            least="datum.least_ns / 1e6",
            median="datum.median_ns / 1e6",
            rate="datum.gemm_flops_per_s / 1e9",
            said="format(datum.percent, '.2~r') + ' %'",
        )
        .encode(y=drawing.label_axis([r.label for r in rows]))
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
            alt.Tooltip("least:Q", format=",.4f", title="least ms"),
            alt.Tooltip("median:Q", format=",.4f", title="median ms"),
            alt.Tooltip("rate:Q", format=",.2f", title="GFLOP/s of products"),
        ],
    )
    labels = base.mark_text(align="left", dx=6).encode(x=alt.X("percent:Q"), text="said:N")
    return alt.layer(bars, labels).properties(width="container", height=drawing.height(len(rows)))
