"""``lstmprof ingest``: raw profiles to runs."""

from __future__ import annotations

from pathlib import Path

import click

from lstmprof.errors import LstmprofError, UsageError


@click.command(name="ingest")
@click.argument("profiles", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("traces"),
    show_default=True,
    help="Folder of runs to write to.",
)
@click.option("--name", help="Name of the run; by default the file's.")
@click.option("--force", is_flag=True, help="Replace a run of that name.")
def command(profiles: tuple[Path, ...], out: Path, name: str | None, force: bool) -> int:
    """Read raw profiles (Kineto JSON, XPlane; gzip or not) into Parquet runs.

    The files are left as they are. One that cannot be read does not stop the others.

    \b
    Example:
      lstmprof ingest worker0.pt.trace.json.gz --out traces
    """
    from lstmprof.api import ingest_profile

    if name and len(profiles) > 1:
        raise UsageError("--name is for one profile", "leave it out, or give one")
    refused = 0
    for path in profiles:
        try:
            run = ingest_profile(path, out, name=name, force=force)
        except LstmprofError as error:
            refused += 1
            click.echo(f"lstmprof: error: {error}", err=True)
            continue
        for note in run.metadata.get("notes", []):
            click.echo(f"{path}: note: {note}", err=True)
        click.echo(f"wrote {run.path} ({run.events().num_rows} events)")
    if refused < len(profiles):
        click.echo(f"next: lstmprof breakdown {out}", err=True)
    return 1 if refused else 0
