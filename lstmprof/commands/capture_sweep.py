"""What ``lstmprof capture`` prints: of one capture, or of a plan of many."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lstmprof.errors import LstmprofError, UsageError

if TYPE_CHECKING:
    from lstmprof.capture.plan import Planned


def _say(line: str) -> None:
    click.echo(line, err=True)


def single(
    planned: Planned, out: Path, *, rounds: int, only_plan: bool, name: str | None, force: bool
) -> int:
    """One capture: its failure is the command's."""
    from lstmprof.capture.rounds import (
        capture_run,
    )

    if only_plan:
        _show_plan([planned], force)
        return 0
    run = capture_run(planned.request, out, name=name, rounds=rounds, force=force, progress=_say)
    for note in run.info.notes:
        _say(f"{run.name}: note: {note}")
    click.echo(f"wrote {run.path}")
    _say(f"next: lstmprof breakdown {out}")
    return 0


def command(
    planned: Sequence[Planned],
    out: Path,
    *,
    rounds: int,
    only_plan: bool,
    name: str | None,
    force: bool,
) -> int:
    """Many captures: the plan first, then each run as it appears; one failure stops no other."""
    from lstmprof.capture import plan

    if name:
        raise UsageError("--name is for one capture", "use --label, or ask for one capture")
    _show_plan(planned, force)
    if only_plan:
        return 0
    outcomes = []
    for outcome in plan.run(planned, out, rounds=rounds, force=force, progress=_say):
        outcomes.append(outcome)
        if isinstance(outcome.result, LstmprofError):
            _say(f"lstmprof: error: {outcome.planned.name}: {outcome.result}")
        else:
            click.echo(f"wrote {outcome.result.path}")
    count = plan.counted(outcomes)
    skipped = len(planned) - len(outcomes)
    _say(f"{count['captured']} captured, {count['failed']} failed, {skipped} skipped")
    _say(f"next: lstmprof breakdown {out}")
    return 1 if count["failed"] else 0


def _show_plan(planned: Sequence[Planned], force: bool) -> None:
    from lstmprof.capture.plan import THERE

    skips = [p for p in planned if p.skip and not (force and p.skip == THERE)]
    _say(f"plan: {len(planned) - len(skips)} captures, {len(skips)} skipped")
    for one in planned:
        _say(f"  {one.name}" + (f"  skipped: {one.skip}" if one in skips else ""))
