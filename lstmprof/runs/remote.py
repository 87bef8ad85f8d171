"""Upload runs to fsspec URLs (s3, gs, hdfs …), and download runs into a local folder.

::

    <url>/<run>/events.parquet  timings.parquet  run.json

An object store cannot rename a folder. lstmprof therefore writes run.json last and removes run.json
first: a folder without run.json is not a run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from lstmprof.base.errors import LstmprofError, RunError, is_url, url_fault
from lstmprof.runs.directory import new_run
from lstmprof.runs.metadata import AGAIN, RunInfo, decoded
from lstmprof.runs.run import EVENTS_FILE, MOST_BYTES, RUN_FILE, Run, is_run, open_run

_LOCAL = "file://"


@dataclass(frozen=True)
class RemoteRun:
    url: str
    info: RunInfo
    stamp: str  # changes if the run is replaced
    event_count: int | None = None

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[2]

    def fetched(self, folder: Path) -> Run:
        """Download the run into ``folder``, or reuse an earlier download."""
        place = folder / hashlib.sha256(f"{self.url}|{self.stamp}".encode()).hexdigest()[:20]
        if not is_run(place / self.name):
            with new_run(place, self.name, force=True) as content, _reached(self.url):
                _fetch(self, content)
        return open_run(place / self.name)


def path_or_url(out: Path | str) -> Path | str:
    """Return ``out`` as a path if local, or as a URL without a slash at the end."""
    text = str(out)
    if text.startswith(_LOCAL):
        return Path(text.removeprefix(_LOCAL))
    return text.rstrip("/") if is_url(text) else Path(out)


def run_at(url: str) -> RemoteRun | None:
    """Return the run at a URL, or None. Raise RunError if the run is damaged."""
    record = _record_at(url)
    return None if record is None else _decoded(url, *record)


def whole_run_at(url: str) -> RemoteRun | None:
    """Return the run at a URL, or None if the run is missing or damaged."""
    record = _record_at(url)
    try:
        return None if record is None else _decoded(url, *record)
    except RunError:
        return None


def _decoded(url: str, text: bytes, stamp: str) -> RemoteRun:
    return RemoteRun(url, decoded(text, f"{url}/{RUN_FILE}"), stamp)


def _record_at(url: str) -> tuple[bytes, str] | None:
    """Return the run.json at a URL and a stamp that identifies its version, if any."""
    with _reached(url):
        system, path = _opened(url)
        file = f"{path}/{RUN_FILE}"
        if getattr(system, "local_file", False) and not Path(file).is_file():
            return None  # nothing, or a pipe, which would block
        try:
            if (system.size(file) or 0) > MOST_BYTES:
                raise RunError(f"{url}/{RUN_FILE}: is larger than {MOST_BYTES >> 20} MiB", AGAIN)
            text = system.cat_file(file)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return text, system.ukey(f"{path}/{RUN_FILE}")


def run_urls_at(url: str) -> list[str]:
    """Return the URL of the run at ``url``, or the sorted URLs of runs directly inside."""
    with _reached(url):
        system, path = _opened(url)
        # avoid isdir, which downloads the file over HTTP
        if system.info(path)["type"] != "directory" and not url.endswith("/"):
            return []
        files = sorted(system.find(path, maxdepth=2))
    folders = [name.rpartition("/")[0] for name in files if name.endswith(f"/{RUN_FILE}")]
    return [url.rstrip("/") + folder.removeprefix(path.rstrip("/")) for folder in folders]


def uploaded(run: Run, url: str, *, force: bool) -> RemoteRun:
    """Upload a run, completely or not at all."""
    with _reached(url):
        system, path = _opened(url)
        if not force and system.exists(f"{path}/{RUN_FILE}"):
            raise RunError(
                f"{url}: already exists",
                "add --force to overwrite it, or choose another --out or --name",
            )
        _remove(system, path)
        try:
            _upload(run.path, system, path)
        except BaseException:
            with suppress(Exception):
                _remove(system, path)
            raise
        stamp = system.ukey(f"{path}/{RUN_FILE}")
    return RemoteRun(url, run.info, stamp, event_count(run.path))


def event_count(run: Path) -> int:
    count: int = pq.read_metadata(run / EVENTS_FILE).num_rows
    return count


def _upload(content: Path, system: Any, path: str) -> None:
    if not system.async_impl:  # in an object store, s3fs would make a bucket
        system.makedirs(path, exist_ok=True)
    files = sorted((p for p in content.rglob("*") if p.is_file()), key=lambda p: p.name == RUN_FILE)
    for file in files:
        system.put_file(str(file), f"{path}/{file.relative_to(content).as_posix()}")


def _remove(system: Any, path: str) -> None:
    """Remove a run; begin with run.json, so that nobody opens an incomplete run."""
    if not system.exists(path):
        return
    if system.exists(f"{path}/{RUN_FILE}"):
        system.rm_file(f"{path}/{RUN_FILE}")
    if system.exists(path):
        system.rm(path, recursive=True)
    system.invalidate_cache()


def _fetch(run: RemoteRun, content: Path) -> None:
    system, path = _opened(run.url)
    for name in system.find(path, maxdepth=1):
        file = name.rpartition("/")[2]
        if file != RUN_FILE:
            system.get_file(name, str(content / file))
    system.get_file(f"{path}/{RUN_FILE}", str(content / RUN_FILE))
    if _opened(run.url)[0].ukey(f"{path}/{RUN_FILE}") != run.stamp:
        raise RunError(f"{run.url}: changed during the download", "run the command again")


def _opened(url: str) -> tuple[Any, str]:
    """Return (fsspec file system, path) of a URL."""
    import fsspec

    system, path = fsspec.core.url_to_fs(url)
    system.invalidate_cache()
    return system, path.rstrip("/")


@contextmanager
def _reached(url: str) -> Iterator[None]:
    """Convert errors of fsspec in the block to ``RunError``."""
    try:
        yield
    except LstmprofError:
        raise
    except Exception as error:
        reason, next_step = url_fault(url, error)
        raise RunError(f"{url}: cannot be reached ({reason})", next_step) from error
