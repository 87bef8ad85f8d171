"""Where the mean step goes: busy by category, idle by cause, every nanosecond once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from lstmprof.report import drawing
from lstmprof.report.model import Figure, Group, LedgerRow, Report
from lstmprof.report.palette import label_of, order_of, part_of

TITLE = "Where the step goes"


def figures(report: Report) -> list[Figure]:
    """One a group of runs that can be compared."""
    return [
        _figure(report, group, rows)
        for group in report.groups
        if (rows := [r for r in report.ledger if r.group == group.number])
    ]


def _figure(report: Report, group: Group, rows: Sequence[LedgerRow]) -> Figure:
    runs = [r for r in report.runs if r.run in group.runs]
    said = f"{drawing.profiled(runs)}, each nanosecond counted once"
    return Figure(
        key=f"ledger-{group.number}",
        title=f"{TITLE}: {group.conditions}",
        sentence=sentence(rows),
        alt=f"Stacked bars of busy and idle time. {sentence(rows)}",
        caption=drawing.caption("ms or % of the step", said, report, group),
        spec=drawing.specification(chart(rows)),
        legend=tuple(sorted({part_of(r.state, r.part).name for r in rows}, key=order_of)),
    )


def sentence(rows: Sequence[LedgerRow]) -> str:
    """The longest run's largest part, with its time and share."""
    bars: dict[tuple[str, str], list[LedgerRow]] = {}
    for row in rows:
        bars.setdefault((row.label, row.lane), []).append(row)
    (label, lane), longest = max(bars.items(), key=lambda bar: _mean_ns(bar[1]))
    largest = max(longest, key=lambda r: r.total_ns)
    share = largest.total_ns / sum(r.total_ns for r in longest)
    return (
        f"Of the mean step of {label} on {lane} ({drawing.milliseconds(_mean_ns(longest))}) the "
        f"largest part is {label_of(largest.state, largest.part)}, "
        f"{drawing.milliseconds(largest.total_ns / largest.steps)} ({drawing.percent(share)})."
    )


def _mean_ns(rows: Sequence[LedgerRow]) -> float:
    return sum(r.total_ns / r.steps for r in rows)


def chart(rows: Sequence[LedgerRow]) -> drawing.Drawn:
    """Stacked bars, the shortest step first; a choice of milliseconds or shares."""
    lanes = len({r.lane for r in rows}) > 1
    values: list[dict[str, Any]] = [
        {
            "run": r.run,
            "label": f"{r.label}, {r.lane}" if lanes else r.label,
            "lane": r.lane,
            "state": r.state,
            "part": r.part,
            "said": label_of(r.state, r.part),
            "base": part_of(r.state, r.part).name,
            "order": order_of(part_of(r.state, r.part).name),
            "total_ns": r.total_ns,
            "steps": r.steps,
        }
        for r in rows
    ]
    lengths: dict[str, float] = {}
    for v in values:
        lengths[v["label"]] = lengths.get(v["label"], 0.0) + v["total_ns"] / v["steps"]
    unit = alt.param(
        name="unit", value="ms", bind=alt.binding_radio(options=["ms", "%"], name="in ")
    )
    base = (
        alt.Chart(drawing.inline(values))
        .transform_calculate(ms="datum.total_ns / datum.steps / 1e6")
        .encode(y=drawing.label_axis(sorted(lengths, key=lambda label: lengths[label])))
    )
    bars = (
        base.transform_joinaggregate(whole_ms="sum(ms)", groupby=["label"])
        .transform_calculate(
            share="datum.ms / datum.whole_ms",
            value="unit === 'ms' ? datum.ms : 100 * datum.share",
        )
        .mark_bar(height={"band": 0.7})
        .encode(
            x=alt.X("value:Q", title="ms (or %) of the mean step", stack="zero"),
            color=drawing.part_colour(v["base"] for v in values),
            order=alt.Order("order:Q"),
            tooltip=[
                alt.Tooltip("label:N", title="run"),
                alt.Tooltip("said:N", title="part"),
                alt.Tooltip("ms:Q", format=",.4f", title="ms a step"),
                alt.Tooltip("share:Q", format=".2%", title="of the step"),
                alt.Tooltip("steps:Q", title="profiled steps"),
            ],
        )
    )
    sums = (
        base.transform_aggregate(whole_ms="sum(ms)", groupby=["label"])
        .transform_calculate(
            end="unit === 'ms' ? datum.whole_ms : 100",
            said="format(datum.whole_ms, ',.3r') + ' ms'",
        )
        .mark_text(align="left", dx=6)
        .encode(x="end:Q", text="said:N")
    )
    return (
        alt.layer(bars, sums)
        .add_params(unit)
        .properties(
            width="container",
            height=drawing.height(len(lengths)),
            padding={"left": 5, "top": 5, "right": 60, "bottom": 5},
        )
    )
