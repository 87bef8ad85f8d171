"""``lstmprof breakdown``: the breakdown of one run or several runs.

For a large profile, ``FirstAnswers`` prints the first step on stderr before lstmprof reads the
rest of the profile.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lstmprof.base.errors import LstmprofError, UsageError
from lstmprof.base.names import STEPS, TABLES, USUAL_TABLES
from lstmprof.base.numbers import file_size, milliseconds
from lstmprof.commands import completion, options, terminal

if TYPE_CHECKING:
    from lstmprof.breakdown import Breakdown
    from lstmprof.breakdown.first_step import FirstStep
    from lstmprof.breakdown.mean_step import MeanStep

TIMINGS = "timings"
_TOP, _TOP_OF_ONE = 5, 20
#: Smallest size in bytes of a profile whose first step lstmprof prints early.
#: lstmprof reads smaller profiles in 3 s or less.
LEAST_BYTES = 2**28
#: Most devices whose first step is printed.
_LANES_EACH = 2


@click.command(name="breakdown")
@click.argument("paths", nargs=-1, required=True, metavar="PATH…", shell_complete=completion.paths)
@click.option(
    "--table",
    "table",
    type=click.Choice((TIMINGS, *TABLES)),
    metavar="NAME",
    help=f"Show only this table: {TIMINGS}, {', '.join(TABLES)}. docs/tables.md describes them.",
)
@options.format_
@click.option(
    "--top",
    type=click.IntRange(0),
    metavar="N",
    help=f"Rows per table; --table ledger ignores this option.  [default: {_TOP}; {_TOP_OF_ONE} "
    "with --table; all in JSON and CSV]",
)
@click.option(
    "--steps",
    type=click.Choice(STEPS),
    default=STEPS[0],
    help="Step to show: clean (without profiler overhead and outliers), or profiled (the mean of "
    "the profiled steps). --table ledger ignores this option, and shows the profiled steps.",
)
@options.step_range
@options.open_
def command(
    paths: tuple[str, ...],
    table: str | None,
    format_: str,
    top: int | None,
    steps: str,
    step_range: str | None,
    open_: bool,
) -> int:
    """Show where every nanosecond of a step goes, busy and idle.

    breakdown divides busy time by category of work, and idle time by cause. By default, it shows
    the clean step: a step without disturbances and without the profiler's overhead
    (docs/ledger.md).

    PATH is a run, a folder of runs, or a profile: a file, folder, tar archive or URL. If a PATH
    cannot be read, breakdown says so at the end and exits with status 1. For uncompressed Kineto
    files of 256 MiB or more, it prints the first step on stderr while it reads the rest.

    \b
    Example:
      lstmprof breakdown traces/
      lstmprof breakdown traces/ --steps profiled
      lstmprof breakdown profile.pt.trace.json.gz --table ledger --format json
      lstmprof breakdown profile.pt.trace.json.gz --table ops --top 30
      lstmprof breakdown traces/ --open
    """
    if format_ == "csv" and table is None:
        raise UsageError(
            "--format csv prints one table only", "add --table " + "|".join((TIMINGS, *TABLES))
        )

    shown = (table,) if table else (TIMINGS, *USUAL_TABLES)
    needed = dict.fromkeys((*shown, *(options.report_tables() if open_ else ())))
    made = [name for name in needed if name != TIMINGS]
    profiled = steps == STEPS[1]

    def look(breakdown: Breakdown) -> None:
        if table in (None, "ledger"):
            breakdown.steps(profiled=profiled or table == "ledger")

    first = FirstAnswers()
    shows_steps = table in (None, "ledger") and not step_range
    with options.leaving_out() as left_out:
        runs = options.runs_of(paths, left_out, *([first.show_early] if shows_steps else []))
        breakdowns = options.broken_down(runs, left_out, step_range, made, look)
        first.check(breakdowns)
        _print_how_to_record(breakdowns, table)
        _show(breakdowns, shown, format_, top, profiled=profiled)
        if open_:
            options.open_report(breakdowns, left_out)
    return left_out.code


def _print_how_to_record(breakdowns: list[Breakdown], table: str | None) -> None:
    """Print how to record a table's data, for each run without rows in the table."""
    from lstmprof.breakdown.tables import table_of

    record = table_of(table).record if table and table in TABLES else ""
    for breakdown in breakdowns:
        if table and record and not breakdown.table(table).num_rows:
            options.say(f"{breakdown.run.name}: table {table} is empty; {record}")


