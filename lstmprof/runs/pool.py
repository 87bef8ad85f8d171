"""Processes of one's own as a ``concurrent.futures.Executor`` that leaves none behind.

Ctrl-C reaches the parent alone, which ends its processes; each removes what it has half-written.
They end, too, when the parent is killed.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

_Given = TypeVar("_Given")
_Made = TypeVar("_Made")


@contextmanager
def process_pool(count: int) -> Iterator[Executor]:
    """``count`` fresh processes; they are ended where the block is left by an exception."""
    before = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(count, multiprocessing.get_context("spawn"), initializer=_begin)
    try:
        with _interrupts_held():  # what starts now never gets any
            for _ in range(count):
                pool.submit(os.getpid)
        yield pool
    except BaseException:
        for process in set(multiprocessing.active_children()) - before:
            process.terminate()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def done_here(work: Callable[[_Given], _Made], given: _Given) -> _Made:
    """What ``work`` makes of ``given``, in a process of the pool, which ends when it is told to."""
    try:
        return work(given)
    except SystemExit as told:  # the pool would send it to the parent, and take the next
        os._exit(int(told.code or 0))


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Keep Ctrl-C until the end of the block."""
    if sys.platform == "win32":
        yield
        return
    held = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)


def _begin() -> None:
    """Let SIGTERM, and the parent's end, end this process in good order."""
    signal.signal(signal.SIGTERM, _end)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end(number: int, frame: object) -> None:
    raise SystemExit(128 + number)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
