"""What several commands share: options, the runs that PATH means, the page that --open shows."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lstmprof import names
from lstmprof.errors import LstmprofError, UsageError

if TYPE_CHECKING:
    from lstmprof.breakdown import Breakdown
    from lstmprof.diagnose.diagnosis import Diagnosis
    from lstmprof.runs.run import Run

#: Where capture and ingest write, and query reads, if they are not told.
TRACES = "traces"


def _checked_regex(_: click.Context, option: click.Parameter, pattern: str | None) -> str | None:
    """``pattern``, looked at before any profile is read."""
    try:
        re.compile(pattern or "")
    except re.error as fault:
        raise UsageError(
            f"{option.opts[0]} '{pattern}' is no regular expression ({fault})",
            "write \\ before a sign that stands for itself",
        ) from fault
    return pattern


step_range = click.option(
    "--step-range",
    metavar="REGEX",
    callback=_checked_regex,
    help="Host ranges (NVTX, record_function) whose name this finds are the steps.",
)
across = click.option(
    "--across",
    multiple=True,
    type=click.Choice(names.CONDITIONS),
    metavar="NAME",
    help=f"Compare runs that differ in this; repeat for more: {', '.join(names.CONDITIONS)}.",
)
rank = click.option(
    "--rank",
    type=click.IntRange(min=0),
    metavar="N",
    help="Speak of this rank.  [default: the one that the others wait for]",
)
device = click.option(
    "--device",
    type=click.IntRange(min=0),
    metavar="N",
    help="Speak of this device.  [default: the busiest of the rank]",
)
open_ = click.option(
    "--open",
    "open_",
    is_flag=True,
    help="Draw the report of these runs into the cache too, and open it in a browser ($BROWSER).",
)
format_ = click.option(
    "--format",
    "format_",
    type=click.Choice(("table", "json", "csv")),
    default="table",
    show_default=True,
    help="Tables for reading, or all rows for a program.",
)


def say(line: str) -> None:
    """Tell a user, apart from the results: on stderr."""
    click.echo(line, err=True)


def runs_of(paths: Sequence[str]) -> list[Run]:
    """The runs that ``paths`` mean, raw profiles read; what had to be left out is told.

    Raises:
        RunError: a path means no run and no profile.
    """
    from lstmprof.runs.cache import open_runs

    return open_runs(paths, warn=lambda line: say(f"left out: {line}"))


def report_tables() -> tuple[str, ...]:
    """The tables of a run that the report draws, to make them with those that are shown."""
    from lstmprof.report import TABLES

    return tuple(TABLES)


def open_report(
    breakdowns: Sequence[Breakdown],
    across: Collection[str] = (),
    diagnoses: Sequence[Diagnosis] | None = None,
) -> None:
    """Write the report on ``breakdowns`` into the cache, over that of the same runs; show it.

    ``diagnoses`` of them are made where they are not given.

    Raises:
        RunError: the page cannot be written.
        LstmprofError: no browser opened it.
    """
    import hashlib

    from lstmprof.report import page, report_of
    from lstmprof.runs.directory import cache_folder

    folders = "\n".join(str(breakdown.run.path.resolve()) for breakdown in breakdowns)
    name = hashlib.sha256(folders.encode()).hexdigest()[:16]
    path = cache_folder() / "reports" / f"{name}.html"
    size = page.write(report_of(breakdowns, None, across, diagnoses), path, force=True)
    say(f"wrote {path} ({size / 1e6:.1f} MB)")
    show(path)


def show(path: Path) -> None:
    """Open the page at ``path`` in the browser that the user prefers ($BROWSER).

    Raises:
        LstmprofError: no browser could be started.
    """
    import webbrowser

    if not webbrowser.open(path.resolve().as_uri()):
        raise LstmprofError(
            f"{path}: no browser could be started", "set BROWSER, or open the file by hand"
        )
