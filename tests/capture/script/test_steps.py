"""Which of what ends in a script ends a step: turns of optimizers, forks, threads, sources."""

from __future__ import annotations

import os
import threading
from typing import Any

import pytest

from lstmprof.capture.script.steps import OBSERVED, OBSERVED_ELSEWHERE, Steps, last_of


class Optimizer:
    """One, by its identity."""


class Generator(Optimizer):
    """Of a GAN."""


class Session:
    """Notes what it is told; it has measured after so many steps."""

    profiling = False

    def __init__(self, most: int) -> None:
        self.calls: list[str] = []
        self.most = most

    @property
    def measured(self) -> bool:
        return self.calls.count("end") >= self.most

    def step_begin(self) -> None:
        self.calls.append("begin")

    def step_end(self, outcome: Any) -> None:
        self.calls.append("end")


def steps_of(most: int = 100) -> tuple[Steps, list[str], list[str]]:
    """Steps, what they told a session, and what they told the user."""
    session, notes = Session(most), list[str]()
    return Steps(lambda source: session, notes.append), session.calls, notes


def test_a_step_ends_with_every_step_of_one_optimizer() -> None:
    steps, calls, notes = steps_of()
    adam = Optimizer()
    for _ in range(OBSERVED + 2):
        steps.ends("torch", adam)
    assert calls == ["end", "begin"] * 3
    assert notes == []
    assert steps.observed == OBSERVED


def test_the_only_optimizer_of_a_script_ends_its_first_step() -> None:
    steps, calls, _ = steps_of()
    steps.optimizers = 1
    steps.ends("torch", Optimizer())
    assert calls == ["end", "begin"]


@pytest.mark.parametrize(
    ("turns", "last"),
    [
        ("DGDGDGDGDGD", "G"),
        ("DDDDDDG", "G"),
        ("GDDGDDGDDGDDGDDG", "G"),
        ("ABCABCABCABCABCA", "C"),
        ("A", "A"),
    ],
)
def test_of_optimizers_that_take_turns_the_rarest_ends_a_step(turns: str, last: str) -> None:
    assert last_of(list(turns)) == last


def test_a_step_of_a_gan_ends_with_its_rarest_optimizer() -> None:
    critic, generator = Optimizer(), Generator()
    steps, calls, notes = steps_of()
    for _ in range(4):
        for _ in range(5):
            steps.ends("torch", critic)
        steps.ends("torch", generator)
    assert calls == ["end", "begin"] * 3
    (note,) = notes
    assert note.index("Generator") < note.index("Optimizer")
    assert "--step-function" in note


def test_an_optimizer_that_comes_later_ends_no_step() -> None:
    one, other = Optimizer(), Generator()
    steps, calls, notes = steps_of()
    for _ in range(OBSERVED):
        steps.ends("torch", one)
    steps.ends("torch", other)
    steps.ends("torch", other)
    assert calls == ["end", "begin"]
    (note,) = notes
    assert note.startswith("calls of Generator do not end a step")


def test_what_follows_the_last_measured_step_is_left_alone() -> None:
    told: list[str] = []
    session = Session(2)
    steps = Steps(lambda source: session, told.append, lambda: told.append("measured"))
    for _ in range(9):
        steps.ends("keras")
    assert session.calls == ["end", "begin", "end"]
    assert told == ["measured"]


def test_the_last_batch_of_an_epoch_is_followed_by_no_step() -> None:
    steps, calls, _ = steps_of()
    steps.begins("keras")
    steps.ends("keras", follows=True)
    steps.begins("keras")
    steps.ends("keras", follows=False)
    assert calls == ["begin", "end", "begin", "begin", "end"]


def test_keras_knows_its_steps_better_than_what_it_trains_with() -> None:
    steps, calls, _ = steps_of()
    for source in ("jax gradient", "jax", "jax gradient", "keras", "jax"):
        steps.ends(source)
    assert calls == ["end", "begin"] * 3


def test_a_better_source_is_observed_anew() -> None:
    steps, calls, notes = steps_of()
    for who, count in (("train.py:3", 1), ("update", 0)):
        source = "tensorflow" if who == "update" else "tensorflow gradient"
        for _ in range(OBSERVED_ELSEWHERE + count):
            steps.ends(source, who)
    assert calls == ["end", "begin"] * 3
    assert notes == []


def test_no_step_is_another_thread_s_or_a_forked_process_s(monkeypatch: Any) -> None:
    steps, calls, _ = steps_of()
    steps.ends("keras")
    other = threading.Thread(target=steps.ends, args=("keras",))
    other.start()
    other.join()
    monkeypatch.setattr(os, "getpid", lambda: -1)
    steps.ends("keras")
    assert not steps.here
    assert calls == ["end", "begin"]
