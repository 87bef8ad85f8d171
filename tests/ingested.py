"""One raw profile as the run that it becomes."""

from __future__ import annotations

from pathlib import Path

from lstmprof.runs.ingest import ingest_profiles
from lstmprof.runs.run import Run, open_run


def ingest_profile(path: Path, out: Path, *, name: str | None = None) -> Run:
    """The run in ``out`` of one raw profile of any format.

    Raises:
        LstmprofError: the profile cannot be read, or the run is there already.
    """
    done = ingest_profiles(path, out, name=name)
    for error in (*done.errors, *done.foreign):
        raise error
    return open_run(out / done.runs[0].name)
