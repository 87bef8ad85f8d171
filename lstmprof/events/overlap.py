"""Work beside other work in a thread of this process: for what Arrow does by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event


@contextmanager
def beside(work: Callable[[Event], object]) -> Iterator[None]:
    """Do ``work`` while the block is done; at the end both are.

    Where the block raises, the event that ``work`` is given is set: let it look now and then.
    """
    stop = Event()
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(work, stop)
        try:
            yield
            answer.result()
        finally:
            stop.set()
