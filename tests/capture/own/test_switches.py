"""When a thread lost its CPU, as Linux tells it: beside a process that spins on the same CPU."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from lstmprof.capture.own.waits import StepWaits
from lstmprof.capture.worker import threads
from lstmprof.capture.worker.switches import merged

SPINS = "import os, sys\nos.sched_setaffinity(0, {int(sys.argv[1])})\nprint(1, flush=True)\n"
WORK_NS = 60_000_000  # of CPU time: several turns
CLOCKS_NS = 1_000_000  # two clocks of the kernel, read one after the other


@pytest.fixture
def contended() -> Iterator[None]:
    """This thread, and a process that spins, on one CPU."""
    if not hasattr(os, "sched_setaffinity") or threads.waits() is None:
        pytest.skip("the system does not count how long a thread waits for a CPU")
    cpus = os.sched_getaffinity(0)
    command = [sys.executable, "-c", f"{SPINS}while True: pass", str(min(cpus))]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as spinning:
        try:
            assert spinning.stdout is not None
            spinning.stdout.readline()
            os.sched_setaffinity(0, {min(cpus)})
            yield
        finally:
            os.sched_setaffinity(0, cpus)
            spinning.kill()


def work() -> None:
    began_ns = time.thread_time_ns()
    while time.thread_time_ns() - began_ns < WORK_NS:
        pass


@pytest.mark.measured
@pytest.mark.usefixtures("contended")
def test_a_step_beside_a_process_that_spins_waits_for_its_cpu_and_it_is_known_when() -> None:
    waits = StepWaits()
    for _ in range(2):
        with waits.reading():
            work()
    facts = waits.facts()
    waits.close()
    waited, cpu = facts["profiled_waited_ns"], facts["profiled_thread_cpu_ns"]
    assert len(waited) == len(cpu) == 2
    assert min(waited) > 0
    assert min(cpu) >= WORK_NS
    if facts["profiled_off_cpu"] is None:
        pytest.skip("the system does not tell a process of its own switches")
    for step in facts["profiled_off_cpu"]:
        borders = [instant for stretch in step["own_ns"] for instant in stretch]
        assert borders == sorted(borders)
        assert step["begin_ns"] <= borders[0] < borders[-1] <= step["end_ns"]
        taken_ns = sum(end - begin for begin, end in step["own_ns"])
        assert taken_ns > 0


@pytest.mark.measured
def test_a_thread_that_sleeps_gives_its_cpu_up_and_loses_none() -> None:
    waits = StepWaits()
    with waits.reading():
        time.sleep(0.05)
    facts = waits.facts()
    waits.close()
    if facts["profiled_off_cpu"] is None or facts["profiled_waited_ns"] is None:
        pytest.skip("the system does not tell a process of its own switches")
    (step,), (waited_ns,) = facts["profiled_off_cpu"], facts["profiled_waited_ns"]
    lost_ns = sum(end - begin for begin, end in step["own_ns"])
    assert lost_ns <= waited_ns + CLOCKS_NS


def test_what_another_thread_waits_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    before = threads.Waits(5, {threads.TASKS: {"1": 10, "2": 20}, "/proc/9/task": {"9": 1}})
    after = threads.Waits(8, {threads.TASKS: {"1": 14, "2": 26, "3": 7}, "/proc/9/task": {"9": 3}})
    monkeypatch.setattr(threads, "this_thread", lambda: 1)
    assert threads.waiting_between(before, after) == threads.Waiting(3, 4, 13, 2)
    assert threads.waiting_between(None, after) == threads.Waiting()


def test_the_thread_that_asks_is_known_in_any_thread() -> None:
    numbers: list[int | None] = []
    other = threading.Thread(target=lambda: numbers.append(threads.this_thread()))
    other.start()
    other.join()
    assert numbers != [threads.this_thread()]


def test_stretches_that_meet_are_one() -> None:
    assert merged([(5, 9), (1, 3), (2, 4), (4, 5)]) == [(1, 9)]
