"""The lines of a script that are seen by looking at its thread."""

from __future__ import annotations

import gc
import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from lstmprof.capture.own.lines import GARBAGE_COLLECTOR, LineSampler

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

def tokenises(text):
    return [word.strip(".,").lower() for word in text.split()]
"""


def seen_of(step: Callable[[], object], least: float = 0.5) -> tuple[object, ...]:
    """The place, call and share, rounded, of the first line that is named."""
    sampler = LineSampler()
    with sampler.looking():
        for _ in range(30):
            with sampler.in_step():
                step()
    rows = sampler.lines()
    assert rows is not None
    first = rows[0]
    assert least <= first["share"] <= 1
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
    ("name", "line", "call"),
    [
        ("sleeps", 10, "time.sleep"),
        ("sleeps_by_another_name", 13, "time.sleep"),
        ("calls_a_method", 7, "time.sleep"),
        ("counts", 18, None),
    ],
)
def test_a_line_is_named_with_the_function_that_it_calls(
    script: ModuleType, name: str, line: int, call: str | None
) -> None:
    assert seen_of(getattr(script, name)) == ("train.py", line, call)


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
    assert line in (38, 39)  # before Python 3.12, a comprehension is a function of its own


def test_collections_that_a_step_makes_are_timed(script: ModuleType) -> None:
    garbage = [[] for _ in range(300_000)]
    sampler = LineSampler()
    with sampler.looking():
        for _ in range(100):
            with sampler.in_step():
                script.collects()
    rows = sampler.lines()
    assert rows is not None
    calls = {row["call"]: row["share"] for row in rows}
    assert calls[GARBAGE_COLLECTOR] > 0.5
    assert garbage
    assert sampler._collects not in gc.callbacks


def test_too_few_looks_name_nothing() -> None:
    sampler = LineSampler()
    with sampler.looking(), sampler.in_step():
        time.sleep(0.01)
    assert sampler.lines() is None
