"""``lstmprof ingest``: raw profiles to runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lstmprof import options
from lstmprof.errors import UsageError

if TYPE_CHECKING:
    from lstmprof.api import Ingested


@click.command(name="ingest")
@click.argument("profiles", nargs=-1, required=True)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("traces"),
    show_default=True,
    help="Folder of runs to write to.",
)
@click.option("--name", help="Name of the run; by default the file's.")
@options.step_range
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    help="Processes that read profiles at once; by default one a CPU where that is worth it.",
)
@click.option("--force", is_flag=True, help="Replace a run of that name.")
def command(profiles: tuple[str, ...], out: Path, name: str | None, **asked: Any) -> int:
    """Read raw profiles into Parquet runs: files, folders, tar archives, URLs.

    Formats are known by content, gzip or not. Ranks of one job in a folder or an archive become one
    run. The files are left as they are; one that cannot be read does not stop the others. Of
    several, those that were read before and have not changed are not read again.

    \b
    Example:
      lstmprof ingest worker0.pt.trace.json.gz --out traces
      lstmprof ingest logdir/ ranks.tar.gz s3://bucket/profiles
    """
    from lstmprof.api import Ingested, ingest_all

    if name and len(profiles) > 1:
        raise UsageError("--name is for one profile", "leave it out, or give one")
    done = Ingested([], [], [])
    for made in ingest_all(profiles, out, name=name, progress=_progress, **asked):
        _tell(made)
        done += made
    for other in done.foreign:
        said = "note: left out:" if done.runs or done.kept else "lstmprof: error:"
        click.echo(f"{said} {other}", err=True)
    if done.runs or done.kept:
        click.echo(f"next: lstmprof breakdown {out}", err=True)
    return 0 if (done.runs or done.kept) and not done.errors else 1


def _progress(line: str) -> None:
    click.echo(line, err=True)


def _tell(made: Ingested) -> None:
    """What was written, what the user must know of it, what could not be read and why."""
    for run in made.runs:
        for note in run.metadata.get("notes", []):
            click.echo(f"{run.name}: note: {note}", err=True)
        click.echo(f"wrote {run.path} ({run.events().num_rows} events)")
    for run in made.kept:
        click.echo(f"{run.path} is there already, of the same files", err=True)
    for error in made.errors:
        click.echo(f"lstmprof: error: {error}", err=True)
