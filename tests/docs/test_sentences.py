"""docs/sentences.py lists what is printed, and nothing that is not."""

from __future__ import annotations

import ast
import runpy
from pathlib import Path

import pytest

SCRIPT = runpy.run_path(str(Path(__file__).resolve().parents[2] / "docs" / "sentences.py"))
PACKAGE: Path = SCRIPT["PACKAGE"]


@pytest.fixture(scope="module")
def listed() -> dict[str, set[str]]:
    """Module → its templates."""
    found: dict[str, set[str]] = {}
    for template in SCRIPT["templates"]():
        found.setdefault(template.module, set()).add(template.text)
    return found


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("diagnose/findings/causes.py", "kernel launches"),
        ("diagnose/findings/causes.py", "compilation, or capture of a graph, inside the step"),
        ("diagnose/remedies/feeding.py", "getting the input takes {in_ms(f.slow, f.slow_ns)}"),
        ("breakdown/clean/timings.py", "the loss did not fall"),
        ("breakdown/lacks/advice.py", "export the profile without trimming it"),
        ("report/charts/sweep.py", "; empty cell: not measured"),
        ("report/runs.py", "No cast was recorded."),
        ("commands/terminal/evidence.py", "kind of time"),
    ],
)
def test_a_sentence_of_each_family_is_listed(
    listed: dict[str, set[str]], module: str, text: str
) -> None:
    assert text in listed[module]


def test_no_docstring_is_listed(listed: dict[str, set[str]]) -> None:
    for module, texts in listed.items():
        tree = ast.parse((PACKAGE / module).read_text(encoding="utf-8"))
        documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
        docstrings = {
            ast.get_docstring(node, clean=False)
            for node in ast.walk(tree)
            if isinstance(node, documented)
        }
        assert not texts & docstrings, module


def test_no_query_and_no_pattern_is_listed(listed: dict[str, set[str]]) -> None:
    texts = set().union(*listed.values())
    assert not [t for t in texts if "SELECT " in t or "datum." in t or r"\w" in t]


def test_no_module_with_an_error_or_a_sentence_of_its_own_is_left_out() -> None:
    """Every stage between the profile and the reader is walked, whatever its folders."""
    walked = {PACKAGE / stage for stage in SCRIPT["WHERE"]}
    for place in (
        "diagnose/verdict/sentences.py",
        "report/page/__init__.py",
        "breakdown/lacks/__init__.py",
    ):
        assert walked & set((PACKAGE / place).parents)


def test_implicitly_joined_pieces_are_one_template() -> None:
    path = SCRIPT["PACKAGE"] / "diagnose" / "step_profile" / "ranks.py"
    texts = {template.text for template in SCRIPT["of_module"](path)}
    assert any("arrives last in" in t and "collectives and waits" in t for t in texts)
