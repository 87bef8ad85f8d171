"""``lstmprof capture``: run, time and profile one implementation of an LSTM."""

from __future__ import annotations

import fnmatch
import functools
import itertools
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lstmprof import workloads
from lstmprof.base.errors import LstmprofError, UsageError
from lstmprof.capture.request import (
    MODES,
    NSYS,
    PRECISIONS,
    PROFILED,
    PROFILERS,
    ROUNDS,
    SAMPLERS,
    CaptureRequest,
)
from lstmprof.commands import completion
from lstmprof.commands.options import TRACES, plain_file, result, say
from lstmprof.workloads.studies import NAMED, named

if TYPE_CHECKING:
    from lstmprof.capture.harness.plan import Planned
    from lstmprof.capture.interpreters import Wish

#: Field of a workload, such as ``hidden`` -> help text of the field's option.
_SIZES = {
    "layers": "Number of recurrent layers.",
    "hidden": "Units per layer and direction.",
    "batch": "Sequences per batch.",
    "time_steps": "Time steps of the longest sequence.",
    "features": "Inputs per time step.",
    "classes": "Output classes, including the CTC blank.",
    "labels": "Target labels per sequence (ctc only).",
}


def _sizes(
    context: click.Context, option: click.Parameter, texts: tuple[str, ...]
) -> tuple[int, ...]:
    """Parse the values of an option: ``128`` and ``128,512`` give (128, 128, 512)."""
    parts = [part.strip() for text in texts for part in text.split(",")]
    try:
        return tuple(map(int, parts))
    except ValueError as fault:
        shown = ",".join(parts)
        raise click.BadParameter(
            f"'{shown}' is not an integer or a list of integers", context, option
        ) from fault


def _size(name: str, *, many: bool) -> Callable[[Any], Any]:
    option = "--" + name.replace("_", "-")
    if not many:
        return click.option(option, type=int, metavar="N", help=_SIZES[name])
    return click.option(option, multiple=True, callback=_sizes, metavar="N[,N…]", help=_SIZES[name])


def _workload_options(*, many: bool) -> tuple[Callable[[Any], Any], ...]:
    """Return options for the fields of a workload; ``many`` permits lists of sizes."""
    return (
        _size("layers", many=many),
        _size("hidden", many=many),
        click.option(
            "--bidirectional/--unidirectional", default=None, help="Number of directions: 2 or 1."
        ),
        *(_size(name, many=many) for name in ("batch", "time_steps", "features", "classes")),
        click.option(
            "--cell", type=click.Choice(list(workloads.GATES)), help="Type of recurrent cell."
        ),
        click.option("--loss", type=click.Choice(workloads.LOSSES), help="Loss function."),
        _size("labels", many=many),
        click.option(
            "--variable-length/--padded",
            default=None,
            help="Pass the lengths of the sequences to the layers, which then skip the padding; or "
            "let the layers process the padding as if it were data.",
        ),
        click.option(
            "--data",
            type=click.Path(exists=True, dir_okay=False, resolve_path=True),
            callback=plain_file,
            metavar="PATH",
            help="File with the data set: a text file for workload ptb-large, imdb.npz for "
            "workload imdb-gru.  [default: random data]",
        ),
    )


