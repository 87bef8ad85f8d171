"""Heat map of the time per step by hidden units, batch size and number of time steps."""

from __future__ import annotations

import altair as alt

from lstmprof.report import drawing
from lstmprof.report.model import Figure, Report, Row, Rows

TITLE = "Sizes"
COLUMNS = (*("run", "implementation", "conditions", "hidden", "batch", "time_steps", "step_ns"),)
#: Position on the scale of greys (0 light, 1 dark) above which text is white (WCAG 2.2).
_BLACK_UNTIL = 0.64


def figures(report: Report) -> list[Figure]:
    """Return one figure, if the networks of the runs have different sizes."""
    if not report.sweep:
        return []
    runs = report.facts_in(report.sweep)
    n = drawing.span((facts.iterations for facts in runs), "iterations")
    down = {(name(row), row["hidden"]) for row in report.sweep}
    across = {(row["batch"], row["time_steps"]) for row in report.sweep}
    cells = {(name(r), r["hidden"], r["batch"], r["time_steps"]) for r in report.sweep}
    empty = "; empty cell: not measured" if len(across) * len(down) > len(cells) else ""
    return [
        Figure(
            key="sweep",
            title=f"{TITLE}: units × batch × time steps",
            kind="Heat map of the time per step",
            sentence=sentence(report.sweep),
            caption=f"ms per step · clean step of {n}{empty}",
            ran=drawing.ran(runs),
            spec=drawing.specification(chart(report.sweep)),
        )
    ]


def sentence(rows: Rows) -> str:
    """Name the implementations whose step times grow most and least with size."""
    steps: dict[str, list[float]] = {}
    for row in rows:
        steps.setdefault(name(row), []).append(row["step_ns"])
    growth = {name: max(ns) / min(ns) for name, ns in steps.items() if len(ns) > 1}
    if not growth:
        return f"{len(rows)} runs of different sizes, each with a different implementation."
    least, most = min(growth, key=growth.__getitem__), max(growth, key=growth.__getitem__)
    first = f"{most} takes {growth[most]:.1f}× as long at its slowest size as at its fastest"
    if least == most:
        return f"{first}."
    return (
        f"{first}; for {least}, this ratio is {growth[least]:,.1f}×. A ratio near 1 means that "
        "most of the time is overhead, which is the same for every size."
    )


def name(row: Row) -> str:
    """Return the label of a row: the implementation and conditions, such as precision."""
    return ", ".join(text for text in (row["implementation"], row["conditions"]) if text)


def chart(rows: Rows) -> drawing.Drawn:
    """Draw a heat map of step times by implementation, units, batch and time steps."""
    by_row = sorted({(name(row), row["hidden"]) for row in rows})
    by_column = sorted({(row["time_steps"], row["batch"]) for row in rows})
    values = [
        {
            "run": row["run"],
            "row": f"{name(row)}, {row['hidden']} units",
            "column": f"{row['batch']} × {row['time_steps']}",
            "step_ns": row["step_ns"],
        }
        for row in rows
    ]
    base = (
        alt.Chart(drawing.inline(values))
        .transform_aggregate(step_ns="mean(step_ns)", runs="count()", groupby=["row", "column"])
        .transform_calculate(ms="datum.step_ns / 1e6")
        .encode(
            x=alt.X(
                "column:N",
                sort=[f"{batch} × {time}" for time, batch in by_column],
                title="batch × time steps",
                axis=alt.Axis(labelAngle=0),
            ),
            y=alt.Y(
                "row:N",
                sort=[f"{who}, {hidden} units" for who, hidden in by_row],
                title=None,
                axis=drawing.label_marks(),
            ),
        )
    )
    colour = alt.Color(
        "ms:Q", scale=alt.Scale(type="log", scheme="greys"), legend=None, title="ms per step"
    )
    least, most = (end(row["step_ns"] for row in rows) for end in (min, max))
    black_until = least * (most / least) ** _BLACK_UNTIL / 1e6
    cells = base.mark_rect(stroke=drawing.EDGE, strokeWidth=0.5).encode(
        color=colour,
        tooltip=[
            alt.Tooltip("row:N", title="implementation"),
            alt.Tooltip("column:N", title="batch × time steps"),
            alt.Tooltip("ms:Q", format=",.4f", title="ms per step"),
            alt.Tooltip("runs:Q"),
        ],
    )
    text = base.mark_text().encode(
        text=alt.Text("ms:Q", format=",.3r"),
        color=alt.condition(f"datum.ms > {black_until}", alt.value("white"), alt.value("black")),
    )
    return alt.layer(cells, text).properties(width="container", height=drawing.height(len(by_row)))
