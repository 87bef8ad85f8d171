"""What the commands and a notebook call: the stages joined, from an LSTM to its account.

::

    capture_run ─┐
                 ├─▶ a run on disk ─▶ open_runs ─▶ break_down
    ingest_profile
"""

from __future__ import annotations

import datetime
import hashlib
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from lstmprof import __version__, formats, store
from lstmprof.breakdown import CAPTURED, Breakdown, annotated, break_down
from lstmprof.capture.supervisor import CaptureRequest, capture
from lstmprof.errors import RunError
from lstmprof.events import SCHEMA_VERSION, Profile
from lstmprof.store import Run

__all__ = [
    "Breakdown",
    "CaptureRequest",
    "Run",
    "break_down",
    "capture_run",
    "ingest_profile",
    "open_runs",
]

INGESTED = "ingest"
#: Endings that profilers give their files; a run made of one is named without them.
_ENDINGS = (".gz", ".json", ".trace", ".pt", ".pb", ".xplane")


def run_name(request: CaptureRequest) -> str:
    """The name of the run that ``request`` makes: what differs between runs, defaults left out."""
    parts = [request.implementation, request.workload.name, request.precision]
    parts += [request.mode] if request.mode != "train" else []
    parts += [request.device.replace(":", "")] if request.device != "auto" else []
    return "--".join(parts)


def capture_run(
    request: CaptureRequest,
    out: Path,
    *,
    name: str | None = None,
    force: bool = False,
    progress: Callable[[str], None] = lambda line: None,
) -> Run:
    """Run, time and profile one implementation; the run appears in ``out`` whole or not at all.

    Raises:
        UsageError: the request cannot be meant.
        CaptureError: the worker died, hung or refused; no run is left.
        RunError: the run is there already and ``force`` is not given.
    """
    name = name or run_name(request)
    with store.new_run(out, name, force=force) as folder:
        result = capture(request, folder.parent / "scratch", progress)
        progress("reading the profile")
        profile = formats.read(result.profiles[0])
        metadata = {"source": CAPTURED, **result.metadata, **_described(name, profile)}
        events = annotated(profile.events, captured=True)
        timings = pa.table(dict(result.timings), schema=store.TIMINGS_SCHEMA)
        (folder / "profile").mkdir()
        for path in result.profiles:
            path.rename(folder / "profile" / path.name)
        store.write_tables(folder, metadata, events, timings)
    return store.open_run(out / name)


def ingest_profile(path: Path, out: Path, *, name: str | None = None, force: bool = False) -> Run:
    """Read a raw profile of any supported format into a run in ``out``; the file is left as it is.

    Raises:
        ProfileError: the profile cannot be read.
        RunError: the run is there already and ``force`` is not given.
    """
    name = name or profile_name(path)
    if not force:
        store.refuse_existing(out, name)
    profile = formats.read(path)
    metadata = {"source": INGESTED, "source_path": str(path.resolve()), **_described(name, profile)}
    with store.new_run(out, name, force=force) as folder:
        store.write_tables(folder, metadata, annotated(profile.events, captured=False))
    return store.open_run(out / name)


def profile_name(path: Path) -> str:
    """The file's name without the endings that profilers give."""
    name = path.name
    while any(name.endswith(ending) for ending in _ENDINGS):
        name = name[: name.rindex(".")]
    return name or path.name


def _described(name: str, profile: Profile) -> Mapping[str, Any]:
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
    }


def open_runs(paths: Iterable[Path], cache: Path | None = None) -> list[Run]:
    """The runs that ``paths`` mean: a run, every run in a folder, or a raw profile.

    A raw profile is ingested into ``cache`` (default ``cache_folder()``), never beside the file,
    and only when the file has changed since.

    Raises:
        ProfileError: a file cannot be read as a profile.
        RunError: a folder holds no run.
    """
    runs: list[Run] = []
    for path in paths:
        if not path.is_dir():
            runs.append(_cached(path, cache or cache_folder()))
        elif store.is_run(path):
            runs.append(store.open_run(path))
        else:
            found = store.runs_in(path)
            if not found:
                raise RunError(f"{path}: holds no run", "give a run, a folder of runs or a profile")
            runs += found
    return runs


def cache_folder() -> Path:
    """Where raw profiles are ingested on the fly: $LSTMPROF_CACHE, else the user's cache folder."""
    given = os.environ.get("LSTMPROF_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(given) if given else Path(base) / "lstmprof"


def _cached(path: Path, cache: Path) -> Run:
    try:
        at = path.resolve(strict=True)
        facts = at.stat()
    except OSError as fault:
        raise RunError(f"{path}: {fault.strerror}", "give a run, a folder or a profile") from fault
    key = f"{at}|{facts.st_size}|{facts.st_mtime_ns}|{__version__}|{SCHEMA_VERSION}"
    folder = cache / hashlib.sha256(key.encode()).hexdigest()[:20]
    name = profile_name(path)
    if store.is_run(folder / name):
        return store.open_run(folder / name)
    return ingest_profile(path, folder, name=name, force=True)
