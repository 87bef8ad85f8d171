"""The way from the fast step to the slow one, kind by kind, for two runs chosen on the page."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from lstmprof.diagnose.causes import KINDS
from lstmprof.diagnose.certainty import EXPLAINED_SHARE
from lstmprof.diagnose.certainty.pair import no_difference
from lstmprof.diagnose.findings import CAUSES, UNEXPLAINED
from lstmprof.numbers import milliseconds
from lstmprof.report import drawing
from lstmprof.report.model import Figure, Pair, Report, Row, Rows
from lstmprof.report.palette import PARTS, part_of_kind

TITLE = "From the fast step to the slow one"
COLUMNS = ("kind", "fast_ns", "slow_ns")
#: Kinds that add less of the longer step are drawn as one.
LEAST_SHARE = 0.005
STEP = "step"


def figures(report: Report) -> list[Figure]:
    """One, of the first pair; the page draws any other of ``report.pairs`` in its place."""
    if not report.pairs:
        return []
    pair = report.pairs[0]
    most = max(len(bars(pair.rows)) for pair in report.pairs)
    return [
        Figure(
            key="waterfall",
            title=TITLE,
            kind="Waterfall chart",
            sentence=sentence(pair),
            caption=caption(pair, report),
            spec=drawing.specification(chart(pair.rows, most)),
        )
    ]


def _sum(rows: Rows, column: str) -> int:
    return sum(row[column] for row in rows)


def _delta_ns(row: Row) -> int:
    return int(row["slow_ns"] - row["fast_ns"])


def sentence(pair: Pair) -> str:
    """What the difference is, and what the first of its causes adds to it."""
    fast_ns, slow_ns = _sum(pair.rows, "fast_ns"), _sum(pair.rows, "slow_ns")
    each = " a step" if pair.slow.marked and pair.fast.marked else ""
    difference = (
        f"{pair.slow.name} takes {milliseconds(slow_ns)} ms{each}, {pair.fast.name} "
        f"{milliseconds(fast_ns)} ms: {milliseconds(slow_ns - fast_ns)} ms more"
    )
    if no_difference(pair.fast, pair.slow):
        return f"{difference}, which cannot be told apart."
    unexplained_ns = sum(_delta_ns(row) for row in pair.rows if row["kind"] in UNEXPLAINED)
    if unexplained_ns > (1 - EXPLAINED_SHARE) * (slow_ns - fast_ns):
        return f"{difference}, most of which the profiles do not explain."
    first = next((row for row in pair.rows if row["kind"] in CAUSES and _delta_ns(row) > 0), None)
    if first is None:
        return f"{difference}; no recorded cause adds to it."
    cause = f"{KINDS[first['kind']]}, +{milliseconds(_delta_ns(first))} ms"
    return f"{difference}; first among the causes: {cause}."


def caption(pair: Pair, report: Report) -> str:
    """Return the unit, n, and on what the two runs were measured."""
    both = [report.facts_of(pair.fast.name), report.facts_of(pair.slow.name)]
    clean = pair.fast.span is not None and pair.slow.span is not None
    steps = _each([pair.fast.steps, pair.slow.steps])
    n = f"{'clean steps' if clean else 'means'} of {steps} profiled steps"
    return drawing.caption("ms per step", n, both)


def _each(numbers: Sequence[int]) -> str:
    """``20``, ``12 and 20``: of the fast run and of the slow one."""
    texts = [str(n) for n in numbers]
    return texts[0] if texts[0] == texts[1] else " and ".join(texts)


def bars(rows: Rows) -> list[Row]:
    """Where each bar begins and ends, ns: the fast step, what each kind adds, the slow step.

    In the order of the rows; those that add little are one, the last.
    """
    fast_ns, slow_ns = _sum(rows, "fast_ns"), _sum(rows, "slow_ns")
    least = LEAST_SHARE * max(slow_ns, fast_ns)
    large = [row for row in rows if abs(_delta_ns(row)) >= least]
    small = [row for row in rows if abs(_delta_ns(row)) < least]
    changes = [(row["kind"], part_of_kind(row["kind"]).name, _delta_ns(row)) for row in large]
    if rest := sum(map(_delta_ns, small)):
        text = f"{len(small)} smaller part" + "s" * (len(small) != 1)
        changes.append((text, "other", rest))
    shown, at = [_bar(0, "the fast step", STEP, 0, fast_ns)], fast_ns
    for text, base, delta_ns in changes:
        shown.append(_bar(len(shown), text, base, at, at + delta_ns))
        at += delta_ns
    return [*shown, _bar(len(shown), "the slow step", STEP, 0, slow_ns)]


def _bar(order: int, label: str, base: str, start_ns: int, end_ns: int) -> Row:
    return {"order": order, "label": label, "base": base, "start_ns": start_ns, "end_ns": end_ns}


def chart(rows: Rows, most: int | None = None) -> drawing.Drawn:
    """Bars hanging from where the one before ended; room for ``most`` of them."""
    drawn = bars(rows)
    base = (
        alt.Chart(drawing.inline(drawn))
        .transform_calculate(
            start="datum.start_ns / 1e6",
            end="datum.end_ns / 1e6",
            right="max(datum.start_ns, datum.end_ns) / 1e6",
            said="(datum.base === 'step' ? format(datum.end, ',.3f') : "
            "format(datum.end - datum.start, '+,.3f'))",
        )
        .encode(
            y=alt.Y(
                "label:N",
                sort=alt.SortField("order"),
                title=None,
                axis=drawing.label_marks(),
            )
        )
    )
    # The page exchanges the rows, so that the scale holds every part.
    scale = alt.Scale(domain=list(PARTS), range=[part.colour for part in PARTS.values()])
    colour = alt.Color("base:N", scale=scale, legend=None)
    # A bar thinner than a pixel is seen by its outline.
    boxes = base.mark_bar(height={"band": 0.7}, strokeWidth=1).encode(
        x=alt.X("start:Q", title="ms per step"),
        x2=alt.X2("end:Q"),
        color=colour,
        stroke=alt.Stroke("base:N", scale=scale, legend=None),
        tooltip=[
            alt.Tooltip("label:N", title="part"),
            alt.Tooltip("said:N", title="ms"),
            alt.Tooltip("end:Q", format=",.3f", title="sum so far, ms"),
        ],
    )
    labels = base.mark_text(align="left", dx=6).encode(x=alt.X("right:Q"), text="said:N")
    return alt.layer(boxes, labels).properties(
        width="container",
        height=drawing.height(most or len(drawn)),
        padding={"left": 5, "top": 5, "right": 60, "bottom": 8},
    )
