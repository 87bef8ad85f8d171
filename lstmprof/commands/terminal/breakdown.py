"""The text of ``lstmprof breakdown``: times and slowdown first, then where each step goes."""

from __future__ import annotations

from lstmprof.breakdown import Breakdown
from lstmprof.breakdown.account_rows import comparable, compared
from lstmprof.breakdown.mean_step import MeanStep, mean_steps
from lstmprof.commands import terminal
from lstmprof.commands.terminal import one_table
from lstmprof.commands.terminal.one_table import UNKNOWN
from lstmprof.numbers import percent


def show(breakdowns: list[Breakdown], tables: tuple[str, ...], top: int) -> None:
    """Print the tables of every run, the fastest first; of one alone all its columns."""
    alone = tables[0] if len(tables) == 1 else None
    if "timings" in tables:
        _show_timings(breakdowns)
    if alone == "timings" and not any(breakdown.timings for breakdown in breakdowns):
        terminal.write_line("no iteration was timed without a profiler: lstmprof capture does that")
    for breakdown in sorted(breakdowns, key=_median):
        if "ledger" in tables:
            for step in mean_steps(breakdown.ledger):
                _show_step(breakdown, step)
            _show_links(breakdown)
        if alone not in (None, "timings", "ledger"):
            one_table.show(breakdown, alone, top)
        elif "kernels" in tables and top and breakdown.kernels.num_rows:
            _show_kernels(breakdown, top)


def _show_timings(breakdowns: list[Breakdown]) -> None:
    slowdown = compared(breakdowns)
    for group in comparable(breakdowns):
        order = sorted(group, key=lambda i: _median(breakdowns[i]))
        terminal.write_table(
            _conditions(breakdowns[order[0]]),
            [
                "run",
                ">median ms",
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
                for i, label in zip(order, _labels([breakdowns[i] for i in order]), strict=True)
            ],
            crop="run",
            spare=(">first step", ">profiler", ">samples/s", ">p95 ms", ">mean ± std ms"),
            bars=terminal.Bars(
                [_median(breakdowns[i]) for i in order], [terminal.BLUE] * len(order)
            ),
        )
        _show_warnings([breakdowns[i] for i in order])


def _show_warnings(breakdowns: list[Breakdown]) -> None:
    lines = [
        f"warning: {label}: {text}"
        for label, breakdown in zip(_labels(breakdowns), breakdowns, strict=True)
        for text in (breakdown.timings.warnings if breakdown.timings else ())
    ]
    for line in lines:
        terminal.write_line(line)
    if lines:
        terminal.write_line()


def _conditions(breakdown: Breakdown) -> str:
    facts = breakdown.run.metadata
    w = facts.get("workload") or {}
    shape = f"{w.get('batch')}×{w.get('time_steps')}×{w.get('features')}"
    conditions = [
        str(facts[name]) for name in ("mode", "precision", "device_name") if facts.get(name)
    ]
    threads = facts.get("threads")
    conditions += [f"{threads} thread" + "s" * (threads != 1)] if threads else []
    return f"Time per batch, {w.get('name')} ({shape}): " + ", ".join(conditions)


def _median(breakdown: Breakdown) -> float:
    return breakdown.timings.median_ns if breakdown.timings else 0.0


def _labels(breakdowns: list[Breakdown]) -> list[str]:
    """What tells comparable runs apart: the implementation where that is enough, else the run."""
    facts = [a.run.metadata for a in breakdowns]
    names = [f"{f.get('implementation', '')} {f.get('label') or ''}".strip() for f in facts]
    return names if len(set(names)) == len(names) else [a.run.name for a in breakdowns]


