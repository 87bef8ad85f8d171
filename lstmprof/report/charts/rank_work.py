"""Heat map of how evenly the ranks share the work: one row per rank, one column per step."""

from __future__ import annotations

import altair as alt

from lstmprof.base.numbers import milliseconds, percent
from lstmprof.report import drawing
from lstmprof.report.model import Figure, Report, Rows

TITLE = "Work of each step"
COLUMNS = ("lane", "step", "steps", "work_ns", "off_share")


def figures(report: Report) -> list[Figure]:
    """Return one figure per run with several ranks or devices and several marked steps."""
    return [
        Figure(
            key=f"ranks-work-{place}",
            title=f"{TITLE}: {facts.run}, work of each step",
            kind="Heat map of work by rank and step",
            sentence=sentence(rows),
            caption=(
                "% above or below the mean of all ranks; colour scale ends at "
                f"±{drawing.MOST_PERCENT} % · work: busy time without communication"
            ),
            ran=drawing.ran([facts]),
            spec=drawing.specification(chart(rows)),
        )
        for place, (facts, rows) in enumerate(report.by_run(report.rank_work))
        if len({row["step"] for row in rows}) > 1
    ]


def sentence(rows: Rows) -> str:
    """Name the rank and step with the most work relative to other ranks."""
    most = max(rows, key=lambda row: row["off_share"])
    first, number = most["step"], most["steps"]
    where = f"step {first}" if number == 1 else f"the {number} steps from step {first} on"
    return (
        f"The work of the ranks is most uneven in {where}: {most['lane']} works "
        f"{milliseconds(most['work_ns'])} ms per step, {percent(most['off_share'])} more than the "
        "mean of all ranks."
    )


def chart(rows: Rows) -> drawing.Drawn:
    """Draw one cell per rank and group of steps, coloured by deviation from the mean."""
    tooltip = [
        alt.Tooltip("step:Q"),
        alt.Tooltip("steps:Q", title="steps in this cell"),
        alt.Tooltip("ms:Q", format=",.4f", title="ms of work per step"),
        alt.Tooltip("percent:Q", format="+.1f", title="% above or below the mean"),
    ]
    return drawing.cells(
        rows,
        COLUMNS,
        "step",
        drawing.off_colour("% above or below the mean"),
        tooltip,
        percent="100 * datum.off_share",
        ms="datum.work_ns / 1e6",
    )
