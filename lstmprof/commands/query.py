"""``lstmprof query``: SQL over the tables of many runs."""

from __future__ import annotations

from pathlib import Path

import click

from lstmprof.commands import options, terminal
from lstmprof.errors import UsageError


@click.command(name="query")
@click.argument("sql", metavar="SQL")
@click.argument("paths", nargs=-1, metavar="[PATH…]")
@options.format_
def command(sql: str, paths: tuple[str, ...], format_: str) -> None:
    """Answer one SELECT (DuckDB's SQL) over the tables of all runs.

    PATH is what breakdown takes; traces, if none is given. The tables, each with the column run in
    front: runs (run.json), timings (one row an iteration), events, and those of breakdown --table,
    column by column in docs/tables.md. The query can read nothing else, and write nothing.

    \b
    Example:
      lstmprof query "SELECT run, name, total_ns FROM kernels ORDER BY total_ns DESC LIMIT 5"
      lstmprof query "SELECT run, median(wall_ns) FROM timings WHERE NOT warmup GROUP BY run" a b
    """
    if not paths and not Path(options.TRACES).is_dir():
        raise UsageError(
            f"no PATH is given, and there is no folder {options.TRACES} here",
            "give runs, a folder of runs or profiles",
        )
    from lstmprof.breakdown.sql import answer

    rows = answer(sql, options.runs_of(paths or (options.TRACES,)))
    if format_ == "json":
        terminal.write_json(rows.records())
    elif format_ == "csv":
        terminal.write_csv(rows.records(), rows.columns)
    else:
        terminal.write_table("", rows.headings(), rows.texts(), crop=rows.long())
