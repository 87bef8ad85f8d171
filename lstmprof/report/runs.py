"""The runs of a report: their names, which can be compared, what ran, what was not measured."""

from __future__ import annotations

import datetime
import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from lstmprof.breakdown import Breakdown
from lstmprof.diagnose.comparable import comparable_groups, conditions_in_words, device_in_words
from lstmprof.diagnose.ranks import UNKNOWN, of_straggler
from lstmprof.diagnose.step_profile import StepProfile
from lstmprof.numbers import labels
from lstmprof.report.model import Group, Report, Row, RunFacts
from lstmprof.runs.metadata import RunInfo

#: What run.json's ``versions`` has besides frameworks and libraries that a reader asks for.
_UNTOLD = ("nvtx", "numpy", "lstmprof")


@dataclass(frozen=True)
class RunReport:
    """One run: what ran, its breakdown, its mean step."""

    facts: RunFacts
    breakdown: Breakdown
    profile: StepProfile

    def row(self, columns: Row) -> Row:
        """``columns`` behind what the run is called."""
        facts = self.facts
        return {"run": facts.run, "label": facts.label, "group": facts.group, **columns}


def groups(profiles: Sequence[StepProfile], across: Collection[str] = ()) -> tuple[Group, ...]:
    """The runs in groups that can be compared, the largest group first."""
    largest_first = sorted(comparable_groups(profiles, across), key=len, reverse=True)
    return tuple(
        Group(
            number=number,
            conditions=_conditions(group[0].info, group[0].name, across),
            device=device_in_words(group[0].info),
            runs=tuple(profile.name for profile in group),
        )
        for number, group in enumerate(largest_first)
    )


def _conditions(info: RunInfo, unnamed: str, across: Collection[str]) -> str:
    """What all runs of a group share; ``unnamed`` is a run alone of unknown workload."""
    shared = {"workload": unnamed, **conditions_in_words(info)}
    return ", ".join(text for name, text in shared.items() if name not in across)


def run_reports(
    breakdowns: Sequence[Breakdown], profiles: Sequence[StepProfile], groups: Sequence[Group]
) -> list[RunReport]:
    """The runs in their order; ``profiles`` are those of ``breakdowns``."""
    short = {p.name: p.info.called for p in profiles}
    label_of, group_of = dict[str, str](), dict[str, int]()
    for group in groups:
        texts = labels(group.runs, [short[run] for run in group.runs])
        label_of |= zip(group.runs, texts, strict=True)
        group_of |= dict.fromkeys(group.runs, group.number)
    return [
        RunReport(_facts(b, p, label_of[p.name], group_of[p.name]), b, p)
        for b, p in zip(breakdowns, profiles, strict=True)
    ]


def _facts(breakdown: Breakdown, profile: StepProfile, label: str, group: int) -> RunFacts:
    info = breakdown.run.info
    return RunFacts(
        run=profile.name,
        label=label,
        group=group,
        implementation=info.implementation,
        workload=info.workload.name,
        precision=info.precision,
        mode=info.mode,
        device=device_in_words(info),
        versions=_versions(info),
        date=info.started_at or _day(info),
        profiler=info.profiler or info.profile_format,
        steps=sum(w.rank == profile.rank for w in breakdown.windows),
        iterations=breakdown.timings.iterations if breakdown.timings else None,
        marked=profile.marked,
        ranks=len({window.rank for window in breakdown.windows}),
    )


def _versions(info: RunInfo) -> str | None:
    versions = (info.versions or {}).items()
    texts = [f"{k} {v}" for k, v in versions if v is not None and k not in _UNTOLD]
    return ", ".join(texts) or None


def _day(info: RunInfo) -> str | None:
    """When a profile made elsewhere was taken, if it says so; when it was read says nothing."""
    if info.base_ns is None or info.base_ns <= 0:
        return None
    return datetime.datetime.fromtimestamp(info.base_ns / 1e9, datetime.UTC).isoformat()


def missing(report: Report, runs: Sequence[RunReport], empty: Sequence[str]) -> Iterator[str]:
    """A sentence for each thing that was not measured; ``empty`` are profiles left out."""
    if empty:
        yield f"Profiles in which no event has a length, left out: {', '.join(empty)}."
    untimed = [run.facts.run for run in runs if run.breakdown.timings is None]
    if untimed:
        yield f"Iterations without a profiler: none were timed for {_listed(untimed, runs)}."
    on_host = [run.facts.run for run in runs if run.profile.device is None]
    if on_host:
        yield (
            "Launch gaps, streams and idle time of a device: the ledger is that of the host's "
            f"threads, and no activity of a GPU was recorded, for {_listed(on_host, runs)}."
        )
    if not report.roofline:
        yield "The share of the roofline: no run has both a known workload and measured peaks."
    if not report.casts:
        yield "Casts between element types: none was recorded."
    for run in runs:
        if (straggler := run.profile.straggler) and straggler.state == UNKNOWN:
            yield f"{run.facts.run}: {of_straggler(straggler)}."
    if not report.sweep:
        yield "A sweep: the runs do not vary in units, batch or time steps."
    pictured = {icicle.run for icicle in report.icicles}
    if unpictured := [r.facts.run for r in runs if _frames(r) and r.facts.run not in pictured]:
        yield f"Who called whom, left out to keep the page small: {', '.join(unpictured)}."
    undrawn = len(runs) - len({timeline.run for timeline in report.timelines})
    if undrawn:
        yield f"The timelines of {undrawn} runs are left out, to keep the page small."
    if len(report.pairs) < sum(math.comb(len(group.runs), 2) for group in report.groups):
        yield (
            "Of the groups with very many runs only the way from the run that the others are held "
            "against is drawn."
        )
    cut = dict.fromkeys(timeline.run for timeline in report.timelines if timeline.left_out)
    if cut:
        yield f"Timelines without their shortest events: {', '.join(cut)}."


def _frames(run: RunReport) -> int:
    return sum(has.python_frames for has in run.breakdown.recorded)


def _listed(some: Sequence[str], runs: Sequence[RunReport]) -> str:
    return "all runs" if len(some) == len(runs) > 1 else ", ".join(some)
