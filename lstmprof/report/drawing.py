"""What the charts share: rows as a chart's data, a specification, a caption, heights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from typing import Any

import altair as alt

from lstmprof.report.model import Group, Report, RunFacts, Spec
from lstmprof.report.names import shown_name
from lstmprof.report.palette import PARTS, order_of

Drawn = alt.Chart | alt.LayerChart | alt.FacetChart

#: The one colour of bars that stand for no part; 3:1 and more on light and dark ground.
ACCENT = "#3b7dd8"
#: Pixels of one row of bars.
ROW = 26
#: Characters of each end of a long label.
_END = 18


def inline(rows: Iterable[Any]) -> alt.InlineData:
    """``rows``, dataclasses or mappings, as a chart's own data; names made safe to show."""
    values = [_shown(asdict(row) if is_dataclass(row) else row) for row in rows]  # type: ignore[arg-type]
    return alt.InlineData(values=values, name="rows")


def _shown(row: Mapping[str, Any]) -> dict[str, Any]:
    return {k: shown_name(v) if isinstance(v, str) else v for k, v in row.items()}


def specification(chart: Drawn) -> Spec:
    """``chart`` as Vega-Lite, without the theme and the schema's address, which the page sets."""
    spec: Spec = chart.to_dict()
    spec.pop("config", None)
    spec.pop("$schema", None)
    return spec


def label_axis(labels: Sequence[str]) -> alt.Y:
    """One row a label, in this order."""
    order = [shown_name(label) for label in labels]
    return alt.Y("label:N", sort=order, title=None, axis=label_marks())


def label_marks() -> alt.Axis:
    """An axis of names: a long one keeps both ends, as what tells runs apart may be at either."""
    cut = f"slice(datum.label, 0, {_END}) + '…' + slice(datum.label, -{_END})"
    return alt.Axis(
        labelExpr=f"length(datum.label) > {2 * _END + 1} ? {cut} : datum.label",
        labelLimit=260,
        ticks=False,
    )


def part_colour(parts: Iterable[str], field: str = "base:N") -> alt.Color:
    """The colour of a part; only ``parts`` are in the legend."""
    names = sorted(set(parts), key=order_of)
    scale = alt.Scale(domain=names, range=[PARTS[name].colour for name in names])
    legend = alt.Legend(title=None, orient="bottom", columns=5, symbolType="square")
    return alt.Color(field, scale=scale, legend=legend)


def height(rows: int) -> int:
    """Pixels of ``rows`` rows of bars."""
    return ROW * max(rows, 1)


def caption(unit: str, n: str, report: Report, group: Group | None = None) -> str:
    """``ms; median of 20 iterations; AMD EPYC; torch 2.13.0; 2026-11-21``."""
    runs = [r for r in report.runs if group is None or r.run in group.runs]
    said = [unit, n, _joined(runs, "device"), _joined(runs, "versions"), _dates(runs)]
    return " · ".join(shown_name(text) for text in said if text)


def _joined(runs: Sequence[RunFacts], field: str) -> str:
    known = dict.fromkeys(getattr(run, field) for run in runs)
    parts = dict.fromkeys(p for text in known if text for p in text.split(", "))
    return ", ".join(parts) or f"{field} unknown"


def _dates(runs: Sequence[RunFacts]) -> str:
    days = sorted({run.date[:10] for run in runs if run.date})
    if not days:
        return "date unknown"
    return days[0] if len(days) == 1 else f"{days[0]} … {days[-1]}"


def span(numbers: Iterable[int | None], noun: str) -> str:
    """``20 iterations``, ``3–20 iterations``."""
    known = sorted({n for n in numbers if n is not None})
    if not known:
        return f"number of {noun} unknown"
    if known == [1]:
        return f"1 {noun.removesuffix('s')}"
    return f"{known[0]} {noun}" if len(known) == 1 else f"{known[0]}–{known[-1]} {noun}"


def profiled(runs: Sequence[RunFacts]) -> str:
    """``mean of 3 profiled steps``; of a profile without step markers its whole."""
    marked, whole = [r for r in runs if r.marked], [r.label for r in runs if not r.marked]
    said = [f"mean of {span((r.steps for r in marked), 'profiled steps')}"] if marked else []
    if whole:
        of = f" of {', '.join(whole)}" if marked else ""
        said.append(f"the whole profile{of}, which has no step markers")
    return "; ".join(said)


def milliseconds(ns: float) -> str:
    """``12.3 ms``; three digits and no fewer."""
    ms = ns / 1e6
    digits = 0 if abs(ms) >= 100 else 1 if abs(ms) >= 10 else 2 if abs(ms) >= 1 else 3
    return f"{ms:,.{digits}f} ms"


def percent(share: float) -> str:
    """``12 %``, ``1.2 %``."""
    return f"{100 * share:.0f} %" if abs(share) >= 0.1 else f"{100 * share:.1f} %"
