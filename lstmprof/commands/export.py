"""``lstmprof export``: a run as a file of another tool."""

from __future__ import annotations

from pathlib import Path

import click

from lstmprof.commands import completion, options
from lstmprof.errors import UsageError


@click.command(name="export")
@click.argument("path", metavar="PATH", shell_complete=completion.paths)
@click.option(
    "--perfetto",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Perfetto trace to write, for ui.perfetto.dev and trace_processor; FILE.gz is compressed.",
)
@options.step_range
@click.option("--force", is_flag=True, help="Replace a file that is there.")
def command(path: str, perfetto: Path | None, step_range: str | None, force: bool) -> int:
    """Write a run as a file that another tool opens.

    A Perfetto trace has the threads, devices and streams of the profile, arrows from launches to
    kernels, and beside them what lstmprof knows: the ledger of each device as a track (idle time by
    cause), steps, phases, the length of the queue, the bandwidth of copies, the busy share.

    PATH is a run or a raw profile, as for breakdown.

    \b
    Example:
      lstmprof export profile.pt.trace.json.gz --perfetto profile.pftrace
    """
    if perfetto is None:
        raise UsageError("there is nothing to write", "give --perfetto FILE")
    from lstmprof.export import perfetto as writer

    writer.refuse(perfetto, force=force)
    with options.leaving_out() as left_out:
        breakdown = options.one_broken_down(path, left_out, step_range)
        size = writer.write(breakdown, perfetto, force=force)
        options.result(
            f"wrote {perfetto} ({size / 1e6:.1f} MB); open it in https://ui.perfetto.dev"
        )
    return left_out.code