#: Options that describe a single network: each size is one number, not a list.
WORKLOAD_OPTIONS = _workload_options(many=False)
_RUN_OPTIONS = (
    click.option(
        "--iterations",
        type=click.IntRange(1),
        default=CaptureRequest.iterations,
        metavar="N",
        help="Timed iterations in all rounds together. If lstmprof times several implementations "
        "in turns on a CPU, N is the number of turns of each implementation; a turn lasts up to "
        "20 ms, or one iteration if an iteration takes longer.",
    ),
    click.option(
        "--timing-seconds",
        "timing_s",
        type=click.FloatRange(0, min_open=True),
        metavar="SECONDS",
        help="Stop timing each round after this time, but run at least 3 iterations per round.  "
        "[default: no limit]",
    ),
    click.option(
        "--warmup",
        type=click.IntRange(1),
        metavar="N",
        help="Warm-up iterations: stored, but not counted in statistics.  [default: 3, or more if "
        "the implementation needs more]",
    ),
    click.option(
        "--profile-steps",
        type=click.IntRange(1),
        metavar="N",
        help=f"Profiled steps per round.  [default: {PROFILED} in all rounds together]",
    ),
    click.option(
        "--profiler",
        type=click.Choice(PROFILERS),
        default=CaptureRequest.profiler,
        help="Profiler: the framework's own, or Nsight Systems.",
    ),
    click.option(
        "--device",
        default=CaptureRequest.device,
        metavar="NAME",
        shell_complete=completion.devices,
        help="Device: auto, cpu, cuda or cuda:N.",
    ),
    click.option(
        "--mode",
        type=click.Choice(MODES),
        default=CaptureRequest.mode,
        help="Run training steps, or inference.",
    ),
    click.option(
        "--threads",
        type=click.IntRange(1),
        metavar="N",
        help="Number of CPU threads.  [default: 1 on a CPU; on a GPU, one per CPU that the process "
        "may use]",
    ),
    click.option(
        "--cuda-graph",
        is_flag=True,
        help="Replay the step as a CUDA graph (torch), or let XLA make CUDA graphs of parts of the "
        "step (JAX).",
    ),
    click.option("--xla", is_flag=True, help="Compile the step with XLA (TensorFlow)."),
    click.option(
        "--keep-denormals",
        is_flag=True,
        help="Keep denormal numbers instead of flushing them to zero, to measure their cost "
        "(TensorFlow and JAX always flush them).",
    ),
    click.option(
        "--onednn/--no-onednn",
        default=CaptureRequest.onednn,
        help="Use oneDNN kernels, or only the framework's own (torch, TensorFlow).",
    ),
    click.option(
        "--anomaly", is_flag=True, help="Turn on anomaly detection, which checks for NaN (torch)."
    ),
    click.option(
        "--deterministic",
        is_flag=True,
        help="Use deterministic algorithms only (torch, TensorFlow).",
    ),
    click.option(
        "--python",
        metavar="PYTHON",
        help="Python interpreter with NumPy and the framework, to run the implementation.  "
        "[default: lstmprof's own]",
    ),
    click.option(
        "--era",
        metavar="NAME",
        shell_complete=completion.eras,
        help="Install an old framework version, like torch-1.4.0, and its dependencies into a "
        "separate environment, and capture there; 'lstmprof list eras' shows all.",
    ),
    click.option(
        "--with",
        "packages",
        multiple=True,
        metavar="SPEC",
        help="Install this package, like torch==2.4.1, and its dependencies into a separate "
        "environment, and capture there. Repeat the option for more packages.",
    ),
    click.option(
        "--peaks/--no-peaks",
        default=CaptureRequest.peaks,
        help="Measure the device's peak matmul and copy rates for the roofline (about 1 s).",
    ),
    click.option(
        "--sampler",
        type=click.Choice(SAMPLERS),
        help="Also sample the stacks of a few unprofiled steps with this sampler.",
    ),
    click.option(
        "--sampler-seconds",
        "sampler_s",
        type=click.FloatRange(0, min_open=True),
        default=CaptureRequest.sampler_s,
        metavar="SECONDS",
        help="Sampling time in all rounds together.",
    ),
    click.option(
        "--label",
        default=CaptureRequest.label,
        show_default=False,
        metavar="WORD",
        help="Word to append to the run's name, such as what you changed.",
    ),
    click.option(
        "--seed",
        type=int,
        default=CaptureRequest.seed,
        metavar="N",
        help="Seed of the random weights and data.",
    ),
    click.option(
        "--timeout",
        "timeout_s",
        type=click.FloatRange(0, min_open=True),
        default=CaptureRequest.timeout_s,
        metavar="SECONDS",
        help="Stop a process that runs an implementation after this time.",
    ),
)


