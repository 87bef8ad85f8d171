"""Waterfall chart of the difference between two runs, by kind of time."""

from __future__ import annotations

import altair as alt

from lstmprof.base.numbers import milliseconds
from lstmprof.diagnose.certainty import EXPLAINED_SHARE
from lstmprof.diagnose.certainty.pair import no_difference
from lstmprof.diagnose.findings import CAUSES, UNEXPLAINED
from lstmprof.diagnose.findings.causes import KINDS, shown
from lstmprof.report import drawing
from lstmprof.report.model import LEAST_SHARE, Figure, Pair, Report, Row, Rows
from lstmprof.report.palette import PARTS, part_of_kind

TITLE = "Difference between two runs"
COLUMNS = ("kind", "fast_ns", "slow_ns")
STEP = "step"


def figures(report: Report) -> list[Figure]:
    """Return the figure of the first pair of runs; the page can show others."""
    if not report.pairs:
        return []
    pair = report.pairs[0]
    most = max(len(bars(pair.rows)) for pair in report.pairs)
    return [
        Figure(
            key="waterfall",
            title=TITLE,
            kind="Waterfall chart of the difference by kind of time",
            sentence=sentence(pair),
            caption=caption(pair),
            ran=drawing.ran([report.facts_of(p.name) for p in (pair.fast, pair.slow)]),
            spec=drawing.specification(chart(pair.rows, most, pair.fast.name, pair.slow.name)),
        )
    ]


def _sum(rows: Rows, column: str) -> int:
    return sum(row[column] for row in rows)


def _delta_ns(row: Row) -> int:
    return int(row["slow_ns"] - row["fast_ns"])


def sentence(pair: Pair) -> str:
    """Return the difference of the two steps, and the kind of time that differs most."""
    fast_ns, slow_ns = _sum(pair.rows, "fast_ns"), _sum(pair.rows, "slow_ns")
    each = " per step" if pair.slow.marked and pair.fast.marked else ""
    ends = (
        f"{pair.slow.name} takes {milliseconds(slow_ns)} ms{each}, {pair.fast.name} "
        f"{milliseconds(fast_ns)} ms"
    )
    if no_difference(pair.fast, pair.slow):
        return f"{ends}: the difference is within noise."
    difference = f"{ends}: {milliseconds(slow_ns - fast_ns)} ms more"
    unexplained_ns = sum(_delta_ns(row) for row in pair.rows if row["kind"] in UNEXPLAINED)
    if unexplained_ns > (1 - EXPLAINED_SHARE) * (slow_ns - fast_ns):
        return f"{difference}. The profiles do not explain most of the difference."
    first = next((row for row in pair.rows if row["kind"] in CAUSES and _delta_ns(row) > 0), None)
    if first is None:
        return f"{difference}. No recorded kind of time is longer."
    return (
        f"{difference}. Largest difference: {KINDS[first['kind']]}, "
        f"+{milliseconds(_delta_ns(first))} ms."
    )


def caption(pair: Pair) -> str:
    """Return the unit, and the number of profiled steps of both runs."""
    clean = pair.fast.span is not None and pair.slow.span is not None
    steps = " and ".join(dict.fromkeys(str(run.steps) for run in (pair.fast, pair.slow)))
    what = "clean steps" if clean else "means"
    return (
        f"ms per step · {what} from {steps} profiled steps · without kinds of time that differ by "
        "less than 1 % of the longer step"
    )


def bars(rows: Rows, fast: str = "faster run", slow: str = "slower run") -> list[Row]:
    """Return the bars: fast step, kinds of time that differ, slow step."""
    ends = _sum(rows, "fast_ns"), _sum(rows, "slow_ns")
    least = LEAST_SHARE * max(ends)
    drawn, at = [_bar(0, fast, STEP, 0, ends[0])], ends[0]
    for row in rows:
        delta_ns = _delta_ns(row)
        if abs(delta_ns) >= least:
            base = part_of_kind(row["kind"]).name
            drawn.append(_bar(len(drawn), shown(row["kind"]), base, at, at + delta_ns))
            at += delta_ns
    return [*drawn, _bar(len(drawn), slow, STEP, 0, ends[1])]


def _bar(order: int, label: str, base: str, start_ns: int, end_ns: int) -> Row:
    delta_ns = end_ns - start_ns
    sign = "" if base == STEP else "+" if delta_ns >= 0 else "−"
    text = f"{sign}{milliseconds(abs(delta_ns))} ms"
    columns = {"order": order, "label": label, "base": base, "said": text}
    return {**columns, "start_ns": start_ns, "end_ns": end_ns}


def chart(
    rows: Rows, most: int | None = None, fast: str = "faster run", slow: str = "slower run"
) -> drawing.Drawn:
    """Draw the bars, and leave room for ``most`` bars, which another pair may have."""
    drawn = bars(rows, fast, slow)
    base = (
        alt.Chart(drawing.inline(drawn))
        .transform_calculate(
            start="datum.start_ns / 1e6",
            end="datum.end_ns / 1e6",
            right="max(datum.start_ns, datum.end_ns) / 1e6",
        )
        .encode(
            y=alt.Y("label:N", sort=alt.SortField("order"), title=None, axis=drawing.label_marks())
        )
    )
    # list all parts, because the page may show another pair of runs in this chart
    scale = alt.Scale(domain=list(PARTS), range=[part.colour for part in PARTS.values()])
    colour = alt.Color("base:N", scale=scale, legend=None)
    # draw an outline, which also shows bars that are thinner than a pixel
    boxes = base.mark_bar(height={"band": 0.7}, strokeWidth=1).encode(
        x=alt.X("start:Q", title="ms per step"),
        x2=alt.X2("end:Q"),
        color=colour,
        stroke=alt.Stroke("base:N", scale=scale, legend=None),
        tooltip=[
            alt.Tooltip("label:N", title="part"),
            alt.Tooltip("said:N", title="adds"),
            alt.Tooltip("end:Q", format=",.3f", title="sum so far, ms"),
        ],
    )
    labels = base.mark_text(align="left", dx=6).encode(x=alt.X("right:Q"), text="said:N")
    return alt.layer(boxes, labels).properties(
        width="container",
        height=drawing.height(most or len(drawn)),
        padding={"left": 5, "top": 5, "right": 60, "bottom": 8},
    )
