"""No regular expression of lstmprof backtracks without end, whatever text it is given."""

from __future__ import annotations

import ast
import importlib
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import pytest

import lstmprof

_ROOT = Path(lstmprof.__file__).parent
_FUNCTIONS = (
    *("compile", "search", "match", "fullmatch", "sub", "subn", "split", "findall", "finditer"),
)
#: Parts of texts: letters that a pattern may match in two ways make it try all of them.
_PARTS = (
    *("a", "1", "_", "-", ".", " ", "\n", '"', "\\", "/", ":", "::", ",", "(", ")", "()", "<"),
    *(">", "<>", "[", "]", "{", "}", "?", "=", "#", "@", "0x", "a1", "a_", "a.", "a b", "1."),
    *("aA", "://", "%", "a<", "a,", "a::", "(a", "[1", "é", "jvp(", "void ", "aten::", "/while"),
)
_LETTERS = 600
#: A quadratic pattern takes some 20 ms for a text; a cubic one takes seconds, others never end.
_MOST_S = 1.0


def _used() -> dict[str, Any]:
    """Return the patterns of lstmprof by their places; None if only the caller knows it."""
    patterns = {}
    for path in sorted(_ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and isinstance(node.func.value, ast.Name)
                and (node.func.value.id, node.func.attr in _FUNCTIONS) == ("re", True)
            ):
                place = f"{path.relative_to(_ROOT.parent)}:{node.lineno}"
                patterns[place] = _value(node.args[0], path)
    return patterns


def _value(node: ast.expr, path: Path) -> Any:
    """Return the pattern that ``node`` is in the module at ``path``."""
    if isinstance(node, ast.Constant):
        return node.value
    module = importlib.import_module(
        ".".join(path.relative_to(_ROOT.parent).with_suffix("").parts).removesuffix(".__init__")
    )
    try:
        return eval(compile(ast.Expression(node), str(path), "eval"), dict(vars(module)))
    except NameError:
        return None


_PATTERNS = _used()


def _too_long(signum: int, frame: FrameType | None) -> NoReturn:
    raise TimeoutError


def test_the_patterns_are_found() -> None:
    unknown = [place for place, pattern in _PATTERNS.items() if pattern is None]
    assert len(_PATTERNS) > 250
    assert len(unknown) < 10, unknown  # of a function's argument: a user's, or one of a table


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs a timer that interrupts")
def test_no_pattern_takes_long() -> None:
    slow = {}
    texts = [part * (_LETTERS // len(part)) + end for part in _PARTS for end in ("", "\0")]
    before = signal.signal(signal.SIGVTALRM, _too_long)  # a clock of this process's CPU time
    try:
        for place, source in _PATTERNS.items():
            pattern: Any = re.compile(source or "")
            for text in texts:
                signal.setitimer(signal.ITIMER_VIRTUAL, _MOST_S)
                try:
                    pattern.search(text.encode() if isinstance(source, bytes) else text)
                except TimeoutError:
                    slow[place] = (source, text[:9])
                signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    finally:
        signal.signal(signal.SIGVTALRM, before)
    assert not slow, slow


def test_a_pattern_that_never_ends_is_noticed() -> None:
    code = (
        "import test_patterns as tests\n"
        r"tests._PATTERNS = {'x.py:1': r'(?:a|a)*\Z'}"
        "\ntests.test_no_pattern_takes_long()"
    )
    # in a process of its own: two whole runs lost theirs in this test
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True)
    assert done.returncode == 1
    assert "AssertionError: {'x.py:1'" in done.stderr
