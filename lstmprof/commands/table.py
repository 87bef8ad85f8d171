"""``lstmprof table``: runs by two of their conditions, for a paper."""

from __future__ import annotations

import click

from lstmprof.commands import completion, options, terminal
from lstmprof.numbers import listed


@click.command(name="table")
@click.argument("paths", nargs=-1, required=True, metavar="PATH…", shell_complete=completion.paths)
@click.option(
    "--rows",
    default=None,
    metavar="NAMES",
    help="What a row is, several with commas: implementation, label, workload, precision, mode, "
    "device, threads, layers, hidden, batch, time-steps, features, cell, framework, version, run. "
    "[default: implementation, and what else differs between runs of one cell]",
)
@click.option(
    "--columns",
    default="workload",
    show_default=True,
    metavar="NAMES",
    help="What a column is; the same names.",
)
@click.option(
    "--value",
    default="step ± interval, slowdown",
    show_default=True,
    metavar="NAMES",
    help="What a cell says, with commas: step ± interval (or +-) of the clean step, step; median, "
    "mean ± std of the timed iterations; slowdown, samples/s, first step.",
)
@click.option(
    "--format",
    "format_",
    type=click.Choice(("markdown", "latex", "csv", "html")),
    default="markdown",
    show_default=True,
    help="LaTeX is of the package booktabs; CSV has a column a number.",
)
def command(
    paths: tuple[str, ...], rows: str | None, columns: str, value: str, format_: str
) -> int:
    """Make a table for a paper: runs by two of their conditions.

    A cell without a run is empty. The fastest of comparable runs is bold, and so is every run whose
    95 % interval touches its own. The caption names the numbers, the machine, the versions, rounds
    and iterations.

    PATH is a run, or a folder of runs, as for breakdown. Conditions in which runs of one cell
    differ are added to --rows.

    \b
    Example:
      lstmprof table traces/
      lstmprof table traces/ --rows implementation,precision --columns batch --format latex
      lstmprof table traces/ --rows version --columns implementation --value 'samples/s'
    """
    from lstmprof.report import typeset
    from lstmprof.report.grid import grid

    with options.leaving_out() as left_out:
        runs = options.runs_of(paths, left_out)
        breakdowns = options.broken_down(runs, left_out, None, ())
        made = grid(breakdowns, rows, columns, value)
        if made.added:
            added = listed(list(made.added))
            options.say(f"added to the rows, because runs of one cell differ in them: {added}")
        if format_ == "csv":
            heads, records = typeset.rows(made)
            terminal.write_csv(records, heads)
        else:
            write = {"markdown": typeset.markdown, "latex": typeset.latex, "html": typeset.page}
            print(write[format_](made))
    return left_out.code
