"""A few damaged inputs through all commands; many: ``python -m attack.whole``."""

from __future__ import annotations

from pathlib import Path

import pytest
from attack import damages, whole
from attack.targets import TARGETS


@pytest.fixture
def way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> whole.Way:
    monkeypatch.setattr(whole, "HANG_S", 0)  # an alarm comes by the clock of a busy machine
    return whole.Way(tmp_path / "input")


@pytest.mark.parametrize("name", ["kineto", "run directory"])
def test_an_accepted_input_passes_through_every_command(name: str, way: whole.Way) -> None:
    assert not list(way.problems(TARGETS[name], TARGETS[name].seeds()[0]))
    assert way.counts["commands"] == len(whole.COMMANDS)
    assert way.counts["whole way"] == 1


def test_new_profiles_pass_through_every_command_as_ranks_of_a_job(
    way: whole.Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whole, "JOB", 3)
    target = TARGETS["mxnet"]
    for number in range(12):
        assert not list(way.problems(target, target.drawn(number, target.seeds())))
    new = way.counts["new"]
    jobs = (new - way.counts["alone"]) // 3
    assert jobs > 0
    assert way.counts["commands"] == len(whole.COMMANDS) * (way.counts["alone"] + jobs)
    assert sum(way.counts[end] for end in ("new", "refused", "equal profiles")) == 12


def test_a_command_that_fails_on_a_job_names_the_input(
    way: whole.Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whole, "COMMANDS", (("query", "SELECT no_column FROM events", "{run}"),))
    target = TARGETS["mxnet"]
    content = target.seeds()[0]
    assert [problem[:5] for _, problem in way.problems(target, content)] == ["query"]
    assert not list(way.problems(target, content)), "an equal profile goes no further"


def test_a_defect_is_a_problem() -> None:
    assert damages.problem_of(1, "error: a bug in lstmprof", "")
