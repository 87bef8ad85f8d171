"""``lstmprof breakdown``: the account of one run or many."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from lstmprof.commands import open_report, options, terminal
from lstmprof.errors import UsageError

if TYPE_CHECKING:
    from lstmprof.breakdown import Breakdown

#: Those of ``breakdown.tables``, named here because help imports no dataframe library.
TABLES = (
    *("timings", "ledger", "steps", "kernels", "ops", "launches"),
    *("casts", "copies", "streams", "ranges"),
)
#: What is shown where no table is asked for.
USUAL = ("timings", "ledger", "kernels")
_TOP, _TOP_OF_ONE = 8, 20


@click.command(name="breakdown")
@click.argument("paths", nargs=-1, required=True, metavar="PATH…")
@click.option(
    "--table",
    "table",
    type=click.Choice(TABLES),
    metavar="NAME",
    help=f"Only this one: {', '.join(TABLES)}. What they hold: docs/tables.md.",
)
@click.option("--format", "format_", type=click.Choice(terminal.FORMATS), default="table")
@click.option(
    "--top",
    type=click.IntRange(0),
    help=f"Rows to show of a run's table; of the account of a step always all.  [default: "
    f"{_TOP} kernels, {_TOP_OF_ONE} with --table, all in JSON and CSV]",
)
@options.step_range
@options.open_
def command(
    paths: tuple[str, ...],
    table: str | None,
    format_: str,
    top: int | None,
    step_range: str | None,
    open_: bool,
) -> None:
    """Account for every nanosecond of a step: busy by category, idle by cause.

    PATH is a run, a folder of runs, or raw profiles: a file, a folder, a tar archive, a URL (read
    into a cache, never beside the file).

    \b
    Example:
      lstmprof breakdown traces/
      lstmprof breakdown profile.pt.trace.json.gz --table ledger --format json
      lstmprof breakdown profile.pt.trace.json.gz --table ops --top 30
      lstmprof breakdown traces/ --open
    """
    if format_ == "csv" and table is None:
        raise UsageError("CSV holds one table", "add --table " + "|".join(TABLES))

    if open_:
        open_report.refuse_without_libraries()

    from lstmprof.breakdown import break_down
    from lstmprof.runs.ingest import open_runs

    wanted = (table,) if table else USUAL
    needed = dict.fromkeys((*wanted, *(open_report.tables() if open_ else ())))
    made = [name for name in needed if name != "timings"]
    runs = open_runs(paths, warn=lambda line: click.echo(f"left out: {line}", err=True))
    breakdowns = [break_down(run, step_range, made) for run in runs]
    _show(breakdowns, wanted, format_, top)
    if open_:
        open_report.open_report(breakdowns)


def _show(
    breakdowns: list[Breakdown], wanted: tuple[str, ...], format_: str, top: int | None
) -> None:
    """The tables ``wanted`` of every run, in a format of ``terminal.FORMATS``."""
    from lstmprof.breakdown import account_rows
    from lstmprof.commands.terminal.breakdown import show

    alone = wanted[0] if len(wanted) == 1 else None
    if format_ == "table":
        _tell_notes(breakdowns)
        most = _TOP_OF_ONE if alone else _TOP
        show(breakdowns, wanted, most if top is None else top)
        return
    rows: dict[str, Any] = {name: account_rows.rows(breakdowns, name, top) for name in wanted}
    if format_ == "json":
        terminal.write_json(rows[alone] if alone else rows)
    elif alone:
        terminal.write_csv(rows[alone], account_rows.columns(alone))


def _tell_notes(breakdowns: list[Breakdown]) -> None:
    for breakdown in breakdowns:
        for note in breakdown.run.info.notes:
            click.echo(f"{breakdown.run.name}: note: {note}", err=True)
