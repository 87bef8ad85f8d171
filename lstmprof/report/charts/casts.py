"""What changing element types costs each run: the price of mixed precision, by who asked for it."""

from __future__ import annotations

import altair as alt

from lstmprof.numbers import labels, percent
from lstmprof.report import drawing
from lstmprof.report.model import Figure, Report, Rows
from lstmprof.report.palette import PARTS

TITLE = "Casts"
COLUMNS = (
    "run",
    "label",
    "op",
    "within",
    "from_dtype",
    "to_dtype",
    "per_step",
    "total_ns",
    "share",
)


def figures(report: Report) -> list[Figure]:
    """One, where any run casts."""
    if not report.casts:
        return []
    runs = report.facts_in(_drawn(report.casts))
    return [
        Figure(
            key="casts",
            title=TITLE,
            kind="Bar chart of the share of casts",
            sentence=sentence(report.casts),
            caption=drawing.caption("% of the profiled steps", drawing.profiled(runs), runs),
            spec=drawing.specification(chart(report.casts)),
            slight=max(_shares(report.casts).values()) < drawing.SLIGHT,
        )
    ]


def _shares(rows: Rows) -> dict[str, float]:
    """The share of all casts of each run, the largest first."""
    shares: dict[str, float] = {}
    for row in rows:
        shares[row["run"]] = shares.get(row["run"], 0.0) + (row["share"] or 0.0)
    return dict(sorted(shares.items(), key=lambda run: -run[1]))


def _drawn(rows: Rows) -> Rows:
    """Those of runs that cast more than slightly, all where none does."""
    shares = _shares(rows)
    large = {run for run, share in shares.items() if share >= drawing.SLIGHT}
    return [row for row in rows if row["run"] in large] or rows


def sentence(rows: Rows) -> str:
    """Which run casts most, who asks for most of it, and how many are not worth drawing."""
    shares = _shares(rows)
    run, share = next(iter(shares.items()))
    most = max((row for row in rows if row["run"] == run), key=lambda row: row["total_ns"])
    by = f"{most['op'] or 'an unknown op'}" + (f" in {most['within']}" if most["within"] else "")
    first = f"{run} spends {percent(share)} of its time on casts, most of it by {by}"
    slight = [of_run for of_run in shares.values() if of_run < drawing.SLIGHT]
    if not slight or share < drawing.SLIGHT:
        return f"{first}."
    others = "one other spends" if len(slight) == 1 else f"{len(slight)} others spend"
    return f"{first}; {others} at most {percent(slight[0])} and " + (
        "is not drawn." if len(slight) == 1 else "are not drawn."
    )


def chart(rows: Rows) -> drawing.Drawn:
    """Bars of the share of the step, a piece for each (op, from, to)."""
    label_of = {row["run"]: row["label"] for row in rows}
    # Runs that cannot be compared may have one label: no bar is of two of them.
    label_of = dict(zip(label_of, labels(list(label_of), list(label_of.values())), strict=True))
    rows = _drawn(rows)
    order = [label_of[run] for run in _shares(rows)]
    values = [
        {
            "label": label_of[row["run"]],
            "percent": 100 * (row["share"] or 0.0),
            "cast": f"{row['op'] or '?'}: {row['from_dtype'] or '?'} → {row['to_dtype'] or '?'}",
            "within": row["within"] or "?",
            "per_step": row["per_step"],
            "total_ns": row["total_ns"],
        }
        for row in rows
    ]
    whole: drawing.Drawn = (
        alt.Chart(drawing.inline(values))
        .transform_calculate(ms="datum.total_ns / 1e6")
        .mark_bar(height={"band": 0.7}, color=PARTS["cast"].colour)
        .encode(
            y=drawing.label_axis(order),
            x=alt.X("percent:Q", title="% of the profiled steps", stack="zero"),
            detail=["cast:N", "within:N"],
            order=alt.Order("percent:Q", sort="descending"),
            tooltip=[
                alt.Tooltip("cast:N"),
                alt.Tooltip("within:N"),
                alt.Tooltip("percent:Q", format=".2f", title="% of the steps"),
                alt.Tooltip("per_step:Q", format=",.1f", title="a step"),
                alt.Tooltip("ms:Q", format=",.4f", title="ms in all"),
            ],
        )
        .properties(width="container", height=drawing.height(len(order)))
    )
    return whole