def with_options(options: tuple[Callable[[Any], Any], ...]) -> Callable[[Any], Any]:
    return lambda function: functools.reduce(lambda f, add: add(f), reversed(options), function)


@click.command(name="capture")
@click.option(
    "--impl",
    "impls",
    required=True,
    multiple=True,
    metavar="NAME",
    shell_complete=completion.implementations,
    help="Implementation ('lstmprof list' shows all), a pattern like 'torch-*', or your own file, "
    "like mymodel.py:build. Repeat the option for more.",
)
@click.option(
    "--workload",
    "workload_names",
    multiple=True,
    default=(NAMED[0].name,),
    metavar="NAME",
    shell_complete=completion.workloads,
    help="Name of a workload (a network and its data; 'lstmprof list workloads' shows all), or a "
    "pattern of names. Repeat the option for more workloads. The options listed from --layers to "
    "--data change the workload.",
)
@with_options(_workload_options(many=True))
@with_options(_RUN_OPTIONS)
@click.option(
    "--precision",
    "precisions",
    multiple=True,
    default=(CaptureRequest.precision,),
    metavar="NAME",
    shell_complete=completion.precisions,
    help=f"Arithmetic precision: {', '.join(PRECISIONS)}. Repeat the option for more.",
)
@click.option(
    "--rounds",
    type=click.IntRange(1),
    metavar="N",
    help="Number of rounds. Each round is a new process that runs its part of the iterations. If "
    "you capture several implementations, their rounds alternate.  "
    f"[default: {ROUNDS}, or the number of iterations if there are fewer than {ROUNDS}]",
)
@click.option(
    "--versions",
    metavar="LIST",
    help="Framework versions to capture with, like 1.4.0,1.8.1, or versions of another package, "
    "like keras==2.12.0. lstmprof installs each version in its own environment.",
)
@click.option("--plan", "only_plan", is_flag=True, help="Show the plan without running it.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path(TRACES),
    metavar="FOLDER",
    help="Folder for the runs.",
)
@click.option(
    "--name", metavar="NAME", help="Name of the run (one capture only).  [default: its settings]"
)
@click.option("--force", is_flag=True, help="Overwrite runs of the same name.")
def command(
    impls: tuple[str, ...],
    workload_names: tuple[str, ...],
    precisions: tuple[str, ...],
    out: Path,
    **options: Any,
) -> int:
    """Time and profile LSTM implementations, each in its own process.

    A round is one process. It times iterations without a profiler, profiles a few steps, and times
    iterations again. If you stop a capture, the same command resumes after the last complete round.
    If you give several values of --impl, --workload, --precision or a size (--hidden 128,512),
    capture runs all combinations. It skips combinations that an implementation does not support,
    and combinations that were captured before.

    \b
    Example:
      lstmprof capture --impl torch-nn-lstm --workload 1x320-ce-short --time-steps 20
      lstmprof capture --impl 'torch-*' --impl keras-lstm --rounds 5
      lstmprof capture --impl mymodel.py:build --impl torch-nn-lstm --workload 1x320-ce-short
      lstmprof capture --impl torch-nn-lstm --hidden 128,512,1024 --batch 32,128 --plan
      lstmprof capture --impl torch-nn-lstm --versions 1.0.0,1.8.1,2.13.0
    """
    wish = _wish(options)
    sweeping = {key: options.pop(key) for key in ("rounds", "only_plan", "name", "force")}
    overrides = {field: options.pop(field) for field in workloads.OVERRIDABLE}
    networks = _networks(workload_names, overrides)
    many = any("*" in p or "?" in p or "[" in p for p in (*impls, *workload_names, *precisions))

    from lstmprof.capture import nsys
    from lstmprof.capture.harness import plan

    names = plan.chosen(impls)
    exact = plan.matching(precisions, PRECISIONS, "precision")
    common = CaptureRequest(next(iter(names)), networks[0], **options)
    if common.profiler == NSYS and not sweeping["only_plan"]:
        nsys.nsys_path()
    planned = plan.plan(names, networks, exact, common, out, wish)
    if len(planned) > 1 or many:
        return _capture_plan(planned, out, **sweeping)
    return _capture_one(planned[0], out, **sweeping)


