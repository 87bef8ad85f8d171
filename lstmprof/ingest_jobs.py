"""Many raw profiles into runs, several at once: a process each, the results in the order given.

The unit is what becomes a run: a file, or the files of the ranks of one job. A process that is
killed (out of memory) costs the profile that it read, and no other.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

from lstmprof.errors import LstmprofError, ProfileError
from lstmprof.ingest import Ingested, Task, tasks

#: Less than this of files is read sooner than a second process starts.
_WORTH_BYTES = 32 * 2**20

Progress = Callable[[str], None]


def ingest_all(
    words: Sequence[Path | str],
    out: Path,
    *,
    name: str | None = None,
    force: bool = False,
    step_range: str | None = None,
    jobs: int | None = None,
    progress: Progress = lambda line: None,
) -> Iterator[Ingested]:
    """What becomes of the profiles that ``words`` mean, in order; no failure stops the others.

    Words that mean no profile come first.

    ``jobs`` processes read them, by default as many as there are CPUs where that is worth it. Of
    several, those whose run is in ``out`` already and whose files have not changed are left.
    """
    found: list[Task] = []
    for word in words:
        try:
            found += tasks(word, out, name=name, force=force, step_range=step_range)
        except LstmprofError as error:
            yield Ingested([], [error], [])
    kept = [task.kept() if len(found) > 1 else None for task in found]
    todo = [task for task, before in zip(found, kept, strict=True) if before is None]
    results = _told(_results(todo, jobs or _useful_jobs(todo)), len(todo), progress)
    for before in kept:
        yield before if before is not None else next(results)


def _useful_jobs(todo: Sequence[Task]) -> int:
    worth = sum(task.file_bytes for task in todo) >= _WORTH_BYTES
    return min(os.cpu_count() or 1, len(todo)) if worth else 1


def _results(todo: Sequence[Task], jobs: int) -> Iterator[Ingested]:
    """The results in order; tasks of one name would meet in one place, so they go one by one."""
    if jobs < 2 or len({task.name for task in todo}) < len(todo):
        yield from map(_done, todo)
        return
    with _pool(jobs) as pool:
        futures = [pool.submit(_done, task) for task in todo]
        for task, future in zip(todo, futures, strict=True):
            yield _result(task, future)


def _pool(jobs: int) -> Executor:
    return ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"))


def _done(task: Task) -> Ingested:
    return task.done()


def _result(task: Task, future: Future[Ingested]) -> Ingested:
    """The result; a process that was killed takes those beside it along, so each is tried alone."""
    try:
        return future.result()
    except BrokenProcessPool:
        pass
    try:
        with _pool(1) as alone:
            return alone.submit(_done, task).result()
    except BrokenProcessPool:
        fault = "the process that read it was killed, most likely for want of memory"
        return Ingested([], [ProfileError(task.label, fault, "profile fewer steps")], [])


def _told(results: Iterator[Ingested], count: int, progress: Progress) -> Iterator[Ingested]:
    """The ``results``; after each how long the rest will take."""
    began = time.monotonic()
    for number, result in enumerate(results, 1):
        yield result
        left_s = (time.monotonic() - began) / number * (count - number)
        if number < count:
            progress(f"{number} of {count} profiles done, about {left_s:.0f} s left")
