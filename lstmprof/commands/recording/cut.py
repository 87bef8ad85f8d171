"""``lstmprof cut``: write some steps of a large profile, or a time range, as a small profile."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lstmprof.base.errors import UsageError
from lstmprof.base.numbers import file_size
from lstmprof.commands import completion, options

if TYPE_CHECKING:
    from lstmprof.breakdown import Breakdown
    from lstmprof.events.table import EventTable
    from lstmprof.export.trace_cut import Cut

_STEPS = re.compile(r"(\d{1,18})\.\.(\d{1,18})", re.ASCII)
_RANGE = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)\.\.(\d{1,12}(?:\.\d{1,6})?)", re.ASCII)
_NS_PER_MS = 1_000_000


@click.command(name="cut")
@click.argument("path", metavar="PROFILE", shell_complete=completion.paths)
@click.option("--step", type=click.IntRange(min=0), metavar="N", help="Keep step N.")
@click.option("--steps", metavar="A..B", help="Keep steps A to B.")
@click.option(
    "--range",
    "range_",
    metavar="A..B",
    help="Time range to keep, in ms since the profile's first event.",
)
@click.option(
    "-o",
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    metavar="FILE",
    help="File to write: .json or .json.gz for a Kineto trace, .pftrace or .pftrace.gz for a "
    "Perfetto trace.",
)
@options.step_range
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def command(
    path: str,
    step: int | None,
    steps: str | None,
    range_: str | None,
    out: Path,
    step_range: str | None,
    force: bool,
) -> int:
    """Cut a large profile to a few of its steps.

    cut writes a smaller Kineto trace with unchanged events (only from a Kineto trace), or a
    Perfetto trace (from any profile). It never shortens an event, even if the event begins or ends
    outside the kept steps. It also keeps the launches of kept kernels, the ops around these
    launches, and the marker that ends the last step.

    \b
    Example:
      lstmprof cut big.pt.trace.json.gz --step 3 -o small.pt.trace.json.gz
      lstmprof cut big.sqlite --steps 3..5 -o small.pftrace
      lstmprof cut big.pt.trace.json.gz --range 120.5..180 -o small.json.gz
    """
    is_json = _is_json(out)
    steps_asked, span = _parsed(step, steps, range_)
    from lstmprof.export import perfetto
    from lstmprof.export.trace_cut import READS, cut_of, steps_chosen

    perfetto.refuse(out, force=force)
    with options.leaving_out() as left_out:
        breakdown = options.one_broken_down(path, left_out, step_range)
        windows = steps_chosen(breakdown.windows, *steps_asked) if steps_asked else []
        events = breakdown.packed(READS).table(READS)
        cut = cut_of(events, windows, span)
        if is_json:
            amount = _as_kineto(breakdown, events, cut, path, out)
        else:
            size = perfetto.write(breakdown, out, force=True, steps=cut.windows, span=cut.span)
            amount = f"{cut.inside:,} of {len(events):,} events, {file_size(size)}"
        options.say(_over_the_edge(cut, is_json=is_json))
        options.result(f"wrote {out} ({amount})")
    return left_out.code


def _is_json(out: Path) -> bool:
    name = out.name.removesuffix(".gz")
    if not name.endswith((".json", ".pftrace")):
        raise UsageError(
            f"{out}: unknown trace extension", "use .json or .pftrace, or add .gz to either"
        )
    return name.endswith(".json")


def _parsed(
    step: int | None, steps: str | None, range_: str | None
) -> tuple[tuple[int, int] | None, tuple[int, int] | None]:
    """Parse the part to keep: ``((3, 5), None)`` for steps, ``(None, (start, end))`` in ns."""
    if (step is not None) + (steps is not None) + (range_ is not None) != 1:
        raise UsageError("cut keeps exactly one part", "give one of --step, --steps and --range")
    if step is not None:
        return (step, step), None
    option, given, pattern = ("--steps", steps, _STEPS) if steps else ("--range", range_, _RANGE)
    match = pattern.fullmatch(given or "")
    if match is None:
        raise UsageError(f"{option} '{given}' is not a range", f"write {option} 3..5")
    if steps:
        first, last = int(match[1]), int(match[2])
    else:
        first, last = (round(float(edge) * _NS_PER_MS) for edge in match.groups())
    if last < first or (range_ and last == first):
        raise UsageError(f"{option} '{given}' is an empty range", f"write {option} 3..5")
    return ((first, last), None) if steps else (None, (first, last))


def _as_kineto(breakdown: Breakdown, events: EventTable, cut: Cut, path: str, out: Path) -> str:
    from lstmprof.export import trace_cut
    from lstmprof.export.trace_cut import last_before

    if breakdown.run.info.profile_format != "kineto" or not Path(path).is_file():
        raise UsageError(
            f"{path}: only a Kineto file can be cut to .json", "use -o FILE.pftrace instead"
        )
    values_ns = last_before(breakdown.run.counters(), cut.span[0])
    written = trace_cut.write(events, cut, Path(path), out, values_ns)
    return f"{written.kept:,} of {written.events:,} entries, {file_size(written.size_bytes)}"


def _over_the_edge(cut: Cut, *, is_json: bool) -> str:
    """Return a note on kept events that begin or end outside the kept range."""
    crossing = f"kept uncut: {cut.crossing:,} events that begin or end outside the kept range"
    if not is_json:
        return crossing
    steps = ", ".join(f"step {step}" for step in cut.next_steps)
    marker = f", and the marker of {steps}" if steps else ""
    linked = len(cut.rows) - cut.inside
    return f"{crossing}; also kept: {linked:,} events linked to kept events{marker}"