def _networks(names: tuple[str, ...], overrides: dict[str, Any]) -> list[workloads.Workload]:
    """Combine each workload in ``names`` with each combination of sizes."""
    rows = [w.name for w in NAMED]
    matches = {name for pattern in names for name in fnmatch.filter(rows, pattern) or [pattern]}
    chosen = [name for name in rows if name in matches] + sorted(matches - set(rows))
    sizes = {name: overrides.pop(name) for name in _SIZES}
    given = {name: of for name, of in sizes.items() if of}
    networks = [
        workloads.with_overrides(named(name), **overrides, **dict(zip(given, values, strict=True)))
        for name in chosen
        for values in itertools.product(*given.values())
    ]
    return list({network.name: network for network in networks}.values())


def _wish(options: dict[str, Any]) -> Wish:
    """Return the wanted Python and packages; remove these entries from ``options``."""
    from lstmprof.capture.interpreters import Wish

    versions = options.pop("versions") or ""
    return Wish(
        python=options.pop("python"),
        packages=tuple(options.pop("packages")),
        era=options.pop("era"),
        versions=tuple(dict.fromkeys(v.strip() for v in versions.split(",") if v.strip())),
    )


def _capture_one(
    planned: Planned,
    out: Path,
    *,
    rounds: int | None,
    only_plan: bool,
    name: str | None,
    force: bool,
) -> int:
    """Capture one run, print its path, and return the exit code."""
    from lstmprof.breakdown.lacks import lacks_of
    from lstmprof.capture.harness.plan import make_ready
    from lstmprof.capture.harness.rounds import capture_run

    if only_plan:
        _show_plan([planned], force)
        return 0
    make_ready(planned, out / (name or planned.name), force=force, progress=say)
    run = capture_run(planned.request, out, name=name, rounds=rounds, force=force, progress=say)
    for lack in lacks_of(run.info, run.info.recorded or ()):
        say(f"{run.name}: recording: {lack.sentence}")
    result(f"wrote {run.path}")
    say(f"next: lstmprof diagnose {shlex.quote(str(out))}")
    return 0


def _capture_plan(
    planned: Sequence[Planned],
    out: Path,
    *,
    rounds: int | None,
    only_plan: bool,
    name: str | None,
    force: bool,
) -> int:
    """Capture several runs, even after a failure; return the exit code."""
    from lstmprof.capture.harness import plan

    if name:
        raise UsageError(
            f"--name needs one capture, but the options give {len(planned)}",
            "use --label, or choose one capture",
        )
    _show_plan(planned, force)
    if only_plan:
        return 0
    outcomes = []
    for outcome in plan.run(planned, out, rounds=rounds, force=force, progress=say):
        outcomes.append(outcome)
        if isinstance(outcome.result, LstmprofError):
            say(f"lstmprof: error: {outcome.planned.name}: {outcome.result}")
        else:
            result(f"wrote {outcome.result.path}")
    count = plan.counted(outcomes)
    skipped = len(planned) - len(outcomes)
    say(f"{count['captured']} captured, {count['failed']} failed, {skipped} skipped")
    say(f"next: lstmprof diagnose {shlex.quote(str(out))}")
    return 1 if count["failed"] else 0


def _show_plan(planned: Sequence[Planned], force: bool) -> None:
    skips = [p for p in planned if p.skip and not (force and p.is_there)]
    say(f"plan: {len(planned) - len(skips)} captures, {len(skips)} skipped")
    for row in planned:
        say(f"  {row.name}" + (f"  skipped: {row.skip}" if row in skips else ""))
    environments = {
        row.interpreter.environment: None
        for row in planned
        if row not in skips and row.interpreter.environment
    }
    for environment in environments:
        if not environment.is_made:
            say(f"will install first: {environment.words}")
