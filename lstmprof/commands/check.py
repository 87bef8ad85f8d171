"""``lstmprof check``: whether a profile is any good, and how to record a better one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from lstmprof.commands import completion, options, terminal
from lstmprof.numbers import listed

if TYPE_CHECKING:
    from lstmprof.breakdown.check.document import Checked, Row

#: Ranks that are named one by one.
_SHOWN = 8


@click.command(name="check")
@click.argument("paths", nargs=-1, required=True, metavar="PATH…", shell_complete=completion.paths)
@click.option(
    "--format",
    "format_",
    type=click.Choice(("table", "json")),
    default="table",
    show_default=True,
    help="A table for reading, or all rows for a program (docs/check.schema.json).",
)
@options.step_range
def command(paths: tuple[str, ...], format_: str, step_range: str | None) -> int:
    """Say whether a profile is any good, and how to record a better one.

    What was recorded and what not, events lost, clocks, what the profiler took, steps, stacks and
    shapes: each is ok, warn, fail or not recorded, with a sentence. Above a tenth of a step the
    profiler's part is a warning, above a fifth it fails.

    PATH is what breakdown takes. The exit status is 3 where anything fails; 1 is a failure of the
    command and 2 a usage error, as everywhere.

    \b
    Example:
      lstmprof check profile.pt.trace.json.gz
      lstmprof check folder-of-ranks/ --format json
      lstmprof check report.sqlite --step-range '^iteration'
    """
    from lstmprof.breakdown.check import check

    with options.leaving_out() as left_out:
        runs = options.runs_of(paths, left_out)
        breakdowns = options.broken_down(runs, left_out, step_range, ())
        checked = options.of_good(check, breakdowns, left_out)
        if format_ == "json":
            import msgspec

            terminal.write_json(msgspec.to_builtins(checked))
        else:
            for run in checked.runs:
                _show(run)
            _show_recipes([name for run in checked.runs for name in run.record_with])
    return checked.exit_status or left_out.code


def _show(run: Checked) -> None:
    """Each question once a state, of the first rank that has it."""
    terminal.write_line(f"{run.run}: {run.state}", head=f"{run.run}:", style="")
    alike: dict[tuple[str, str], list[Row]] = {}
    for row in run.rows:
        alike.setdefault((row.question, row.state), []).append(row)
    several = len({row.rank for row in run.rows if row.rank is not None}) > 1
    for (question, state), rows in alike.items():
        texts = {row.sentence: None for row in rows if row.rank == rows[0].rank}
        for text in texts:
            ranks = [row.rank for row in rows if row.rank is not None] if several else []
            head = f"  {state:<12}  {question}:"
            terminal.write_line(f"{head} {_of_ranks(ranks)}{text}", head=head)
    terminal.write_line()


def _of_ranks(ranks: Sequence[int]) -> str:
    """``rank 3 (likewise 0, 1 and 5 more): ``; nothing of one rank alone."""
    others = [str(rank) for rank in dict.fromkeys(ranks) if rank != ranks[0]]
    if len(others) > _SHOWN:
        others = [*others[:_SHOWN], f"{len(others) - _SHOWN:,} more"]
    likewise = f" (likewise {listed(others)})" if others else ""
    return f"rank {ranks[0]}{likewise}: " if ranks else ""


def _show_recipes(names: Sequence[str]) -> None:
    from lstmprof.breakdown.check.recipes import RECIPES

    wanted = [name for name in RECIPES if name in names]
    if wanted:
        terminal.write_line("To record what is missing (docs/recording.md):", style="bold")
    for name in wanted:
        terminal.write_line(f"with {name}", head=f"with {name}")
        for line in RECIPES[name].splitlines():
            print(f"    {line}".rstrip())
        terminal.write_line()
