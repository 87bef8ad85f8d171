"""Make the page of ``lstmprof history``: one panel per series of runs."""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import altair as alt

from lstmprof.base.numbers import milliseconds, shown_name
from lstmprof.diagnose.history import Point, Series
from lstmprof.report import drawing
from lstmprof.report.model import Spec
from lstmprof.report.page import refuse, save, script_json, vega

#: Size of a panel in pixels.
_WIDTH, _HEIGHT = 860, 240
#: Colours of the triangles that mark slower and faster runs.
_SLOWER, _FASTER = "#c8710a", "#0f6b4a"
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; "
    "img-src data: blob:"
)


def chart(series: Sequence[Series]) -> alt.VConcatChart:
    """Draw one panel per series: points with 95 % intervals, triangles at changes."""
    return alt.vconcat(*map(_panel, series))


def specification(series: Sequence[Series]) -> Spec:
    spec: Spec = chart(series).to_dict()
    return spec


def _panel(series: Series) -> drawing.Drawn:
    rows = [_row(place, point) for place, point in enumerate(series.points)]
    labels = [shown_name(point.label, 24) for point in series.points]
    label = f"{script_json(labels)}[datum.value]"  # a Vega expression
    base = alt.Chart(alt.InlineData(values=drawing.shown(rows))).encode(
        x=alt.X("place:O", title=None, axis=alt.Axis(labelAngle=-30, labelExpr=label)),
        tooltip=["run:N", "label:N", "when:N", alt.Tooltip("ms:Q", format=",.4f"), "change:N"],
    )
    ms = alt.Y("ms:Q", title="ms per step", scale=alt.Scale(zero=False))
    interval = base.mark_rule(strokeWidth=2, color=drawing.ACCENT).encode(
        y=alt.Y("low:Q", title="ms per step", scale=alt.Scale(zero=False)), y2="high:Q"
    )
    points = base.mark_point(filled=True, size=60, color=drawing.ACCENT, opacity=1).encode(y=ms)
    changes = (
        base.transform_filter("isValid(datum.change)")
        .mark_point(filled=True, size=180, opacity=1)
        .encode(
            y=ms,
            shape=alt.Shape("change:N", scale=_scale(("triangle-up", "triangle-down"))),
            color=alt.Color("change:N", scale=_scale((_SLOWER, _FASTER)), title="from here on"),
        )
    )
    texts = (
        base.transform_filter("isValid(datum.change)").mark_text(dy=-16).encode(y=ms, text="said:N")
    )
    layers = alt.layer(interval, points, changes, texts)
    return layers.properties(width=_WIDTH, height=_HEIGHT, title=shown_name(series.title))


def _scale(values: tuple[str, str]) -> alt.Scale:
    return alt.Scale(domain=["slower", "faster"], range=list(values))


def _row(place: int, point: Point) -> dict[str, Any]:
    ratio = point.ratio
    text = f"{100 * (ratio.value - 1):+,.1f} %" if ratio is not None else ""
    return {
        "place": place,
        "run": point.profile.name,
        "label": point.label,
        "when": point.when[:19],
        "ms": point.step.ns / 1e6,
        "low": point.step.low_ns / 1e6,
        "high": None if point.step.high_ns is None else point.step.high_ns / 1e6,
        "change": point.change,
        "said": text,
    }


def page(series: Sequence[Series]) -> str:
    """Return the HTML page, which loads nothing from elsewhere."""
    texts = "".join(f"<p>{html.escape(shown_name(of.sentence, 2000))}</p>" for of in series)
    tables = "".join(map(_table, series))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        "<title>History: lstmprof</title><style>body{font:16px/1.5 system-ui,sans-serif;"
        "max-width:64rem;margin:2rem auto;padding:0 1rem;overflow-x:auto}td,th{padding:.2rem .6rem;"
        "text-align:left}td.n{text-align:right}</style></head><body>"
        f'<h1>History</h1>{texts}<div id="chart"></div>{tables}'
        f"<script>{vega()}</script>"
        f'<script>vegaEmbed("#chart", {script_json(specification(series))}, '
        '{actions: false, renderer: "svg"});</script></body></html>'
    )


def _table(series: Series) -> str:
    heads = ("when", "label", "run", "ms per step", "95 % interval from", "to", "change")
    head = "".join(f"<th>{name}</th>" for name in heads)
    rows = "".join(f"<tr>{''.join(_cells(point))}</tr>" for point in series.points)
    return f"<h2>{html.escape(shown_name(series.title))}</h2><table><tr>{head}</tr>{rows}</table>"


def _cells(point: Point) -> list[str]:
    texts = (point.when[:19], point.label, point.profile.name)
    numbers = (point.step.ns, point.step.low_ns, point.step.high_ns)
    return [
        *(f"<td>{html.escape(shown_name(text))}</td>" for text in texts),
        *(f'<td class="n">{milliseconds(ns, 2)}</td>' for ns in numbers),
        f"<td>{point.change or ''}</td>",
    ]


def write(series: Sequence[Series], path: Path, *, force: bool = False) -> int:
    """Write the page, completely or not at all, and return its size in bytes."""
    refuse(path, force=force)
    return save(page(series), path)
