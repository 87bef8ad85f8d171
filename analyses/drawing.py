"""The charts of the analyses: each row shows a study's number and our number."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import altair as alt
import pandas as pd

from analyses.sweep import crossovers

#: Colours of the study's and of our numbers, visible on white and in grey.
STUDY, OURS = "#9aa0a6", "#3b7dd8"
WIDTH, ROW = 560, 24


def pairs(
    labels: Iterable[str], theirs: Iterable[float], ours: Sequence[float], title: str
) -> alt.LayerChart:
    """Draw a line from the study's number to ours, one row per label."""
    rows = pd.DataFrame({"label": [*labels], "study": [*theirs], "ours": [*ours]})
    order = rows.label.tolist()
    y = alt.Y("label:N", sort=order, title=None, axis=alt.Axis(labelLimit=360, ticks=False))
    x = alt.Scale(type="log", nice=False, padding=16)
    begin = alt.X("study:Q", scale=x, title=title)
    line = alt.Chart(rows).mark_rule(color=STUDY).encode(y=y, x=begin, x2="ours:Q")
    points = (
        alt.Chart(rows)
        .transform_fold(["study", "ours"], as_=["of", "number"])
        .mark_point(filled=True, size=80, opacity=1)
        .encode(
            y=y,
            x=alt.X("number:Q", scale=x, title=title),
            color=alt.Color(
                "of:N",
                scale=alt.Scale(domain=["study", "ours"], range=[STUDY, OURS]),
                legend=alt.Legend(title=None, orient="top"),
            ),
            tooltip=["label:N", "of:N", alt.Tooltip("number:Q", format=".3g")],
        )
    )
    return _layers(line, points, rows=len(rows))


def bars(labels: Iterable[str], values: Sequence[float], title: str) -> alt.LayerChart:
    """Draw one bar per label, for numbers that no study has."""
    rows = pd.DataFrame({"label": [*labels], "number": [*values]})
    y = alt.Y("label:N", sort=rows.label.tolist(), title=None, axis=alt.Axis(labelLimit=360))
    bar = alt.Chart(rows).mark_bar(color=OURS).encode(y=y, x=alt.X("number:Q", title=title))
    text = bar.mark_text(align="left", dx=6).encode(text=alt.Text("number:Q", format=",.3~r"))
    return _layers(bar, text, rows=len(rows))


def sweeps(series: dict[str, dict[str, pd.Series]]) -> alt.HConcatChart:
    """Draw how ratios depend on sizes; rings mark where a ratio passes 1."""
    # make one row per point from {name of the ratio: {name of the size: ratio at each size}}
    curves = pd.DataFrame(
        [
            {"ratio": name, "size": size, "at": at, "times": times}
            for name, by_size in series.items()
            for size, ratio in by_size.items()
            for at, times in ratio.items()
        ],
        columns=["ratio", "size", "at", "times"],
    )
    passes = pd.DataFrame(
        [
            {"ratio": name, "size": size, "at": at, "times": 1.0}
            for name, by_size in series.items()
            for size, ratio in by_size.items()
            for at in crossovers(ratio)
        ],
        columns=["ratio", "size", "at", "times"],
    )
    charts = [
        _sweep(curves[curves["size"] == size], passes[passes["size"] == size], str(size))
        for size in curves["size"].unique()
    ]
    return alt.HConcatChart(
        hconcat=charts,
        title="Rings: the ratio passes 1",
        resolve=alt.Resolve(scale={"y": "shared"}),
    )


def _sweep(curves: pd.DataFrame, passes: pd.DataFrame, size: str) -> alt.LayerChart:
    x = alt.X(
        "at:Q",
        scale=alt.Scale(type="log", nice=False, padding=12),
        axis=alt.Axis(values=sorted(curves["at"].unique().tolist()), grid=False),
        title=size.replace("_", " "),
    )
    y = alt.Y("times:Q", scale=alt.Scale(type="log", nice=False, padding=8), title="times as long")
    color = alt.Color(
        "ratio:N",
        sort=None,
        legend=alt.Legend(title=None, orient="bottom", columns=2, columnPadding=40, labelLimit=300),
    )
    line = alt.Chart(curves).mark_line(point=True).encode(x=x, y=y, color=color)
    ring = alt.Chart(passes).mark_point(size=160, color="black", strokeWidth=1.5)
    equal = alt.Chart(pd.DataFrame({"times": [1.0]})).mark_rule(strokeDash=[4, 4], color=STUDY)
    layers = (equal.encode(y="times:Q"), line, ring.encode(x=x, y=y))
    return alt.LayerChart(layer=layers, width=WIDTH // 3, height=260)


def _layers(*charts: alt.Chart, rows: int) -> alt.LayerChart:
    return alt.LayerChart(layer=charts, width=WIDTH, height=ROW * max(rows, 1))
