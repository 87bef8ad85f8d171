"""Common parts of commands: options, reading the runs at PATH, errors, and --open."""

from __future__ import annotations

import contextlib
import re
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from lstmprof.base import names
from lstmprof.base.errors import (
    DefectError,
    ForeignFileError,
    LstmprofError,
    UsageError,
    is_url,
    one_line,
)
from lstmprof.base.numbers import file_size

if TYPE_CHECKING:
    from lstmprof.breakdown import Breakdown
    from lstmprof.diagnose.diagnosis import Diagnosis
    from lstmprof.diagnose.step_profile import StepProfile
    from lstmprof.runs.cache import Reading
    from lstmprof.runs.run import Run

_Made = TypeVar("_Made")
_Command = TypeVar("_Command", bound=Callable[..., Any])

#: Default folder for the runs of capture, ingest and query.
TRACES = "traces"


def _checked_regex(_: click.Context, option: click.Parameter, pattern: str | None) -> str | None:
    try:
        re.compile(pattern or "")
    except re.error as fault:
        raise UsageError(
            f"{option.opts[0]} '{pattern}' is not a regular expression ({fault})",
            "put \\ before special characters",
        ) from fault
    return pattern


def plain_file(_: click.Context, option: click.Parameter, path: str | None) -> str | None:
    """Refuse an existing path that is no regular file: a pipe could block the reader."""
    if path and Path(path).exists() and not Path(path).is_file():
        raise UsageError(f"{path}: not a regular file", f"give a file to {option.opts[0]}")
    return path


step_range = click.option(
    "--step-range",
    metavar="REGEX",
    callback=_checked_regex,
    help="Treat host ranges (NVTX, record_function) as steps if their name matches this regex.",
)
across = click.option(
    "--across",
    multiple=True,
    type=click.Choice(names.CONDITIONS),
    metavar="NAME",
    help="Setting in which the compared runs may differ: "
    f"{', '.join(names.CONDITIONS)}. Repeat the option for more.",
)
rank = click.option(
    "--rank",
    type=click.IntRange(min=0),
    metavar="N",
    help="Diagnose this rank.  [default: the straggler, for which other ranks wait]",
)
device = click.option(
    "--device",
    type=click.IntRange(min=0),
    metavar="N",
    help="Diagnose this device.  [default: the busiest device of the rank]",
)
open_ = click.option(
    "--open",
    "open_",
    is_flag=True,
    help="Also write an HTML report of these runs to lstmprof's cache folder, and open it in a "
    "browser ($BROWSER).",
)


def formats(*names: str, help: str) -> Callable[[_Command], _Command]:
    """Make the option ``--format``; the first of ``names`` is the default."""
    choice = click.Choice(names)
    return click.option("--format", "format_", type=choice, default=names[0], help=help)


format_ = formats("table", "json", "csv", help="Output format; JSON and CSV hold all rows.")


def say(line: str) -> None:
    """Print a message on stderr, separate from the results."""
    indent = line[: len(line) - len(line.lstrip(" "))]
    print(indent + one_line(line), file=sys.stderr, flush=True)


def result(line: str) -> None:
    """Print a result, such as a path, on stdout."""
    print(one_line(line), flush=True)


class Stages:
    """Shows progress on a terminal, at most one line per ``EVERY_S`` seconds."""

    EVERY_S = 3.0

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._printed_s = clock()
        self._done = 0

    def at(self, stage: str) -> None:
        """Print the stage on a terminal, but not within ``EVERY_S`` of the last line."""
        if sys.stderr.isatty() and self._clock() - self._printed_s >= self.EVERY_S:
            self._printed_s = self._clock()
            say(f"{stage} …")

    def done(self, noun: str, total: int) -> None:
        """Count one more finished item, and print ``3 of 8 {noun}``."""
        self._done += 1
        if self._done < total:
            self.at(f"{self._done} of {total} {noun}")


#: Largest number of lines about files that are not profiles; more files share one line.
MOST_FOREIGN_LINES = 3


@dataclass
class LeftOut:
    """The errors of inputs that a command skipped."""

    faults: list[LstmprofError] = field(default_factory=list)

    @property
    def code(self) -> int:
        """Return the exit code: 1 if a profile or run was skipped."""
        return int(any(not isinstance(fault, ForeignFileError) for fault in self.faults))

    def print_all(self, word: str = "left out:") -> None:
        """Print the errors; many files that are no profiles share one line."""
        foreign = [fault for fault in self.faults if isinstance(fault, ForeignFileError)]
        shared = len(foreign) > MOST_FOREIGN_LINES and word == "left out:"
        for fault in self.faults:
            if not (shared and fault in foreign):
                say(f"{word} {fault}")
        if shared:
            say(f"{word} {len(foreign)} files that are not profiles; the first: {foreign[0].fault}")
        defects = sum(isinstance(fault, DefectError) for fault in self.faults)
        if len(self.faults) > 1:
            ours = f", {defects} of them because of bugs in lstmprof" if defects else ""
            say(f"{len(self.faults)} inputs were left out{ours}")


