"""The charts of a report, one module per type of chart, such as ``times``.

Every module has these names::

    COLUMNS            columns of the rows that a chart shows
    figures(report)    returns the charts, with a title and a sentence about the main result
    chart(rows)        draws one chart
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from pathlib import Path

from lstmprof.base.errors import RunError
from lstmprof.base.scratch import check_file, write_file
from lstmprof.report.model import Figure, Report, Spec

#: Names of chart modules, in the order in which the page shows the charts.
CHARTS = (
    "times",
    "ledger",
    "waterfall",
    "launch_gaps",
    "rank_parts",
    "arrivals",
    "rank_work",
    "casts",
    "versions",
    "sweep",
    "roofline",
    "stability",
)
#: Width in pixels of a chart in a separate file. Pixels of a PNG per pixel of the chart.
WIDTH, SCALE = 860, 2
_CONFIG = {"view": {"stroke": None}, "axis": {"grid": False}, "background": "white"}
#: Properties that Vega-Lite allows only at the top of a specification with several charts.
_OF_WHOLE = ("$schema", "config", "padding", "autosize", "background", "usermeta", "datasets")


def figures(report: Report) -> list[Figure]:
    modules = [importlib.import_module(f"{__name__}.{name}") for name in CHARTS]
    return [figure for module in modules for figure in module.figures(report)]


def write(
    drawn: Sequence[Figure], folder: Path, format_: str, *, force: bool = False
) -> list[Path]:
    """Write one file per figure: png, svg or json."""
    paths = [folder / f"{figure.key}.{format_}" for figure in drawn]
    for path in paths:
        check_file(path, force=force, next_step="add --force to overwrite it")
    try:
        for path, figure in zip(paths, drawn, strict=True):
            write_file(path, _content(alone(figure), format_))
    except OSError as fault:
        raise RunError(f"{folder}: {fault.strerror}", "choose a writable folder") from fault
    return paths


def alone(figure: Figure) -> Spec:
    """Return the specification of a chart for a separate file, with a title."""
    title = {
        "text": figure.title,
        "subtitle": [figure.sentence, figure.caption, figure.ran],
        "anchor": "start",
    }
    return {**figure.spec, "width": WIDTH, "title": title, "config": _CONFIG}


def stacked(figures: Sequence[Figure]) -> Spec:
    """Return one Vega-Lite specification with the figures below each other."""
    specs = [alone(figure) for figure in figures]
    # Vega-Lite requires padding, configuration and parameters at the top
    whole = {key: specs[0][key] for key in _OF_WHOLE if key in specs[0]}
    parameters = {p["name"]: p for spec in specs for p in spec.get("params", ())}
    if parameters:
        whole["params"] = list(parameters.values())
    parts = [{k: v for k, v in s.items() if k not in (*_OF_WHOLE, "params")} for s in specs]
    for part in parts:
        # remove the name, because Vega-Lite forbids two data sets with one name
        part["data"] = {key: value for key, value in part["data"].items() if key != "name"}
    return {**whole, "vconcat": parts}


def _content(spec: Spec, format_: str) -> bytes:
    import vl_convert

    if format_ == "png":
        return bytes(vl_convert.vegalite_to_png(spec, scale=SCALE))
    if format_ == "svg":
        return str(vl_convert.vegalite_to_svg(spec)).encode()
    return json.dumps(spec, indent=1, ensure_ascii=False, allow_nan=False).encode()
