"""Each test that docs/robustness.md names exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/robustness.md").read_text("utf-8")


def functions(place: str) -> set[str]:
    module = ast.parse((ROOT / place).read_text("utf-8"))
    return {node.name for node in module.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize(("title", "count"), [("Fault", 19), ("Fault of lstmprof", 15)])
def test_each_fault_has_a_test_that_exists(title: str, count: int) -> None:
    _, _, table = PAGE.partition(f"| {title} | Test |\n|---|---|\n")
    rows = table.partition("\n\n")[0].splitlines()
    named = [re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", row) for row in rows]
    assert len(rows) == count
    assert all(named)
    missing = {
        f"{place}::{name}"
        for tests in named
        for place, name in tests
        if name not in functions(place)
    }
    assert not missing


def test_each_file_of_tests_exists() -> None:
    places = re.findall(r"`(tests/[\w/.]+)`", PAGE)
    assert places
    assert not [place for place in places if not (ROOT / place).exists()]
