"""``lstmprof capture``: run, time and profile one implementation of an LSTM."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from lstmprof import workloads
from lstmprof.capture.request import PRECISIONS
from lstmprof.commands import capture_sweep
from lstmprof.workloads.studies import NAMED, named

_WORKLOAD_OPTIONS = (
    click.option("--layers", type=int, help="Recurrent layers."),
    click.option("--hidden", type=int, help="Units of a layer and direction."),
    click.option("--bidirectional/--unidirectional", default=None, help="Both directions or one."),
    click.option("--batch", type=int, help="Sequences of a batch."),
    click.option("--time-steps", type=int, help="Steps of the longest sequence."),
    click.option("--features", type=int, help="Inputs at a time step."),
    click.option("--classes", type=int, help="Outputs, the CTC blank among them."),
    click.option("--cell", type=click.Choice(list(workloads.GATES)), help="Recurrent cell."),
    click.option("--loss", type=click.Choice(workloads.LOSSES), help="Loss function."),
    click.option("--labels", type=int, help="Target labels of a sequence (ctc only)."),
    click.option(
        "--variable-length/--padded",
        default=None,
        help="Layers know that sequences differ in length, or run over the padding.",
    ),
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
        "--timing-seconds",
        "timing_s",
        type=click.FloatRange(0, min_open=True),
        help="Time no further iteration of a round after so long, but three at least.",
    ),
    click.option(
        "--warmup",
        type=click.IntRange(1),
        help="Iterations before them, kept but not counted; by default 3, or what a row needs.",
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
    click.option("--cuda-graph", is_flag=True, help="Replay the step as a CUDA graph (torch)."),
    click.option("--xla", is_flag=True, help="Compile the step with XLA (TensorFlow)."),
    click.option("--python", help="Interpreter of the workers; it needs NumPy and the framework."),
    click.option(
        "--with",
        "packages",
        multiple=True,
        metavar="SPEC",
        help="Run in an environment made with this package, like torch==2.4.1; repeat for more.",
    ),
    click.option(
        "--peaks/--no-peaks",
        default=True,
        show_default=True,
        help="Measure the device's fastest product and copy, which takes about a second.",
    ),
    click.option("--label", default="", help="A word for the run's name: what you changed."),
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
@click.option(
    "--impl",
    "impls",
    required=True,
    multiple=True,
    metavar="NAME",
    help="Implementation, or a pattern like 'torch-*'; repeat for more. See lstmprof list.",
)
@click.option(
    "--workload",
    "workload_names",
    multiple=True,
    default=("1x320-ce-short",),
    show_default=True,
    metavar="NAME",
    help="Network and data, or a pattern; repeat for more. Override its fields with:",
)
@_with(_WORKLOAD_OPTIONS)
@_with(_RUN_OPTIONS)
@click.option(
    "--precision",
    "precisions",
    multiple=True,
    default=("fp32",),
    show_default=True,
    metavar="NAME",
    help=f"Of the arithmetic, repeat for more: {', '.join(PRECISIONS)}.",
)
@click.option(
    "--rounds",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Share the iterations among so many turns, implementations interleaved.",
)
@click.option("--plan", "only_plan", is_flag=True, help="Show what would run, and run nothing.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("traces"),
    show_default=True,
    help="Folder of runs to write to.",
)
@click.option("--name", help="Name of the run (one capture only).")
@click.option("--force", is_flag=True, help="Replace runs of the same names.")
def command(
    impls: tuple[str, ...],
    workload_names: tuple[str, ...],
    precisions: tuple[str, ...],
    out: Path,
    **options: Any,
) -> int:
    """Run, time and profile implementations, each in a process of its own.

    First undisturbed, then a few steps under the framework's profiler. A run appears in --out whole
    or not at all. Several --impl, --workload or --precision give their cross product: the plan is
    shown, what cannot run is listed with the reason, what is there already is skipped.

    \b
    Example:
      lstmprof capture --impl torch-cudnn --workload 1x320-ce-short --time-steps 20
      lstmprof capture --impl 'torch-*' --impl keras-lstm --rounds 4
    """
    fields: tuple[str, ...]
    fields = ("layers", "hidden", "bidirectional", "batch", "time_steps", "features", "classes")
    fields += ("loss", "labels", "cell", "variable_length")
    overrides = {field: options.pop(field) for field in fields}
    found = _networks(workload_names, overrides)
    sweeping = {key: options.pop(key) for key in ("rounds", "only_plan", "name", "force")}
    many = any("*" in p or "?" in p or "[" in p for p in (*impls, *workload_names, *precisions))

    from lstmprof.capture import plan
    from lstmprof.capture.request import (
        CaptureRequest,
    )

    names = plan.implementation_names(impls)
    exact = plan.matching(precisions, PRECISIONS, "precision")
    options |= _interpreter(options.pop("python"), options.pop("packages"), options["label"])
    common = CaptureRequest(names[0], found[0], **options)
    planned = plan.plan(names, found, exact, common, out)
    if len(planned) > 1 or many:
        return capture_sweep.command(planned, out, **sweeping)
    return capture_sweep.single(planned[0], out, **sweeping)


def _interpreter(python: str | None, packages: tuple[str, ...], label: str) -> dict[str, str]:
    """The workers' interpreter and the label of its runs, where one of them is given."""
    if not python and not packages:
        return {}
    from lstmprof.capture.environments import (
        worker_python,
    )

    path = worker_python(packages, python, progress=lambda line: click.echo(line, err=True))
    return {"python": str(path), "label": label or re.sub(r"[^\w.=+-]+", "-", "+".join(packages))}


def _networks(names: tuple[str, ...], overrides: dict[str, Any]) -> list[workloads.Workload]:
    known = [w.name for w in NAMED]
    meant = {name for pattern in names for name in fnmatch.filter(known, pattern) or [pattern]}
    chosen = [name for name in known if name in meant] + sorted(meant - set(known))
    return [workloads.with_overrides(named(name), **overrides) for name in chosen]
