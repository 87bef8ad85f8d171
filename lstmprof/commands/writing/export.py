"""``lstmprof export``: write a run as a file that another tool can open."""

from __future__ import annotations

from pathlib import Path

import click

from lstmprof.base.errors import UsageError
from lstmprof.base.names import STACKS
from lstmprof.base.numbers import file_size
from lstmprof.commands import completion, options


@click.command(name="export")
@click.argument(
    "paths", nargs=-1, required=True, metavar="PATH [OTHER]", shell_complete=completion.paths
)
@click.option(
    "--perfetto",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Perfetto trace to write; open it in https://ui.perfetto.dev. FILE.gz is compressed.",
)
@click.option(
    "--speedscope",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Flame graph to write; open it in https://www.speedscope.app.",
)
@click.option(
    "--stack",
    type=click.Choice(STACKS),
    help="Frames of the flame graph's stacks: nn.Modules, Python frames, or ranges and ops.  "
    "[default: the first of the three that the profile has; ops if you export two runs]",
)
@options.step_range
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def command(
    paths: tuple[str, ...],
    perfetto: Path | None,
    speedscope: Path | None,
    stack: str | None,
    step_range: str | None,
    force: bool,
) -> int:
    """Export a run to Perfetto or speedscope.

    The Perfetto trace shows the profile's threads, devices, streams and counters, with arrows from
    launches to kernels. lstmprof adds tracks for steps, phases, busy and idle time by cause, queue
    length and copy bandwidth. The speedscope file is a flame graph of host stacks, with their host
    time and the device time of the kernels that they launched.

    With OTHER, each file shows one step of PATH and one step of OTHER. If a profile has enough
    steps, lstmprof first removes disturbances, such as delays by other processes. The two steps
    begin at the same time in the Perfetto trace. The flame graph also shows which stacks take
    longer in which run.

    PATH is a run or a profile, as for breakdown.

    \b
    Example:
      lstmprof export profile.pt.trace.json.gz --perfetto profile.pftrace
      lstmprof export profile.pt.trace.json.gz --speedscope flame.json --stack python
      lstmprof export traces/slow traces/fast --speedscope difference.json
    """
    if len(paths) > 2:
        raise UsageError(f"{len(paths)} runs are given", "give one run, or two to compare them")
    if perfetto is None and speedscope is None:
        raise UsageError("no output is chosen", "give --perfetto FILE or --speedscope FILE")
    if stack and speedscope is None:
        raise UsageError("--stack needs a flame graph", "add --speedscope FILE")
    from lstmprof.diagnose.step_profile import step_profile_of
    from lstmprof.export import call_stacks as flames, perfetto as traces

    for out in filter(None, (perfetto, speedscope)):
        traces.refuse(out, force=force)
    with options.leaving_out() as left_out:
        given = [options.one_broken_down(path, left_out, step_range) for path in paths]
        lanes = [(b, *step_profile_of(b).rank_device) for b in given] if len(given) == 2 else []
        if perfetto:
            size = (
                traces.write_pair(lanes, perfetto, force=force)
                if lanes
                else traces.write(given[0], perfetto, force=force)
            )
            where = "open it in https://ui.perfetto.dev"
            options.result(f"wrote {perfetto} ({file_size(size)}); {where}")
        if speedscope:
            by = (
                flames.write_pair(lanes, speedscope, by=stack, force=force)
                if lanes
                else flames.write(given[0], speedscope, by=stack, force=force)
            )
            where = "open it in https://www.speedscope.app"
            options.result(f"wrote {speedscope} (stacks by {by}); {where}")
    return left_out.code
