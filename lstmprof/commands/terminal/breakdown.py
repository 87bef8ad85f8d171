"""The text of ``lstmprof breakdown``: step times, parts of the step, kernels, warnings.

A lane is a CPU or a device of one rank, such as ``device 0 of rank 3``.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from lstmprof.base.names import PART_WORDS
from lstmprof.base.numbers import listed, milliseconds, number_of, percent
from lstmprof.breakdown import Breakdown, comparable
from lstmprof.breakdown.attribution.host import omits_short_ops
from lstmprof.breakdown.clean.timings import lost_in_words
from lstmprof.breakdown.mean_step import MeanStep, lane_words
from lstmprof.commands import terminal
from lstmprof.commands.terminal import tables, timings, warned

#: Decimals of times in milliseconds: three show microseconds.
_DIGITS = 3
#: Largest number of lanes that each get a table; more lanes are rows of a single table.
_LANES_EACH = 3
#: Smallest share of activities with a launch call, or op, without a warning.
#: Chosen by hand.
_MOST_LINKED = 0.9
#: Largest number of parts that get a row, and smallest share that gets a row.
_PARTS, _LEAST_SHARE = 6, 0.01
_OTHER = "other"
#: Smallest share of any step for which a part of the breakdown gets a column.
_LEAST_COLUMN_SHARE = 0.02
_OTHER_WORK, _OTHER_IDLE = "other busy", "other idle"

#: A part of the breakdown: (``busy`` or ``idle``, name, sum over the steps in ns).
Part = tuple[str, str, int]


def show(breakdowns: list[Breakdown], top: int, *, profiled: bool = False) -> None:
    """Print each run's times, its breakdown and its ``top`` longest kernels."""
    timings.show(breakdowns)
    for breakdown in sorted(breakdowns, key=timings.step_ns):
        steps = breakdown.steps(profiled=profiled)
        if len(steps) > 1:
            _show_lanes(breakdown, steps)
        for step in steps if len(steps) == 1 else ():
            _show_step(breakdown, step, _shown_parts(step))
        if top and breakdown.kernels.num_rows:
            tables.show_kernels(breakdown, top)
    show_end(breakdowns)


def show_table(breakdowns: list[Breakdown], name: str, top: int) -> None:
    if name == "timings":
        timings.show(breakdowns, statistics=True)
        if not any(breakdown.timings for breakdown in breakdowns):
            terminal.write_line(
                "no step was timed without a profiler; record with lstmprof capture or lstmprof run"
            )
        return
    for breakdown in sorted(breakdowns, key=timings.step_ns):
        if name != "ledger":
            tables.show_table(breakdown, name, top)
            if name == "layers" and not breakdown.table(name).num_rows and _omits_ops(breakdown):
                terminal.write_line(
                    "TensorFlow does not record CPU ops shorter than about 3 µs (8,000 cycles), so "
                    "this table may lack layers with small cells"
                )
            continue
        steps = breakdown.steps(profiled=True)
        if len(steps) > _LANES_EACH:
            _show_lanes(breakdown, steps)
        for step in steps if len(steps) <= _LANES_EACH else ():
            _show_step(breakdown, step, step.parts)


def _omits_ops(breakdown: Breakdown) -> bool:
    names = breakdown.table("ops").column("name").to_pylist()
    steps = [step for step in breakdown.steps(profiled=True) if step.device is None]
    return any(omits_short_ops([part[:2] for part in step.parts], names) for step in steps)


def show_end(breakdowns: Sequence[Breakdown]) -> None:
    """Print lost time, missing links, warnings and useful options, after all runs."""
    for breakdown in breakdowns:
        t = breakdown.timings
        lost = t and lost_in_words(t.lost_ns, t.step_ns, t.cpu_share, t.preemptions)
        for note in (*([lost] if lost else []), *_linked(breakdown)):
            terminal.write_under(f"{breakdown.run.name}: ", note)
    warnings = [(lack.words, b.run.name, lack.sentence) for b in breakdowns for lack in b.lacks]
    warnings += [
        (doubt.kind, label, str(doubt))
        for label, b in zip(timings.labels_of(list(breakdowns)), breakdowns, strict=True)
        for doubt in (b.timings.warnings if b.timings else ())
    ]
    warned.show(warnings, named=len(breakdowns) > 1, see="lstmprof diagnose --warnings")
    more = (
        "More: --table NAME  --top N    In a browser: --open    Causes and fixes: lstmprof diagnose"
    )
    terminal.write_line(more, style="dim")


