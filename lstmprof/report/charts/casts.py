"""What changing element types costs each run: the price of mixed precision, by who asked for it."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from lstmprof.report import drawing
from lstmprof.report.model import CastRow, Figure, Group, Report
from lstmprof.report.palette import PARTS

TITLE = "Casts"


def figures(report: Report) -> list[Figure]:
    """One, where any run casts."""
    if not report.casts:
        return []
    casting = {r.run for r in report.casts}
    runs = [r for r in report.runs if r.run in casting]
    alone = Group(0, "", None, tuple(r.run for r in runs))
    return [
        Figure(
            key="casts",
            title=TITLE,
            sentence=sentence(report.casts),
            alt=f"Bar chart of the share of casts. {sentence(report.casts)}",
            caption=drawing.caption(
                "% of the profiled steps", drawing.profiled(runs), report, alone
            ),
            spec=drawing.specification(chart(report.casts)),
        )
    ]


def sentence(rows: Sequence[CastRow]) -> str:
    """Which run casts most, and who asks for most of it."""
    whole: dict[str, float] = {}
    for row in rows:
        whole[row.run] = whole.get(row.run, 0.0) + (row.share or 0.0)
    run = max(whole, key=lambda name: whole[name])
    most = max((r for r in rows if r.run == run), key=lambda r: r.total_ns)
    by = f"{most.op or 'an unknown op'}" + (f" in {most.within}" if most.within else "")
    return f"{run} spends {drawing.percent(whole[run])} of its steps on casts, most of it by {by}."


def chart(rows: Sequence[CastRow]) -> drawing.Drawn:
    """Bars of the share of the step, a piece for each (op, from, to)."""
    order = list(dict.fromkeys(sorted((r.run for r in rows), key=lambda run: -_share(rows, run))))
    values = [
        {
            "label": r.run,
            "percent": 100 * (r.share or 0.0),
            "said": f"{r.op or '?'}: {r.from_dtype or '?'} → {r.to_dtype or '?'}",
            "within": r.within or "?",
            "per_step": r.per_step,
            "total_ns": r.total_ns,
        }
        for r in rows
    ]
    whole: drawing.Drawn = (
        alt.Chart(drawing.inline(values))
        .transform_calculate(ms="datum.total_ns / 1e6")
        .mark_bar(height={"band": 0.7}, color=PARTS["cast"].colour)
        .encode(
            y=drawing.label_axis(order),
            x=alt.X("percent:Q", title="% of the profiled steps", stack="zero"),
            detail=["said:N", "within:N"],
            order=alt.Order("percent:Q", sort="descending"),
            tooltip=[
                alt.Tooltip("said:N", title="cast"),
                alt.Tooltip("within:N"),
                alt.Tooltip("percent:Q", format=".2f", title="% of the steps"),
                alt.Tooltip("per_step:Q", format=",.1f", title="a step"),
                alt.Tooltip("ms:Q", format=",.4f", title="ms in all"),
            ],
        )
        .properties(width="container", height=drawing.height(len(order)))
    )
    return whole


def _share(rows: Sequence[CastRow], run: str) -> float:
    return sum(r.share or 0.0 for r in rows if r.run == run)
