"""Small faults: the code that has to run before a test can notice one, and other code for it."""

from __future__ import annotations

import ast
import importlib
import sys
from pathlib import Path

import pytest

from benchmarks.mutants import recording
from benchmarks.mutants.planting import functions_of, plant
from benchmarks.mutants.probing import REACHED, is_within_function, probed
from benchmarks.mutants.recording import Recorded

SOURCE = '''"""A module."""
_LEAST = 1
_MOST = _LEAST + 2
OPEN = 3


def first(x=1):
    """A docstring."""
    if x > 4:
        return _MOST
    elif x > 5:
        y = 6
    try:
        y = [7 for _ in range(7)]
    except (ValueError, KeyError):
        y = 8
    return y


class Kind:
    field: int = 9

    def second(self):
        return lambda: 10
'''


@pytest.mark.parametrize(
    ("at", "before"),
    [
        ("x > 4", ["if x > 4:"]),
        ("x > 5", ["if x > 5:"]),
        ("return _MOST", ["return _MOST"]),
        ("range(7)", ["y = [7 for _ in range(7)]"]),
        ("KeyError", ["try:"]),
        ("10", ["return lambda: 10"]),
        ("x=1", ["if x > 4:"]),  # the function's beginning
        ("_LEAST = 1", ["if x > 4:"]),  # what reads _MOST, which reads _LEAST
        ("OPEN = 3", ["if x > 4:", "return lambda: 10"]),  # others may read it
        ("int = 9", ["if x > 4:", "return lambda: 10"]),
    ],
)
def test_a_probe_stands_before_what_has_to_run(at: str, before: list[str]) -> None:
    line = next(n for n, text in enumerate(SOURCE.splitlines(), 1) if at in text)
    column = SOURCE.splitlines()[line - 1].index(at) + len(at) - 1
    lines = ast.unparse(probed(SOURCE, {5: (line, column)})).splitlines()
    places = [n for n, text in enumerate(lines) if text.strip() == f"{REACHED}(5)"]
    assert [lines[n + 1].strip() for n in places] == before
    in_body = at not in ("x=1", "_LEAST = 1", "OPEN = 3", "int = 9")
    assert is_within_function(SOURCE, (line, column)) is in_body


def test_functions_are_given_other_code_while_they_live(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "of_mutants.py"
    path.write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("of_mutants")
    first, second = module.first, module.Kind().second
    plant(functions_of(tmp_path, ["of_mutants.py"]), path, SOURCE.replace("10", "11"))
    assert (first(5), second()()) == (3, 11)
    plant(functions_of(tmp_path, ["of_mutants.py"]), path, SOURCE.replace("x > 4", "x > 44"))
    assert (first(5), second()()) == ([7] * 7, 10)
    del sys.modules["of_mutants"]


def test_the_cheapest_tests_that_come_to_a_mutant_are_chosen() -> None:
    one = Recorded("", {"a::dear": (2.0, [1]), "a::other": (0.1, [2]), "a::late": (0.3, [1])})
    two = Recorded("", {"b::cheap": (0.01, []), "b::early": (0.02, [])}, [1])
    tests = recording.Tests([one, two])
    module = "lstmprof/runs/run.py"
    assert tests.of(1, 9.0, module) == ["b::cheap", "b::early", "a::late", "a::dear"]
    assert tests.of(1, 1.0, module) == ["b::cheap", "b::early", "a::late"]
    assert tests.of(1, 9.0, "lstmprof/runs/a.py")[:2] == ["a::late", "a::dear"]
    assert tests.of(2, 9.0, module) == ["a::other"]
    assert len(tests.of(None, 9.0, module)) == 5
    assert tests.cost_s(["a::dear", "b::cheap"]) == 2.01
