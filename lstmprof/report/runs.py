"""The runs of a report: their names and groups, and what was not measured."""

from __future__ import annotations

import datetime
import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from lstmprof.base.numbers import labels
from lstmprof.breakdown import Breakdown
from lstmprof.breakdown.mean_step import lane_words
from lstmprof.diagnose.comparable import conditions_in_words, device_in_words
from lstmprof.diagnose.diagnosis import Diagnosis
from lstmprof.diagnose.step_profile import StepProfile
from lstmprof.diagnose.step_profile.ranks import UNKNOWN, straggler_sentence
from lstmprof.events.annotate import OWN_CODE
from lstmprof.report.model import Group, Report, Row, RunFacts
from lstmprof.runs.metadata import RunInfo

#: Packages that the page does not show.
_NOT_SHOWN = ("nvtx", "numpy", "lstmprof")


@dataclass(frozen=True)
class RunReport:
    """One run with its breakdown, and the diagnosed step in ``profile``."""

    facts: RunFacts
    breakdown: Breakdown
    profile: StepProfile

    def row(self, columns: Row) -> Row:
        """Return a row of a chart, with the run's name, label and group in front."""
        facts = self.facts
        return {"run": facts.run, "label": facts.label, "group": facts.group, **columns}


def groups(diagnoses: Sequence[Diagnosis], across: Collection[str] = ()) -> tuple[Group, ...]:
    """Group the runs by their baseline, the largest group first."""
    members: dict[str, dict[str, StepProfile]] = {}
    for diagnosis in diagnoses:
        base = diagnosis.fast or diagnosis.slow
        group = members.setdefault(base.name, {base.name: base})
        group[diagnosis.slow.name] = diagnosis.slow
    largest_first = sorted(members.items(), key=lambda group: -len(group[1]))
    return tuple(
        Group(
            number=number,
            conditions=_conditions(list(group.values()), across),
            runs=tuple(group),
            baseline=base if len(group) > 1 else None,
        )
        for number, (base, group) in enumerate(largest_first)
    )


def _conditions(group: Sequence[StepProfile], across: Collection[str]) -> str:
    """Return the conditions that a group of runs has in common, as text."""
    own = {profile.info.source == OWN_CODE for profile in group}
    # describe runs without a workload name by the origin of the runs
    sources = (("your code", True in own), ("imported profiles", False in own))
    unnamed = " and ".join(source for source, is_there in sources if is_there)
    words = {"workload": group[0].name if len(group) == 1 else unnamed}
    words |= conditions_in_words(group[0].info)
    return ", ".join(text for name, text in words.items() if name not in across)


def run_reports(
    breakdowns: Sequence[Breakdown], profiles: Sequence[StepProfile], groups: Sequence[Group]
) -> list[RunReport]:
    """Collect what the report needs of each run."""
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
    packages = ((name, v) for name, v in (info.versions or {}).items() if name not in _NOT_SHOWN)
    versions = [f"{name} {version}" for name, version in packages if version is not None]
    return RunFacts(
        run=profile.name,
        label=label,
        group=group,
        step_ns=profile.length_ns,
        lane=lane_words(*profile.rank_device) if profile.lanes > 1 else "",
        workload=info.workload.name,
        precision=info.precision,
        device=device_in_words(info),
        versions=", ".join(versions) or None,
        date=info.started_at or _day(info),
        profiler=info.profiler or info.profile_format,
        steps=sum(w.rank == profile.rank for w in breakdown.windows),
        iterations=breakdown.timings.iterations if breakdown.timings else None,
        marked=profile.marked,
        ranks=len({window.rank for window in breakdown.windows}),
    )


def _day(info: RunInfo) -> str | None:
    """Return the time when a profile was recorded (ISO 8601)."""
    if info.base_ns is None or info.base_ns <= 0:
        return None
    return datetime.datetime.fromtimestamp(info.base_ns / 1e9, datetime.UTC).isoformat()


def missing(report: Report, runs: Sequence[RunReport], empty: Sequence[str]) -> Iterator[str]:
    """Yield a sentence about each thing that was not measured, or is left out."""
    if empty:
        yield f"Runs in which no event has a duration are left out: {', '.join(empty)}."
    untimed = [run.facts.run for run in runs if run.breakdown.timings is None]
    if untimed:
        yield f"Step times without a profiler were not measured for {_listed(untimed, runs)}."
    on_host = [run.facts.run for run in runs if run.profile.device is None]
    if on_host:
        yield (
            f"No GPU activity was recorded for {_listed(on_host, runs)}. The charts show the "
            "host's threads; launch gaps, streams and the GPU's idle time are unknown."
        )
    if not report.roofline:
        yield (
            "The roofline is missing. It needs a run that records its workload and the device's "
            "peak rates; lstmprof capture records both."
        )
    if not any(run.breakdown.table("casts").num_rows for run in runs):
        yield "No cast was recorded."
    for run in runs:
        if (straggler := run.profile.straggler) and straggler.state == UNKNOWN:
            yield f"{run.facts.run}: {straggler_sentence(straggler)}."
    pictured = {icicle.run for icicle in report.icicles}
    if unpictured := [
        r.facts.run
        for r in runs
        if sum(has.python_frames for has in r.breakdown.recorded) and r.facts.run not in pictured
    ]:
        yield f"To keep the page small, the call stacks of {', '.join(unpictured)} are left out."
    undrawn = len(runs) - len({timeline.run for timeline in report.timelines})
    if undrawn:
        yield f"To keep the page small, the timelines of {undrawn} runs are left out."
    if len(report.pairs) < sum(math.comb(len(group.runs), 2) for group in report.groups):
        yield (
            "To keep the page small, each run of a large group is compared only with the baseline "
            "run, not with the other runs."
        )
    cut = dict.fromkeys(timeline.run for timeline in report.timelines if timeline.left_out)
    if cut:
        yield f"To keep the page small, timelines omit the shortest events of {', '.join(cut)}."


def _listed(some: Sequence[str], runs: Sequence[RunReport]) -> str:
    return "any run" if len(some) == len(runs) > 1 else ", ".join(some)
