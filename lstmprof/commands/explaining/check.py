"""``lstmprof check``: check the quality of a profile, and show how to record a better one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from lstmprof.commands import completion, options, terminal

if TYPE_CHECKING:
    from lstmprof.breakdown.check.document import Checked


@click.command(name="check")
@click.argument("paths", nargs=-1, metavar="PATH…", shell_complete=completion.paths)
@click.option("--system", is_flag=True, help="Check this machine: driver, frameworks, profilers.")
@options.formats("table", "json", help="Output format; docs/check.schema.json describes the JSON.")
@options.step_range
def command(paths: tuple[str, ...], system: bool, format_: str, step_range: str | None) -> int:
    """Check what a profile lacks, and show how to record a better one.

    check prints one line per question (steps, lost events, clocks, profiler overhead, shapes,
    stacks) with the answer ok, warn, fail or not recorded. Profiler overhead above 10 % of a step
    is a warning; overhead above 20 % is a failure.

    PATH is a run, a folder of runs, or a profile, as for breakdown. The exit status is 3 if a check
    fails, 1 if the command fails, and 2 for a usage error.

    With --system, give no PATH. check then prints whether each part of this machine (driver,
    frameworks, profilers) is ready to measure on a GPU, and what to install or change if not.

    \b
    Example:
      lstmprof check --system
      lstmprof check profile.pt.trace.json.gz
      lstmprof check folder-of-ranks/ --format json
      lstmprof check report.sqlite --step-range '^iteration'
    """
    if system == bool(paths):
        raise click.UsageError("give a PATH, or --system alone")
    if system:
        return _show_system(format_)
    from lstmprof.breakdown.check import check

    with options.leaving_out() as left_out:
        runs = options.runs_of(paths, left_out)
        breakdowns = options.broken_down(runs, left_out, step_range, ())
        checked = options.from_good(check, breakdowns, left_out)
        if format_ == "json":
            import msgspec

            terminal.write_json(msgspec.to_builtins(checked))
        else:
            for run in checked.runs:
                _show(run)
            _show_recipes([name for run in checked.runs for name in run.record_with])
    return checked.exit_status or left_out.code


def _show_system(format_: str) -> int:
    from lstmprof.capture.system import lines

    parts = list(lines())
    if format_ == "json":
        terminal.write_json([asdict(line) for line in parts])
    else:
        width = max(len(line.name) for line in parts)
        for line in parts:
            head = f"{line.name:{width}}  {line.state:7}"
            text = "; ".join(part for part in (line.sentence, line.next_step) if part)
            terminal.write_line(f"{head}  {text}", head=head)
    return 0


def _show(run: Checked) -> None:
    """Print the result of a run's check, then one line per question."""
    terminal.write_line(f"{run.run}: {run.state}", head=f"{run.run}:", style="")
    for head, text in run.lines:
        terminal.write_line(f"{head} {text}", head=head)
    terminal.write_line()


def _show_recipes(names: Sequence[str]) -> None:
    from lstmprof.breakdown.lacks.advice import RECIPES

    wanted = [name for name in RECIPES if name in names]
    if wanted:
        terminal.write_line("To record what is missing (docs/recording.md):", style="bold")
    for name in wanted:
        terminal.write_line(f"with {name}", head=f"with {name}")
        for line in RECIPES[name].splitlines():
            print(f"    {line}".rstrip())
        terminal.write_line()
