"""The text of ``lstmprof breakdown``: times and slowdown first, then where each step goes.

Of one table alone (``--table``) it is in units for reading, with the columns that fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lstmprof.breakdown import Breakdown, comparable, compared
from lstmprof.breakdown.doubts import Warning
from lstmprof.breakdown.mean_step import MeanStep, Recording, lane_words
from lstmprof.breakdown.tables import TABLES
from lstmprof.breakdown.timings import lost_in_words
from lstmprof.breakdown.versions import OfVersion, by_version
from lstmprof.commands import terminal
from lstmprof.commands.terminal import lanes
from lstmprof.diagnose.comparable import conditions_in_words
from lstmprof.events.annotate.calls import is_copy
from lstmprof.events.schema import Column
from lstmprof.numbers import UNKNOWN, known, labels, milliseconds, number_of, percent
from lstmprof.runs.metadata import RunInfo

#: Texts that may be cut where a line is too long.
_LONG = ("name", "rule", "op", "within")
#: What a narrow terminal leaves out.
_SPARE = "rule"
#: Unit → (from this largest value on, shown in, factor, digits), the largest first.
_SCALES = {
    "ns": ((1e6, "ms", 1e-6, 3), (0, "µs", 1e-3, 1)),
    "bytes": ((1e6, "MB", 1e-6, 1), (0, "B", 1, 0)),
    "bytes/s": ((0, "GB/s", 1e-9, 2),),
    "share": ((0, "%", 100, 1),),
    "1/s": ((0, "/s", 1, 0),),
}

#: Milliseconds to the microsecond.
_DIGITS = 3
#: Runs that each have a line of their own for a warning of one kind.
_WARNED_EACH = 2
#: Lanes of a run that each have a table of their own.
_LANES_EACH = 3


def show(
    breakdowns: list[Breakdown], tables: tuple[str, ...], top: int, *, profiled: bool = False
) -> None:
    """Print the tables of every run, the fastest first; of one alone all its columns.

    The breakdown is that of the clean step, unless ``profiled`` or the ledger alone is asked for.
    """
    alone = tables[0] if len(tables) == 1 else None
    if alone is None:
        show_times(breakdowns)
    elif alone == "timings":
        _show_timings(breakdowns)
        _show_versions(breakdowns)
    if alone == "timings" and not any(breakdown.timings for breakdown in breakdowns):
        terminal.write_line("no iteration was timed without a profiler: lstmprof capture does that")
    for breakdown in sorted(breakdowns, key=step_ns):
        if "ledger" in tables:
            _show_steps(breakdown, breakdown.steps(profiled=profiled or alone == "ledger"))
            _show_notes(breakdown)
            _show_links(breakdown)
        if alone not in (None, "timings", "ledger"):
            _show_table(breakdown, alone, top)
        elif "kernels" in tables and top and breakdown.kernels.num_rows:
            _show_kernels(breakdown, top)


def show_times(breakdowns: list[Breakdown]) -> None:
    """Print what the profiles lack, and the times of the runs that can be compared."""
    _show_lacks(breakdowns)
    _show_timings(breakdowns)
    _show_versions(breakdowns)


def _show_lacks(breakdowns: list[Breakdown]) -> None:
    """What the profile of each run lacks: nothing is said of it before."""
    for breakdown in breakdowns:
        for lack in breakdown.lacks:
            terminal.write_line(f"{breakdown.run.name}: recording: {lack.sentence}")
    if any(breakdown.lacks for breakdown in breakdowns):
        terminal.write_line()


def _show_timings(breakdowns: list[Breakdown]) -> None:
    slowdown = compared(breakdowns)
    for group in comparable(breakdowns):
        order = sorted(group, key=lambda i: step_ns(breakdowns[i]))
        terminal.write_table(
            _conditions(breakdowns[order[0]]),
            [
                "run",
                ">step ms",
                ">95 % of it",
                ">mean ± std ms",
                ">p95 ms",
                ">samples/s",
                ">first step",
                ">profiler",
                ">slowdown",
            ],
            [
                _timing_cells(breakdowns[i], label, slowdown.get(i))
                for i, label in zip(order, labels_of([breakdowns[i] for i in order]), strict=True)
            ],
            crop="run",
            spare=(">first step", ">profiler", ">samples/s", ">p95 ms", ">mean ± std ms"),
            bars=terminal.Bars(
                [step_ns(breakdowns[i]) for i in order], [terminal.BLUE] * len(order)
            ),
        )
        _show_warnings([breakdowns[i] for i in order])


def _show_versions(breakdowns: list[Breakdown]) -> None:
    """Where an implementation ran in several versions: its step with each."""
    for group in by_version(breakdowns):
        terminal.write_table(
            f"By version: {_conditions(group[0].breakdown)}",
            ["implementation", "version", ">step ms", ">95 % of it", ">of the oldest"],
            [_version_cells(row) for row in group],
        )


def _version_cells(row: OfVersion) -> list[str]:
    t = row.breakdown.timings
    assert t is not None
    return [
        row.implementation,
        row.version,
        milliseconds(t.step_ns, _DIGITS),
        _interval(t.step_low_ns, t.step_high_ns),
        known(row.of_first, "{:.2f}×"),
    ]


def _show_warnings(breakdowns: list[Breakdown]) -> None:
    """A line a warning; of one kind that many runs have, the largest and how many more."""
    kinds: dict[str, list[tuple[str, Warning]]] = {}
    for label, breakdown in zip(labels_of(breakdowns), breakdowns, strict=True):
        for warning in breakdown.timings.warnings if breakdown.timings else ():
            kinds.setdefault(warning.kind, []).append((label, warning))
    for told in kinds.values():
        if len(told) <= _WARNED_EACH:
            lines = [f"{label}: {warning}" for label, warning in told]
        else:
            label, warning = told[0]
            lines = [f"{label}, and {len(told) - 1} more runs like it: {warning}"]
        for line in lines:
            terminal.write_line(f"warning: {line}")
    if kinds:
        terminal.write_line()


def conditions(info: RunInfo) -> str:
    """What a run computed, how and on what: ``1x320-ce-short (64×100×123): train, fp32, …``."""
    words = conditions_in_words(info)
    network = words.pop("workload", "")
    return ": ".join(text for text in (network, ", ".join(words.values())) if text)


def _conditions(breakdown: Breakdown) -> str:
    info = breakdown.run.info
    return f"Time per {'batch, ' if info.workload else 'step: '}{conditions(info)}"


def step_ns(breakdown: Breakdown) -> float:
    """What runs are ordered by: the clean step, 0 if none was timed."""
    return breakdown.timings.step_ns if breakdown.timings else 0.0


def labels_of(breakdowns: list[Breakdown]) -> list[str]:
    """What tells comparable runs apart: what they are called, else the run."""
    short = [breakdown.run.info.called for breakdown in breakdowns]
    return labels([breakdown.run.name for breakdown in breakdowns], short)


def _timing_cells(breakdown: Breakdown, label: str, slowdown: float | None) -> list[str]:
    t = breakdown.timings
    assert t is not None
    return [
        label,
        milliseconds(t.step_ns, _DIGITS),
        _interval(t.step_low_ns, t.step_high_ns),
        f"{milliseconds(t.mean_ns, _DIGITS)} ± {milliseconds(t.std_ns, _DIGITS)}",
        milliseconds(t.p95_ns, _DIGITS),
        known(t.samples_per_s, "{:,.0f}"),
        milliseconds(t.compile_ns, _DIGITS),
        known(t.inflation_share, "{:+.1%}"),
        known(slowdown, "{:.2f}×"),
    ]


def _interval(low_ns: float | None, high_ns: float | None) -> str:
    if low_ns is None or high_ns is None:
        return UNKNOWN
    return f"{milliseconds(low_ns, _DIGITS)}…{milliseconds(high_ns, _DIGITS)}"


def _show_steps(breakdown: Breakdown, steps: Sequence[MeanStep]) -> None:
    """A table a lane; of many lanes a line a lane."""
    if len(steps) <= _LANES_EACH:
        for step in steps:
            _show_step(breakdown, step)
        return
    named = [(lane_words(step.rank, step.device), step) for step in steps if step.total_ns]
    if named:
        marked = has_steps(breakdown)
        title = f"{breakdown.run.name}: {lanes.title(steps, marked=marked)}"
        lanes.show(title, "of", named, marked=marked)


def _show_step(breakdown: Breakdown, step: MeanStep) -> None:
    milli = terminal.parts_that_add_up(
        [ns / step.steps / 1e6 for _, _, ns in step.parts], step.mean_ns / 1e6, 3
    )
    share = terminal.parts_that_add_up(
        [100 * ns / step.total_ns for _, _, ns in step.parts], 100.0, 1
    )
    rows = [
        [state, part, ms, f"{part_share} %"]
        for (state, part, _), ms, part_share in zip(step.parts, milli, share, strict=True)
    ]
    rows.append(["", "sum", milliseconds(step.mean_ns, _DIGITS), "100.0 %"])
    terminal.write_table(
        _heading(breakdown, step), ["", "part", ">ms", ">share"], rows, bars=_ledger_bars(step)
    )


def _show_notes(breakdown: Breakdown) -> None:
    """Print what the median iteration took beyond the clean step."""
    t = breakdown.timings
    lost = "" if t is None else lost_in_words(t.lost_ns, t.step_ns, t.cpu_share, t.preemptions)
    if lost:
        terminal.write_line(f"{breakdown.run.name}: {lost}")
        terminal.write_line()


def _ledger_bars(step: MeanStep) -> terminal.Bars:
    """The parts of the step, and none for their sum."""
    states = [state for state, _, _ in step.parts]
    colours = [terminal.ORANGE if state == "idle" else terminal.BLUE for state in states]
    return terminal.Bars([*(max(ns, 0) for _, _, ns in step.parts), None], [*colours, ""])


def _show_links(breakdown: Breakdown) -> None:
    """How much of what ran on the devices is linked to what caused it; nothing without devices."""
    links = breakdown.run.info.links
    if links is None or not links.activities:
        return
    launched, issued = links.launched / links.activities, links.issued / links.activities
    terminal.write_line(
        f"linked: of {links.activities:,} device activities {percent(launched)} to a launch,"
        f" {percent(issued)} to an op"
    )
    terminal.write_line()


def has_steps(breakdown: Breakdown) -> bool:
    """Whether steps are marked; else the whole profile is taken as one."""
    return any(window.step is not None for window in breakdown.windows)


def _heading(breakdown: Breakdown, step: MeanStep) -> str:
    info = breakdown.run.info
    where = lane_words(step.rank, step.device)
    named = info.device_names.get(str(step.device))
    marked = has_steps(breakdown)
    steps = number_of(step.steps, "profiled step", "profiled steps")
    what = f"mean of {steps}" if step.steps > 1 else steps
    if step.clean:
        off = f" {_recording(step.recording)}" if step.recording is not None else ""
        what = f"from {steps}{off}"
    elif not marked:
        what = "the whole profile, no step markers"
    where += f" ({named})" if named else ""
    facts = [where, what]
    facts += [f"kernels: {info.kernels_used}"] if info.kernels_used else []
    waits = step.waits_for_host_share
    facts += [f"waits for the host {percent(waits)}"] if waits is not None else []
    whose = "clean step" if step.clean else "step" if marked else "profile's time"
    return f"{breakdown.run.name}: where the {whose} goes, " + ", ".join(facts)


def _recording(recording: Recording) -> str:
    """Return what was subtracted: ``minus 1.3 ms of profiler overhead (2,655 events …)``."""
    events = f"{recording.events:,.0f} events, up to {recording.event_ns / 1e3:,.2f} µs each"
    return f"minus {milliseconds(recording.ns, _DIGITS)} ms of profiler overhead ({events})"


def _show_kernels(breakdown: Breakdown, top: int) -> None:
    everywhere = _of_all_lanes(breakdown.kernels)
    table = everywhere.slice(0, top).to_pylist()
    rows = [
        [
            milliseconds(row["total_ns"], _DIGITS),
            known(row["share"], "{:.1%}"),
            f"{row['count']:,}",
            known(row["per_step"], "{:,.1f}"),
            f"{row['mean_ns'] / 1e3:,.1f}",
            known(row["p95_ns"] and row["p95_ns"] / 1e3, "{:,.1f}"),
            row["category"] or "dispatch",
            str(row["name"]),
        ]
        for row in table
    ]
    names = breakdown.kernels["name"].to_pylist()
    on_devices = "kernels and copies" if any(map(is_copy, names)) else "kernels"
    on_device = breakdown.kernels["device"].null_count < len(names)
    what = on_devices if on_device else "computing ops, self time"
    lanes_of = len(_lanes(breakdown.kernels))
    what += f" of {lanes_of} {'devices' if on_device else 'ranks'}" if lanes_of > 1 else ""
    hidden = everywhere.num_rows - len(rows)
    heads = [
        ">total ms",
        ">share",
        ">count",
        ">per step",
        ">mean µs",
        ">p95 µs",
        "category",
        "name",
    ]
    known_heads = [i for i in range(len(heads)) if any(row[i] != UNKNOWN for row in rows)]
    terminal.write_table(
        f"{breakdown.run.name}: {what}" + (f" ({hidden} more: --top)" if hidden > 0 else ""),
        [heads[i] for i in known_heads],
        [[row[i] for i in known_heads] for row in rows],
        crop="name",
        spare=(">p95 µs", ">per step"),
    )


def _lanes(kernels: pa.Table) -> set[tuple[int | None, int | None]]:
    # group_by would import Arrow's engine for queries, which is not needed for a few rows
    return set(zip(*(kernels[name].to_pylist() for name in ("rank", "device")), strict=True))


def _of_all_lanes(kernels: pa.Table) -> pa.Table:
    """``kernels`` with one row a name; what does not add up over lanes is unknown."""
    if len(_lanes(kernels)) < 2:
        return kernels
    sums = [("total_ns", "sum"), ("count", "sum")]
    joined = kernels.group_by(["name", "category"]).aggregate(sums)
    total, count = joined["total_ns_sum"], joined["count_sum"]
    whole = pc.cast(pc.sum(total), pa.float64())
    table = pa.table(
        {
            **{name: joined[name] for name in ("name", "category")},
            "total_ns": total,
            "count": count,
            "share": pc.divide(pc.cast(total, pa.float64()), whole),
            "mean_ns": pc.divide(pc.cast(total, pa.float64()), pc.cast(count, pa.float64())),
            "per_step": pa.nulls(len(joined), pa.float64()),
            "p95_ns": pa.nulls(len(joined), pa.int64()),
        }
    )
    return table.sort_by([("total_ns", "descending"), ("name", "ascending")])


def _show_table(breakdown: Breakdown, name: str, top: int) -> None:
    """Print the first ``top`` rows of the table ``name``."""
    table, everything = TABLES[name], breakdown.table(name)
    rows = everything.slice(0, top).to_pylist()
    columns = {column.name: column for column in table.columns}
    shown = [columns[c] for c in table.shown if any(row[c] is not None for row in rows)]
    cells = [_cells(column, [row[column.name] for row in rows]) for column in shown]
    hidden = everything.num_rows - len(rows)
    more = f" ({hidden:,} more: --top)" if hidden else ""
    terminal.write_table(
        f"{breakdown.run.name}: {name}: {table.meaning}{more}",
        [head for head, _ in cells] if rows else ["nothing of that is in the profile"],
        [list(row) for row in zip(*(texts for _, texts in cells), strict=True)],
        crop=tuple(column.name for column in shown if column.name in _LONG),
        spare=tuple(column.name for column in shown if column.name == _SPARE),
    )


def _cells(column: Column, values: list[Any]) -> tuple[str, list[str]]:
    """The heading and the texts of one column."""
    heading = column.name.removesuffix("_ns").replace("_", " ")
    if pa.types.is_string(column.type):
        return column.name, [known(v, "{}") for v in values]
    largest = max(abs(v) for v in values if v is not None)
    integer = pa.types.is_integer(column.type)
    plain = (0, "", 1, 0 if integer else 1)
    _, unit, factor, digits = next(
        scale for scale in _SCALES.get(column.unit, (plain,)) if largest >= scale[0]
    )
    for suffix in (" per s", " share", " bytes") if unit else ():
        heading = heading.removesuffix(suffix)
    texts = [known(v if v is None else v * factor, f"{{:z,.{digits}f}}") for v in values]
    return f">{heading} {unit}".rstrip(), texts
