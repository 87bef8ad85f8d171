"""``lstmprof table``: print runs for a paper, with settings as rows and columns."""

from __future__ import annotations

import click

from lstmprof.base.numbers import listed
from lstmprof.commands import completion, options, terminal


@click.command(name="table")
@click.argument("paths", nargs=-1, required=True, metavar="PATH…", shell_complete=completion.paths)
@click.option(
    "--rows",
    default=None,
    metavar="NAMES",
    help="Settings that identify a row, separated by commas: implementation, label, workload, "
    "precision, mode, device, threads, layers, hidden, batch, time-steps, features, cell, "
    "framework, version, run.  [default: implementation, and further settings until each table "
    "cell has one run]",
)
@click.option(
    "--columns",
    default="workload",
    metavar="NAMES",
    help="Settings that name a column; the same names as for --rows.",
)
@click.option(
    "--value",
    default="step ± interval, slowdown",
    metavar="NAMES",
    help="Comma-separated list of the values to show in each table cell: step, step ± interval, "
    "median, mean ± std, slowdown, samples/s, first step. You can write +- for ±. Median and mean "
    "are over the timed iterations. Step is the time of a step without profiler overhead and "
    "outliers.",
)
@options.formats(
    *("markdown", "latex", "csv", "html"),
    help="Output format; LaTeX uses the package booktabs, CSV has one column per number.",
)
def command(
    paths: tuple[str, ...], rows: str | None, columns: str, value: str, format_: str
) -> int:
    """Print runs as a table for a paper.

    The fastest of comparable runs is bold, and so are runs whose 95 % interval overlaps that of the
    fastest. The caption names the values, machine, versions, rounds and iterations.

    PATH is a run or a folder of runs, as for breakdown. If runs that share a table cell differ in a
    setting, lstmprof adds this setting to --rows.

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
            added = listed(made.added)
            options.say(f"added to --rows: {added}, because runs in one table cell differ in it")
        if format_ == "csv":
            heads, records = typeset.rows(made)
            terminal.write_csv(records, heads)
        else:
            write = {"markdown": typeset.markdown, "latex": typeset.latex, "html": typeset.page}
            print(write[format_](made))
    return left_out.code
