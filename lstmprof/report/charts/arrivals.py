"""Heat map of how late each rank arrives at each collective: one row per rank.

A collective ends on all ranks at once, so a rank that arrives later has a shorter kernel. The
clocks of the ranks are not compared.
"""

from __future__ import annotations

from collections import Counter

import altair as alt

from lstmprof.base.numbers import count, milliseconds
from lstmprof.report import drawing
from lstmprof.report.model import Figure, Report, Rows

TITLE = "Late to collectives"
COLUMNS = ("lane", "collective", "collectives", "late_ns", "last_in", "step", "name")


def figures(report: Report) -> list[Figure]:
    """Return one heat map per run with collectives that all ranks ran."""
    return [
        Figure(
            key=f"ranks-late-{place}",
            title=f"{TITLE}: {facts.run}, late to collectives",
            kind="Heat map of lateness by rank and collective",
            sentence=sentence(rows),
            caption=f"colour: ms after the first rank arrives · {drawing.profiled([facts])}",
            ran=drawing.ran([facts]),
            spec=drawing.specification(chart(rows)),
        )
        for place, (facts, rows) in enumerate(report.by_run(report.arrivals))
    ]


def sentence(rows: Rows) -> str:
    """Name the rank that arrives latest on average."""
    late, of, last = Counter[str](), Counter[str](), Counter[str]()
    for row in rows:
        late[row["lane"]] += row["late_ns"] * row["collectives"]
        of[row["lane"]] += row["collectives"]
        last[row["lane"]] += row["last_in"]
    latest = max(late, key=lambda lane: late[lane] / of[lane])
    mean_ms = milliseconds(late[latest] / of[latest], 3)
    return (
        f"{latest[:1].upper()}{latest[1:]} arrives latest: {mean_ms} ms after the first rank on "
        f"average, and last in {count(last[latest])} of {count(of[latest])} collectives."
    )


def chart(rows: Rows) -> drawing.Drawn:
    """Draw one row per rank, and one cell per group of successive collectives."""
    colour = alt.Color(
        "ms:Q",
        scale=alt.Scale(range=list(drawing.LATE_COLOURS), zero=True, interpolate="rgb"),
        legend=alt.Legend(
            title="ms after the first rank",
            orient="bottom",
            direction="horizontal",
            gradientLength=200,
        ),
    )
    tooltip = [
        alt.Tooltip("name:N", title="collective"),
        alt.Tooltip("step:Q"),
        alt.Tooltip("collectives:Q", title="collectives in this cell"),
        alt.Tooltip("ms:Q", format=",.4f", title="ms after the first rank"),
        alt.Tooltip("last_in:Q", title="collectives in which it arrives last"),
    ]
    return drawing.cells(rows, COLUMNS, "collective", colour, tooltip, ms="datum.late_ns / 1e6")
