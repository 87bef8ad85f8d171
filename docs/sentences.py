"""Every sentence that diagnose, breakdown and the report can print, from the code's templates.

Print them with ``make sentences`` to read them aloud: what stands in braces is filled in from a
profile.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "lstmprof"
WHERE = ("diagnose", "breakdown", "report", "commands/terminal")
#: Texts for a machine: queries, pieces of a page, expressions of a chart, dates.
_SQL = re.compile(r"\s*,?\s*(SELECT|WITH|CREATE|FROM|NULL|\{.*(NULLS|::BIGINT))\b.*", re.S)
_CHART = re.compile(r"datum\.|^<\w|%Y-|^window\.")
#: What takes patterns, descriptions of columns and expressions of charts: nobody reads them there.
_UNREAD = ("compile", "Column", "transform_calculate", "transform_filter", "execute")


@dataclass(frozen=True)
class Template:
    """A text of the code as it is printed, its gaps in braces, and where it stands."""

    module: str
    line: int
    text: str


def templates() -> Iterator[Template]:
    """The templates of every module that makes sentences, in the order of the code."""
    for stage in WHERE:
        for path in sorted((PACKAGE / stage).rglob("*.py")):
            yield from of_module(path)


def of_module(path: Path) -> Iterator[Template]:
    """The texts of one module that read like prose."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    module = path.relative_to(PACKAGE).as_posix()
    for node in _texts(tree):
        text = _as_printed(node)
        if _is_prose(text):
            yield Template(module, node.lineno, text)


def _texts(node: ast.AST) -> Iterator[ast.expr]:
    """The constants and f-strings beneath ``node`` that are no docstring and no pattern."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.JoinedStr) or _is_text(child):
            assert isinstance(child, ast.expr)
            yield child
            yield from _within_gaps(child)
        elif not _is_silent(child):
            yield from _texts(child)


def _within_gaps(node: ast.expr) -> Iterator[ast.expr]:
    """The texts chosen between inside the gaps of an f-string."""
    if isinstance(node, ast.JoinedStr):
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                yield from _texts(part)


def _is_silent(node: ast.AST) -> bool:
    """Whether nothing below ``node`` is printed: a docstring, an annotation, a pattern, SQL."""
    if isinstance(node, ast.Expr) and _is_text(node.value):
        return True
    called = node.func if isinstance(node, ast.Call) else None
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    return name in _UNREAD


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _as_printed(node: ast.expr) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(_as_printed(part) for part in node.values)
    if isinstance(node, ast.FormattedValue):
        return "{" + ast.unparse(node.value) + "}"
    return str(node.value) if isinstance(node, ast.Constant) else ast.unparse(node)


def _is_prose(text: str) -> bool:
    """Whether ``text`` is two words or more with a space between, of which one is no gap."""
    if _SQL.match(text) or _CHART.search(text):
        return False
    said = _without_gaps(text)
    words = [word for word in said.split() if any(letter.isalpha() for letter in word)]
    return " " in text.strip() and bool(words) and len(text.split()) > 1


def _without_gaps(text: str) -> str:
    said, depth = "", 0
    for letter in text:
        depth += (letter == "{") - (letter == "}")
        said += letter if depth == 0 else ""
    return said


if __name__ == "__main__":
    last = ""
    for template in templates():
        if template.module != last:
            print(f"\n{template.module}")
        last = template.module
        print(f"  {template.line}: {template.text}")
