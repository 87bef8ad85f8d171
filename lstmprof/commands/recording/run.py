"""``lstmprof run``: run a user's training script, and time and profile its steps."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from lstmprof.base.errors import UsageError, command_line
from lstmprof.capture.request import FRAMEWORKS_OWN, GO_ON, PROFILERS, STOP, THEN, ScriptRequest
from lstmprof.commands import completion, options

_DEFAULT = ScriptRequest("", "")
#: Command that starts a distributed job -> its Python module.
_LAUNCHERS = {
    "torchrun": "torch.distributed.run",
    "accelerate": "accelerate.commands.accelerate_cli",
}


class _RunCommand(click.Command):
    """The command ``run``, whose last arguments belong to the user's script."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse options; unknown options after ``-m`` or a launcher go to the script."""
        try:
            return super().parse_args(ctx, list(args))
        except click.NoSuchOption as error:
            option = error.option_name
            named = (n for n, word in enumerate(args) if word.partition("=")[0] == option)
            place = next(named, 0)
            if any(word == "-m" or _is_launcher(word) for word in args[:place]):
                return super().parse_args(ctx, [*args[:place], "--", *args[place:]])
            fault = error.format_message().rstrip(".")
            raise UsageError(fault, "put the script's options after --") from None


def _is_launcher(word: str) -> bool:
    return word in _LAUNCHERS and not Path(word).exists()


@click.command(name="run", cls=_RunCommand)
@click.argument(
    "script",
    nargs=-1,
    metavar="SCRIPT [-- ARGUMENTS]",
    type=click.UNPROCESSED,
    shell_complete=completion.paths,
)
@click.option("-m", "module", metavar="MODULE", help="Run a module, as python -m does.")
@click.option(
    "--python", metavar="PYTHON", help="Interpreter of the script.  [default: lstmprof's own]"
)
@click.option(
    "--steps",
    type=click.IntRange(min=1),
    default=_DEFAULT.steps,
    metavar="N",
    help="Steps to profile; 10 are enough to compute a clean step.",
)
@click.option(
    "--timed",
    type=click.IntRange(min=1),
    default=_DEFAULT.timed,
    metavar="N",
    help="Steps to time without a profiler, half before and half after the profiled steps.",
)
@click.option(
    "--warmup",
    type=click.IntRange(min=0),
    default=_DEFAULT.warmup,
    metavar="N",
    help="Steps to skip at the start.",
)
@click.option(
    "--step-function",
    metavar="[MODULE:]NAME",
    help="Function that runs one step per call: NAME in the script, or MODULE:NAME in a module "
    "that the script imports.",
)
@click.option(
    "--framework",
    type=click.Choice(("torch", "tensorflow", "keras", "jax")),
    help="Framework, if the script imports several.",
)
@click.option(
    "--then",
    type=click.Choice(THEN),
    default=GO_ON,
    help="What the script does after the measurement: go on to its end, or stop.",
)
@click.option(
    "--profiler",
    type=click.Choice(PROFILERS),
    default=FRAMEWORKS_OWN,
    help="Profiler: the framework's own, or Nsight Systems.",
)
@click.option("--out", default=options.TRACES, metavar="FOLDER", help="Folder for the run.")
@click.option("--name", metavar="NAME", help="Name of the run.  [default: the script's name]")
@click.option("--force", is_flag=True, help="Overwrite a run of the same name.")
@click.option(
    "--compare-with",
    metavar="RUN",
    help="Run that you recorded before a fix. At the end, compare the gain that lstmprof predicted "
    "for the fix with the measured gain.",
)
@click.option(
    "--watch",
    is_flag=True,
    help="Time every step until the script ends. Start another profile if steps become 1.3× as "
    "long as typical steps.",
)
@click.option("--quiet", is_flag=True, help="Do not print the verdict at the end.")
def command(script: tuple[str, ...], module: str | None, out: str, **flags: Any) -> int:
    """Run a training script unchanged, and profile a few of its steps.

    lstmprof recognises a step by the calls of a torch optimizer, Keras fit or optax; for other
    training loops, name the function that runs one step. It times some steps without a profiler,
    profiles a few, and times some again. All other steps run unmodified. The script keeps its
    output, input and exit code. Put the script's options after --. At the end, lstmprof prints the
    verdict on stderr. The processes that torchrun, accelerate or torch.multiprocessing starts
    become one run of several ranks.

    With --watch, lstmprof shows step time, data wait, memory and GPU utilisation about once per
    second, in one line of the terminal and in FOLDER/NAME.jsonl. It profiles some typical steps. If
    steps become slower, it also profiles some slow steps and explains why they are slower.

    \b
    Example:
      lstmprof run train.py -- --epochs 1
      lstmprof run -m package.train --steps 5 --then stop -- data/
      lstmprof run train_jax.py --step-function train_step
      lstmprof run --watch train.py
      lstmprof run --compare-with traces/train faster.py
      lstmprof run torchrun --nproc-per-node 2 train.py
    """
    from lstmprof.capture.script.launch import run_script
    from lstmprof.runs.border import border
    from lstmprof.runs.directory import check_name, staging
    from lstmprof.runs.run import open_run

    if flags["watch"] and (
        flags["then"] == STOP or flags["profiler"] != FRAMEWORKS_OWN or flags["compare_with"]
    ):
        raise UsageError(
            "--watch cannot be combined with --then stop, --profiler or --compare-with",
            "leave one of them out",
        )
    if not script and not module:
        raise UsageError("no script is given", "give a file, or -m MODULE")
    if not module and _is_launcher(script[0]):
        module, script = _LAUNCHERS[script[0]], script[1:]
    target, arguments = (module, script) if module else (script[0], script[1:])
    if not module and Path(target).exists() and not Path(target).is_file():
        raise UsageError(f"{target}: not a regular file", "give the path of a Python script")
    launched = (Path(word).stem for word in script if word.endswith(".py"))
    launches = module in _LAUNCHERS.values()
    name = flags.pop("name") or (next(launched, module) if launches else module)
    name = name or Path(target).stem
    check_name(Path(out), name, force=flags["force"])
    if flags["compare_with"] is not None:
        with border(flags["compare_with"]):
            flags["compare_with"] = str(open_run(Path(flags["compare_with"])).path.resolve())
    with staging(Path(out)):  # check before a long training that the folder can be written
        pass
    flags["python"] = flags["python"] or sys.executable
    request = ScriptRequest(
        target,
        str(Path(out) / name),
        arguments=list(arguments),
        module=module is not None,
        facts={"command": command_line(["lstmprof", *sys.argv[1:]])},
        **flags,
    )
    return run_script(request, lambda line: options.say(f"lstmprof: {line}"))
