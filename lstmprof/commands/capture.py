"""``lstmprof capture``: run, time and profile one implementation of an LSTM."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from lstmprof import implementations, workloads

_WORKLOAD_OPTIONS = (
    click.option("--layers", type=int, help="Recurrent layers."),
    click.option("--hidden", type=int, help="Units of a layer and direction."),
    click.option("--bidirectional/--unidirectional", default=None, help="Both directions or one."),
    click.option("--batch", type=int, help="Sequences of a batch."),
    click.option("--time-steps", type=int, help="Steps of the longest sequence."),
    click.option("--features", type=int, help="Inputs at a time step."),
    click.option("--classes", type=int, help="Outputs, the CTC blank among them."),
    click.option("--loss", type=click.Choice(workloads.LOSSES), help="Loss function."),
    click.option("--labels", type=int, help="Target labels of a sequence (ctc only)."),
)
_RUN_OPTIONS = (
    click.option(
        "--iterations",
        type=click.IntRange(1),
        default=20,
        show_default=True,
        help="Timed iterations.",
    ),
    click.option(
        "--warmup",
        type=click.IntRange(1),
        default=3,
        show_default=True,
        help="Iterations before them, kept but not counted.",
    ),
    click.option(
        "--profile-steps",
        type=click.IntRange(1),
        default=3,
        show_default=True,
        help="Iterations of the profiled pass.",
    ),
    click.option("--device", default="auto", show_default=True, help="auto, cpu or cuda:N."),
    click.option(
        "--precision",
        type=click.Choice(["fp32"]),
        default="fp32",
        show_default=True,
        help="Element type of the arithmetic.",
    ),
    click.option(
        "--mode",
        type=click.Choice(["train", "forward"]),
        default="train",
        show_default=True,
        help="Whole training step, or inference.",
    ),
    click.option(
        "--threads",
        type=click.IntRange(1),
        help="CPU threads; by default 1 on the CPU, every allowed one on a GPU.",
    ),
    click.option("--seed", type=int, default=0, show_default=True, help="Of weights and data."),
    click.option(
        "--timeout",
        "timeout_s",
        type=click.FloatRange(0, min_open=True),
        default=3600.0,
        show_default=True,
        help="Seconds after which the worker is stopped.",
    ),
)


def _with(options: tuple[Callable[[Any], Any], ...]) -> Callable[[Any], Any]:
    def decorate(function: Any) -> Any:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


@click.command(name="capture")
@click.option("--impl", required=True, metavar="NAME", help="Implementation: see lstmprof list.")
@click.option(
    "--workload",
    "workload_name",
    default="1x320-ce-short",
    show_default=True,
    metavar="NAME",
    help="Network and data: see lstmprof list. Override its fields with:",
)
@_with(_WORKLOAD_OPTIONS)
@_with(_RUN_OPTIONS)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("traces"),
    show_default=True,
    help="Folder of runs to write to.",
)
@click.option("--name", help="Name of the run; by default what distinguishes it.")
@click.option("--force", is_flag=True, help="Replace a run of that name.")
def command(
    impl: str, workload_name: str, out: Path, name: str | None, force: bool, **options: Any
) -> None:
    """Run, time and profile one implementation in a process of its own.

    First undisturbed, then a few steps under the framework's profiler. The run appears in --out
    whole or not at all.

    \b
    Example:
      lstmprof capture --impl torch-cudnn --workload 1x320-ce-short --time-steps 20
    """
    fields = (
        "layers",
        "hidden",
        "bidirectional",
        "batch",
        "time_steps",
        "features",
        "classes",
        "loss",
        "labels",
    )
    overrides = {field: options.pop(field) for field in fields}
    implementations.find(impl)
    workload = workloads.with_overrides(workloads.named(workload_name), **overrides)

    from lstmprof.api import CaptureRequest, capture_run

    request = CaptureRequest(implementation=impl, workload=workload, **options)
    run = capture_run(
        request,
        out,
        name=name,
        force=force,
        progress=lambda line: click.echo(f"{impl}: {line}", err=True),
    )
    for note in run.metadata.get("notes", []):
        click.echo(f"{impl}: note: {note}", err=True)
    click.echo(f"wrote {run.path}")
    click.echo(f"next: lstmprof breakdown {out}", err=True)
