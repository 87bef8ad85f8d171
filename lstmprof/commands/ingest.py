"""``lstmprof ingest``: raw profiles to runs."""

from __future__ import annotations

import shlex
import sys
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from lstmprof.commands import completion, options
from lstmprof.errors import UsageError
from lstmprof.streams import write_over

if TYPE_CHECKING:
    from lstmprof.runs.ingest import Ingested

#: Where progress goes to a file or a pipe, a line of it is written this often.
_TOLD_EVERY_S = 10.0
#: More runs that were left as they are are counted, not listed.
_MOST_KEPT = 8


@click.command(name="ingest")
@click.argument("profiles", nargs=-1, required=True, shell_complete=completion.paths)
@click.option(
    "--out",
    default=options.TRACES,
    show_default=True,
    metavar="FOLDER|URL",
    help="Folder of runs to write to, or a URL of one (s3, gs, hdfs …).",
)
@click.option("--name", help="Name of the run; by default the file's.")
@options.step_range
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    help="Processes that read profiles at once; by default one a CPU where that is worth it.",
)
@click.option(
    "--scheduler",
    metavar="ADDRESS",
    help="Read on the workers of this dask.distributed scheduler, e.g. tcp://host:8786.",
)
@click.option("--force", is_flag=True, help="Replace a run of that name.")
def command(profiles: tuple[str, ...], out: str, name: str | None, **asked: Any) -> int:
    """Read raw profiles into runs: files, folders, archives, URLs.

    Formats are known by content, gzip or not: JSON of torch.profiler, TensorFlow, ONNX Runtime and
    MXNet, XPlane, Perfetto, Nsight Systems, nvprof, rocprofv3 (JSON or rocpd). Ranks of one job in
    a folder or an archive become one run. The files are left as they are; one that cannot be read
    does not stop the others: it is told at the end, and the exit status is 1. Of several, those
    that were read before and have not changed are not read again. On a cluster (docs/cluster.md)
    all workers must see the files and the folder of runs.

    \b
    Example:
      lstmprof ingest worker0.pt.trace.json.gz --out traces
      lstmprof ingest logdir/ ranks.tar.gz s3://bucket/profiles
      lstmprof ingest s3://bucket/profiles --out s3://bucket/runs --scheduler tcp://host:8786
    """
    from lstmprof.runs.ingest import Ingested
    from lstmprof.runs.jobs import ingest_all

    if name and len(profiles) > 1:
        raise UsageError("--name is for one profile", "leave it out, or give one")
    if asked["scheduler"] is not None and asked["jobs"]:
        raise UsageError("--jobs is for this machine", "leave it out: the cluster has its workers")
    done = Ingested([], [], [])
    line = _ProgressLine()
    try:
        with closing(ingest_all(profiles, out, name=name, progress=line.show, **asked)) as results:
            for ingested in results:
                line.clear()
                _tell(ingested)
                done += ingested
    finally:
        line.clear()
        is_something = bool(done.runs or done.kept)
        left_out = options.LeftOut([*done.errors, *done.foreign])
        left_out.tell("left out:" if is_something else "lstmprof: error:")
    _tell_kept(done)
    if is_something:
        options.say(f"next: lstmprof breakdown {shlex.quote(str(out))}")
        return left_out.code
    return max((error.exit_code for error in left_out.faults), default=1)


class _ProgressLine:
    """How far it is: on a terminal one line that changes, elsewhere a line now and then."""

    def __init__(self) -> None:
        self._shown_s: float | None = None

    def show(self, text: str) -> None:
        """Say ``text``."""
        if sys.stderr.isatty():
            write_over(text)
        elif self._shown_s is None or time.monotonic() - self._shown_s > _TOLD_EVERY_S:
            self._shown_s = time.monotonic()
            options.say(text)

    def clear(self) -> None:
        """Make room for another line."""
        if sys.stderr.isatty():
            write_over("")


def _tell(ingested: Ingested) -> None:
    """What was written, and what the user must know of it."""
    from lstmprof.breakdown.lacks import lacks_of
    from lstmprof.runs.remote import RemoteRun, event_count

    for run in ingested.runs:
        for lack in lacks_of(run.info, run.info.recorded or ()):
            options.say(f"{run.name}: recording: {lack.sentence}")
        if isinstance(run, RemoteRun):
            options.result(f"wrote {run.url} ({run.event_count} events)")
        else:
            options.result(f"wrote {run.path} ({event_count(run.path)} events)")


def _tell_kept(done: Ingested) -> None:
    """Which runs were left as they are."""
    from lstmprof.runs.remote import RemoteRun

    if len(done.kept) > _MOST_KEPT:
        options.say(f"{len(done.kept)} runs are there already, of the same files")
        return
    for run in done.kept:
        place = run.url if isinstance(run, RemoteRun) else run.path
        options.say(f"{place} is there already, of the same files")
