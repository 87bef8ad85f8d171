"""Make runs from many raw profiles, in parallel processes or on a dask cluster.

A task makes one run, from one file or from the files of a job's ranks. A share is a task that reads
one file of a large job. If the system kills a process because memory ran out, only the profile that
the process was reading fails.
"""

from __future__ import annotations

import functools
import itertools
import os
import socket
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Executor, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from operator import methodcaller
from pathlib import Path

from lstmprof.base import process
from lstmprof.base.errors import LstmprofError, ProfileError, RunError, is_url
from lstmprof.base.package import __version__
from lstmprof.base.pool import KilledError, Pool
from lstmprof.base.scratch import remove, temporary_folder
from lstmprof.runs import remote
from lstmprof.runs.border import border
from lstmprof.runs.cluster import cluster, killed_worker, other_version
from lstmprof.runs.directory import staging, sweep
from lstmprof.runs.ingest import Ingested, Task, read, tasks


@dataclass(frozen=True)
class Share(Task):
    """Reads one file of a large job, so that several workers can read the job."""

    base: Path = field(kw_only=True)

    def done(self) -> Ingested:
        """Read the file only; ``joined`` writes the run after all files are read."""
        self.base.mkdir(exist_ok=True)
        (source,) = self.group
        return read(source, self.base)

    def made_before(self) -> Ingested | None:
        """Return None, because a share makes no run of its own."""
        return None


def is_large(task: Task, todo: Sequence[Task], workers: int) -> bool:
    """Return whether a job is larger than the average load per worker."""
    whole = sum(any_task.file_bytes for any_task in todo)
    return len(task.group) > 1 and task.file_bytes * workers > whole


def shared_out(task: Task, base: Path) -> list[Task]:
    return [
        Share([source], task.name, task.out, task.force, task.step_range, command="", base=base)
        for source in task.group
    ]


def joined(task: Task, parts: Sequence[Task], outcomes: Iterator[Ingested]) -> Ingested:
    """Return the result of a task; if the task was divided, join its shares first."""
    if not isinstance(parts[0], Share):
        return next(outcomes)
    try:
        return task.joined(list(itertools.islice(outcomes, len(parts))))
    finally:
        remove(parts[0].base)


#: Smallest size in bytes worth a second process; one process reads this while another starts.
_WORTH_BYTES = 32 * 2**20
#: Seconds between checks of the workers.
_LOOK_S = 5
#: Number of threads that look for earlier runs, because URLs may be slow.
_LOOKS = 16
_SHARED = "move it to a shared folder or a URL that all workers see"
#: Function that a worker calls with each task.
_done: Callable[[Task], Ingested] = methodcaller("done")

Progress = Callable[[str], None]
#: One list per task: only the task, or the shares of a task that is a large job.
_Parts = Sequence[Sequence[Task]]


def ingest_all(
    words: Sequence[Path | str],
    out: Path | str,
    *,
    name: str | None = None,
    force: bool = False,
    step_range: str | None = None,
    jobs: int | None = None,
    scheduler: str | None = None,
    progress: Progress = lambda line: None,
) -> Generator[Ingested]:
    """Make runs from all profiles, and yield the results in order."""
    place = remote.path_or_url(out)
    if scheduler is not None:  # workers run in another folder
        place = place if isinstance(place, str) else place.resolve()
        words = [word if is_url(word) else Path(word).resolve() for word in words]
    all_tasks: list[Task] = []
    for word in words:
        try:
            with border(word):
                all_tasks += tasks(word, place, name=name, force=force, step_range=step_range)
        except LstmprofError as error:
            yield Ingested(errors=[error])
    made_before: Sequence[Ingested | None] = [None] * len(all_tasks)
    if len(all_tasks) > 1:
        with ThreadPoolExecutor(_LOOKS) as threads:
            made_before = list(threads.map(Task.made_before, all_tasks))
    todo = [task for task, result in zip(all_tasks, made_before, strict=True) if result is None]
    with _workers(todo, place, jobs, scheduler, progress) as (workers, parts):
        steps = [step for task_parts in parts for step in task_parts]
        outcomes = _with_time_left(_results(steps, workers), steps, progress)
        with closing(outcomes):  # end the workers before their temporary files are removed
            results = (
                joined(task, task_parts, outcomes)
                for task, task_parts in zip(todo, parts, strict=True)
            )
            for result in made_before:
                yield result if result is not None else next(results)


