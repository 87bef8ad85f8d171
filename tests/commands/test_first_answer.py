"""A big profile's first step is told on stderr before the rest is read; nothing else changes."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from big_kineto import blocks, event, write

from lstmprof.breakdown import first_step
from lstmprof.cli import run as lstmprof
from lstmprof.commands.explaining import breakdown
from lstmprof.commands.explaining.breakdown import FirstAnswers

STEPS = 700
Said = pytest.CaptureFixture[str]
Shown = Callable[..., tuple[str, str]]


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of 700 steps."""
    return write(tmp_path_factory.mktemp("big") / "big.json", blocks(STEPS))


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Said) -> Shown:
    """What ``breakdown`` says, on stdout and on stderr; any file is big enough for it."""
    monkeypatch.setenv("LSTMPROF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(breakdown, "FirstAnswers", functools.partial(FirstAnswers, 0))

    def of(*arguments: object) -> tuple[str, str]:
        assert lstmprof(["breakdown", *map(str, arguments)]) == 0
        return tuple(capsys.readouterr())  # type: ignore[return-value]

    return of


def test_the_first_step_is_told_once(shown: Shown, big: Path) -> None:
    out, first = shown(big)
    title, lane, *parts = first.splitlines()
    assert title.startswith("big: breakdown of the first step (")
    assert "the first step (ProfilerStep#3)" in title
    assert lane == "  device 0 (NVIDIA A100): 4.000 ms"
    assert {part.split()[0] for part in parts} == {"busy", "idle"}
    assert sum(float(part.split()[-4]) for part in parts) == pytest.approx(4)
    assert sum(float(part.split()[-2]) for part in parts) == pytest.approx(100)
    assert "700 profiled steps" in " ".join(out.split())
    assert shown(big) == (out, "")  # it is in the cache


def test_results_stay_as_they_are(shown: Shown, big: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, first = shown(big, "--format", "json")
    assert first.startswith("big: breakdown of the first step (")
    assert json.loads(out)["account"]
    monkeypatch.setenv("LSTMPROF_CACHE", str(big.parent / "other"))
    monkeypatch.setattr(breakdown, "FirstAnswers", FirstAnswers)
    assert shown(big, "--format", "json") == (out, "")  # it is too small


@pytest.mark.parametrize("options", [("--table", "kernels"), ("--step-range", "Profiler")])
def test_what_asks_for_something_else_gets_none(
    shown: Shown, big: Path, options: tuple[str, str]
) -> None:
    assert shown(big, *options)[1] == ""


def test_a_first_answer_that_does_not_hold_is_taken_back(shown: Shown, tmp_path: Path) -> None:
    host, *others = blocks(STEPS)
    hidden = event("kernel", "k0", 4300.5, 300, device=0, stream=8)
    middle = len(host) // 2
    path = write(tmp_path / "big.json", [[*host[:middle], hidden, *host[middle:]], *others])
    last = shown(path)[1].splitlines()[-1]
    assert "first step" in last


def test_a_defect_of_it_is_told_and_stops_nothing(
    shown: Shown, big: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(first_step, "beginning", fails)
    out, first = shown(big)
    assert "device 0" in out
    assert first.startswith("cannot show the first step early: ")
    assert "ZeroDivisionError" in first


def test_a_name_in_the_file_steers_no_terminal(shown: Shown, tmp_path: Path) -> None:
    path = write(tmp_path / "big.json", blocks(STEPS))
    path.write_text(path.read_text().replace("NVIDIA A100", "\\u001b[31mred"))
    first = shown(path)[1]
    assert "\x1b" not in first
    assert "[31mred" in first