def _show(
    breakdowns: list[Breakdown],
    tables: tuple[str, ...],
    format_: str,
    top: int | None,
    *,
    profiled: bool,
) -> None:
    """Print tables of all runs, each with ``top`` rows (None: the default number)."""
    from lstmprof.breakdown import account_rows, columns, lacking, rows_of
    from lstmprof.commands.terminal import breakdown

    alone = tables[0] if len(tables) == 1 else None
    if format_ == "table" and alone is None and top is None and len(breakdowns) > 1:
        breakdown.show_side_by_side(breakdowns, profiled=profiled)
        return
    if format_ == "table" and alone is None:
        breakdown.show(breakdowns, _TOP if top is None else top, profiled=profiled)
        return
    if format_ == "table":
        for row in lacking(breakdowns):
            options.say(f"{row['run']}: recording: {row['sentence']}")
        breakdown.show_table(breakdowns, tables[0], _TOP_OF_ONE if top is None else top)
        return
    rows: dict[str, Any] = {name: rows_of(breakdowns, name, top) for name in tables}
    if format_ == "json":
        account = [] if alone else account_rows(breakdowns, profiled=profiled)
        whole = {"lacks": lacking(breakdowns), "account": account, **rows}
        terminal.write_json(rows[alone] if alone else whole)
    elif alone:
        terminal.write_csv(rows[alone], columns(alone))


class FirstAnswers:
    """Prints a large profile's first step early, and later checks the printed times."""

    def __init__(self, least_bytes: int = LEAST_BYTES) -> None:
        self._least_bytes = least_bytes
        self._shown_early: dict[str, FirstStep] = {}

    def show_early(self, path: Path, name: str) -> None:
        """Print the breakdown of the first step before reading the rest of a profile."""
        # import late, because the import is slow, and stored runs need no profile reader
        from lstmprof.breakdown.first_step import first_step
        from lstmprof.runs.border import border

        try:
            with border(path):
                first = first_step(path, self._least_bytes)
        except LstmprofError as fault:
            options.say(f"cannot show the first step early: {fault}")
            return
        if first:
            self._shown_early[name] = first
            for line in _first_step_lines(name, first):
                options.say(line)

    def check(self, breakdowns: Sequence[Breakdown]) -> None:
        """Warn if the first step that was printed early differs from the whole profile."""
        if not self._shown_early:
            return
        from lstmprof.breakdown.first_step import matches

        for breakdown in breakdowns:
            first = self._shown_early.get(breakdown.run.name)
            if first and not matches(first, breakdown.ledger, breakdown.windows):
                options.say(
                    f"{breakdown.run.name}: the times of the first step above are wrong; "
                    "--table ledger shows the times from the complete file"
                )


def _first_step_lines(name: str, first: FirstStep) -> list[str]:
    """Return the lines to print early about the first step of a large profile."""
    share = f"{first.read_bytes / first.file_bytes:.1%}".replace("%", " %")
    lines = [
        f"{name}: breakdown of the first step ({first.name}), after reading {share} of the "
        f"{file_size(first.file_bytes)} file; the breakdown of all steps follows"
    ]
    for lane in first.mean_steps[:_LANES_EACH]:
        lines += _lane_lines(lane, first.device_names.get(lane.device or 0))
    more = first.mean_steps[_LANES_EACH:]
    return [*lines, f"  and {len(more)} more devices"] if more else lines


def _lane_lines(lane: MeanStep, device_name: str | None) -> list[str]:
    from lstmprof.breakdown.mean_step import lane_words

    named = f" ({device_name})" if device_name and lane.device is not None else ""
    milli = terminal.parts_that_add_up([ns / 1e6 for _, _, ns in lane.parts], lane.mean_ns / 1e6, 3)
    share = terminal.parts_that_add_up(
        [100 * ns / lane.total_ns for _, _, ns in lane.parts], 100.0, 1
    )
    widest = max(len(part) for _, part, _ in lane.parts)
    longest = max(map(len, milli))
    return [
        f"  {lane_words(lane.rank, lane.device)}{named}: {milliseconds(lane.mean_ns, 3)} ms",
        *(
            f"    {state}  {part:{widest}}  {ms:>{longest}} ms  {part_share:>5} %"
            for (state, part, _), ms, part_share in zip(lane.parts, milli, share, strict=True)
        ),
    ]
