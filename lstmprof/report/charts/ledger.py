"""Stacked bars of a step: busy time by category of work, idle time by cause."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import altair as alt

from lstmprof.base.numbers import milliseconds, percent
from lstmprof.breakdown import CLEAN
from lstmprof.report import drawing
from lstmprof.report.model import LEAST_SHARE, Figure, Report, Row, Rows
from lstmprof.report.palette import PARTS, WHOLE, order_of, part_of

TITLE = "Where the time goes"
COLUMNS = ("run", "label", "lane", "state", "part", "total_ns", "steps")
#: Width of a letter in a bar, and of the free space around a text, in pixels.
_LETTER, _PADDING = 6.3, 8
#: Assumed width of the longest bar in a separate file, in pixels.
_PIXELS = 640
#: Luminance of bars above which text is black, not white (WCAG 2.2).
_BLACK_FROM = 0.179


def figures(report: Report) -> Iterator[Figure]:
    """Yield one figure per group of comparable runs."""
    for group, rows in report.by_group(report.ledger):
        runs = report.members(group)
        n = drawing.profiled(runs)
        if any(row["of"] == CLEAN for row in rows):
            n = n.replace("mean of", "clean step from", 1) + ", without the profiler's overhead"
        drawn = bars(rows)
        grey = "; grey: parts under 1 %" if any(bar["base"] == WHOLE.name for bar in drawn) else ""
        yield Figure(
            key=f"ledger-{group.number}",
            title=f"{TITLE}: {group.conditions}",
            kind="Stacked bars of busy and idle time",
            sentence=sentence(rows, marked=all(facts.marked for facts in runs)),
            caption=f"{drawing.unit(runs)} · {n}{grey}",
            ran=drawing.ran(runs),
            spec=drawing.specification(chart(rows)),
            legend=tuple(sorted({b["base"] for b in drawn} - {WHOLE.name}, key=order_of)),
        )


def sentence(rows: Rows, *, marked: bool = True) -> str:
    """Name the largest part of the longest step."""
    drawn = bars(rows)
    longest = max(drawn, key=lambda bar: bar["whole_ms"])
    pieces = [bar for bar in drawn if bar["label"] == longest["label"]]
    largest = max(pieces, key=lambda bar: bar["ms"])
    step = "step" if marked else "profile"
    return (
        f"The largest part of the {longest['said']} {step} of {longest['label']} is "
        f"{largest['words']}: {milliseconds(1e6 * largest['ms'])} ms ({percent(largest['share'])})."
    )


def bars(rows: Rows) -> list[Row]:
    """Return the segments of each run's bar. All small parts form one segment."""
    by_run: dict[str, list[Row]] = {}
    for row in rows:
        by_run.setdefault(row["run"], []).append(row)
    return [piece for run_rows in by_run.values() for piece in _pieces(run_rows)]


def _pieces(rows: Rows) -> list[Row]:
    whole_ns = sum(row["total_ns"] for row in rows)
    total_ns: Counter[str] = Counter()
    for row in rows:
        total_ns[part_of(row["state"], row["part"]).name] += row["total_ns"]
    for name in [n for n, ns in total_ns.items() if ns < LEAST_SHARE * whole_ns]:
        total_ns[WHOLE.name] += total_ns.pop(name)
    first, per_ms, end = rows[0], 1e6 * rows[0]["steps"], 0.0
    pieces: list[Row] = []
    for name in sorted(total_ns, key=lambda name: (name == WHOLE.name, order_of(name))):
        start, end = end, end + total_ns[name] / per_ms
        pieces.append(
            {
                "run": first["run"],
                "label": ", ".join(text for text in (first["label"], first["lane"]) if text),
                "base": name,
                "words": PARTS[name].shown,
                "fill": PARTS[name].colour,
                "total_ns": total_ns[name],
                "steps": first["steps"],
                "ms": total_ns[name] / per_ms,
                "share": total_ns[name] / whole_ns if whole_ns else 0.0,
                "start": start,
                "end": end,
                "whole_ms": whole_ns / per_ms,
                "said": f"{milliseconds(whole_ns / first['steps'])} ms",
            }
        )
    return pieces


def chart(rows: Rows) -> drawing.Drawn:
    """Draw one stacked bar per run, shortest first."""
    values = bars(rows)
    lengths = {bar["label"]: bar["whole_ms"] for bar in values}
    base = alt.Chart(drawing.inline(values)).encode(
        y=drawing.label_axis(sorted(lengths, key=lambda label: lengths[label]))
    )
    pieces = base.mark_bar(height={"band": 0.76}).encode(
        x=alt.X("start:Q", title="ms"),
        x2="end:Q",
        color=drawing.part_colour(bar["base"] for bar in values),
        tooltip=[
            alt.Tooltip("label:N", title="run"),
            alt.Tooltip("words:N", title="part"),
            alt.Tooltip("ms:Q", format=",.4f", title="time, ms"),
            alt.Tooltip("share:Q", format=".1%", title="share"),
            alt.Tooltip("steps:Q", title="profiled steps"),
        ],
    )
    # estimate the width if there is no scale ``x``: ``charts.stacked`` renames scales
    longest = max(lengths.values(), default=0.0) or 1.0
    wide = f"({_PIXELS} * (datum.end - datum.start) / {longest})"
    wide = f"((scale('x', datum.end) - scale('x', datum.start)) || {wide})"
    room = f"{wide} - {_PADDING}"
    fill = "(scale('color', datum.base) || datum.fill)"
    long = "datum.words + ' ' + format(100 * datum.share, '.0f') + ' %'"
    fitting = f"{room} > {_LETTER} * length({long}) ? {long} : datum.words"
    names = (
        base.transform_calculate(middle="(datum.start + datum.end) / 2")
        .mark_text(
            fontSize=11,
            aria=False,
            text=alt.expr(f"{room} > {_LETTER} * length(datum.words) ? ({fitting}) : ''"),
            color=alt.expr(f"luminance({fill}) > {_BLACK_FROM} ? 'black' : 'white'"),
        )
        .encode(x="middle:Q")
    )
    sums = (
        base.transform_aggregate(end="max(end)", groupby=["label", "said"])
        .mark_text(align="left", dx=6, aria=False)
        .encode(x="end:Q", text="said:N")
    )
    return alt.layer(pieces, names, sums).properties(
        width="container",
        height=drawing.height(len(lengths)),
        padding={"left": 5, "top": 5, "right": 60, "bottom": 5},
    )