@dataclass(frozen=True)
class _Workers:
    """The processes, or the cluster, that run tasks."""

    executor: Callable[[], AbstractContextManager[Executor]]
    lone: Callable[[], AbstractContextManager[Executor]]  # makes an executor for a single task
    done: Callable[[Task], Ingested]
    killed: type[Exception]  # error of a task whose worker is killed
    fault: str  # message about such a task
    check: Callable[[], None]  # raises an error if no worker can answer any more


@contextmanager
def _workers(
    todo: Sequence[Task],
    out: Path | str,
    jobs: int | None,
    scheduler: str | None,
    progress: Progress,
) -> Iterator[tuple[_Workers | None, _Parts]]:
    """Yield the workers (None: use no other process) and the parts of each task."""
    if scheduler is not None and todo:
        # make a folder in ``out``, so that each worker can check whether it sees ``out``
        place = nullcontext() if isinstance(out, str) else staging(out)
        with cluster(scheduler, progress) as pool, place as probe:
            parts = _parts(todo, pool.count if probe else 1, lambda: probe)
            done = functools.partial(_done_there, _done_of(parts), __version__, probe)
            workers = _Workers(
                executor=pool.executor,
                lone=pool.executor,
                done=done,
                killed=killed_worker(),
                fault="the system killed each worker that read it",
                check=pool.check,
            )
            yield workers, parts
        return
    with ExitStack() as stack:
        count = jobs or _useful_jobs(todo)
        parts = _parts(todo, count, lambda: stack.enter_context(temporary_folder()))
        count = min(count, sum(map(len, parts)))
        if count < 2:
            yield None, parts
            return
        try:
            workers = _Workers(
                executor=functools.partial(Pool, count),
                lone=functools.partial(Pool, 1),
                done=_done_of(parts),
                killed=KilledError,
                fault="the system killed the process that read it",
                check=lambda: None,
            )
            yield workers, parts
        finally:  # a signal may have interrupted a worker's clean-up
            if isinstance(out, Path):
                sweep(out)


def _parts(todo: Sequence[Task], workers: int, base: Callable[[], Path | None]) -> _Parts:
    """Return each task's parts: the task itself, or one ``Share`` per file if large."""
    large = [is_large(task, todo, workers) for task in todo]
    folder = base() if any(large) else None
    return [
        shared_out(task, folder / str(number)) if folder and is_large_job else [task]
        for number, (task, is_large_job) in enumerate(zip(todo, large, strict=True))
    ]


def _done_of(parts: _Parts) -> Callable[[Task], Ingested]:
    return functools.partial(_unless_made, _done) if sum(map(len, parts)) > 1 else _done


def _useful_jobs(todo: Sequence[Task]) -> int:
    worth = sum(task.file_bytes for task in todo) >= _WORTH_BYTES
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return usable or 1 if worth else 1


def _results(todo: Sequence[Task], workers: _Workers | None) -> Iterator[Ingested]:
    """Yield results in the order of the tasks, even if workers are killed."""
    if workers is None:
        yield from map(_done, todo)
        return
    outcomes: dict[int, Ingested] = {}
    number = 0
    while number < len(todo):
        with workers.executor() as executor:
            futures = {
                n: _begun(workers, executor, todo[n])
                for n in _first_of_name(todo, number)
                if n not in outcomes
            }
            while number < len(todo):
                if number not in futures and number not in outcomes:
                    futures[number] = _begun(workers, executor, todo[number])
                try:
                    result = outcomes.pop(number, None) or _outcome(workers, futures.pop(number))
                except workers.killed:
                    outcomes |= _through(workers, futures, number)
                    break
                yield result
                number += 1
            else:
                return
        yield _alone(workers, todo[number])
        number += 1