def _show_lanes(breakdown: Breakdown, steps: Sequence[MeanStep]) -> None:
    named = [(lane_words(step.rank, step.device), step) for step in steps if step.total_ns]
    if named:
        marked = has_steps(breakdown)
        title = f"{breakdown.run.name}: {lanes_title(steps, marked=marked)}"
        show_lanes(title, "where", named, marked=marked)


def _shown_parts(step: MeanStep) -> list[Part]:
    """Join the small busy parts of a step, and the small idle parts (``3 other parts``)."""
    by_size = sorted(step.parts, key=lambda part: -part[2])
    least_ns = _LEAST_SHARE * step.total_ns
    large = {part[:2] for part in by_size[:_PARTS] if part[2] >= least_ns}
    joined: list[Part] = []
    for state in ("busy", "idle"):
        parts = [part for part in step.parts if part[0] == state]
        small = [part for part in parts if part[:2] not in large]
        joined += [part for part in parts if part[:2] in large]
        rest = (state, f"{len(small)} {_OTHER} parts", sum(ns for _, _, ns in small))
        joined += small if len(small) < 2 else [rest]
    return joined


def _show_step(breakdown: Breakdown, step: MeanStep, parts: Sequence[Part]) -> None:
    milli = terminal.parts_that_add_up(
        [ns / step.steps / 1e6 for _, _, ns in parts], step.mean_ns / 1e6, 3
    )
    share = terminal.parts_that_add_up([100 * ns / step.total_ns for _, _, ns in parts], 100.0, 1)
    rows = [
        [state, PART_WORDS.get(part, part), ms, f"{part_share} %"]
        for (state, part, _), ms, part_share in zip(parts, milli, share, strict=True)
    ]
    rows.append(["", "sum", milliseconds(step.mean_ns, _DIGITS), "100.0 %"])
    colours = [terminal.ORANGE if state == "idle" else terminal.BLUE for state, _, _ in parts]
    lengths = [*(max(ns, 0) for _, _, ns in parts), None]  # the last row is the sum, without a bar
    terminal.write_table(
        _heading(breakdown, step),
        [
            "",
            "work or cause of idling",
            ">ms",
            ">of step" if has_steps(breakdown) else ">of profile",
        ],
        rows,
        bars=terminal.Bars(lengths, [*colours, ""]),
    )


def _linked(breakdown: Breakdown) -> list[str]:
    """Warn if over 10 % of the GPU activities have no known launch call, or no known op."""
    links = breakdown.run.info.links
    if links is None or not links.activities:
        return []
    shares = links.launched / links.activities, links.issued / links.activities
    if min(shares) >= _MOST_LINKED:
        return []
    launched, issued = map(percent, shares)
    return [
        f"{launched} of {links.activities:,} GPU activities are linked to a launch call, and "
        f"{issued} to a framework op"
    ]


def has_steps(breakdown: Breakdown) -> bool:
    """Return whether the profile has step markers (else the whole profile is one step)."""
    return any(window.step is not None for window in breakdown.windows)


def _heading(breakdown: Breakdown, step: MeanStep) -> str:
    info, marked = breakdown.run.info, has_steps(breakdown)
    where = f"{'the ' if step.device is None else ''}{lane_words(step.rank, step.device)}"
    named = info.device_names.get(str(step.device))
    title = f"time {'per step' if marked else 'of the whole profile'} on {where}"
    title += f" ({named})" if named else ""
    title += ", without outliers" if step.clean else ""
    if step.clean and step.recording is not None:
        overhead = milliseconds(step.recording.ns, _DIGITS)
        title += f" and without {overhead} ms of profiler overhead"
    steps = number_of(step.steps, "profiled step", "profiled steps")
    mean = step.steps > 1 and not step.clean
    facts = [f"{'Mean of' if mean else 'From'} {steps}" if marked else "No step has a marker"]
    lacks = [lack.words for lack in breakdown.lacks if lack.blinds]
    facts += [f"Incomplete profile: {listed(lacks)}"] if lacks else []
    facts += [f"Recurrent layers: {info.kernels_used}"] if info.kernels_used else []
    waits = step.waits_for_host_share
    facts += [] if waits is None else [f"Waits for the host: {percent(waits)} of the time"]
    return ". ".join([f"{breakdown.run.name}: {title}", *facts])


def show_side_by_side(breakdowns: list[Breakdown], *, profiled: bool) -> None:
    """Print all step times, then a table of breakdowns with one row per run and device."""
    timings.show(breakdowns)
    timed = [place for group in comparable(breakdowns) for place in group]
    groups: dict[str, list[Breakdown]] = {}
    for place in dict.fromkeys([*timed, *range(len(breakdowns))]):
        what = timings.conditions(breakdowns[place].run.info)
        groups.setdefault(what, []).append(breakdowns[place])
    if len(groups) == 1 and timed:  # the table of times already has this heading
        groups = {"": breakdowns}
    for heading, members in groups.items():
        _show_group(heading, sorted(members, key=timings.step_ns), profiled)
    show_end(breakdowns)


