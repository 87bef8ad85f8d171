"""The lines of a script that are found by sampling the stack of its thread."""

from __future__ import annotations

import functools
import gc
import logging
import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from lstmprof.capture.worker.lines import GARBAGE_COLLECTOR, LineSampler

SCRIPT = """\
import gc
import os, time
from time import sleep as rest

class Clock:
    def wait(self):
        time.sleep(0.01)

def sleeps():
    time.sleep(0.01)

def sleeps_by_another_name():
    rest(0.01)

def calls_a_method():
    Clock().wait()

def counts():
    total = 0
    for number in range(200_000):
        total += number % 7

def collects():
    gc.collect()

def waits_for(event):
    event.wait(0.01)

def syncs(file):
    for _ in range(200):
        file.write("loss 0.1")
        os.fsync(file.fileno())

def logs(logger):
    for number in range(2000):
        logger.info("loss %s", number)

def takes(lock):
    with lock:
        pass

def yields(items):
    for item in iter(items.get, None):
        return item

def tokenises(text):
    return [word.strip(".,").lower() for word in text.split()]

def visits(node):
    time.sleep(0.002)
    return [visits(child) for child in node]

def counts_down(number):
    time.sleep(0.002)
    if number:
        counts_down(number - 1)
"""


def seen_of(
    step: Callable[[], object], least: float = 0.5, waits: bool | None = None
) -> tuple[object, ...]:
    """The place and call of the first line that is named, which ``waits``; None: not checked."""
    sampler = LineSampler()
    with sampler.sampling_stacks():
        for _ in range(30):
            with sampler.in_step():
                step()
    rows = sampler.lines()
    assert rows is not None
    first = rows[0]
    assert least <= first["share"] <= 1
    if waits is not None and first["waits_ns"] is not None:
        assert (
            first["waits_ns"] >= 0.5 * first["ns"]
            if waits
            else first["waits_ns"] <= 0.2 * first["ns"]
        )
    return first["file"], first["line"], first["call"]


@pytest.fixture(name="script")
def script_of(tmp_path: object) -> ModuleType:
    path = f"{tmp_path}/train.py"
    with open(path, "w", encoding="utf-8") as file:  # noqa: PTH123
        file.write(SCRIPT)
    module = ModuleType("train")
    exec(compile(SCRIPT, path, "exec"), module.__dict__)
    return module


@pytest.mark.parametrize(
    ("name", "line", "call", "waits"),
    [
        ("sleeps", 10, "time.sleep", True),
        ("sleeps_by_another_name", 13, "time.sleep", True),
        ("calls_a_method", 7, "time.sleep", True),
        ("counts", 18, None, False),
    ],
)
def test_a_line_is_named_with_the_function_that_it_calls(
    script: ModuleType, name: str, line: int, call: str | None, waits: bool
) -> None:
    assert seen_of(getattr(script, name), waits=waits) == ("train.py", line, call)


def test_a_lock_and_a_queue_that_another_thread_keeps_are_waits_at_their_lines(
    script: ModuleType,
) -> None:
    lock: threading.Lock = threading.Lock()
    items: queue.SimpleQueue[int] = queue.SimpleQueue()

    def later(do: Callable[[], object]) -> None:
        threading.Timer(0.01, do).start()

    def take() -> None:
        lock.acquire()
        later(lock.release)
        script.takes(lock)

    def get() -> None:
        later(lambda: items.put(1))
        script.yields(items)

    assert seen_of(take, waits=True) == ("train.py", 39, None)
    assert seen_of(get, waits=True) == ("train.py", 43, None)


def test_a_call_of_unknown_code_does_not_wait_for_it_may_compute_in_other_threads(
    script: ModuleType,
) -> None:
    script.__dict__["compute"] = functools.partial(time.sleep, 0.01)
    exec(
        compile("\n\ndef computes(): compute()", script.sleeps.__code__.co_filename, "exec"),
        script.__dict__,
    )
    assert seen_of(script.computes, waits=False)[1] == 3


def test_a_generator_that_a_framework_calls_in_another_thread_is_beside_the_steps(
    script: ModuleType, tmp_path: Path
) -> None:
    path = tmp_path / "site-packages" / "tensorflow" / "ops.py"
    framework: dict[str, object] = {}
    exec(compile("def calls(f, over):\n    while not over(): f()", str(path), "exec"), framework)
    over = threading.Event()
    pool = [
        threading.Thread(target=framework["calls"], args=(script.sleeps, over.is_set)),
        threading.Thread(target=lambda: [script.calls_a_method() for _ in iter(over.is_set, True)]),
    ]
    for thread in pool:
        thread.start()
    sampler = LineSampler()
    with sampler.sampling_stacks():
        for _ in range(30):
            with sampler.in_step():
                time.sleep(0.01)
    over.set()
    for thread in pool:
        thread.join()
    rows = sampler.lines() or []
    places = [(row["file"], row["line"], row["call"]) for row in rows if row["beside"]]
    assert places == [("train.py", 10, "time.sleep")]
    assert [row["waits_ns"] for row in rows if row["beside"]] == [None]


def test_a_wait_in_the_standard_library_is_at_the_line_of_the_script(script: ModuleType) -> None:
    event = threading.Event()
    assert seen_of(lambda: script.waits_for(event)) == ("train.py", 27, ".wait")


def test_files_that_are_flushed_logging_and_tokenising_are_at_their_lines(
    script: ModuleType, tmp_path: Path
) -> None:
    with (tmp_path / "log.txt").open("w", encoding="utf-8") as file:
        assert seen_of(lambda: script.syncs(file), 0.3) == ("train.py", 32, "os.fsync")
        logger = logging.Logger("train")
        logger.addHandler(logging.StreamHandler(file))
        assert seen_of(lambda: script.logs(logger), 0.3) == ("train.py", 36, ".info")
    text = "A sentence, of words. " * 20_000
    file_name, line, call = seen_of(lambda: script.tokenises(text), 0.3)
    assert (file_name, call) == ("train.py", None)
    assert line in (46, 47)  # before Python 3.12, a comprehension is a function of its own


def test_collections_that_a_step_makes_are_timed(script: ModuleType) -> None:
    garbage = [[] for _ in range(300_000)]
    sampler = LineSampler()
    with sampler.sampling_stacks():
        for _ in range(100):
            with sampler.in_step():
                script.collects()
    rows = sampler.lines()
    assert rows is not None
    calls = {row["call"]: row["share"] for row in rows}
    assert calls[GARBAGE_COLLECTOR] > 0.5
    assert garbage
    assert sampler._time_collection not in gc.callbacks


def test_too_few_looks_name_nothing() -> None:
    sampler = LineSampler()
    with sampler.sampling_stacks(), sampler.in_step():
        time.sleep(0.01)
    assert sampler.lines() is None


def test_a_function_that_calls_itself_several_times_visits_a_tree(script: ModuleType) -> None:
    def tree_of(step: Callable[[], object]) -> object:
        sampler = LineSampler()
        with sampler.sampling_stacks():
            for _ in range(30):
                with sampler.in_step():
                    step()
        return sampler.facts()["script_tree"]

    tree = tree_of(lambda: script.visits([[[], [[]]], [[], []]]))
    assert isinstance(tree, dict)
    assert (tree["file"], tree["line"], tree["function"]) == ("train.py", 49, "visits")
    assert 16_000_000 <= tree["ns"] <= 160_000_000
    assert tree_of(lambda: script.counts_down(7)) is None
    assert tree_of(lambda: [script.visits([]) for _ in range(8)]) is None
