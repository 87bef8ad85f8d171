"""Stacked bars of each rank's mean step, by family, such as host overhead."""

from __future__ import annotations

from collections import Counter

import altair as alt

from lstmprof.base.numbers import listed, milliseconds, percent
from lstmprof.report import drawing
from lstmprof.report.model import LEAST_SHARE, Figure, Report, Row, Rows
from lstmprof.report.palette import family_of, order_of, part_of

TITLE = "The step of each rank"
COLUMNS = ("lane", "state", "part", "ns")


def figures(report: Report) -> list[Figure]:
    """Return one figure per run with several ranks or devices."""
    return [
        Figure(
            key=f"ranks-parts-{place}",
            title=f"{TITLE}: {facts.run}, where the time goes",
            kind="Stacked bars of busy and idle time per rank",
            sentence=sentence(rows, facts.lane),
            caption=f"{drawing.unit([facts])} · {drawing.profiled([facts])}",
            ran=drawing.ran([facts]),
            spec=drawing.specification(chart(rows)),
            legend=tuple(sorted({row["family"] for row in bars(rows)}, key=order_of)),
        )
        for place, (facts, rows) in enumerate(report.by_run(report.rank_parts))
    ]


def sentence(rows: Rows, diagnosed: str = "") -> str:
    """Name the ranks with most work and with the longest communication."""
    work, communication = Counter[str](), Counter[str]()
    for row in rows:
        if row["state"] == "busy":
            spent = communication if row["part"] == "collective" else work
            spent[row["lane"]] += row["ns"]
    parts = []
    if diagnosed:
        own = [f"{milliseconds(work[diagnosed])} ms of work"]
        own += [f"{milliseconds(communication[diagnosed])} ms of communication"]
        parts.append(f"The verdict is about {diagnosed}, which has {listed(own)}")
    parts += _longest("Most work", work)
    parts += _longest("Longest communication", communication) or ["No communication was recorded"]
    return ". ".join(parts) + "."


def _longest(what: str, spent: Counter[str]) -> list[str]:
    if not spent.total():
        return []
    (lane, ns), mean = spent.most_common(1)[0], spent.total() / len(spent)
    above = f"{percent(ns / mean - 1)} above the mean of all ranks"
    return [f"{what}: {lane}, {milliseconds(ns)} ms, {above}"]


def bars(rows: Rows) -> list[Row]:
    """Return the segments of all bars, without segments under ``LEAST_SHARE``."""
    spent: Counter[tuple[str, str]] = Counter()
    whole: Counter[str] = Counter()
    for row in rows:
        spent[row["lane"], family_of(part_of(row["state"], row["part"])).name] += row["ns"]
        whole[row["lane"]] += row["ns"]
    return [
        {"label": lane, "family": family, "order": order_of(family), "ms": ns / 1e6}
        for (lane, family), ns in spent.items()
        if ns >= LEAST_SHARE * whole[lane]
    ]


def chart(rows: Rows) -> drawing.Drawn:
    """Draw one stacked bar per rank and device."""
    lanes = list(dict.fromkeys(row["lane"] for row in rows))
    values = bars(rows)
    drawn = (
        alt.Chart(drawing.inline(values))
        .mark_bar(height={"band": 0.7})
        .encode(
            y=drawing.label_axis(lanes),
            x=alt.X("ms:Q", title="ms", stack="zero"),
            color=drawing.part_colour((bar["family"] for bar in values), "family:N"),
            order=alt.Order("order:Q"),
            tooltip=[
                alt.Tooltip("label:N", title="where"),
                alt.Tooltip("family:N", title="what"),
                alt.Tooltip("ms:Q", format=",.4f", title="time, ms"),
            ],
        )
    )
    whole: drawing.Drawn = drawn.properties(width="container", height=drawing.height(len(lanes)))
    return whole
