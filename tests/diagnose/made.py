"""Step profiles built in code: what a test does not name is unknown or empty."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from lstmprof.breakdown import Breakdown
from lstmprof.breakdown.clean.slot_times import Span
from lstmprof.diagnose.diagnosis import Diagnosis, diagnose_all
from lstmprof.diagnose.step_profile import StepProfile
from lstmprof.diagnose.step_profile.contributors import Contributor
from lstmprof.diagnose.step_profile.tally import Spread
from lstmprof.runs.metadata import run_info


def contributor(
    state: str, part: str, ns: int, name: str | None = None, **fields: Any
) -> Contributor:
    """One contributor; a busy one serves its own part, as an op that computes does."""
    given = {"purpose": part if state == "busy" else None, "count": 1.0, **fields}
    return Contributor(state, part, ns, name=name, **given)


def profile(
    *contributors: Contributor,
    name: str = "run",
    facts: dict[str, Any] | None = None,
    **fields: Any,
) -> StepProfile:
    """A profile of these contributors on a host, of one marked step, not timed.

    ``facts`` are those of run.json.
    """
    given: dict[str, Any] = {
        "info": run_info(facts or {}),
        "step_ns": None,
        "steps": 1,
        "marked": True,
        "rank": None,
        "device": None,
    }
    return StepProfile(name=name, contributors=contributors, **{**given, **fields})


def diagnose(*breakdowns: Breakdown, **options: Any) -> Diagnosis:
    """Return the diagnosis of one run, or of the slower of two runs."""
    return diagnose_all(breakdowns, must_compare=True, **options)[0]


def span(ns: float, error: float = 0.01) -> Span:
    """A length that may be off by the share ``error`` on either side."""
    return Span(ns * (1 - error), ns, ns * (1 + error))


def tally(**lengths_ns: list[int]) -> dict[str, Spread]:
    """Return number and durations of events with these lengths, by noun."""
    return {
        noun: Spread(
            len(lengths),
            sum(lengths),
            sorted(lengths)[(len(lengths) - 1) // 2] if lengths else 0,
            max(lengths, default=0),
        )
        for noun, lengths in lengths_ns.items()
    }


def table(*rows: dict[str, Any]) -> pa.Table:
    """A table of these rows."""
    return pa.Table.from_pylist(list(rows))
