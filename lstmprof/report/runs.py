"""The runs of a report: their names, which can be compared, what ran, what was not measured."""

from __future__ import annotations

import dataclasses
import datetime
import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lstmprof.breakdown import Breakdown
from lstmprof.diagnose.comparable import comparable_groups
from lstmprof.diagnose.step_profile import StepProfile, step_profile_of
from lstmprof.errors import RunError
from lstmprof.report.model import Group, Report, RunFacts

#: What run.json's ``versions`` has besides frameworks and libraries that a reader asks for.
_UNTOLD = ("nvtx", "numpy", "lstmprof")


@dataclass(frozen=True)
class RunReport:
    """One run: its name in the report, its breakdown, its step (None: no event has a length)."""

    run: str
    breakdown: Breakdown
    profile: StepProfile | None

    @property
    def facts(self) -> Mapping[str, Any]:
        """Its run.json."""
        return self.breakdown.run.metadata


def run_reports(breakdowns: Sequence[Breakdown]) -> list[RunReport]:
    """The runs under names of which each is used once."""
    taken: Counter[str] = Counter()
    found = []
    for breakdown in breakdowns:
        name = breakdown.run.name
        taken[name] += 1
        run = name if taken[name] == 1 else f"{name} ({taken[name]})"
        profile = step_profile_of(breakdown) if breakdown.windows else None
        found.append(
            RunReport(run, breakdown, dataclasses.replace(profile, name=run) if profile else None)
        )
    if not any(one.profile for one in found):
        raise RunError(
            f"{found[0].run}: no event of its profile has a length", "capture or ingest it again"
        )
    return found


def groups(known: Sequence[RunReport], across: Collection[str] = ()) -> tuple[Group, ...]:
    """The runs that have a profile, in groups that can be compared, the largest group first."""
    found = comparable_groups([one.profile for one in known if one.profile], across)
    found.sort(key=len, reverse=True)
    return tuple(
        Group(
            number=number,
            conditions=_conditions(
                group[0].facts, group[0].name if len(group) == 1 else None, across
            ),
            device=_device(group[0].facts),
            runs=tuple(profile.name for profile in group),
        )
        for number, group in enumerate(found)
    )


def _conditions(facts: Mapping[str, Any], alone: str | None, across: Collection[str]) -> str:
    """What all runs of a group share; of a profile that does not say, its name."""
    w, threads = facts.get("workload") or {}, facts.get("threads")
    shape = f"{w.get('batch')}×{w.get('time_steps')}×{w.get('features')}"
    unnamed = alone or "profiles made elsewhere"
    said = {
        "workload": f"{w.get('name')} ({shape})" if w else unnamed,
        "mode": facts.get("mode"),
        "precision": facts.get("precision"),
        "device": _device(facts),
        "threads": f"{threads} thread" + "s" * (threads != 1) if threads else None,
    }
    return ", ".join(str(text) for name, text in said.items() if text and name not in across)


def _device(facts: Mapping[str, Any]) -> str | None:
    named = dict.fromkeys((facts.get("device_names") or {}).values())
    return facts.get("device_name") or ", ".join(map(str, named)) or None


def labels(known: Sequence[RunReport], group: Group) -> dict[str, str]:
    """Run → what tells it apart in its group: the implementation where that is enough."""
    members = [one for one in known if one.run in group.runs]
    short = {one.run: _short(one) for one in members}
    counted = Counter(short.values())
    return {run: label if label and counted[label] == 1 else run for run, label in short.items()}


def _short(one: RunReport) -> str:
    return f"{one.facts.get('implementation') or ''} {one.facts.get('label') or ''}".strip()


def facts(known: Sequence[RunReport], found: Sequence[Group]) -> tuple[RunFacts, ...]:
    """What ran, in the order of the runs."""
    label = {run: text for group in found for run, text in labels(known, group).items()}
    number = {run: group.number for group in found for run in group.runs}
    return tuple(
        RunFacts(
            run=one.run,
            label=label[one.run],
            group=number[one.run],
            implementation=one.facts.get("implementation"),
            workload=(one.facts.get("workload") or {}).get("name"),
            precision=one.facts.get("precision"),
            mode=one.facts.get("mode"),
            device=_device(one.facts),
            versions=_versions(one.facts),
            date=one.facts.get("started_at") or _day(one.facts),
            profiler=one.facts.get("profiler") or one.facts.get("profile_format"),
            steps=sum(w.rank == one.profile.rank for w in one.breakdown.windows),
            iterations=one.breakdown.timings.iterations if one.breakdown.timings else None,
            marked=one.profile.marked,
        )
        for one in known
        if one.profile
    )


def _versions(facts: Mapping[str, Any]) -> str | None:
    versions = facts.get("versions") or {}
    told = [f"{k} {v}" for k, v in versions.items() if v is not None and k not in _UNTOLD]
    return ", ".join(told) or None


def _day(facts: Mapping[str, Any]) -> str | None:
    """When a profile made elsewhere was taken, if it says so; when it was read says nothing."""
    base_ns = facts.get("base_ns")
    if not isinstance(base_ns, int) or base_ns <= 0:
        return None
    return datetime.datetime.fromtimestamp(base_ns / 1e9, datetime.UTC).isoformat()


def with_missing(report: Report, known: Sequence[RunReport]) -> Report:
    """``report`` with a sentence for each thing that was not measured."""
    return dataclasses.replace(report, missing=tuple(_missing(report, known)))


def _missing(report: Report, known: Sequence[RunReport]) -> Iterator[str]:
    none = [one.run for one in known if not one.profile]
    if none:
        yield f"Profiles in which no event has a length, left out: {', '.join(none)}."
    untimed = [one.run for one in known if one.profile and one.breakdown.timings is None]
    if untimed:
        yield f"Time undisturbed by a profiler: unknown for {_runs(untimed, known)}."
    on_host = [one.run for one in known if one.profile and one.profile.device is None]
    if on_host:
        yield (
            "Launch gaps, streams and idle time of a device: the account is that of the host's "
            f"threads, and no activity of a GPU was recorded, for {_runs(on_host, known)}."
        )
    if not report.roofline:
        yield "The share of the roofline: no run has both a known workload and measured peaks."
    if not report.casts:
        yield "Casts between element types: none was recorded."
    if not report.sweep:
        yield "A sweep: the runs do not vary in units, batch or time steps."
    undrawn = len([one for one in known if one.profile]) - len(report.timelines)
    if undrawn:
        yield f"The timelines of {undrawn} runs are left out, to keep the page small."
    if len(report.pairs) < sum(math.comb(len(group.runs), 2) for group in report.groups):
        yield "Of the groups with very many runs only the way from the fastest one is drawn."
    cut = [t.run for t in report.timelines if t.left_out]
    if cut:
        yield f"Timelines without their shortest events: {', '.join(cut)}."


def _runs(some: Sequence[str], known: Sequence[RunReport]) -> str:
    everything = sum(one.profile is not None for one in known)
    return "all runs" if len(some) == everything > 1 else ", ".join(some)