@contextlib.contextmanager
def leaving_out() -> Iterator[LeftOut]:
    """Yield a ``LeftOut``, and print its errors after the block."""
    left_out = LeftOut()
    try:
        yield left_out
    finally:
        with contextlib.suppress(OSError, ValueError):  # cli.run handles a closed stream
            sys.stdout.flush()
        left_out.print_all()


@contextlib.contextmanager
def trying(place: object, left_out: LeftOut) -> Iterator[None]:
    """Collect an error of the block in ``left_out``."""
    from lstmprof.runs.border import border

    try:
        with border(place):
            yield
    except LstmprofError as fault:
        left_out.faults.append(fault)


def refuse_missing(paths: Sequence[str]) -> None:
    for path in paths:
        if path and not is_url(path) and not Path(path).exists():
            raise UsageError(f"{path}: there is no such file or folder", "check the path")


def runs_of(
    paths: Sequence[str], left_out: LeftOut, reading: Reading = lambda path, name: None
) -> list[Run]:
    """Return all runs at ``paths``; call ``reading(path, name)`` before a profile is read."""
    return [run for runs in runs_of_each(paths, left_out, reading) for run in runs]


def runs_of_each(
    paths: Sequence[str], left_out: LeftOut, reading: Reading = lambda path, name: None
) -> list[list[Run]]:
    """Return one list of runs for each path that has runs."""
    from lstmprof.runs.cache import opened

    return opened(paths, None, left_out.faults.append, reading)


def broken_down(
    runs: Sequence[Run],
    left_out: LeftOut,
    step_range: str | None,
    tables: Sequence[str],
    look: Callable[[Breakdown], object] = lambda breakdown: None,
) -> list[Breakdown]:
    """Break down all runs; raise the first error only if all runs fail."""
    from lstmprof.breakdown import break_down
    from lstmprof.runs.border import border

    breakdowns, faults = [], []
    for run in runs:
        try:
            with border(run.path):
                breakdown = break_down(run, step_range, tables)
                look(breakdown)
        except LstmprofError as fault:
            faults.append(fault)
        else:
            breakdowns.append(breakdown)
    if faults and not breakdowns:
        left_out.faults += faults[1:]
        raise faults[0]
    left_out.faults += faults
    return breakdowns


def step_profiles(
    paths: Sequence[str], left_out: LeftOut, step_range: str | None
) -> list[StepProfile]:
    """Return the step time of all runs at ``paths``, divided into kinds of time."""
    from lstmprof.diagnose.step_profile import step_profile_of

    profiles: list[StepProfile] = []
    runs = runs_of(paths, left_out)
    broken_down(
        runs, left_out, step_range, ("ledger",), lambda b: profiles.append(step_profile_of(b))
    )
    return profiles


def one_broken_down(path: str, left_out: LeftOut, step_range: str | None) -> Breakdown:
    """Break down the run at ``path``; refuse a path with several runs."""
    runs = runs_of([path], left_out)
    if len(runs) != 1:
        named = ", ".join(run.name for run in runs[:3]) + (" …" if len(runs) > 3 else "")
        raise UsageError(f"{path}: holds {len(runs)} runs ({named})", "give the path of one run")
    return broken_down(runs, left_out, step_range, ())[0]


def from_good(
    make: Callable[[Sequence[Breakdown]], _Made], breakdowns: Sequence[Breakdown], left_out: LeftOut
) -> _Made:
    """Return ``make(breakdowns)``, without the breakdowns for which ``make`` fails."""
    from lstmprof.runs import border

    return border.from_good(make, breakdowns, lambda b: b.run.path, left_out.faults.append)


def report_tables() -> tuple[str, ...]:
    from lstmprof.report import TABLES

    return tuple(TABLES)


def open_report(
    breakdowns: Sequence[Breakdown],
    left_out: LeftOut,
    across: Collection[str] = (),
    diagnoses: Sequence[Diagnosis] | None = None,
) -> None:
    """Write the HTML report into lstmprof's cache folder, and open the report."""
    import hashlib
    import os
    import tempfile

    from lstmprof.report import page, report_of
    from lstmprof.runs.directory import cache_folder, unwritable

    folders = "\n".join(str(breakdown.run.path.resolve()) for breakdown in breakdowns)
    name = hashlib.sha256(os.fsencode(folders)).hexdigest()[:16]
    place = cache_folder() / "reports"
    if unwritable(place):  # not deleted: the browser reads the page later
        place = Path(tempfile.mkdtemp(prefix="lstmprof-report-"))
    path = place / f"{name}.html"
    if diagnoses is None:
        report = from_good(lambda good: report_of(good, None, across), breakdowns, left_out)
    else:
        report = report_of(breakdowns, None, across, diagnoses)
    size = page.write(report, path, force=True)
    say(f"wrote {path} ({file_size(size)})")
    show(path)


def show(path: Path) -> None:
    """Open an HTML file in the user's browser ($BROWSER or the default one)."""
    import webbrowser

    if not webbrowser.open(path.resolve().as_uri()):
        raise LstmprofError(
            f"{path}: could not start a browser", "set $BROWSER, or open the file by hand"
        )


def bundled(name: str, in_clone: str) -> Path:
    """Return a folder of the installed package, or of the git clone."""
    package = Path(__file__).resolve().parents[1]
    return package / name if (package / name).is_dir() else package.parent / in_clone
