"""Where the mean step of each rank goes: busy and idle by family, collectives apart."""

from __future__ import annotations

from collections import Counter

import altair as alt

from lstmprof.numbers import milliseconds, percent
from lstmprof.report import drawing
from lstmprof.report.model import Figure, Report, Row, Rows
from lstmprof.report.palette import family_of, order_of, part_of

TITLE = "The step of each rank"
COLUMNS = ("lane", "state", "part", "ns")


def figures(report: Report) -> list[Figure]:
    """One a run of several ranks or devices."""
    return [
        Figure(
            key=f"ranks-parts-{place}",
            title=f"{TITLE}: {facts.run}, where time goes",
            kind="Stacked bars of busy and idle time",
            sentence=sentence(rows, marked=facts.marked),
            caption=drawing.caption("ms", drawing.profiled([facts]), [facts]),
            spec=drawing.specification(chart(rows)),
            legend=tuple(sorted({_family(row) for row in rows}, key=order_of)),
        )
        for place, (facts, rows) in enumerate(report.by_run(report.rank_parts))
    ]


def _family(row: Row) -> str:
    return family_of(part_of(row["state"], row["part"])).name


def sentence(rows: Rows, *, marked: bool = True) -> str:
    """Who works longest, and whom collectives hold up longest."""
    step, work, held = Counter[str](), Counter[str](), Counter[str]()
    for row in rows:
        busy, collective = row["state"] == "busy", row["part"] == "collective"
        step[row["lane"]] += row["ns"]
        work[row["lane"]] += row["ns"] if busy and not collective else 0
        held[row["lane"]] += row["ns"] if busy and collective else 0
    (most, work_ns), mean = work.most_common(1)[0], sum(work.values()) / len(work)
    more = f", {percent(work_ns / mean - 1)} more than the mean of all {len(step)}" if mean else ""
    worked = (
        f"{drawing.begun(most)} works longest, {milliseconds(work_ns)} of the "
        f"{milliseconds(step[most])} ms {'of its step' if marked else 'that it was profiled'}{more}"
    )
    longest, held_ns = held.most_common(1)[0]
    if not held_ns:
        return f"{worked}. No collective was recorded."
    return (
        f"{worked}. Collectives hold up {longest} longest: for {milliseconds(held_ns)} ms"
        f"{' of a step' if marked else ''} nothing else runs there."
    )


def chart(rows: Rows) -> drawing.Drawn:
    """A stacked bar a rank and device, in their order."""
    lanes = list(dict.fromkeys(row["lane"] for row in rows))
    spent: Counter[tuple[str, str]] = Counter()
    for row in rows:
        spent[row["lane"], _family(row)] += row["ns"]
    values = [
        {"label": lane, "family": family, "order": order_of(family), "ms": ns / 1e6}
        for (lane, family), ns in spent.items()
    ]
    bars = (
        alt.Chart(drawing.inline(values))
        .mark_bar(height={"band": 0.7})
        .encode(
            y=drawing.label_axis(lanes),
            x=alt.X("ms:Q", title="ms", stack="zero"),
            color=drawing.part_colour({family for _, family in spent}, "family:N"),
            order=alt.Order("order:Q"),
            tooltip=[
                alt.Tooltip("label:N", title="where"),
                alt.Tooltip("family:N", title="what"),
                alt.Tooltip("ms:Q", format=",.4f", title="ms per step"),
            ],
        )
    )
    whole: drawing.Drawn = bars.properties(width="container", height=drawing.height(len(lanes)))
    return whole
