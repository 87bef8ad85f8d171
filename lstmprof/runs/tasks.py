"""A profile that was read, written as a run: its events annotated, and what run.json says of it."""

from __future__ import annotations

import dataclasses
import datetime
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lstmprof import __version__
from lstmprof.events import EventTable, Profile
from lstmprof.events.annotate import annotated
from lstmprof.events.annotate.calls import coverage
from lstmprof.formats.sources import Source
from lstmprof.runs import run
from lstmprof.runs.metadata import run_info
from lstmprof.runs.run import Run

INGESTED = "ingest"


def written(
    name: str,
    group: Sequence[Source],
    profile: Profile,
    out: Path,
    *,
    force: bool,
    step_range: str | None,
    command: str,
) -> Run:
    """The run ``name`` in ``out``, made of ``profile``, which was read from the files of ``group``.

    ``command`` is the command line that asked for it, on whatever machine it is made.

    Raises:
        RunError: it is there already and ``force`` is not given.
        UsageError: ``step_range`` is no regular expression, or finds no host range.
    """
    paths = [str(Path(s.label).resolve()) if isinstance(s.label, Path) else s.label for s in group]
    events = annotated(profile.events, captured=False, step_range=step_range)
    info = run_info(
        {
            **described(name, profile, events),
            "source": INGESTED,
            "command": command,
            "source_paths": paths,
            "source_stamps": [source.stamp for source in group],
            "step_range": step_range or None,
        }
    )
    with run.new_run(out, name, force=force) as folder:
        run.write_events(folder, events)
        run.write_info(folder, info)
    return run.open_run(out / name)


def described(name: str, profile: Profile, events: EventTable) -> dict[str, Any]:
    """What run.json says of a run's making, of its profile and of its ``events``, annotated.

    The command is that of this process.
    """
    return {
        "name": name,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": shlex.join(sys.argv),
        "lstmprof_version": __version__,
        "base_ns": profile.base_ns,
        "profile_format": profile.format,
        "profile_metadata": dict(profile.metadata),
        "device_names": {str(k): v for k, v in profile.device_names.items()},
        "notes": list(profile.notes),
        "links": dataclasses.asdict(coverage(events)),
    }
