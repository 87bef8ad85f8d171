"""How the time of each implementation grows with units, batch and time steps: a heat map."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from lstmprof.report import drawing
from lstmprof.report.model import Figure, Report, SweepRow

TITLE = "The sweep"
#: Place in the scheme of blues from which on white contrasts more than black (WCAG 2.2).
_BLACK_UNTIL = 0.73
#: Around cells; 3:1 and more on light and dark ground.
EDGE = "#868e9c"


def figures(report: Report) -> list[Figure]:
    """One, where the runs vary in size."""
    if not report.sweep:
        return []
    n = drawing.span((r.iterations for r in report.runs), "iterations")
    return [
        Figure(
            key="sweep",
            title=f"{TITLE}: units × batch × time steps",
            sentence=sentence(report.sweep),
            alt=f"Heat map of the time per batch. {sentence(report.sweep)}",
            caption=drawing.caption("ms a batch", _measured(n, report.sweep), report),
            spec=drawing.specification(chart(report.sweep)),
        )
    ]


def _measured(n: str, rows: Sequence[SweepRow]) -> str:
    """Of how many iterations, and what an empty cell says."""
    cells = {(r.implementation, r.conditions, r.hidden, r.batch, r.time_steps) for r in rows}
    across = {(r.batch, r.time_steps) for r in rows}
    down = {cell[:3] for cell in cells}
    empty = len(across) * len(down) > len(cells)
    return f"median of {n}" + (", an empty cell was not measured" if empty else "")


def sentence(rows: Sequence[SweepRow]) -> str:
    """By how much the least affected and the most affected implementation grow."""
    who = names(rows)
    spans = {}
    for name in dict.fromkeys(who.values()):
        own = [r.median_ns for r in rows if who[r.run] == name]
        if len(own) > 1:
            spans[name] = max(own) / min(own)
    if not spans:
        return f"{len(rows)} runs of different sizes, each of another implementation."
    least, most = min(spans, key=lambda w: spans[w]), max(spans, key=lambda w: spans[w])
    if least == most:
        return f"From its cheapest to its dearest size {most} takes {spans[most]:.1f}× as long."
    return (
        f"From its cheapest to its dearest size {most} takes {spans[most]:.1f}× as long, {least} "
        f"{spans[least]:.1f}×: the flatter, the more of a step does not depend on its size."
    )


def names(rows: Sequence[SweepRow]) -> dict[str, str]:
    """Run → its implementation, with its conditions if any."""
    return {
        r.run: f"{r.implementation}, {r.conditions}" if r.conditions else r.implementation
        for r in rows
    }


def chart(rows: Sequence[SweepRow]) -> drawing.Drawn:
    """A cell a run: rows by implementation and units, columns by batch and time steps."""
    who = names(rows)
    by_row = sorted({(who[r.run], r.hidden) for r in rows})
    by_column = sorted({(r.time_steps, r.batch) for r in rows})
    values = [
        {
            "run": r.run,
            "row": f"{who[r.run]}, {r.hidden} units",
            "column": f"{r.batch} × {r.time_steps}",
            "median_ns": r.median_ns,
        }
        for r in rows
    ]
    base = (
        alt.Chart(drawing.inline(values))
        .transform_aggregate(median_ns="mean(median_ns)", runs="count()", groupby=["row", "column"])
        .transform_calculate(ms="datum.median_ns / 1e6")
        .encode(
            x=alt.X(
                "column:N",
                sort=[f"{batch} × {time}" for time, batch in by_column],
                title="batch × time steps",
                axis=alt.Axis(labelAngle=0),
            ),
            y=alt.Y(
                "row:N",
                sort=[f"{name}, {hidden} units" for name, hidden in by_row],
                title=None,
                axis=drawing.label_marks(),
            ),
        )
    )
    colour = alt.Color(
        "ms:Q", scale=alt.Scale(type="log", scheme="blues"), legend=None, title="ms a batch"
    )
    least, most = min(r.median_ns for r in rows), max(r.median_ns for r in rows)
    black_until = least * (most / least) ** _BLACK_UNTIL / 1e6
    cells = base.mark_rect(stroke=EDGE, strokeWidth=0.5).encode(
        color=colour,
        tooltip=[
            alt.Tooltip("row:N", title="implementation"),
            alt.Tooltip("column:N", title="batch × time steps"),
            alt.Tooltip("ms:Q", format=",.4f", title="median ms"),
            alt.Tooltip("runs:Q"),
        ],
    )
    text = base.mark_text().encode(
        text=alt.Text("ms:Q", format=",.3r"),
        color=alt.condition(f"datum.ms > {black_until}", alt.value("white"), alt.value("black")),
    )
    return alt.layer(cells, text).properties(width="container", height=drawing.height(len(by_row)))
