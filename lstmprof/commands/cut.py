"""``lstmprof cut``: some steps of a large profile, or a range of time, as a small one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lstmprof.commands import completion, options
from lstmprof.errors import UsageError
from lstmprof.numbers import file_size

if TYPE_CHECKING:
    from lstmprof.breakdown import Breakdown
    from lstmprof.events.table import EventTable
    from lstmprof.export.kept import Kept

_STEPS = re.compile(r"(\d{1,18})\.\.(\d{1,18})", re.ASCII)
_RANGE = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)\.\.(\d{1,12}(?:\.\d{1,6})?)", re.ASCII)
_NS_PER_MS = 1_000_000


@click.command(name="cut")
@click.argument("path", metavar="PROFILE", shell_complete=completion.paths)
@click.option("--step", type=click.IntRange(min=0), metavar="N", help="Keep this step.")
@click.option("--steps", metavar="A..B", help="Keep the steps from A to B.")
@click.option(
    "--range",
    "range_",
    metavar="A..B",
    help="Keep this range of time, in milliseconds since the profile's first event.",
)
@click.option(
    "-o",
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    help="File to write: .json or .json.gz of a Kineto trace, .pftrace or .pftrace.gz of any.",
)
@options.step_range
@click.option("--force", is_flag=True, help="Replace a file that is there.")
def command(
    path: str,
    step: int | None,
    steps: str | None,
    range_: str | None,
    out: Path,
    step_range: str | None,
    force: bool,
) -> int:
    """Cut a large profile to some of its steps.

    A Kineto trace stays one, each event byte for byte; of any other format, or to draw it, the cut
    is a Perfetto trace. What runs over the edge is kept whole, and so are the launches of kept
    kernels, the ops around them, and the marker of the next step, which ends the last.

    \b
    Example:
      lstmprof cut big.pt.trace.json.gz --step 3 -o small.pt.trace.json.gz
      lstmprof cut big.sqlite --steps 3..5 -o small.pftrace
      lstmprof cut big.pt.trace.json.gz --range 120.5..180 -o small.json.gz
    """
    is_json = _is_json(out)
    steps_asked, span = _asked(step, steps, range_)
    from lstmprof.export import perfetto
    from lstmprof.export.kept import READS, kept, steps_chosen

    perfetto.refuse(out, force=force)
    with options.leaving_out() as left_out:
        breakdown = options.one_broken_down(path, left_out, step_range)
        windows = steps_chosen(breakdown.windows, *steps_asked) if steps_asked else []
        events = breakdown.packed(READS).table(READS)
        of = kept(events, windows, span)
        if is_json:
            said = _as_kineto(breakdown, events, of, path, out)
        else:
            size = perfetto.write(breakdown, out, force=True, of=of.windows, span=of.span)
            said = f"{of.inside:,} of {len(events):,} events, {file_size(size)}"
        options.say(_over_the_edge(of, is_json=is_json))
        options.result(f"wrote {out} ({said})")
    return left_out.code


def _is_json(out: Path) -> bool:
    name = out.name.removesuffix(".gz")
    if not name.endswith((".json", ".pftrace")):
        raise UsageError(f"{out}: is called as no trace", "end -o in .json, .pftrace, or these .gz")
    return name.endswith(".json")


def _asked(
    step: int | None, steps: str | None, range_: str | None
) -> tuple[tuple[int, int] | None, tuple[int, int] | None]:
    """The first and the last step, or the range in nanoseconds."""
    if (step is not None) + (steps is not None) + (range_ is not None) != 1:
        raise UsageError("one part is to be kept", "give --step, --steps or --range")
    if step is not None:
        return (step, step), None
    option, given, pattern = ("--steps", steps, _STEPS) if steps else ("--range", range_, _RANGE)
    match = pattern.fullmatch(given or "")
    if match is None:
        raise UsageError(f"{option} '{given}' is no range", f"write {option} 3..5")
    if steps:
        first, last = int(match[1]), int(match[2])
    else:
        first, last = (round(float(edge) * _NS_PER_MS) for edge in match.groups())
    if last < first or (range_ and last == first):
        raise UsageError(f"{option} '{given}' ends before it begins", f"write {option} 3..5")
    return ((first, last), None) if steps else (None, (first, last))


def _as_kineto(breakdown: Breakdown, events: EventTable, of: Kept, path: str, out: Path) -> str:
    from lstmprof.export import kineto
    from lstmprof.export.kept import last_before

    if breakdown.run.info.profile_format != "kineto" or not Path(path).is_file():
        raise UsageError(f"{path}: is no file of a Kineto trace", "give -o FILE.pftrace")
    values_ns = last_before(breakdown.run.counters(), of.span[0])
    written = kineto.write(events, of, Path(path), out, values_ns)
    return f"{written.kept:,} of {written.events:,} entries, {file_size(written.size_bytes)}"


def _over_the_edge(of: Kept, *, is_json: bool) -> str:
    """What is there of events that are not, or not whole, of the part that is kept."""
    told = f"kept whole: {of.crossing:,} events that lie over the edge"
    if not is_json:
        return told
    steps = ", ".join(f"step {step}" for step in of.next_steps)
    marker = f", with the marker of {steps}, which has nothing else" if steps else ""
    return f"{told}, {len(of.rows) - of.inside:,} that are linked to others or beside them{marker}"
