"""Data, axes, colours and captions that several charts share."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import altair as alt
from altair.utils.schemapi import debug_mode

from lstmprof.base.numbers import shown_name
from lstmprof.report.model import Rows, RunFacts, Spec
from lstmprof.report.palette import HUES, PARTS, WHOLE, families_of, order_of

Drawn = alt.Chart | alt.LayerChart | alt.FacetChart

#: Colour of bars that stand for no part of the breakdown.
ACCENT = WHOLE.colour
#: Colour of the edges of cells in heat maps.
EDGE = "#868e9c"
#: Colours of deviations, from −``MOST_PERCENT`` to +``MOST_PERCENT``. Contrast 3:1, safe for
#: red-green blindness.
OFF_COLOURS = ("#1f6fc4", "#5f8fc0", "#8f949c", "#c0813c", "#d9730d")
MOST_PERCENT = 20
#: Colours of lateness, from on time to late.
LATE_COLOURS = OFF_COLOURS[2:]
#: Height of a row of bars in pixels.
ROW = 26
#: Number of characters that remain at each end of a long label.
_END = 18


def inline(rows: Rows, columns: Sequence[str] | None = None) -> alt.InlineData:
    with debug_mode(False):  # altair would validate each row
        return alt.InlineData(values=shown(rows, columns), name="rows")


def shown(rows: Rows, columns: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Shorten long texts in rows, and remove control codes."""
    return [
        {n: shown_name(row[n]) if isinstance(row[n], str) else row[n] for n in columns or row}
        for row in rows
    ]


def specification(chart: Drawn) -> Spec:
    """Return a chart's Vega-Lite specification without a theme, which the page sets."""
    spec: Spec = chart.to_dict(validate=False)  # validation would check each row
    spec.pop("config", None)
    spec.pop("$schema", None)
    return spec


def label_axis(labels: Sequence[str]) -> alt.Y:
    """Return a vertical axis with one row per label, in this order."""
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
    """Draw a heat map: one row per device or rank, one column per value of ``across``."""
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
    """Return an axis that shortens long labels in the middle."""
    cut = f"slice(datum.label, 0, {_END}) + '…' + slice(datum.label, -{_END})"
    return alt.Axis(
        labelExpr=f"length(datum.label) > {2 * _END + 1} ? {cut} : datum.label",
        labelLimit=260,
        ticks=False,
    )


def part_colour(parts: Iterable[str], field: str = "base:N") -> alt.Color:
    """Return an encoding that colours parts of the breakdown, with a legend."""
    names = sorted(set(parts), key=order_of)
    scale = alt.Scale(domain=names, range=[(PARTS | HUES)[name].colour for name in names])
    return alt.Color(field, scale=scale, legend=legend_of(names))


def legend_of(names: Sequence[str]) -> alt.Legend:
    """Return a legend below the chart, sorted by family of related parts."""
    words = {
        part.name: part.shown if part.shown == family.name else f"{family.name}: {part.shown}"
        for family in families_of(names)
        for part in family.parts
    }
    words[WHOLE.name] = "parts under 1 %"
    return alt.Legend(
        title=None,
        orient="bottom",
        columns=3,
        symbolType="square",
        labelExpr=f"({json.dumps(words)})[datum.label] || datum.label",
        labelLimit=280,
    )


def off_colour(title: str) -> alt.Color:
    """Return an encoding that colours deviations in percent, such as from the median."""
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
    return ROW * max(rows, 1)


def ran(runs: Sequence[RunFacts]) -> str:
    """Return devices, versions and dates: ``AMD EPYC · torch 2.13.0 · 2026-11-21``."""
    days = sorted({run.date[:10] for run in runs if run.date}) or ["date unknown"]
    dates = " … ".join(dict.fromkeys((days[0], days[-1])))
    return " · ".join(map(shown_name, (_joined(runs, "device"), _joined(runs, "versions"), dates)))


def _joined(runs: Sequence[RunFacts], field: str) -> str:
    texts = dict.fromkeys(getattr(run, field) for run in runs)
    parts = dict.fromkeys(p for text in texts if text for p in text.split(", "))
    pythons = [part for part in parts if part.startswith("python ")]
    if len(pythons) > 1:  # it would be unclear which run has which Python
        parts = dict.fromkeys(part for part in parts if part not in pythons)
    return ", ".join(parts) or f"{field} unknown"


def unit(runs: Sequence[RunFacts]) -> str:
    """Return ``ms per step``, or ``ms`` if a profile has no step markers."""
    return "ms per step" if all(run.marked for run in runs) else "ms"


def span(numbers: Iterable[int | None], noun: str) -> str:
    """Return a range of numbers as text: ``20 iterations`` or ``3–20 iterations``."""
    distinct = sorted({n for n in numbers if n is not None})
    if not distinct:
        return f"number of {noun} unknown"
    if distinct == [1]:
        return f"1 {noun.removesuffix('s')}"
    ends = f"{distinct[0]}" if len(distinct) == 1 else f"{distinct[0]}–{distinct[-1]}"
    return f"{ends} {noun}"


def profiled(runs: Sequence[RunFacts]) -> str:
    """Return ``mean of 3 profiled steps``, or ``the whole profile`` without step markers."""
    marked, whole = [r for r in runs if r.marked], [r.label for r in runs if not r.marked]
    texts = [f"mean of {span((r.steps for r in marked), 'profiled steps')}"] if marked else []
    if whole:
        subject = f" of {', '.join(whole)}" if marked else ""
        texts.append(f"the whole profile{subject} (no step markers)")
    return "; ".join(texts)
