"""``lstmprof table``: print a table of runs for a paper, whose rows and columns are settings."""

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
    "framework, version, run.  [default: implementation, and each setting that differs between "
    "runs in one table cell]",
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
    help="Values in a table cell, separated by commas: step, step ± interval (or +-), median, "
    "mean ± std, slowdown, samples/s, first step. Median and mean are of the timed iterations; "
    "step is the clean step.",
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
