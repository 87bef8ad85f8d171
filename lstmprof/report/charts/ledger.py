"""Where the step goes: busy by category, idle by cause, every nanosecond once."""

from __future__ import annotations

from collections.abc import Collection

import altair as alt

from lstmprof.breakdown import CLEAN
from lstmprof.numbers import milliseconds, percent
from lstmprof.report import drawing
from lstmprof.report.model import Figure, Report, Row, Rows
from lstmprof.report.palette import label_of, order_of, part_of

TITLE = "Where the step goes"
COLUMNS = ("run", "label", "lane", "state", "part", "total_ns", "steps")


def figures(report: Report) -> list[Figure]:
    """One a group of runs that can be compared."""
    group_figures = []
    for group, rows in report.by_group(report.ledger):
        runs = report.members(group)
        n = drawing.profiled(runs)
        if any(row["of"] == CLEAN for row in rows):
            n = n.replace("mean of", "clean step of", 1) + ", less what recording took"
        n += ", each nanosecond counted once"
        group_figures.append(
            Figure(
                key=f"ledger-{group.number}",
                title=f"{TITLE}: {group.conditions}",
                kind="Stacked bars of busy and idle time",
                sentence=sentence(rows, {facts.label for facts in runs if not facts.marked}),
                caption=drawing.caption("ms or % of the step", n, runs),
                spec=drawing.specification(chart(rows)),
                legend=tuple(sorted({_base(row) for row in rows}, key=order_of)),
            )
        )
    return group_figures


def _base(row: Row) -> str:
    return part_of(row["state"], row["part"]).name


def sentence(rows: Rows, unmarked: Collection[str] = ()) -> str:
    """The longest run's largest part, with its time and share."""
    bars: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        bars.setdefault((row["label"], row["lane"]), []).append(row)
    (label, lane), longest = max(bars.items(), key=lambda bar: sum(map(_mean_ns, bar[1])))
    largest = max(longest, key=lambda row: row["total_ns"])
    share = largest["total_ns"] / sum(row["total_ns"] for row in longest)
    mean = "clean step" if largest["of"] == CLEAN else "mean step"
    whole = "time" if label in unmarked else mean
    return (
        f"Of the {whole} of {label} on {lane} ({milliseconds(sum(map(_mean_ns, longest)))} ms) "
        f"the largest part is {label_of(largest['state'], largest['part'])}, "
        f"{milliseconds(_mean_ns(largest))} ms ({percent(share)})."
    )


def _mean_ns(row: Row) -> float:
    return float(row["total_ns"] / row["steps"])


def chart(rows: Rows) -> drawing.Drawn:
    """Stacked bars, the shortest step first; a choice of milliseconds or shares."""
    lanes = len({row["lane"] for row in rows}) > 1
    values = [
        {
            **{name: row[name] for name in COLUMNS},
            "label": f"{row['label']}, {row['lane']}" if lanes else row["label"],
            "said": label_of(row["state"], row["part"]),
            "base": _base(row),
            "order": order_of(_base(row)),
        }
        for row in rows
    ]
    lengths: dict[str, float] = {}
    for v in values:
        lengths[v["label"]] = lengths.get(v["label"], 0.0) + _mean_ns(v)
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
            x=alt.X("value:Q", title="ms (or %) of the step", stack="zero"),
            color=drawing.part_colour(v["base"] for v in values),
            order=alt.Order("order:Q"),
            tooltip=[
                alt.Tooltip("label:N", title="run"),
                alt.Tooltip("said:N", title="part"),
                alt.Tooltip("ms:Q", format=",.4f", title="ms per step"),
                alt.Tooltip("share:Q", format=".2%", title="of the step"),
                alt.Tooltip("steps:Q", title="profiled steps"),
            ],
        )
    )
    sums = (
        base.transform_calculate(above_ms="max(datum.ms, 0)")
        .transform_aggregate(whole_ms="sum(ms)", bar_ms="sum(above_ms)", groupby=["label"])
        .transform_calculate(
            end="unit === 'ms' ? datum.bar_ms : 100 * datum.bar_ms / datum.whole_ms",
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
