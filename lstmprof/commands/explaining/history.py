"""``lstmprof history``: how the step time of an implementation changed from run to run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lstmprof.base.numbers import file_size, milliseconds
from lstmprof.commands import completion, options, terminal

if TYPE_CHECKING:
    from lstmprof.diagnose.history import Point, Series

BY = ("date", "label")


@click.command(name="history")
@click.argument("paths", nargs=-1, required=True, metavar="PATH…", shell_complete=completion.paths)
@click.option(
    "--by",
    type=click.Choice(BY),
    default=BY[0],
    help="First column: date or label of each run. Rows are in order of date.",
)
@options.format_
@click.option(
    "-o",
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Also write a chart as an HTML page.",
)
@options.step_range
@click.option("--force", is_flag=True, help="Overwrite an existing page.")
def command(
    paths: tuple[str, ...],
    by: str,
    format_: str,
    out: Path | None,
    step_range: str | None,
    force: bool,
) -> int:
    """Show how step times changed from run to run.

    Runs with the same implementation, workload, precision, mode, device, threads and seed are one
    series, oldest first. history marks a change at a run if its step is more than 2 % longer or
    shorter than before, and the whole 95 % interval of the ratio is beyond this limit
    (docs/history.md). To label runs by commit, capture them with
    --label "$(git rev-parse --short HEAD)".

    PATH is a run, a folder of runs, or a profile, as for breakdown.

    \b
    Example:
      lstmprof history traces/ --by label
      lstmprof history traces/ --format csv > history.csv
      lstmprof history traces/ -o history.html
    """
    from lstmprof.diagnose.history import history

    if out is not None:
        from lstmprof.report.page import refuse

        refuse(out, force=force)
    with options.leaving_out() as left_out:
        series = history(options.step_profiles(paths, left_out, step_range))
        _show(series, by, format_)
        if out is not None:
            from lstmprof.report.history import write

            size = write(series, out, force=force)
            options.say(f"wrote {out} ({file_size(size)}); open it in any browser")
    return left_out.code


def _show(series: Sequence[Series], by: str, format_: str) -> None:
    from lstmprof.diagnose.history import table

    rows = table(series)
    if format_ == "json":
        terminal.write_json(rows.rows())
    elif format_ == "csv":
        terminal.write_csv(rows.rows(), rows.columns)
    else:
        for of in series:
            heads = [by, "run", ">ms per step", ">95 % interval", ">% of previous run", "change"]
            cells = [_cells(point, by) for point in of.points]
            terminal.write_table(of.sentence, heads, cells, crop="run", spare=("run",))


def _cells(point: Point, by: str) -> list[str]:
    first = point.label if by == "label" else point.when[:19].replace("T", " ")
    step, ratio = point.step, point.ratio
    return [
        first,
        point.profile.name,
        milliseconds(step.ns, 2),
        f"{milliseconds(step.low_ns, 2)}…{milliseconds(step.high_ns, 2)}",
        "" if ratio is None else f"{100 * ratio.value:,.1f}",
        point.change or "",
    ]
