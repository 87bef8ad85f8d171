"""``lstmprof query``: SQL over the tables of many runs."""

from __future__ import annotations

from pathlib import Path

import click

from lstmprof.commands import terminal
from lstmprof.errors import UsageError

#: Where capture and ingest write, if they are not told.
_FOLDER = "traces"


@click.command(name="query")
@click.argument("sql", metavar="SQL")
@click.argument("paths", nargs=-1, metavar="[PATH…]")
@click.option("--format", "format_", type=click.Choice(terminal.FORMATS), default="table")
def command(sql: str, paths: tuple[str, ...], format_: str) -> None:
    """Answer one SELECT (DuckDB's SQL) over the tables of all runs, column run in front.

    PATH is what breakdown takes; traces, if none is given. Tables: runs (run.json), timings (one
    row an iteration), events, and ledger, steps, kernels, ops, launches, casts, copies, streams and
    ranges as breakdown makes them: column by column in docs/tables.md. The query can read nothing
    else, and write nothing.

    \b
    Example:
      lstmprof query "SELECT run, name, total_ns FROM kernels ORDER BY total_ns DESC LIMIT 5"
      lstmprof query "SELECT run, median(wall_ns) FROM timings WHERE NOT warmup GROUP BY run" a b
    """
    from lstmprof.breakdown import sql as query_database
    from lstmprof.runs.ingest import open_runs

    if not paths and not Path(_FOLDER).is_dir():
        raise UsageError(
            f"no PATH is given, and there is no folder {_FOLDER} here",
            "give runs, a folder of runs or profiles",
        )
    runs = open_runs(
        paths or (_FOLDER,), warn=lambda line: click.echo(f"left out: {line}", err=True)
    )
    found = query_database.answer(sql, runs)
    if format_ == "json":
        terminal.write_json(found.records())
    elif format_ == "csv":
        terminal.write_csv(found.records(), found.columns)
    else:
        terminal.write_table("", found.headings(), found.texts(), crop=found.long())
