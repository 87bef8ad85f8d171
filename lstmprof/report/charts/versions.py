"""Line chart of the step time by version of the framework: one line per implementation."""

from __future__ import annotations

from collections.abc import Iterator

import altair as alt

from lstmprof.base.numbers import milliseconds
from lstmprof.report import drawing
from lstmprof.report.model import Figure, Report, Row, Rows

TITLE = "Framework versions"
#: Shapes of points, one per implementation, because colours stand for parts of a step.
SHAPES = (
    *("circle", "square", "triangle-up", "diamond"),
    *("cross", "triangle-down", "triangle-right", "triangle-left"),
)
COLUMNS = (
    *("run", "implementation", "version", "place", "step_ns", "low_ns", "high_ns"),
    "of_first",
)


def figures(report: Report) -> list[Figure]:
    """Return one figure per group with an implementation that ran with several versions."""
    return [
        Figure(
            key=f"versions-{group.number}",
            title=f"{TITLE}: {group.conditions}",
            kind=f"Line chart of the time per step of {len(rows)} runs by framework version",
            sentence=sentence(rows),
            caption="ms per step · vertical line: 95 % interval",
            ran=drawing.ran(report.facts_in(rows)),
            spec=drawing.specification(chart(rows)),
        )
        for group, rows in report.by_group(report.versions)
    ]


def sentence(rows: Rows) -> str:
    """Compare the oldest and newest version of the implementation that changed most."""
    ends = [
        (of[0], of[-1])
        for name in dict.fromkeys(row["implementation"] for row in rows)
        if (of := [row for row in rows if row["implementation"] == name])
    ]
    old, new = max(ends, key=lambda pair: abs(pair[1]["step_ns"] / pair[0]["step_ns"] - 1))
    return (
        f"{old['implementation']} takes {milliseconds(old['step_ns'])} ms per step with "
        f"{old['version']}, {milliseconds(new['step_ns'])} ms with {new['version']}: "
        + (
            "their 95 % intervals overlap."
            if _overlap(old, new)
            else f"{new['step_ns'] / old['step_ns']:.2f}× as long."
        )
    )


def _overlap(first: Row, second: Row) -> bool:
    ends = [(row["low_ns"], row["high_ns"]) for row in (first, second)]
    if any(end is None for pair in ends for end in pair):
        return False
    return bool(max(low for low, _ in ends) <= min(high for _, high in ends))


def _labelled(rows: Rows) -> Iterator[Row]:
    """Add a point's label in ms: ``12.3``, or ``12.3 to 14.5`` for several runs."""
    places: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        places.setdefault((row["implementation"], row["version"]), []).append(row)
    for at_place in places.values():
        steps = [row["step_ns"] for row in at_place]
        ends = dict.fromkeys(milliseconds(end) for end in (min(steps), max(steps)))
        for row in at_place:
            yield {**row, "said": " to ".join(ends) if row is at_place[0] else ""}


def chart(rows: Rows) -> drawing.Drawn:
    """Draw one line per implementation, with versions on the x axis and ms on the y axis."""
    order = [row["version"] for row in sorted(rows, key=lambda row: row["place"])]
    base = (
        alt.Chart(drawing.inline(list(_labelled(rows)), (*COLUMNS, "said")))
        .transform_calculate(
            ms="datum.step_ns / 1e6", low="datum.low_ns / 1e6", high="datum.high_ns / 1e6"
        )
        .encode(
            x=alt.X(
                "version:N",
                sort=list(dict.fromkeys(order)),
                title=None,
                axis=alt.Axis(labelAngle=0),
            ),
            y=alt.Y("ms:Q", title="ms per step", scale=alt.Scale(zero=True)),
            detail="implementation:N",
        )
    )
    tips = [
        alt.Tooltip("run:N"),
        alt.Tooltip("version:N"),
        alt.Tooltip("ms:Q", format=",.4f", title="ms per step"),
        alt.Tooltip("of_first:Q", format=".3f", title="× as long as the oldest version"),
    ]
    line = base.mark_line(strokeWidth=2).encode(
        tooltip=tips, strokeDash=alt.StrokeDash("implementation:N", legend=None)
    )
    points = base.mark_point(filled=True, size=110, opacity=1, color=drawing.ACCENT).encode(
        tooltip=tips,
        shape=alt.Shape(
            "implementation:N",
            scale=alt.Scale(range=list(SHAPES)),
            legend=alt.Legend(title=None, orient="bottom", columns=3, labelLimit=280),
        ),
    )
    timed = base.transform_filter("isValid(datum.low_ns)")
    interval = timed.mark_rule(strokeWidth=2).encode(y=alt.Y("low:Q"), y2=alt.Y2("high:Q"))
    labels = base.mark_text(align="left", dx=10).encode(text="said:N")
    return alt.layer(line, interval, points, labels).properties(width="container", height=320)
