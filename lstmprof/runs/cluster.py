"""Use a dask.distributed cluster as a ``concurrent.futures.Executor``.

Sources: https://distributed.dask.org/en/stable/api.html (``Client.get_executor``),
https://distributed.dask.org/en/stable/killed.html (workers that die).
"""

from __future__ import annotations

import functools
import logging
import pkgutil
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from lstmprof.base.errors import LstmprofError, UsageError, one_line
from lstmprof.base.package import __version__

if TYPE_CHECKING:
    from distributed import Client

Progress = Callable[[str], None]
_Made = TypeVar("_Made")

#: Longest waits in seconds: for the scheduler's answer, and for the first worker.
_ANSWER_S = 5
_WORKERS_S = 30


@dataclass
class Cluster:
    address: str
    client: Client
    _contact_s: float

    @property
    def count(self) -> int:
        """Return how many tasks the workers can run at once."""
        return sum(_workers(self.client, self.address).values())

    @contextmanager
    def executor(self) -> Iterator[Executor]:
        """Yield an executor; cancel unfinished tasks at the end."""
        executor = _Releasing(self.client)
        try:
            yield executor
        finally:
            with suppress(Exception):  # the scheduler may have ended
                executor.shutdown(wait=False)

    def check(self) -> None:
        """Raise LstmprofError if the scheduler, or all its workers, are gone."""
        if _workers(self.client, self.address):
            self._contact_s = time.monotonic()
        elif time.monotonic() - self._contact_s > _WORKERS_S:
            raise LstmprofError(
                f"{self.address}: the scheduler has had no workers for {_WORKERS_S} s",
                f"start workers (dask worker {self.address}) and run the command again: the command"
                " skips finished profiles",
            )


class _Releasing(Executor):
    """An executor that frees the results of finished tasks on the cluster."""

    def __init__(self, client: Client) -> None:
        self._executor = client.get_executor(pure=False)

    def submit(self, fn: Callable[..., _Made], /, *args: Any, **kwargs: Any) -> Future[_Made]:
        outcome: Future[_Made] = Future()
        remote = self._executor.submit(fn, *args, **kwargs)
        remote.add_done_callback(functools.partial(_copy, outcome))
        return outcome

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        # dask cancels unfinished tasks if ``wait`` is False
        self._executor.shutdown(wait=wait and not cancel_futures)


def _copy(outcome: Future[_Made], done: Future[_Made]) -> None:
    if done.cancelled():
        outcome.cancel()
        outcome.set_running_or_notify_cancel()
    elif fault := done.exception():
        outcome.set_exception(fault)
    else:
        outcome.set_result(done.result())


def killed_worker() -> type[Exception]:
    """Return dask's exception for a task whose workers died too often."""
    from distributed import KilledWorker

    error: type[Exception] = KilledWorker
    return error


@contextmanager
def cluster(address: str, progress: Progress) -> Iterator[Cluster]:
    """Connect to a dask scheduler; refuse workers with another version of lstmprof."""
    with _client(address, progress) as client:
        if not _workers(client, address):
            progress(f"{address}: waiting up to {_WORKERS_S} s for workers")
            try:
                client.wait_for_workers(1, timeout=_WORKERS_S)
            except TimeoutError as fault:
                raise LstmprofError(
                    f"{address}: the scheduler has no workers",
                    f"start workers: dask worker {address} --nworkers 3 --nthreads 1",
                ) from fault
        versions = client.run(pkgutil.resolve_name, "lstmprof:__version__", on_error="return")
        for worker, version in versions.items():
            if version != __version__:
                raise other_version(worker, version, __version__)
        yield Cluster(address, client, time.monotonic())


@contextmanager
def _client(address: str, progress: Progress) -> Iterator[Client]:
    try:
        from distributed import Client
        from distributed.comm import get_address_host_port
    except ImportError as fault:
        raise LstmprofError(
            "--scheduler needs the package distributed", "pip install 'lstmprof[cluster]'"
        ) from fault
    try:
        get_address_host_port(address)  # with an invalid address, Client hangs when it is deleted
        with warnings.catch_warnings(record=True) as caught:
            client = Client(address, timeout=_ANSWER_S, set_as_default=False)
    except ValueError as fault:
        raise UsageError(
            f"{address}: not a scheduler address ({fault})", "write it like tcp://host:8786"
        ) from fault
    except (OSError, ImportError) as fault:
        raise LstmprofError(
            f"{address}: no dask scheduler answers",
            "run 'dask scheduler', and give the address that it prints",
        ) from fault
    try:
        for warning in caught:
            progress(f"{address}: {one_line(str(warning.message))}")
        with _unlogged("distributed.client"):  # the end of the scheduler is reported in one line
            yield client
    finally:
        with suppress(Exception):  # the scheduler may have ended
            client.close(timeout=_ANSWER_S)


@contextmanager
def _unlogged(logger: str) -> Iterator[None]:
    log = logging.getLogger(logger)
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(level)


def _workers(client: Client, address: str) -> dict[str, Any]:
    """Return {address of a worker: number of threads}."""
    try:
        threads: dict[str, Any] = client.nthreads()
    # dask raises OSError, TimeoutError, RuntimeError or ValueError
    except Exception as fault:
        raise scheduler_gone(address) from fault
    return threads


def scheduler_gone(address: str) -> LstmprofError:
    return LstmprofError(
        f"{address}: the scheduler no longer answers",
        "start it, and run the command again; it skips finished profiles",
    )


def other_version(worker: str, version: object, own: str) -> LstmprofError:
    has = f"lstmprof {version}" if isinstance(version, str) else f"no lstmprof ({version})"
    return LstmprofError(
        f"worker {worker} has {has}, but this machine has {own}",
        f"run pip install 'lstmprof[cluster]=={own}' there, and restart the worker",
    )
