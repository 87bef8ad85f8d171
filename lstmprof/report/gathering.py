"""From breakdowns to a report: every stage's numbers gathered as the rows that ``report`` draws."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Sequence

from lstmprof import __version__
from lstmprof.breakdown import Breakdown
from lstmprof.report import comparisons, rows, runs, timeline
from lstmprof.report.model import Report

#: Tables to make while the events of a run are in memory.
TABLES = ("ledger", "kernels", "casts")


def report_of(
    breakdowns: Sequence[Breakdown], title: str | None = None, across: Collection[str] = ()
) -> Report:
    """The report on ``breakdowns``, each run with all that it can be asked.

    Runs are compared that agree in all conditions but those that ``across`` names.

    Raises:
        UsageError: ``across`` names no condition.
        RunError: a file of a run is missing or damaged.
    """
    known = runs.run_reports(breakdowns)
    groups = runs.groups(known, across)
    facts = runs.facts(known, groups)
    drawn = timeline.timelines(known)
    found = Report(
        title=title or _title(known),
        created=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        version=__version__,
        runs=facts,
        groups=groups,
        verdicts=comparisons.verdicts(known, groups, across),
        times=rows.times(known, facts),
        ledger=rows.ledger(known, facts),
        pairs=comparisons.pairs(known, groups),
        timelines=drawn,
        kernels=rows.kernels(known),
        gaps=rows.gaps(known),
        casts=rows.casts(known, facts),
        sweep=rows.sweep(known),
        roofline=rows.roofline(known, facts),
        series=rows.series(known, facts),
        missing=(),
    )
    return runs.with_missing(found, known)


def _title(known: Sequence[runs.RunReport]) -> str:
    workloads = dict.fromkeys(
        (one.breakdown.run.metadata.get("workload") or {}).get("name") for one in known
    )
    named = [str(name) for name in workloads if name]
    what = f"{len(known)} runs" if len(known) > 1 else known[0].run
    return f"{what}: {named[0]}" if len(named) == 1 else what
