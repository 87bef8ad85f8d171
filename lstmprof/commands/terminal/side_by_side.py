"""Where the steps of several runs go, a line a run: what ``breakdown`` prints of more than one."""

from __future__ import annotations

from lstmprof.breakdown import Breakdown, comparable
from lstmprof.breakdown.mean_step import MeanStep, lane_words
from lstmprof.commands.terminal import lanes as beside, timings
from lstmprof.commands.terminal.breakdown import has_steps, show_end


def show(breakdowns: list[Breakdown], *, profiled: bool) -> None:
    """Print the times, and a table for each network and machine; a lane of a run is a line."""
    timings.show(breakdowns)
    timed = [place for group in comparable(breakdowns) for place in group]
    groups: dict[str, list[Breakdown]] = {}
    for place in dict.fromkeys([*timed, *range(len(breakdowns))]):
        what = timings.conditions(breakdowns[place].run.info)
        groups.setdefault(what, []).append(breakdowns[place])
    if len(groups) == 1 and timed:  # the times have the same heading
        groups = {"": breakdowns}
    for heading, members in groups.items():
        _show_group(heading, sorted(members, key=timings.step_ns), profiled)
    show_end(breakdowns)


def _show_group(heading: str, breakdowns: list[Breakdown], profiled: bool) -> None:
    lanes = [
        (_called(label, step, breakdown, alone=len(steps) == 1), step)
        for label, breakdown in zip(timings.labels_of(breakdowns), breakdowns, strict=True)
        for steps in [breakdown.steps(profiled=profiled)]
        for step in steps
        if step.total_ns
    ]
    if not lanes:
        return
    title = beside.title([step for _, step in lanes]).replace("where", "Where", 1)
    beside.show(f"{title}: {heading}" if heading else title, "run", lanes)


def _called(label: str, step: MeanStep, breakdown: Breakdown, *, alone: bool) -> str:
    where = "" if alone else f", {lane_words(step.rank, step.device)}"
    whole = "" if has_steps(breakdown) else " (whole profile)"
    return f"{label}{where}{whole}"
