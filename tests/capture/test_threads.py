"""What each thread had of the CPUs: real threads that work, sleep, and fight for one CPU."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable

import pytest

from lstmprof.capture.worker import host, threads
from lstmprof.capture.worker.threads import ThreadTimes, Times

BLOCK = b"x" * 100_000  # hashed without the interpreter's lock


def hash_for(cpu_s: float) -> None:
    while time.thread_time() < cpu_s:
        hashlib.sha256(BLOCK).digest()


def between(work: Callable[[], None]) -> list[dict[str, object]]:
    times, before = ThreadTimes(), threads.times()
    work()
    times.add(before, threads.times())
    facts = times.facts()
    assert facts is not None
    return facts


def test_a_thread_that_works_is_told_from_one_that_sleeps() -> None:
    held = threading.Event()
    others = [
        threading.Thread(target=lambda: (hash_for(0.1), held.wait())),
        threading.Thread(target=held.wait),
    ]

    def run() -> None:
        for thread in others:
            thread.start()
        time.sleep(0.01)
        while busy_ns(others[0]) < 100_000_000:
            time.sleep(0.01)

    facts = between(run)
    held.set()
    for thread in others:
        thread.join()
    worked, *rest = facts
    assert worked["main"] is False
    assert 95e6 < float(str(worked["cpu_ns"])) < 200e6
    assert all(float(str(fact["cpu_ns"])) < 50e6 for fact in rest)
    assert {fact["main"] for fact in rest} <= {True, False}


def busy_ns(thread: threading.Thread) -> int:
    readings = threads.times()
    assert readings is not None
    return readings[thread.native_id or 0].cpu_ns


def test_two_threads_on_one_cpu_wait_for_each_other() -> None:
    allowed = os.sched_getaffinity(0)
    held = threading.Event()

    def work() -> None:
        os.sched_setaffinity(0, [host.allowed_cpus()[0]])
        hash_for(0.1)
        held.wait()

    pair = [threading.Thread(target=work) for _ in range(2)]

    def run() -> None:
        for thread in pair:
            thread.start()
        while min(map(busy_ns, pair)) < 100_000_000:
            time.sleep(0.01)

    facts = between(run)
    held.set()
    for thread in pair:
        thread.join()
    os.sched_setaffinity(0, allowed)
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
