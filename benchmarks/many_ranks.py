"""Measure reading the ranks of one job on a local dask cluster: CPU time, memory, a lost worker.

One rank is grown from a real Kineto profile (``big_profiles``); the other ranks differ only in the
rank number. Each job is read by one process, by the workers of a cluster, and by a cluster of which
one worker is killed half-way. The events of these three runs must be identical. Then several
commands process the run. Times are CPU times of whole processes, memory is PSS (shared pages are
divided among their processes).

Example: ``python benchmarks/many_ranks.py rank0.json.gz --ranks 8 32 96 --bytes 5e7``
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import big_profiles
import psutil
import pyarrow.parquet as pq
from distributed import Client, LocalCluster

_RANK = re.compile(rb'("rank"\s*:\s*)\d+')
_LOOK_S = 0.05  # seconds between two measurements of memory
_VERBS = (
    ("breakdown",),
    ("breakdown", "--table", "ranks"),
    ("breakdown", "--table", "collectives", "--format", "csv"),
    ("check",),
    ("diagnose",),
    ("report", "--force", "-o", "report.html"),
)


def write_ranks(profile: Path, count: int, least_bytes: int, folder: Path) -> None:
    """Write the profiles of ``count`` ranks, each of at least ``least_bytes``, to ``folder``."""
    content = profile.read_bytes()
    content = gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content
    pieces = big_profiles.grown(content, least_bytes)
    head = next(pieces)
    rest = folder.with_suffix(".rest")
    with rest.open("wb") as file:
        file.writelines(pieces)
    for rank in range(count):
        with (folder / f"rank{rank}.pt.trace.json").open("wb") as file, rest.open("rb") as same:
            file.write(_RANK.sub(rb"\g<1>%d" % rank, head, count=1))
            shutil.copyfileobj(same, file, 2**22)
    rest.unlink()


@dataclass
class Cost:
    """CPU seconds of a command and of all workers, and the peak memory of each kind of process.

    ``worker_mb`` is the peak of the largest worker; ``killed`` has the process ids of killed ones.
    """

    cpu_s: float = 0.0
    workers_cpu_s: float = 0.0
    memory_mb: float = 0.0
    worker_mb: float = 0.0
    killed: list[int] = field(default_factory=list)

    def __str__(self) -> str:
        both = self.cpu_s + self.workers_cpu_s
        return f"{both:9.1f}{self.cpu_s:9.1f}{self.memory_mb:9.0f}{self.worker_mb:9.0f}"


def cost(
    words: Sequence[str],
    folder: Path,
    workers: Sequence[int] = (),
    kills: Callable[[], bool] = lambda: False,
) -> Cost:
    """Run ``lstmprof`` with the arguments ``words`` in ``folder``, and return its cost.

    ``workers`` are the process ids of the cluster's workers. When ``kills()`` is first True, one of
    them is killed.
    """
    used, began = Cost(), {pid: _cpu_s(pid) for pid in workers}
    child = subprocess.Popen(
        [sys.executable, "-m", "lstmprof", *words],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    alive = list(workers)
    while (ended := os.wait4(child.pid, os.WNOHANG))[0] == 0:
        used.memory_mb = max(used.memory_mb, _memory_mb(child.pid))
        used.worker_mb = max([used.worker_mb, *map(_memory_mb, alive)])
        if len(alive) > 1 and not used.killed and kills():
            used.killed.append(alive.pop())
            used.workers_cpu_s += _cpu_s(used.killed[0]) - began[used.killed[0]]
            psutil.Process(used.killed[0]).kill()
        time.sleep(_LOOK_S)
    child.returncode = os.waitstatus_to_exitcode(ended[1])
    if child.returncode:
        raise SystemExit(f"lstmprof {' '.join(words)} failed")
    used.cpu_s = ended[2].ru_utime + ended[2].ru_stime
    used.workers_cpu_s += sum(_cpu_s(pid) - began[pid] for pid in alive)
    return used


def _cpu_s(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


def _memory_mb(pid: int) -> float:
    """Return the current memory (PSS) of process ``pid`` and its children, in MB."""
    try:
        process = psutil.Process(pid)
        of = [process, *process.children(recursive=True)]
        return sum(one.memory_full_info().pss for one in of) / 1e6
    except psutil.Error:  # the process has ended
        return 0.0


@contextmanager
def _cluster(workers: int) -> Iterator[tuple[str, list[int]]]:
    """Start a cluster; yield its address and the process ids of its workers."""
    with (
        LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            memory_limit=0,
            dashboard_address=None,
            silence_logs=logging.CRITICAL,
        ) as cluster,
        Client(cluster) as client,
    ):
        yield cluster.scheduler_address, list(client.run(os.getpid).values())


def _digest(run: Path) -> str:
    with (run / "events.parquet").open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def of_job(job: Path, count: int, workers: int, verbs: bool) -> None:
    """Print the cost of reading the ``count`` ranks in the folder ``job``, in several ways.

    With ``verbs``, then print the cost of each command on the run.
    """
    megabytes = sum(file.stat().st_size for file in job.iterdir()) / 1e6
    folder = job.parent

    def read(
        how: str, what: str, *words: str, workers: Sequence[int] = (), kill_at: int = 0
    ) -> str:
        out = folder / how.replace(" ", "-")
        used = cost(
            ["ingest", what, "--out", str(out), *words],
            folder,
            workers,
            lambda: 0 < kill_at <= sum(1 for _ in out.glob(".*/*/*")),
        )
        (run,) = (path for path in out.iterdir() if not path.name.startswith("."))
        events = pq.read_metadata(run / "events.parquet").num_rows
        of_mb = megabytes / (count if how == "one file" else 1)
        a_mb = (used.cpu_s + used.workers_cpu_s) / of_mb * 1e3
        print(f"{count:6}{of_mb:8.0f}{events:12,}  {how:24}{used}{a_mb:9.1f}", flush=True)
        return _digest(run)

    read("one file", str(job / "rank0.pt.trace.json"), "--jobs", "1")
    digests = {read("one process", str(job), "--jobs", "1")}
    for how, kill_at in (("a cluster", 0), ("one worker killed", max(1, count // 2))):
        with _cluster(workers) as (address, pids):
            words = ("--scheduler", address)
            digests.add(read(how, str(job), *words, workers=pids, kill_at=kill_at))
    if len(digests) > 1:
        raise SystemExit("the runs are not the same")
    for words in _VERBS if verbs else ():
        used = cost([*words, str(folder / "one-process" / "job")], folder)
        print(f"{count:6}{'':8}{'':12}  {' '.join(words)[:23]:24}{used}", flush=True)


def main() -> None:
    """Print one row per job and way of reading it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("profile", type=Path, help="a real Kineto profile to grow")
    parser.add_argument("--ranks", type=int, nargs="+", default=[8, 32])
    parser.add_argument("--bytes", type=float, default=5e7, help="size of each rank")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--no-verbs", action="store_true", help="read only")
    parser.add_argument("--folder", type=Path, help="where there is room for all files twice")
    given = parser.parse_args()
    columns = f"{'CPU s':>9}{'asker':>9}{'asker MB':>9}{'worker':>9}{'ms a MB':>9}"
    print(f"{'ranks':>6}{'MB':>8}{'events':>12}  {'read by':24}{columns}")
    for count in given.ranks:
        with tempfile.TemporaryDirectory(dir=given.folder) as place:
            job = Path(place) / "job"
            job.mkdir()
            write_ranks(given.profile, count, int(given.bytes), job)
            of_job(job, count, given.workers, not given.no_verbs)


if __name__ == "__main__":
    main()
