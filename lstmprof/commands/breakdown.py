"""``lstmprof breakdown``: the account of one run or many."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from lstmprof import terminal
from lstmprof.errors import UsageError

if TYPE_CHECKING:
    from lstmprof.breakdown import Breakdown

TABLES = ("timings", "ledger", "kernels")


@click.command(name="breakdown")
@click.argument("paths", nargs=-1, required=True, metavar="PATH…")
@click.option(
    "--table",
    "table",
    type=click.Choice(TABLES),
    help="Only this one: times, the account of each step, or kernels (ops on a CPU).",
)
@click.option("--format", "format_", type=click.Choice(terminal.FORMATS), default="table")
@click.option(
    "--top", type=click.IntRange(0), default=8, show_default=True, help="Kernels to show."
)
@click.option(
    "--step-range",
    metavar="REGEX",
    help="Host ranges (NVTX, record_function) whose name this finds are the steps.",
)
def command(
    paths: tuple[str, ...], table: str | None, format_: str, top: int, step_range: str | None
) -> None:
    """Account for every nanosecond of a step: busy by category, idle by cause.

    PATH is a run, a folder of runs, or raw profiles: a file, a folder, a tar archive, a URL (read
    into a cache, never beside the file).

    \b
    Example:
      lstmprof breakdown traces/
      lstmprof breakdown profile.pt.trace.json.gz --table ledger --format json
    """
    if format_ == "csv" and table is None:
        raise UsageError("CSV holds one table", "add --table " + "|".join(TABLES))

    from lstmprof.api import break_down, open_runs
    from lstmprof.commands import breakdown_rows, breakdown_text

    runs = open_runs(paths, warn=lambda line: click.echo(f"left out: {line}", err=True))
    accounts = [break_down(run, step_range) for run in runs]
    if format_ == "table":
        _tell_notes(accounts)
        breakdown_text.show(accounts, (table,) if table else TABLES, top)
        return
    rows: dict[str, Any] = {name: breakdown_rows.rows(accounts, name) for name in TABLES}
    if format_ == "json":
        terminal.write_json(rows[table] if table else rows)
    elif table:
        terminal.write_csv(rows[table], breakdown_rows.columns(table))


def _tell_notes(accounts: list[Breakdown]) -> None:
    for account in accounts:
        for note in account.run.metadata.get("notes", []):
            click.echo(f"{account.run.name}: note: {note}", err=True)
