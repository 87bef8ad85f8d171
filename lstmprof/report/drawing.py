"""What the charts share: rows as a chart's data, a specification, a caption, heights."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import altair as alt
from altair.utils.schemapi import debug_mode

from lstmprof.numbers import shown_name
from lstmprof.report.model import Rows, RunFacts, Spec
from lstmprof.report.palette import HUES, PARTS, WHOLE, families_of, order_of

Drawn = alt.Chart | alt.LayerChart | alt.FacetChart

#: The one colour of bars that stand for no part.
ACCENT = WHOLE.colour
#: Around cells.
EDGE = "#868e9c"
#: Of what is faster and slower than usual, which red-green blindness leaves apart; 3:1 on light and
#: on dark ground. What is farther off than ``MOST_PERCENT`` has the colour of that.
OFF_COLOURS = ("#1f6fc4", "#5f8fc0", "#8f949c", "#c0813c", "#d9730d")
MOST_PERCENT = 20
#: Of what is on time and what is late.
LATE_COLOURS = OFF_COLOURS[2:]
#: A smaller share of every run's step is told in a line, not drawn.
SLIGHT = 0.01
#: Pixels of one row of bars.
ROW = 26
#: Characters of each end of a long label.
_END = 18


def inline(rows: Rows, columns: Sequence[str] | None = None) -> alt.InlineData:
    """``columns`` of ``rows``, all where none are named, as a chart's own data."""
    with debug_mode(False):  # each row would be held against the schema of all that data may be
        return alt.InlineData(values=shown(rows, columns), name="rows")


def shown(rows: Rows, columns: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """``columns`` of ``rows`` whose texts are safe to show."""
    return [{name: _safe(row[name]) for name in columns or row} for row in rows]


def _safe(value: Any) -> Any:
    return shown_name(value) if isinstance(value, str) else value


def specification(chart: Drawn) -> Spec:
    """``chart`` as Vega-Lite, without the theme and the schema's address, which the page sets."""
    spec: Spec = chart.to_dict(validate=False)  # each row of its data would be looked at
    spec.pop("config", None)
    spec.pop("$schema", None)
    return spec


def label_axis(labels: Sequence[str]) -> alt.Y:
    """One row a label, in this order."""
    order = [shown_name(label) for label in labels]
    return alt.Y("label:N", sort=order, title=None, axis=label_marks())


def cells(
    rows: Rows,
    columns: Sequence[str],
    across: str,
    colour: alt.Color,
    tooltip: Sequence[alt.Tooltip],
    **calculated: str,
) -> Drawn:
    """A row of cells for each ``lane``, a column for each value of ``across``, a number.

    ``columns`` of ``rows`` and what is ``calculated`` of them, name → expression, may be shown.
    """
    lanes = list(dict.fromkeys(row["lane"] for row in rows))
    values = [{**{name: row[name] for name in columns}, "label": row["lane"]} for row in rows]
    axis = alt.Axis(labelAngle=0, labelOverlap=True, ticks=False)
    whole: Drawn = (
        alt.Chart(inline(values))
        .transform_calculate(**calculated)
        .mark_rect(height={"band": 0.7})
        .encode(
            x=alt.X(f"{across}:O", title=across, axis=axis),
            y=label_axis(lanes),
            color=colour,
            tooltip=[alt.Tooltip("lane:N", title="where"), *tooltip],
        )
        .properties(width="container", height=height(len(lanes)))
    )
    return whole


def label_marks() -> alt.Axis:
    """An axis of names: a long one keeps both ends, as what tells runs apart may be at either."""
    cut = f"slice(datum.label, 0, {_END}) + '…' + slice(datum.label, -{_END})"
    return alt.Axis(
        labelExpr=f"length(datum.label) > {2 * _END + 1} ? {cut} : datum.label",
        labelLimit=260,
        ticks=False,
    )


def part_colour(parts: Iterable[str], field: str = "base:N") -> alt.Color:
    """The colour of a part or a family; only ``parts`` are in the legend, each by its family."""
    names = sorted(set(parts), key=order_of)
    scale = alt.Scale(domain=names, range=[(PARTS | HUES)[name].colour for name in names])
    return alt.Color(field, scale=scale, legend=legend_of(names))


def legend_of(names: Iterable[str]) -> alt.Legend:
    """The parts ``names`` beneath a chart, family by family."""
    told = {p.name: _told(f.name, p.name) for f in families_of(names) for p in f.parts}
    return alt.Legend(
        title=None,
        orient="bottom",
        columns=3,
        symbolType="square",
        labelExpr=f"({json.dumps(told)})[datum.label] || datum.label",
        labelLimit=280,
    )


def _told(family: str, part: str) -> str:
    return part if part == family else f"{family}: {part}"


def off_colour(title: str) -> alt.Color:
    """The colour of ``percent``: how far off the usual something is."""
    return alt.Color(
        "percent:Q",
        scale=alt.Scale(
            domain=[-MOST_PERCENT, -5, 0, 5, MOST_PERCENT],
            range=list(OFF_COLOURS),
            clamp=True,
            interpolate="rgb",
        ),
        legend=alt.Legend(title=title, orient="bottom", direction="horizontal", gradientLength=200),
    )


def height(rows: int) -> int:
    """Pixels of ``rows`` rows of bars."""
    return ROW * max(rows, 1)


def begun(words: str) -> str:
    """``words`` as they begin a sentence."""
    return words[:1].upper() + words[1:]


def caption(unit: str, n: str, runs: Sequence[RunFacts]) -> str:
    """``ms; median of 20 iterations; AMD EPYC; torch 2.13.0; 2026-11-21``."""
    texts = [unit, n, _joined(runs, "device"), _joined(runs, "versions"), _dates(runs)]
    return " · ".join(shown_name(text) for text in texts if text)


def _joined(runs: Sequence[RunFacts], field: str) -> str:
    texts = dict.fromkeys(getattr(run, field) for run in runs)
    parts = dict.fromkeys(p for text in texts if text for p in text.split(", "))
    return ", ".join(parts) or f"{field} unknown"


def _dates(runs: Sequence[RunFacts]) -> str:
    days = sorted({run.date[:10] for run in runs if run.date})
    if not days:
        return "date unknown"
    return days[0] if len(days) == 1 else f"{days[0]} … {days[-1]}"


def span(numbers: Iterable[int | None], noun: str) -> str:
    """``20 iterations``, ``3–20 iterations``."""
    distinct = sorted({n for n in numbers if n is not None})
    if not distinct:
        return f"number of {noun} unknown"
    if distinct == [1]:
        return f"1 {noun.removesuffix('s')}"
    ends = f"{distinct[0]}" if len(distinct) == 1 else f"{distinct[0]}–{distinct[-1]}"
    return f"{ends} {noun}"


def profiled(runs: Sequence[RunFacts]) -> str:
    """``mean of 3 profiled steps``; of a profile without step markers its whole."""
    marked, whole = [r for r in runs if r.marked], [r.label for r in runs if not r.marked]
    texts = [f"mean of {span((r.steps for r in marked), 'profiled steps')}"] if marked else []
    if whole:
        subject = f" of {', '.join(whole)}" if marked else ""
        texts.append(f"the whole profile{subject}, which has no step markers")
    return "; ".join(texts)
