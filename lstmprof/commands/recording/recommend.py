"""``lstmprof recommend``: which implementation to use for a network on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lstmprof import workloads
from lstmprof.base.numbers import milliseconds
from lstmprof.capture.request import MODES, PRECISIONS, CaptureRequest
from lstmprof.commands import completion, options, terminal
from lstmprof.commands.recording.capture import WORKLOAD_OPTIONS, with_options

if TYPE_CHECKING:
    from lstmprof.diagnose.recommend import Ranked, Recommendation


@click.command(name="recommend")
@click.option(
    "--like",
    metavar="PATH",
    shell_complete=completion.paths,
    help="Use the network, device, precision and mode of this run or profile.",
)
@with_options(WORKLOAD_OPTIONS)
@click.option(
    "--device",
    shell_complete=completion.devices,
    metavar="NAME",
    help=f"Device: auto, cpu, cuda or cuda:N.  [default: {CaptureRequest.device}; with --like, "
    "the run's device]",
)
@click.option(
    "--precision",
    type=click.Choice(PRECISIONS),
    help=f"Arithmetic precision.  [default: {CaptureRequest.precision}; with --like, the run's "
    "precision]",
)
@click.option(
    "--mode",
    type=click.Choice(MODES),
    help=f"Run training steps, or inference.  [default: {CaptureRequest.mode}; with --like, the "
    "run's mode]",
)
@click.option(
    "--threads",
    type=click.IntRange(1),
    metavar="N",
    help="CPU threads.  [default: as in lstmprof capture; with --like, as in the run]",
)
@click.option(
    "--impl",
    "impls",
    multiple=True,
    default=("*",),
    show_default=False,
    metavar="NAME",
    shell_complete=completion.implementations,
    help="Implementation, a pattern like 'torch-*', or your own file, like mymodel.py:build. "
    "Repeat the option for more.  [default: all]",
)
@click.option("--quick", is_flag=True, help="Time one round only (a minute or two).")
@click.option(
    "--minutes",
    type=click.FloatRange(0, min_open=True),
    metavar="MINUTES",
    help="Start no further measurement after this time.  [default: no limit]",
)
@click.option("--plan", "only_plan", is_flag=True, help="Show the plan without running it.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Folder for the measured runs.  [default: a folder in the cache]",
)
@click.option("--force", is_flag=True, help="Measure again, even if a measurement is stored.")
@options.format_
def command(
    like: str | None,
    impls: tuple[str, ...],
    quick: bool,
    minutes: float | None,
    only_plan: bool,
    out: Path | None,
    force: bool,
    format_: str,
    **flags: Any,
) -> None:
    """Find the fastest implementation of a network on this machine, and print its code.

    recommend times every implementation that runs here in one round, and then the fastest ones in
    three rounds. It ranks the implementations, shows ties as equal, and explains why the others are
    slower. It stores the measurements, so that the same command answers at once the next time.
    Sizes that you do not give come from the workload 1x320-ce-short (lstmprof list workloads).

    \b
    Example:
      lstmprof recommend --hidden 512 --batch 32 --time-steps 100 --device cpu
      lstmprof recommend --like traces/train --quick
      lstmprof recommend --like traces/train --impl mymodel.py:build --impl 'torch-*'
    """
    from lstmprof.capture.harness import plan
    from lstmprof.diagnose.recommend.shapes import request_of, shape_of
    from lstmprof.diagnose.recommend.sweep import Limits, candidates, recommended
    from lstmprof.runs.directory import cache_folder, usable_cache

    sizes = {name: flags.pop(name) for name in workloads.OVERRIDABLE}
    shape = None
    if like is not None:
        with options.leaving_out() as left_out:
            shape = shape_of(options.one_broken_down(like, left_out, None))
    common = request_of(shape, sizes, flags, options.say)
    place = out or usable_cache(cache_folder()) / "recommend"
    found_candidates = candidates(plan.chosen(impls), common, place)
    for left in found_candidates.left_out:
        options.say(f"left out: {left.implementation}: {left.reason}")
    options.say(found_candidates.words(quick))
    if only_plan:
        for name in found_candidates.requests:
            options.say(f"  {name}")
        return
    limits = Limits(quick, None if minutes is None else 60 * minutes)
    recommendation = recommended(
        found_candidates,
        common.workload,
        place,
        limits,
        framework=None if shape is None else shape.framework,
        force=force,
        progress=options.say,
    )
    _show(recommendation, format_)


def _show(recommendation: Recommendation, format_: str) -> None:
    if format_ == "json":
        terminal.write_json(recommendation.to_dict())
        return
    rows = [ranked.to_dict() for ranked in recommendation.ranking]
    if format_ == "csv":
        terminal.write_csv(rows, list(rows[0]))
        return
    info = recommendation.winner.profile.info
    terminal.write_line(recommendation.sentence, style="bold")
    terminal.write_line()
    where = f"{info.precision}, {info.mode}, {info.device_name or info.device}"
    terminal.write_table(
        f"{recommendation.workload.name}: {where}",
        ["", "implementation", "form", ">ms per step", ">95 % interval", ">slowdown"],
        [_cells(ranked, recommendation) for ranked in recommendation.ranking],
        spare=(">95 % interval", "form"),
    )
    for ranked in recommendation.ranking[1:]:
        look = " (one round)" if ranked.first_look else ""
        terminal.write_line(f"{ranked.implementation}{look}: {ranked.reason}")
    terminal.write_line()
    terminal.write_line(f"Code of {recommendation.winner.implementation}:", style="bold")
    print("\n" + recommendation.code)


def _cells(ranked: Ranked, recommendation: Recommendation) -> list[str]:
    row = ranked.to_dict()
    shared = sum(other.rank == ranked.rank for other in recommendation.ranking) > 1
    low, high = row["step_low_ns"], row["step_high_ns"]
    return [
        f"{ranked.rank}{'=' if shared else ''}",
        ranked.implementation,
        row["form"] or "",
        milliseconds(row["step_ns"], 3),
        "" if low is None else f"{milliseconds(low, 3)}…{milliseconds(high, 3)}",
        f"{ranked.slowdown:.2f}×",
    ]
