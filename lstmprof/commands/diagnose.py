"""``lstmprof diagnose``: why one run is slower than another, or what a run alone is bound by."""

from __future__ import annotations

import click

from lstmprof.commands import open_report, options, terminal

FORMATS = ("text", "json", "markdown")
#: Those of ``diagnose.changes``, named here because help imports no dataframe library.
CAUSES = ("launch", "casts", "syncs", "copies", "python", "dispatch")


@click.command(name="diagnose")
@click.argument("paths", nargs=-1, required=True, metavar="PATH…")
@click.option("--format", "format_", type=click.Choice(FORMATS), default="text", show_default=True)
@options.across
@options.step_range
@click.option(
    "--without",
    multiple=True,
    type=click.Choice(CAUSES),
    metavar="NAME",
    help=f"Replay the slow step without this; repeat for more: {', '.join(CAUSES)}.",
)
@click.option(
    "--gemm-at-roofline", is_flag=True, help="Replay it with matrix products at their least time."
)
@click.option(
    "--peaks",
    metavar="PRODUCTS,COPIES",
    help="Peaks of the device, like 67TFLOP/s,3.35TB/s.  [default: as measured with the runs]",
)
@options.open_
def command(
    paths: tuple[str, ...],
    format_: str,
    across: tuple[str, ...],
    step_range: str | None,
    without: tuple[str, ...],
    gemm_at_roofline: bool,
    peaks: str | None,
    open_: bool,
) -> None:
    """Say why one run is slower than another: part by part, with the cause and what to do.

    PATH is a run, a folder of runs, or raw profiles, as for breakdown. Of several runs each is held
    against the fastest that can be compared with it; a run alone against its own step.

    \b
    Example:
      lstmprof diagnose traces/torch-cudnn--… traces/torch-lstmcell-basic--…
      lstmprof diagnose traces/
      lstmprof diagnose profile.pt.trace.json.gz
      lstmprof diagnose profile.pt.trace.json.gz --without launch --without syncs
      lstmprof diagnose fp32-run amp-run --across precision --format markdown
      lstmprof diagnose traces/ --open
    """
    if open_:
        open_report.refuse_without_libraries()

    from lstmprof.breakdown import (
        break_down,
    )
    from lstmprof.commands.terminal import (
        diagnosis,
        diagnosis_markdown,
        diagnosis_rows,
    )
    from lstmprof.diagnose.diagnosis import (
        Asked,
        diagnose_all,
    )
    from lstmprof.diagnose.roofline import (
        parsed,
    )
    from lstmprof.runs.ingest import (
        open_runs,
    )

    asked = Asked(
        tuple(dict.fromkeys(without)), gemm_at_roofline, None if peaks is None else parsed(peaks)
    )

    def left_out(line: str) -> None:
        click.echo(f"left out: {line}", err=True)

    opened = [open_runs([path], warn=left_out) for path in paths]
    # Runs that were named one by one are meant to be compared; of a folder those that can be.
    named = len(opened) > 1 and all(len(runs) == 1 for runs in opened)
    breakdowns = [break_down(run, step_range, ("ledger",)) for runs in opened for run in runs]
    made = diagnose_all(breakdowns, across, asked, must_compare=named)
    if format_ == "json":
        terminal.write_json([diagnosis_rows.document(one) for one in made])
    elif format_ == "markdown":
        click.echo("\n\n".join(diagnosis_markdown.page(one) for one in made))
    else:
        for one in made:
            diagnosis.show(one)
    if open_:
        open_report.open_report(breakdowns, across)
