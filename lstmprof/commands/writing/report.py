"""``lstmprof report``: one HTML page about any number of runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lstmprof.base.errors import UsageError
from lstmprof.base.numbers import file_size
from lstmprof.commands import completion, options

if TYPE_CHECKING:
    from lstmprof.report.model import Report


def _folder(format_: str, help: str) -> Callable[[Any], Any]:
    """Make the option for a folder of charts, such as ``--svg FOLDER``."""
    folder = click.Path(file_okay=False, path_type=Path)
    return click.option(f"--{format_}", format_, type=folder, metavar="FOLDER", help=help)


@click.command(name="report")
@click.argument("paths", nargs=-1, required=True, metavar="PATH…", shell_complete=completion.paths)
@click.option(
    "-o",
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Page to write.  [default: report.html; none with --png, --svg or --json]",
)
@_folder("png", "Write each chart as PNG to this folder.")
@_folder("svg", "Write each chart as SVG to this folder.")
@_folder("json", "Write each chart as Vega-Lite JSON to this folder, to restyle it.")
@click.option(
    "--title", metavar="TEXT", help="Heading of the page.  [default: the runs and their workload]"
)
@options.step_range
@options.across
@click.option("--force", is_flag=True, help="Overwrite existing files.")
@click.option("--open", "open_", is_flag=True, help="Open the page in a browser ($BROWSER).")
def command(
    paths: tuple[str, ...],
    out: Path | None,
    title: str | None,
    step_range: str | None,
    across: tuple[str, ...],
    force: bool,
    open_: bool,
    **folders: Path | None,
) -> int:
    """Write an HTML page with verdicts, charts and tables.

    The page is one file and opens in any browser, also offline.

    PATH is a run, a folder of runs, or a profile, as for breakdown.

    \b
    Example:
      lstmprof report traces/ -o report.html
      lstmprof report traces/torch-nn-lstm--… traces/torch-lstmcell-basic--…
      lstmprof report fp32-run amp-run --across precision
      lstmprof report traces/ --svg charts/
      lstmprof report traces/ --open
    """
    from lstmprof.report import TABLES, page, report_of

    if out is None and not any(folders.values()):
        out = Path("report.html")
    if open_ and out is None:
        raise UsageError("--open needs a page", "add -o FILE")
    if out is not None:
        page.refuse(out, force=force)
    stages = options.Stages()
    with options.leaving_out() as left_out:
        runs = options.runs_of(paths, left_out)
        breakdowns = options.broken_down(
            *(runs, left_out, step_range, TABLES),
            look=lambda _: stages.done("runs analysed", len(runs)),
        )
        report = options.from_good(
            lambda good: report_of(good, title, across, begins=stages.at), breakdowns, left_out
        )
        stages.at("writing the page")
        _write(report, folders, out, force=force)
    if out is not None and open_:
        options.show(out)
    return left_out.code


def _write(
    report: Report, folders: Mapping[str, Path | None], out: Path | None, *, force: bool
) -> None:
    from lstmprof.report import charts, page

    for format_ in ("png", "svg", "json"):
        if (folder := folders[format_]) is not None:
            files = charts.write(charts.figures(report), folder, format_, force=force)
            options.result(f"wrote {len(files)} charts to {folder}")
    if out is not None:
        size = page.write(report, out, force=force)
        count = f"{len(report.runs)} run" + "s" * (len(report.runs) != 1)
        options.result(f"wrote {out} ({count}, {file_size(size)}); open it in any browser")
