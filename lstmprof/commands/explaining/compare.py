"""``lstmprof compare``: check in CI whether new runs are slower than base runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lstmprof.base.errors import UsageError
from lstmprof.base.names import FAIL_IF
from lstmprof.base.numbers import escaped
from lstmprof.commands import completion, options, terminal

if TYPE_CHECKING:
    from lstmprof.diagnose.gate import Gate


@click.command(name="compare")
@click.argument(
    "paths", nargs=-1, required=True, metavar="BASE NEW", shell_complete=completion.paths
)
@click.option(
    "--fail-if",
    "fail_if",
    default=FAIL_IF,
    metavar="CONDITION",
    help="Condition on the new run that makes the comparison fail: 'slower > 3 %', 'faster > "
    "20 %', 'step > 12 ms', or several joined by 'or'.",
)
@options.formats(
    *("text", "json", "markdown"),
    help="Output format: text for reading, JSON for programs, Markdown for a CI summary.",
)
@options.across
@options.step_range
@click.option(
    "--save-baseline",
    "baseline",
    metavar="NAME",
    help="Save the runs of one PATH as .lstmprof/baselines/NAME, and compare nothing.",
)
@click.option("--force", is_flag=True, help="Overwrite a baseline of the same name.")
def command(
    paths: tuple[str, ...],
    fail_if: str,
    format_: str,
    across: tuple[str, ...],
    step_range: str | None,
    baseline: str | None,
    force: bool,
) -> int:
    """Compare new runs with a baseline, as a gate for CI.

    BASE and NEW are each a run, a folder of runs, a profile or a saved baseline. compare pairs the
    runs in folders by name, implementation, label and workload. The worst pair decides.

    compare uses the 95 % interval of the ratio of the clean steps. The exit status is 0 if all
    pairs pass, 3 if a pair fails, and 4 if the limit lies inside an interval. In the last case,
    compare prints how many rounds would be enough to decide. The exit status is 1 if the command
    fails, and 2 for a usage error (docs/gate.md).

    \b
    Example:
      lstmprof compare traces/base_model--… traces/model--… --fail-if 'slower > 5 %'
      lstmprof compare before/ after/ --fail-if 'slower > 5 % or step > 12 ms' --format markdown
      lstmprof compare traces/ --save-baseline main
      lstmprof compare baseline:main traces/ --format json
    """
    if baseline is not None:
        return _save(paths, baseline, force=force)
    if len(paths) != 2:
        raise UsageError(f"expected two paths, got {len(paths)}", "give BASE and NEW")
    from lstmprof.diagnose.gate import gate, limits
    from lstmprof.runs.cache import resolve_baseline

    conditions = limits(fail_if)
    with options.leaving_out() as left_out:
        base, new = (
            options.step_profiles([resolve_baseline(path)], left_out, step_range) for path in paths
        )
        verdicts = gate(base, new, conditions, across)
        _show(verdicts, format_)
    return (
        verdicts.exit_status if verdicts.state == "fail" else left_out.code or verdicts.exit_status
    )


def _save(paths: tuple[str, ...], name: str, *, force: bool) -> int:
    from lstmprof.runs import cache

    if len(paths) != 1:
        raise UsageError(f"--save-baseline takes one PATH, got {len(paths)}", "give one PATH")
    with options.leaving_out() as left_out:
        runs = options.runs_of(paths, left_out)
        place = cache.save(name, runs, force=force)
        options.result(f"wrote {place} ({len(runs)} run{'s' * (len(runs) != 1)})")
        options.say(f"next: lstmprof compare {cache.PREFIX}{name} NEW")
    return left_out.code


def _show(gate: Gate, format_: str) -> None:
    if format_ == "json":
        terminal.write_json(gate.to_dict())
    elif format_ == "markdown":
        print("| verdict | comparison | next step, or cause |\n|---|---|---|")
        for v in gate.verdicts:
            cells = (f"**{v.state}**", escaped(v.sentence), escaped(v.advice or v.why))
            print(f"| {' | '.join(cells)} |")
        for line in gate.summary:
            print(f"\n{escaped(line)}")
    else:
        for verdict in gate.verdicts:
            terminal.write_line(f"{verdict.state}: {verdict.sentence}", head=f"{verdict.state}:")
            for text in (verdict.advice, verdict.why):
                if text:
                    terminal.write_line(f"→ {text}")
        for line in gate.summary:
            terminal.write_line(line)
