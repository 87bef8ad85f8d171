"""The tables of step times: one table per group of comparable runs, the fastest run first."""

from __future__ import annotations

from lstmprof.base.numbers import UNKNOWN, labels, milliseconds, or_dash
from lstmprof.breakdown import Breakdown, comparable, compared
from lstmprof.breakdown.versions import VersionedRun, by_version
from lstmprof.commands import terminal
from lstmprof.diagnose.comparable import conditions_in_words
from lstmprof.runs.metadata import RunInfo

#: Decimals of times in milliseconds: three show microseconds.
_DIGITS = 3
#: Columns that only ``--table timings`` shows.
_STATISTICS = (">mean ± std ms", ">p95 ms")


def show(breakdowns: list[Breakdown], *, statistics: bool = False) -> None:
    """Print the step times of each group of comparable runs."""
    slowdown = compared(breakdowns)
    title = "Time per step"
    title += " (step ms leaves out outliers; mean, std and p95 do not)" if statistics else ""
    for group in comparable(breakdowns):
        order = sorted(group, key=lambda i: step_ns(breakdowns[i]))
        names = labels_of([breakdowns[i] for i in order])
        rows = [
            _cells(breakdowns[i], label, slowdown.get(i))
            for i, label in zip(order, names, strict=True)
        ]
        heads = [
            *("run", ">step ms", ">95 % interval", *_STATISTICS, ">samples/s", ">first step ms"),
            *(">profiler overhead", ">vs. fastest"),
        ]
        left_out = () if statistics else _STATISTICS
        left_out = left_out if len(order) > 1 else (*left_out, ">vs. fastest")
        shown = [i for i, head in enumerate(heads) if head not in left_out]
        terminal.write_table(
            f"{title}: {conditions(breakdowns[order[0]].run.info)}",
            [heads[i] for i in shown],
            [[row[i] for i in shown] for row in rows],
            crop="run",
            spare=(">first step ms", ">profiler overhead", ">samples/s", *_STATISTICS[::-1]),
            bars=terminal.Bars(
                [step_ns(breakdowns[i]) for i in order], [terminal.BLUE] * len(order)
            ),
        )
    _show_versions(breakdowns)


def _show_versions(breakdowns: list[Breakdown]) -> None:
    for group in by_version(breakdowns):
        terminal.write_table(
            f"Time per step by version: {conditions(group[0].breakdown.run.info)}",
            ["implementation", "version", ">step ms", ">95 % interval", ">as long as the oldest"],
            [_version_cells(row) for row in group],
        )


def _version_cells(row: VersionedRun) -> list[str]:
    t = row.breakdown.timings
    assert t is not None
    return [
        row.implementation,
        row.version,
        milliseconds(t.step_ns, _DIGITS),
        _interval(t.step_low_ns, t.step_high_ns),
        or_dash(row.of_first, "{:.2f}×"),
    ]


def conditions(info: RunInfo) -> str:
    """Describe the conditions of a run: ``1x320-ce-short (batch 64, …): train, fp32, …``."""
    words = conditions_in_words(info)
    network = words.pop("workload", "")
    if list(words) == ["device"]:
        return f"device: {words['device']}"
    return ": ".join(text for text in (network, ", ".join(words.values())) if text)


def step_ns(breakdown: Breakdown) -> float:
    """Return the time per step without outliers, or 0 for a run without timings."""
    return breakdown.timings.step_ns if breakdown.timings else 0.0


def labels_of(breakdowns: list[Breakdown]) -> list[str]:
    short = [breakdown.run.info.called for breakdown in breakdowns]
    return labels([breakdown.run.name for breakdown in breakdowns], short)


def _cells(breakdown: Breakdown, label: str, slowdown: float | None) -> list[str]:
    t = breakdown.timings
    assert t is not None
    return [
        label,
        milliseconds(t.step_ns, _DIGITS),
        _interval(t.step_low_ns, t.step_high_ns),
        f"{milliseconds(t.mean_ns, _DIGITS)} ± {milliseconds(t.std_ns, _DIGITS)}",
        milliseconds(t.p95_ns, _DIGITS),
        or_dash(t.samples_per_s, "{:,.0f}"),
        milliseconds(t.compile_ns, _DIGITS),
        or_dash(t.inflation_share, "{:+.1%}").replace("%", " %"),
        or_dash(slowdown, "{:.2f}×"),
    ]


def _interval(low_ns: float | None, high_ns: float | None) -> str:
    if low_ns is None or high_ns is None:
        return UNKNOWN
    return f"{milliseconds(low_ns, _DIGITS)}…{milliseconds(high_ns, _DIGITS)}"
