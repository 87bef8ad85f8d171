"""Two thousand inputs of every target, the same every time, are read or refused in a line.

More of them, for longer: ``make fuzz``.
"""

from __future__ import annotations

import json
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from attack import fuzz, json_mutations
from attack.fuzz import Attack, draw
from attack.targets import TARGETS

from lstmprof.formats import FORMATS

INPUTS = 2000
_SEED = 18
#: More than any machine takes: a hang is told by the processor time of each input.
_MINUTES = 60.0


@pytest.fixture(autouse=True)
def _told_where_it_hangs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The alarm of an input, which comes by the clock of a machine that may be busy, or pause."""
    monkeypatch.setattr(fuzz, "HANG_S", 600)
    before = signal.signal(signal.SIGALRM, fuzz.hung)
    yield
    signal.signal(signal.SIGALRM, before)


def test_every_format_is_attacked() -> None:
    assert set(FORMATS) <= set(TARGETS)


@pytest.mark.parametrize("name", TARGETS)
def test_seeds_are_read(name: str, tmp_path: Path) -> None:
    attack = Attack([name], _SEED, tmp_path / "failures", tmp_path)
    seeds = TARGETS[name].seeds()
    for content in seeds:
        attack.one(TARGETS[name], content)
    assert not attack.broken
    expected = (0, len(seeds)) if name == "foreign" else (attack.tallies[name].accepted, 0)
    assert (attack.tallies[name].accepted, attack.tallies[name].refused) == expected


@pytest.mark.parametrize("name", TARGETS)
def test_damaged_inputs_are_read_exactly_or_refused(name: str, tmp_path: Path) -> None:
    attack = Attack([name], _SEED, tmp_path / "failures", tmp_path)
    attack.run(_MINUTES, INPUTS)
    tally = attack.tallies[name]
    assert not attack.broken, attack.told()["broken promises"]
    assert tally.inputs == INPUTS
    assert tally.refused > INPUTS // 20
    assert tally.ledgers > INPUTS // 40 or name == "foreign"


def test_an_input_is_drawn_from_its_number_alone() -> None:
    for target in TARGETS.values():
        contents = target.seeds()
        assert target.drawn(5, contents) == target.drawn(5, contents)
        assert len({target.drawn(number, contents) for number in range(40)}) > 20


def test_a_worker_draws_inputs_of_its_own_and_tells_what_it_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", None)  # a worker sets its own
    numbers = {Attack(["foreign"], 1, tmp_path, tmp_path, worker)._number(0) for worker in (0, 1)}
    assert len(numbers) == 2
    counts = tmp_path / "counts.json"
    draw(["foreign"], 1, tmp_path / "failures", counts, 1, _MINUTES, 60)
    told = json.loads(counts.read_text())
    assert told["targets"]["foreign"]["inputs"] == told["inputs"] == 60
    assert [*tmp_path.iterdir()] == [counts]


def test_json_that_is_nested_too_deep_to_change_is_changed_as_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def too_deep(*_: object) -> None:
        raise RecursionError

    monkeypatch.setattr(json_mutations, "_CHANGES", (too_deep,))
    assert json_mutations.mutated(b'{"a": [1]}', Random(1)) != b'{"a": [1]}'
