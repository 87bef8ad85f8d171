"""``lstmprof ingest``: convert raw profiles to runs."""

from __future__ import annotations

import shlex
import sys
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from lstmprof.base.errors import UsageError
from lstmprof.base.streams import write_over
from lstmprof.commands import completion, options

if TYPE_CHECKING:
    from lstmprof.runs.ingest import Ingested

#: Seconds between lines of progress if the output is a file or pipe.
_PRINT_EVERY_S = 10.0
#: Largest number of skipped runs to name; more runs are only counted.
_MOST_SKIPPED = 8


@click.command(name="ingest")
@click.argument("profiles", nargs=-1, required=True, shell_complete=completion.paths)
@click.option(
    "--out",
    default=options.TRACES,
    metavar="FOLDER|URL",
    help="Folder for the runs, or its URL (s3, gs, hdfs …).",
)
@click.option("--name", metavar="NAME", help="Name of the run.  [default: the file's name]")
@options.step_range
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    metavar="N",
    help="Processes that read profiles in parallel.  [default: 1 for small profiles, else one per "
    "CPU]",
)
@click.option(
    "--scheduler",
    metavar="ADDRESS",
    help="Read on the workers of this dask.distributed scheduler, like tcp://host:8786.",
)
@click.option("--force", is_flag=True, help="Overwrite runs of the same name.")
def command(profiles: tuple[str, ...], out: str, name: str | None, **flags: Any) -> int:
    """Convert existing profiles to runs.

    PROFILES are files, folders, archives or URLs. lstmprof recognises the format by the content:
    JSON of torch.profiler, TensorFlow, ONNX Runtime and MXNet, XPlane, Perfetto, Nsight Systems,
    nvprof, rocprofv3 (JSON, rocpd or CSV), also gzipped. Ranks of one job in a folder or archive,
    or in folders inside it such as rank0 and rank1, become one run. If ingest cannot read a file,
    it names the file at the end and exits with status 1. It skips files that it has converted
    before, unless they have changed. On a cluster, all workers must be able to read the files and
    write the folder of runs (docs/cluster.md).

    \b
    Example:
      lstmprof ingest worker0.pt.trace.json.gz --out traces
      lstmprof ingest logdir/ ranks.tar.gz s3://bucket/profiles
      lstmprof ingest s3://bucket/profiles --out s3://bucket/runs --scheduler tcp://host:8786
    """
    from lstmprof.runs.ingest import Ingested
    from lstmprof.runs.jobs import ingest_all

    if name and len(profiles) > 1:
        raise UsageError(
            f"--name needs one profile, got {len(profiles)}", "omit --name, or give one profile"
        )
    if flags["scheduler"] is not None and flags["jobs"]:
        raise UsageError(
            "--jobs has no effect with --scheduler", "omit --jobs; the cluster sets its workers"
        )
    done = Ingested()
    line = _ProgressLine()
    try:
        with closing(ingest_all(profiles, out, name=name, progress=line.show, **flags)) as results:
            for ingested in results:
                line.clear()
                _print_runs(ingested)
                done += ingested
    finally:
        line.clear()
        is_something = bool(done.runs or done.made_before)
        left_out = options.LeftOut([*done.errors, *done.foreign])
        left_out.print_all("left out:" if is_something else "lstmprof: error:")
    _print_skipped(done)
    if is_something:
        options.say(f"next: lstmprof diagnose {shlex.quote(str(out))}")
        return left_out.code
    return max((error.exit_code for error in left_out.faults), default=1)


class _ProgressLine:
    """Shows progress on stderr, in one changing line on a terminal."""

    def __init__(self) -> None:
        self._shown_s: float | None = None

    def show(self, text: str) -> None:
        if sys.stderr.isatty():
            write_over(text)
        elif self._shown_s is None or time.monotonic() - self._shown_s > _PRINT_EVERY_S:
            self._shown_s = time.monotonic()
            options.say(text)

    def clear(self) -> None:
        """Erase the progress line on a terminal."""
        if sys.stderr.isatty():
            write_over("")


def _print_runs(ingested: Ingested) -> None:
    """Print the path of each new run, and what its profile lacks."""
    from lstmprof.breakdown.lacks import lacks_of
    from lstmprof.runs.remote import RemoteRun, event_count

    for run in ingested.runs:
        for lack in lacks_of(run.info, run.info.recorded or ()):
            options.say(f"{run.name}: recording: {lack.sentence}")
        if isinstance(run, RemoteRun):
            options.result(f"wrote {run.url} ({run.event_count} events)")
        else:
            options.result(f"wrote {run.path} ({event_count(run.path)} events)")


def _print_skipped(done: Ingested) -> None:
    """Print which runs were skipped because their files have not changed."""
    from lstmprof.runs.remote import RemoteRun

    if len(done.made_before) > _MOST_SKIPPED:
        options.say(
            f"skipped {len(done.made_before)} runs that exist already: their profiles are unchanged"
        )
        return
    for run in done.made_before:
        place = run.url if isinstance(run, RemoteRun) else run.path
        options.say(f"skipped {place}: the run exists already, and its profile is unchanged")
