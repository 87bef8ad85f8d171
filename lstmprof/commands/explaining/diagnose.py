"""``lstmprof diagnose``: explain why runs are slow."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lstmprof.base.names import CHANGES, DETAILS, FORMS
from lstmprof.base.numbers import escaped
from lstmprof.commands import completion, options, terminal

if TYPE_CHECKING:
    from lstmprof.breakdown import Breakdown
    from lstmprof.diagnose.diagnosis import Diagnosis
    from lstmprof.diagnose.verdict.what_ifs import DiagnosisOptions


@click.command(name="diagnose")
@click.argument("paths", nargs=-1, required=True, metavar="PATH…", shell_complete=completion.paths)
@options.formats(
    *("text", "json", "markdown"),
    help="Output format: text for reading, JSON for programs, Markdown for a pull request.",
)
@options.across
@options.step_range
@click.option(
    "--without",
    multiple=True,
    type=click.Choice(CHANGES),
    metavar="NAME",
    help="Estimate how long the step would take without this cost. Repeat the option for more "
    f"costs. Costs: {', '.join(CHANGES)}.",
)
@click.option(
    "--gemm-at-roofline",
    is_flag=True,
    help="Estimate the step time with all matmuls at their roofline.",
)
@click.option(
    "--as",
    "forms",
    multiple=True,
    type=click.Choice(FORMS),
    metavar="FORM",
    help="Estimate how long the step would take if each recurrent layer ran as one op (layer) or "
    "as compiled cells (compiled). Repeat the option for both.",
)
@click.option(
    "--peaks",
    metavar="MATMUL,MEMORY",
    help="Peak matmul and memory rates of the device, like 67TFLOP/s,3.35TB/s.  [default: measured "
    "by capture]",
)
@click.option(
    "--against-builtin",
    is_flag=True,
    help="Capture the framework's layer op (like torch.nn.LSTM) with the same shapes on this "
    "machine, and use this capture as the baseline.",
)
@click.option(
    "--since",
    metavar="RUN",
    help="Run that you recorded before a fix. Compare the gain that lstmprof predicted for the fix "
    "with the measured gain.",
)
@click.option(
    "--evidence", is_flag=True, help="Show the counts and the largest ops of each kind of time."
)
@click.option(
    "--waterfall", is_flag=True, help="Show the difference between the two steps by kind of time."
)
@click.option(
    "--roofline", is_flag=True, help="Show the least time per step at the device's peak rates."
)
@click.option("--warnings", is_flag=True, help="Show warnings and notes in full.")
@options.rank
@options.device
@options.open_
def command(
    paths: tuple[str, ...],
    format_: str,
    across: tuple[str, ...],
    step_range: str | None,
    without: tuple[str, ...],
    gemm_at_roofline: bool,
    forms: tuple[str, ...],
    peaks: str | None,
    rank: int | None,
    device: int | None,
    against_builtin: bool,
    since: str | None,
    open_: bool,
    **details: bool,
) -> int:
    """Explain why runs are slow, and what to change.

    PATH is a run, a folder of runs, or a profile, as for breakdown. Each run is compared with the
    fastest comparable run. A run without a comparable run is diagnosed on its own. If a run has
    several ranks, diagnose explains the rank for which the other ranks wait, or else the first
    rank. If this rank has several devices, diagnose explains the busiest device.

    \b
    Example:
      lstmprof diagnose traces/
      lstmprof diagnose profile.pt.trace.json.gz --evidence
      lstmprof diagnose profile.pt.trace.json.gz --without launch --without syncs
      lstmprof diagnose traces/train --against-builtin
      lstmprof diagnose fp32-run amp-run --across precision --format markdown
    """
    from lstmprof.diagnose.diagnosis import diagnose_all
    from lstmprof.diagnose.roofline import parsed
    from lstmprof.diagnose.verdict.what_ifs import DiagnosisOptions

    options.refuse_missing(paths)
    limits = parsed(peaks) if peaks else None
    without, forms = (tuple(dict.fromkeys(names)) for names in (without, forms))
    wanted = DiagnosisOptions(without, gemm_at_roofline, limits, rank, device, forms)
    with options.leaving_out() as left_out:
        runs = options.runs_of_each(paths, left_out)
        # require comparable runs if every path is a single run
        named = len(runs) > 1 and all(len(path_runs) == 1 for path_runs in runs)
        tables = ("ledger", "collectives")
        breakdowns = options.broken_down(
            [run for path_runs in runs for run in path_runs], left_out, step_range, tables
        )
        if against_builtin:
            _show_against(breakdowns, wanted, format_, left_out)
            return left_out.code

        def diagnosed(good: Sequence[Breakdown]) -> tuple[list[Breakdown], list[Diagnosis]]:
            must_compare = named and len(good) > 1
            return list(good), diagnose_all(good, across, wanted, must_compare=must_compare)

        breakdowns, diagnoses = options.from_good(diagnosed, breakdowns, left_out)
        _show(diagnoses, format_, [name for name in DETAILS if details[name]])
        if since is not None and format_ != "json":
            _show_gain(since, diagnoses, wanted)
        if open_:
            options.open_report(breakdowns, left_out, across, diagnoses)
    return left_out.code


def _show(diagnoses: Sequence[Diagnosis], format_: str, details: Sequence[str]) -> None:
    from lstmprof.commands.terminal import diagnosis

    if format_ == "json":
        terminal.write_json([comparison.to_dict() for comparison in diagnoses])
    elif format_ == "markdown":
        print(diagnosis.markdown_of_all(diagnoses))
    else:
        diagnosis.show_all(diagnoses, details)


def _show_gain(since: str, diagnoses: Sequence[Diagnosis], wanted: DiagnosisOptions) -> None:
    """Print how much faster each run is than the earlier run at ``since``."""
    from lstmprof.breakdown import break_down
    from lstmprof.diagnose.diagnosis import diagnose_all
    from lstmprof.diagnose.verdict.verdict_text import gained
    from lstmprof.runs.border import border
    from lstmprof.runs.run import open_run

    with border(since):
        before = diagnose_all([break_down(open_run(Path(since)))], wanted=wanted)[0].verdict
    for diagnosis in diagnoses:
        terminal.write_line(gained(before, diagnosis.verdict))


def _show_against(
    breakdowns: Sequence[Breakdown],
    wanted: DiagnosisOptions,
    format_: str,
    left_out: options.LeftOut,
) -> None:
    """Compare each run with its framework's built-in layer, then print the diagnosis."""
    from lstmprof.commands.terminal import diagnosis
    from lstmprof.diagnose.diagnosis import diagnose_all
    from lstmprof.diagnose.recommend.builtin import try_against_builtin

    leave_out = left_out.faults.append
    verdicts = [
        try_against_builtin(breakdown, wanted, leave_out, options.say) for breakdown in breakdowns
    ]
    if format_ == "json":
        terminal.write_json([verdict.to_dict() for verdict in verdicts])
        return
    for breakdown, verdict in zip(breakdowns, verdicts, strict=True):
        shown = [verdict.diagnosis] if verdict.diagnosis else []
        if not shown:
            with options.trying(breakdown.run.path, left_out):
                shown = diagnose_all([breakdown], wanted=wanted)
        if format_ == "markdown":
            print(f"**{escaped(verdict.sentence)}**\n")
            print("".join(f"{diagnosis.markdown(each)}\n" for each in shown))
            continue
        terminal.write_line(verdict.sentence, style="bold")
        terminal.write_line()
        for each in shown:
            diagnosis.show(each)
