"""What each thread had of the CPUs: real threads that work, sleep, and fight for one CPU."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable

import pytest
from capture.processes import LIMIT_S

from lstmprof.capture.worker.machine import host, usage
from lstmprof.capture.worker.machine.usage import ThreadTimes, Times

BLOCK = b"x" * 100_000  # hashed without the interpreter's lock


def hash_for(cpu_s: float) -> None:
    while time.thread_time() < cpu_s:
        hashlib.sha256(BLOCK).digest()


def between(work: Callable[[], None]) -> list[dict[str, object]]:
    times, before = ThreadTimes(), usage.times()
    work()
    times.add(before, usage.times())
    facts = times.facts()
    assert facts is not None
    return facts


@pytest.mark.measured
def test_a_thread_that_works_is_told_from_one_that_sleeps() -> None:
    worker = Worker(threading.Barrier(1))
    sleeper = threading.Thread(target=worker.held.wait)

    def run() -> None:
        sleeper.start()
        worker.start()
        assert worker.hashed.wait(LIMIT_S)

    facts = between(run)
    worker.held.set()
    worker.join()
    sleeper.join()
    worked, *rest = facts
    assert worked["main"] is False
    assert 95e6 < float(str(worked["cpu_ns"])) < worker.cpu_ns + 50e6
    assert all(float(str(fact["cpu_ns"])) < 50e6 for fact in rest)
    assert {fact["main"] for fact in rest} <= {True, False}


class Worker(threading.Thread):
    """Hashes once all of ``together`` are there, and then waits until it is let go."""

    def __init__(self, together: threading.Barrier, cpu: int | None = None) -> None:
        super().__init__()
        self.together, self.cpu, self.cpu_ns = together, cpu, 0
        self.hashed, self.held = threading.Event(), threading.Event()

    def run(self) -> None:
        if self.cpu is not None:
            os.sched_setaffinity(0, [self.cpu])
        self.together.wait(LIMIT_S)
        hash_for(0.1)
        self.cpu_ns = time.thread_time_ns()
        self.hashed.set()
        self.held.wait()


@pytest.mark.measured
def test_two_threads_on_one_cpu_wait_for_each_other() -> None:
    together, cpu = threading.Barrier(2), host.allowed_cpus()[0]
    pair = [Worker(together, cpu) for _ in range(2)]

    def run() -> None:
        for thread in pair:
            thread.start()
        for thread in pair:
            assert thread.hashed.wait(LIMIT_S)

    facts = between(run)
    for thread in pair:
        thread.held.set()
        thread.join()
    waited = [fact["waited_ns"] for fact in facts[:2]]
    if None in waited:
        pytest.skip("this kernel does not count what threads wait")
    assert min(float(str(ns)) for ns in waited) > 20e6  # each had the CPU for half of the time


def test_sums_are_over_several_spans_and_unknown_stays_unknown() -> None:
    times = ThreadTimes()
    times.add({1: Times(100, 5)}, {1: Times(130, 9), 2: Times(7, None)})
    times.add({1: Times(900, 20)}, {1: Times(950, 21)})
    assert times.sums == {1: Times(80, 5), 2: Times(7, None)}
    times.add(None, {})
    assert times.facts() is None