def _show_group(heading: str, breakdowns: list[Breakdown], profiled: bool) -> None:
    lanes = [
        (_row_name(label, step, breakdown, alone=len(steps) == 1), step)
        for label, breakdown in zip(timings.labels_of(breakdowns), breakdowns, strict=True)
        for steps in [breakdown.steps(profiled=profiled)]
        for step in steps
        if step.total_ns
    ]
    if not lanes:
        return
    title = lanes_title([step for _, step in lanes]).replace("time", "Time", 1)
    show_lanes(f"{title}: {heading}" if heading else title, "run", lanes)


def _row_name(label: str, step: MeanStep, breakdown: Breakdown, *, alone: bool) -> str:
    where = "" if alone else f", {lane_words(step.rank, step.device)}"
    whole = "" if has_steps(breakdown) else " (whole profile)"
    return f"{label}{where}{whole}"


def lanes_title(steps: Sequence[MeanStep], *, marked: bool = True) -> str:
    title = "time per step in ms" if marked else "time of the whole profile in ms"
    if all(step.clean for step in steps):
        recorded = all(step.recording is not None for step in steps)
        title += f", without outliers{' and profiler overhead' if recorded else ''}"
    return f"{title} (columns: busy time by part, all idle time, idle time by cause)"


def show_lanes(
    heading: str, of: str, lanes: Sequence[tuple[str, MeanStep]], *, marked: bool = True
) -> None:
    """Print a table with one row per lane, from the lane's label and mean step."""
    steps = [step for _, step in lanes]
    busy, idle = (_columns(steps, state) for state in ("busy", "idle"))
    spare = (_OTHER_IDLE, _OTHER_WORK, *idle[::-1], *busy[::-1])
    longest_ns = max(step.mean_ns for step in steps)
    digits = 3 if longest_ns < 1e7 else 2 if longest_ns < 1e8 else 1  # similar widths of columns
    rows = [[label, *_cells(step, busy, idle, digits)] for label, step in lanes]
    whole = "step" if marked else "profile"
    heads = [of, *busy, _OTHER_WORK, "all idle", *idle, _OTHER_IDLE, whole]
    empty = {
        name
        for name in (_OTHER_WORK, _OTHER_IDLE)
        if not any(float(row[heads.index(name)].replace(",", "")) for row in rows)
    }
    empty |= set() if idle else {_OTHER_IDLE}
    shown = [i for i, name in enumerate(heads) if name not in empty]
    heads = [PART_WORDS.get(name, name) for name in heads]
    terminal.write_table(
        heading,
        [of, *(f">{heads[i]}" for i in shown[1:])],
        [[row[i] for i in shown] for row in rows],
        crop=of if sys.stdout.isatty() else (),
        spare=[f">{PART_WORDS.get(name, name)}" for name in spare],
    )


def _columns(steps: Sequence[MeanStep], state: str) -> list[str]:
    """Return the busy or idle parts that get a column, largest first."""
    shares: dict[str, float] = {}
    large = set()
    for step in steps:
        for own_state, part, ns in step.parts:
            if own_state == state:
                shares[part] = shares.get(part, 0.0) + ns / step.total_ns
                large |= {part} if ns >= _LEAST_COLUMN_SHARE * step.total_ns else set()
    return sorted(large, key=lambda part: -shares[part])


def _cells(step: MeanStep, busy: Sequence[str], idle: Sequence[str], digits: int) -> list[str]:
    """Return the times in a lane's row, in ms and in the order of the columns."""
    ms = {(state, part): ns / step.steps / 1e6 for state, part, ns in step.parts}
    parts = []
    for state, named in (("busy", busy), ("idle", idle)):
        whole = sum(value for (own, _), value in ms.items() if own == state)
        shown = [ms.get((state, part), 0.0) for part in named]
        parts += [*shown, whole - sum(shown)]
    texts = terminal.parts_that_add_up(parts, step.mean_ns / 1e6, digits)
    first_idle = len(busy) + 1
    whole_idle = sum(float(text.replace(",", "")) for text in texts[first_idle:])
    sums = [f"{value:,.{digits}f}" for value in (whole_idle, step.mean_ns / 1e6)]
    return [*texts[:first_idle], sums[0], *texts[first_idle:], sums[1]]
