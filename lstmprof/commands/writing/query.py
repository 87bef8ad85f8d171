"""``lstmprof query``: run SQL over the tables of many runs."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lstmprof.base.errors import UsageError
from lstmprof.commands import completion, options, terminal

if TYPE_CHECKING:
    from lstmprof.breakdown.sql import Answer

#: Number of rows printed by default, and kept in memory to find the widest text.
_FOR_READING = 1000


@click.command(name="query")
@click.argument("sql", metavar="SQL")
@click.argument("paths", nargs=-1, metavar="[PATH…]", shell_complete=completion.paths)
@options.format_
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    metavar="N",
    help=f"Rows to show.  [default: {_FOR_READING:,} in a table, all in JSON and CSV]",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Stop the query after this time.  [default: no limit]",
)
def command(
    sql: str, paths: tuple[str, ...], format_: str, limit: int | None, timeout_s: float | None
) -> int:
    """Query the tables of all runs with SQL.

    SQL is one SELECT in DuckDB's dialect. The tables are runs (run.json), timings (one row per
    iteration), events, and the tables of breakdown --table. Each table has a column run
    (docs/tables.md). A query cannot write, and cannot read other files. JSON and CSV are streamed,
    so the result may be larger than memory. PATH is a run, a folder of runs, or a profile; the
    default is traces.

    \b
    Example:
      lstmprof query "SELECT run, name, total_ns FROM kernels ORDER BY total_ns DESC LIMIT 5"
      lstmprof query "SELECT run, median(wall_ns) FROM timings WHERE NOT warmup GROUP BY run" a b
      lstmprof query "FROM events" traces/ --format csv --timeout 60
    """
    if not paths and not Path(options.TRACES).is_dir():
        raise UsageError(
            f"no PATH was given, and the default folder {options.TRACES} does not exist",
            "give a run, a folder of runs, or a profile",
        )
    from lstmprof.breakdown.sql import answer
    from lstmprof.runs.border import from_good, path_of

    with options.leaving_out() as left_out, contextlib.ExitStack() as stack:
        runs = options.runs_of(paths or (options.TRACES,), left_out)
        rows = from_good(
            lambda good: stack.enter_context(answer(sql, good, timeout_s)),
            runs,
            path_of,
            left_out.faults.append,
        )
        if format_ == "json":
            terminal.write_json(_Rows(itertools.islice(rows.records(), limit)))
        elif format_ == "csv":
            terminal.write_csv(itertools.islice(rows.records(), limit), rows.columns)
        else:
            _show(rows, _FOR_READING if limit is None else limit)
    return left_out.code


def _show(rows: Answer, limit: int) -> None:
    texts = rows.texts()
    shown = list(itertools.islice(texts, limit))
    terminal.write_table("", rows.headings(), shown, crop=rows.long())
    if next(texts, None) is not None:
        options.say(
            f"showing the first {limit:,} rows; --limit N shows more, --format csv shows all"
        )


class _Rows(list[Any]):
    """An iterator in the form of a list, because the JSON encoder accepts no iterator."""

    def __init__(self, rows: Iterable[Any]) -> None:
        rows = iter(rows)
        self._first = list(itertools.islice(rows, 1))
        self._rows = itertools.chain(self._first, rows)

    def __bool__(self) -> bool:
        return bool(self._first)

    def __iter__(self) -> Iterator[Any]:
        return self._rows
