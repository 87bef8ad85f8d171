"""``lstmprof export``: a run as a file of another tool."""

from __future__ import annotations

from pathlib import Path

import click

from lstmprof.commands import completion, options
from lstmprof.errors import UsageError
from lstmprof.names import STACKS
from lstmprof.numbers import file_size


@click.command(name="export")
@click.argument("path", metavar="PATH", shell_complete=completion.paths)
@click.option(
    "--perfetto",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Perfetto trace to write, for ui.perfetto.dev and trace_processor; FILE.gz is compressed.",
)
@click.option(
    "--speedscope",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Flame graph to write, for https://www.speedscope.app.",
)
@click.option(
    "--stack",
    type=click.Choice(STACKS),
    help="By what the flame graph is drawn: nn.Module, Python frames, or ranges and ops.  "
    "[default: the first of these that the profile has]",
)
@options.step_range
@click.option("--force", is_flag=True, help="Replace a file that is there.")
def command(
    path: str,
    perfetto: Path | None,
    speedscope: Path | None,
    stack: str | None,
    step_range: str | None,
    force: bool,
) -> int:
    """Write a run as a file that another tool opens.

    A Perfetto trace has the threads, devices and streams of the profile, arrows from launches to
    kernels, and beside them what lstmprof knows: the ledger of each device as a track (idle time by
    cause), steps, phases, the length of the queue, the bandwidth of copies, the busy share; and
    memory and other counters, where the profile has them.

    A flame graph has the stacks of the host, with the time of the host in each and that of what it
    launched on devices; they are called modules where the profile has any.

    PATH is a run or a raw profile, as for breakdown.

    \b
    Example:
      lstmprof export profile.pt.trace.json.gz --perfetto profile.pftrace
      lstmprof export profile.pt.trace.json.gz --speedscope flame.json --stack python
    """
    if perfetto is None and speedscope is None:
        raise UsageError("there is nothing to write", "give --perfetto FILE or --speedscope FILE")
    if stack and speedscope is None:
        raise UsageError("--stack is of a flame graph", "give --speedscope FILE")
    from lstmprof.export import perfetto as traces, speedscope as flames

    for out in filter(None, (perfetto, speedscope)):
        traces.refuse(out, force=force)
    with options.leaving_out() as left_out:
        breakdown = options.one_broken_down(path, left_out, step_range)
        if perfetto:
            size = traces.write(breakdown, perfetto, force=force)
            where = "open it in https://ui.perfetto.dev"
            options.result(f"wrote {perfetto} ({file_size(size)}); {where}")
        if speedscope:
            by = flames.write(breakdown, speedscope, by=stack, force=force)
            where = "open it in https://www.speedscope.app"
            options.result(f"wrote {speedscope} (stacks by {by}); {where}")
    return left_out.code
