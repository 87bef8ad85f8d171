"""Bar chart of the time that each run spends on casts, by the op that requests the cast."""

from __future__ import annotations

from collections.abc import Iterator

import altair as alt

from lstmprof.base.numbers import labels, percent
from lstmprof.report import drawing
from lstmprof.report.model import LEAST_SHARE, Figure, Report, Row, Rows
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
    """Return one figure if a run spends at least ``LEAST_SHARE`` of its time on casts."""
    rows = drawn(report.casts)
    if not rows:
        return []
    runs = report.facts_in(rows)
    return [
        Figure(
            key="casts",
            title=TITLE,
            kind="Bar chart of the share of time in casts",
            sentence=sentence(rows),
            caption=f"% of the steps' time · {drawing.profiled(runs)}",
            ran=drawing.ran(runs),
            spec=drawing.specification(chart(rows)),
        )
    ]


def _shares(rows: Rows) -> dict[str, float]:
    """Return each run's share of time in casts, largest share first."""
    shares: dict[str, float] = {}
    for row in rows:
        shares[row["run"]] = shares.get(row["run"], 0.0) + (row["share"] or 0.0)
    return dict(sorted(shares.items(), key=lambda run: -run[1]))


def drawn(rows: Rows) -> Rows:
    """Return the rows of runs that spend at least ``LEAST_SHARE`` of time on casts."""
    shares = _shares(rows)
    return [row for row in rows if shares[row["run"]] >= LEAST_SHARE]


def sentence(rows: Rows) -> str:
    """Name the run with the largest share of casts, and its slowest cast."""
    run, share = next(iter(_shares(rows).items()))
    most = max((row for row in rows if row["run"] == run), key=lambda row: row["total_ns"])
    op = f"{most['op'] or 'an unknown op'}" + (f" in {most['within']}" if most["within"] else "")
    return f"{run} spends {percent(share)} of its time on casts, mostly in {op}."


def _pieces(rows: Rows) -> Iterator[Row]:
    """Yield the segments of a run's bar; all small casts together are one segment."""
    small = [row for row in rows if (row["share"] or 0.0) < LEAST_SHARE]
    for row in rows:
        if row not in small:
            types = f"{row['from_dtype'] or '?'} → {row['to_dtype'] or '?'}"
            yield _piece([row], f"{row['op'] or '?'}: {types}", row["within"] or "?")
    if small:
        yield _piece(small, f"{len(small)} other casts, each under 1 %", "–")


def _piece(rows: Rows, cast: str, within: str) -> Row:
    percent = 100 * sum(row["share"] or 0.0 for row in rows)
    sums = {name: sum(row[name] or 0 for row in rows) for name in ("per_step", "total_ns")}
    return {"cast": cast, "within": within, "percent": percent, **sums}


def chart(rows: Rows) -> drawing.Drawn:
    """Draw one bar per run, with one segment per cast."""
    label_of = {row["run"]: row["label"] for row in rows}
    # make labels unique, because runs of different groups may have the same label
    label_of = dict(zip(label_of, labels(list(label_of), list(label_of.values())), strict=True))
    order = [label_of[run] for run in _shares(rows)]
    values = [
        {**piece, "label": label}
        for run, label in label_of.items()
        for piece in _pieces([row for row in rows if row["run"] == run])
    ]
    whole: drawing.Drawn = (
        alt.Chart(drawing.inline(values))
        .transform_calculate(ms="datum.total_ns / 1e6")
        .mark_bar(height={"band": 0.7}, color=PARTS["cast"].colour)
        .encode(
            y=drawing.label_axis(order),
            x=alt.X("percent:Q", title="% of the profiled steps' time", stack="zero"),
            detail=["cast:N", "within:N"],
            order=alt.Order("percent:Q", sort="descending"),
            tooltip=[
                alt.Tooltip("cast:N"),
                alt.Tooltip("within:N"),
                alt.Tooltip("percent:Q", format=".2f", title="% of the steps' time"),
                alt.Tooltip("per_step:Q", format=",.1f", title="per step"),
                alt.Tooltip("ms:Q", format=",.4f", title="ms in all steps"),
            ],
        )
        .properties(width="container", height=drawing.height(len(order)))
    )
    return whole