def _timing_cells(breakdown: Breakdown, label: str, slowdown: float | None) -> list[str]:
    t = breakdown.timings
    assert t is not None
    spread = UNKNOWN if t.std_ns is None else milliseconds(t.std_ns)
    return [
        label,
        milliseconds(t.median_ns),
        _interval(t.median_low_ns, t.median_high_ns),
        f"{milliseconds(t.mean_ns)} ± {spread}",
        milliseconds(t.p95_ns),
        UNKNOWN if t.samples_per_s is None else f"{t.samples_per_s:,.0f}",
        UNKNOWN if t.compile_ns is None else milliseconds(t.compile_ns),
        UNKNOWN if t.inflation_share is None else f"{t.inflation_share:+.1%}",
        UNKNOWN if slowdown is None else f"{slowdown:.2f}×",
    ]


def _interval(low_ns: float | None, high_ns: float | None) -> str:
    if low_ns is None or high_ns is None:
        return UNKNOWN
    return f"{milliseconds(low_ns)}…{milliseconds(high_ns)}"


def milliseconds(ns: float) -> str:
    """``ns`` in ms, to the microsecond."""
    return f"{ns / 1e6:,.3f}"


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
    rows.append(["", "sum", milliseconds(step.mean_ns), "100.0 %"])
    terminal.write_table(
        _heading(breakdown, step), ["", "part", ">ms", ">share"], rows, bars=_ledger_bars(step)
    )


def _ledger_bars(step: MeanStep) -> terminal.Bars:
    """The parts of the step, and none for their sum."""
    states = [state for state, _, _ in step.parts]
    colours = [terminal.ORANGE if state == "idle" else terminal.BLUE for state in states]
    return terminal.Bars([*(ns for _, _, ns in step.parts), None], [*colours, ""])


def _show_links(breakdown: Breakdown) -> None:
    """How much of what ran on the devices is linked to what caused it; nothing without devices."""
    found = breakdown.run.metadata.get("links") or {}
    if not found.get("activities"):
        return
    shares = [f"{found[name] / found['activities']:.1%}" for name in ("launched", "issued")]
    line = (
        f"linked: of {found['activities']:,} device activities {shares[0]} to a launch,"
        f" {shares[1]} to an op"
    )
    if found["unanswered"]:
        line += f"; kernel launches without an activity: {found['unanswered']:,}"
    terminal.write_line(line)
    terminal.write_line()


def _heading(breakdown: Breakdown, step: MeanStep) -> str:
    where = f"device {step.device}" if step.device is not None else "CPU"
    named = breakdown.run.metadata.get("device_names", {}).get(str(step.device))
    of_rank = "" if step.rank is None else f", rank {step.rank}"
    marked = any(w.step is not None for w in breakdown.windows)
    what = (
        f"mean of {step.steps} profiled steps" if marked else "the whole profile, no step markers"
    )
    where += f" ({named})" if named else ""
    kernels = breakdown.run.metadata.get("kernels_used")
    facts = [where + of_rank, what]
    facts += [f"kernels: {kernels}"] if kernels else []
    waits = step.waits_for_host_share
    facts += [f"waits for the host {percent(waits)}"] if waits is not None else []
    return f"{breakdown.run.name}: where the step goes, " + ", ".join(facts)


def _show_kernels(breakdown: Breakdown, top: int) -> None:
    table = breakdown.kernels.slice(0, top).to_pylist()
    on_device = any(row["device"] is not None for row in table)
    rows = [
        [
            milliseconds(row["total_ns"]),
            UNKNOWN if row["share"] is None else f"{row['share']:.1%}",
            f"{row['count']:,}",
            UNKNOWN if row["per_step"] is None else f"{row['per_step']:,.1f}",
            f"{row['mean_ns'] / 1e3:,.1f}",
            f"{row['p95_ns'] / 1e3:,.1f}",
            row["category"] or "dispatch",
            str(row["name"]),
        ]
        for row in table
    ]
    what = "kernels" if on_device else "computing ops, self time"
    hidden = breakdown.kernels.num_rows - len(rows)
    terminal.write_table(
        f"{breakdown.run.name}: {what}" + (f" ({hidden} more: --top)" if hidden > 0 else ""),
        [">total ms", ">share", ">count", ">per step", ">mean µs", ">p95 µs", "category", "name"],
        rows,
        crop="name",
        spare=(">p95 µs", ">per step"),
    )
