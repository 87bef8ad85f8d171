"""The HTML report: verdicts, charts and tables in one self-contained file.

::

    breakdowns ─ diagnose_all ─▶ rows ─▶ charts (one per file) ─▶ page ─▶ one HTML file
                                                              └──▶ PNG, SVG or JSON of each chart
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from lstmprof.base.numbers import listed, made_unique
from lstmprof.base.package import __version__
from lstmprof.breakdown import Breakdown
from lstmprof.diagnose.diagnosis import Diagnosis, diagnose_all
from lstmprof.report import rows
from lstmprof.report.icicle import icicles
from lstmprof.report.model import Group, Report
from lstmprof.report.runs import RunReport, groups, missing, run_reports
from lstmprof.report.timeline import timelines

#: Tables of the breakdown that the report needs, computed while a run is in memory.
TABLES = ("ledger", "kernels", "launch_gaps", "casts", "layers")


def report_of(
    breakdowns: Sequence[Breakdown],
    title: str | None = None,
    across: Collection[str] = (),
    diagnoses: Sequence[Diagnosis] | None = None,
    begins: Callable[[str], None] = lambda stage: None,
) -> Report:
    measured = [breakdown for breakdown in breakdowns if breakdown.windows]
    if not measured:
        raise breakdowns[0].no_steps
    if diagnoses is None:
        begins("comparing the runs")
        diagnoses = diagnose_all(measured, across)
    profile_of = {p.name: p for d in diagnoses for p in (d.fast, d.slow) if p}
    profiles = [profile_of[name] for name in made_unique(b.run.name for b in measured)]
    comparable = groups(diagnoses, across)
    runs = run_reports(measured, profiles, comparable)
    begins("drawing timelines")
    drawn = timelines(runs)
    begins("drawing call stacks")
    pairs = rows.pairs(runs, comparable)
    pictures = icicles(runs, pairs)
    begins("making tables and charts")
    report = Report(
        title=title or _title(runs, comparable),
        created=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        version=__version__,
        runs=tuple(run.facts for run in runs),
        groups=comparable,
        diagnoses=diagnoses,
        pairs=pairs,
        timelines=drawn,
        icicles=pictures,
        times=rows.times(runs, diagnoses),
        ledger=rows.ledger(runs),
        launch_gaps=rows.launch_gaps(runs),
        casts=rows.casts(runs),
        versions=rows.versions(runs),
        sweep=rows.sweep(runs),
        roofline=rows.roofline(runs),
        stability=rows.stability(runs),
        kernels=rows.kernels(runs),
        layers=rows.layers(runs),
        critical_path=rows.critical_path(runs, pairs),
        ranks=rows.ranks(runs),
        rank_parts=rows.rank_parts(runs),
        arrivals=rows.arrivals(runs),
        rank_work=rows.rank_work(runs),
    )
    empty = [breakdown.run.name for breakdown in breakdowns if not breakdown.windows]
    return replace(report, missing=tuple(missing(report, runs, empty)))


#: Largest number of runs that a title names; otherwise, only fastest and slowest run.
_MOST_NAMED = 4


def _title(runs: Sequence[RunReport], comparable: Sequence[Group]) -> str:
    """Return a title such as ``torch-nn-lstm and tf-lstmcell: 1x320-ce-short``."""
    names = list(dict.fromkeys(run.facts.label for run in runs))
    if len(names) == len(runs) <= _MOST_NAMED:
        return _with_workload(listed(names), ": ", runs)
    # name the fastest and the slowest run of the largest group of comparable runs
    largest = [run for run in runs if run.facts.group == comparable[0].number]
    if len(largest) < 2:
        return _with_workload(f"{len(runs)} runs", ": ", runs)
    by_length = sorted(largest, key=lambda run: run.profile.length_ns)
    ends = f"{by_length[0].facts.label} to {by_length[-1].facts.label}"
    title = _with_workload(f"{ends}: {len(largest)} runs", " of ", largest)
    others = len(runs) - len(largest)
    return title + (f", {others} other{'s' * (others != 1)}" if others else "")


def _with_workload(what: str, between: str, runs: Sequence[RunReport]) -> str:
    """Add the workload to a title if all runs have the same workload."""
    workloads = list(dict.fromkeys(run.facts.workload for run in runs if run.facts.workload))
    return f"{what}{between}{workloads[0]}" if len(workloads) == 1 else what
