"""A few small bombs within their bounds of memory and time; all: ``make bombs``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from attack import bombs

_FEW = ("numbers", "XPlane: equal", "a view", "equal rows")


@pytest.mark.parametrize("part", _FEW)
def test_a_small_bomb_is_read_or_refused_within_its_bounds(part: str, tmp_path: Path) -> None:
    (bomb,) = (bomb for bomb in bombs.BOMBS if part in bomb.name)
    alone = replace(bomb, commands=bomb.commands[:1])
    (tmp_path / "bomb").mkdir()
    (spent,) = bombs.spent(alone, 2**20, tmp_path / "bomb", tmp_path / "cache")
    assert not spent.fault, spent.row


@pytest.mark.parametrize(
    ("spent", "word"),
    [
        (bombs.Spent("", "", 10**6, 2**30 + 5 * 10**6, 1, 0), "memory"),
        (bombs.Spent("", "", 10**6, 2**20, 11, 1), "CPU"),
        (bombs.Spent("", "", 10**6, 2**20, 1, -9), "exit status -9"),
        (bombs.Spent("", "", 10**6, 2**30, 9, 1), ""),
    ],
)
def test_a_broken_bound_is_a_fault(spent: bombs.Spent, word: str) -> None:
    assert word in spent.fault
    assert bool(word) == bool(spent.fault)