def _first_of_name(todo: Sequence[Task], begin: int) -> Iterator[int]:
    """Yield indices, from ``begin`` on, of tasks that may run in parallel."""
    first: dict[str, int] = {}
    for number in range(begin, len(todo)):
        # choose one task per run name, because two tasks must not write one run
        is_first = first.setdefault(todo[number].name, number) == number
        if is_first or isinstance(todo[number], Share):
            yield number


def _begun(workers: _Workers, executor: Executor, task: Task) -> Future[Ingested]:
    try:
        return executor.submit(workers.done, task)
    except workers.killed as fault:
        lost: Future[Ingested] = Future()
        lost.set_exception(fault)
        return lost


def _through(
    workers: _Workers, futures: Mapping[int, Future[Ingested]], number: int
) -> dict[int, Ingested]:
    """Wait for all futures; return {task index: result} of later successful tasks."""
    while wait(futures.values(), timeout=_LOOK_S).not_done:
        workers.check()
    return {
        n: future.result()
        for n, future in futures.items()
        if n > number and not future.cancelled() and future.exception() is None
    }


def _alone(workers: _Workers, task: Task) -> Ingested:
    try:
        with workers.lone() as executor:
            return _outcome(workers, executor.submit(workers.done, task))
    except workers.killed:
        fault = f"{workers.fault}, most likely because memory ran out"
        return Ingested(errors=[ProfileError(task.label, fault, "profile fewer steps")])


def _outcome(workers: _Workers, future: Future[Ingested]) -> Ingested:
    """Wait for a task's result; raise an error if all workers are gone."""
    while not wait([future], timeout=_LOOK_S).done:
        workers.check()
    try:
        return future.result()
    except CancelledError as fault:
        workers.check()
        raise LstmprofError(
            "the scheduler was restarted and lost its queue",
            "run the command again; it skips finished profiles",
        ) from fault


def _unless_made(done: Callable[[Task], Ingested], task: Task) -> Ingested:
    """Do a task, unless a killed worker has already written the run."""
    before = task.made_before()
    return Ingested(before.made_before) if before else done(task)


def _done_there(
    done: Callable[[Task], Ingested], version: str, probe: Path | None, task: Task
) -> Ingested:
    """Do a task on a cluster worker, after checking its version and access to files."""
    worker = socket.gethostname()
    if version != __version__:
        raise other_version(f"on {worker}", __version__, version)
    if probe is not None and not probe.is_dir():
        raise RunError(f"{probe.parent}: the worker on {worker} cannot see it", _SHARED)
    for source in task.group:
        if isinstance(source.label, Path) and source.stamp and not source.label.exists():
            fault = f"the worker on {worker} cannot see it"
            return Ingested(errors=[ProfileError(source.label, fault, _SHARED)])
    process.keep_freed_memory()  # dask tells its workers to return freed memory at once
    try:
        return done(task)
    finally:
        process.give_freed_memory_back()


def _with_time_left(
    results: Iterator[Ingested], todo: Sequence[Task], progress: Progress
) -> Generator[Ingested]:
    """Yield results, and report the remaining time."""
    sizes = [task.file_bytes for task in todo]
    if not all(sizes):
        sizes = [1] * len(todo)
    for number, result in enumerate(results, 1):
        if number == 1:
            began = time.monotonic()
        yield result
        spent_s, done, remaining = (
            time.monotonic() - began,
            sum(sizes[1:number]),
            sum(sizes[number:]),
        )
        says = f", about {spent_s * remaining / done:.0f} s left" if done else ""
        if remaining:
            progress(f"read {number} of {len(todo)} profiles{says}")
