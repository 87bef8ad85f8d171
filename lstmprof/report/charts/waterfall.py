"""The way from the fast step to the slow one, part by part, for two runs chosen on the page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from lstmprof.report import drawing
from lstmprof.report.model import Figure, Group, Pair, Report, RunFacts
from lstmprof.report.palette import PARTS, label_of, part_of

TITLE = "From the fast step to the slow one"
#: Parts that add less of the longer step are drawn as one.
LEAST_SHARE = 0.005
STEP, PROFILER = "step", "the profiler's effect"

Bar = dict[str, Any]


def figures(report: Report) -> list[Figure]:
    """One, of the first pair; the page draws any other of ``report.pairs`` in its place."""
    if not report.pairs:
        return []
    pair = report.pairs[0]
    rows = max(len(bars(p)) for p in report.pairs)
    return [
        Figure(
            key="waterfall",
            title=TITLE,
            sentence=sentence(pair),
            alt=f"Waterfall chart. {sentence(pair)}",
            caption=caption(pair, report),
            spec=drawing.specification(chart(bars(pair), rows)),
        )
    ]


def sentence(pair: Pair) -> str:
    """What the difference is, and which part adds most to it."""
    delta = pair.slow_ns - pair.fast_ns
    said = (
        f"{pair.slow} takes {drawing.milliseconds(pair.slow_ns)} a step, {pair.fast} "
        f"{drawing.milliseconds(pair.fast_ns)}: {drawing.milliseconds(delta)} more"
    )
    if not pair.rows:
        return said + "."
    state, part, fast_ns, slow_ns = max(pair.rows, key=lambda row: row[3] - row[2])
    return f"{said}; {label_of(state, part)} adds most, {drawing.milliseconds(slow_ns - fast_ns)}."


def caption(pair: Pair, report: Report) -> str:
    """Unit and n: of the two ends, and of the parts between them."""
    both = [report.facts_of(pair.fast), report.facts_of(pair.slow)]
    counted = [pair.fast_steps, pair.slow_steps]
    ends = (
        ""
        if pair.profiled
        else f"ends: medians of {_each([r.iterations for r in both])} iterations; "
    )
    means = _each([_of(n, r) for n, r in zip(counted, both, strict=True)])
    said = f"{ends}parts: means of {means} profiled steps"
    if counted != [r.steps for r in both]:
        said += ", without those disturbed, which the ledger counts"
    alone = Group(pair.group, "", None, (pair.fast, pair.slow))
    return drawing.caption("ms a step", said, report, alone)


def _of(counted: int, facts: RunFacts) -> str:
    return str(counted) if counted == facts.steps else f"{counted} of {facts.steps}"


def _each(numbers: Sequence[int | str | None]) -> str:
    """``20``, ``12 and 20``: of the fast run and of the slow one."""
    known = ["?" if n is None else str(n) for n in numbers]
    return known[0] if known[0] == known[1] else " and ".join(known)


def bars(pair: Pair) -> list[Bar]:
    """Where each bar begins and ends, ns: the fast step, what each part adds, the slow step.

    What adds most comes first, what takes away last, the profiler's effect after all.
    """
    least = LEAST_SHARE * max(pair.slow_ns, pair.fast_ns)
    large = [row for row in pair.rows if abs(row[3] - row[2]) >= least]
    small = [row for row in pair.rows if abs(row[3] - row[2]) < least]
    large.sort(key=lambda row: (row[1] == PROFILER, row[2] - row[3]))
    changes = [(label_of(s, p), part_of(s, p).name, slow - fast) for s, p, fast, slow in large]
    rest = sum(slow - fast for _, _, fast, slow in small)
    if rest:
        changes.append((f"{len(small)} smaller ones", "other", rest))
    found = [_bar(0, "the fast step", STEP, 0, pair.fast_ns)]
    at = pair.fast_ns
    for name, base, delta in changes:
        found.append(_bar(len(found), name, base, at, at + delta))
        at += delta
    return [*found, _bar(len(found), "the slow step", STEP, 0, pair.slow_ns)]


def _bar(order: int, label: str, base: str, start_ns: int, end_ns: int) -> Bar:
    return {"order": order, "label": label, "base": base, "start_ns": start_ns, "end_ns": end_ns}


def chart(rows: Sequence[Bar], most: int | None = None) -> drawing.Drawn:
    """Bars hanging from where the one before ended; room for ``most`` of them."""
    base = (
        alt.Chart(drawing.inline(rows))
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
        x=alt.X("start:Q", title="ms a step"),
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
        height=drawing.height(most or len(rows)),
        padding={"left": 5, "top": 5, "right": 60, "bottom": 8},
    )
