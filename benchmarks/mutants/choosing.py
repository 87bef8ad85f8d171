"""Which tests run which line, kept for each test file, and the tests that a mutant is run against.

A test's lines are those that it runs in this process: what another test computed first and a cache
kept is not among them, so that a mutant may be said to survive which the whole area would kill.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.mutants.drawing import Mutant
from benchmarks.mutants.recording import DEAR, RECORD, SETUP


@dataclass(frozen=True)
class Recorded:
    """What the tests of one file cost, and the tests that run each line of a module."""

    digest: str
    spent_s: dict[str, float] = field(default_factory=dict)
    lines: dict[str, dict[int, list[str]]] = field(default_factory=dict)


@dataclass(frozen=True)
class Tests:
    """The tests of one area, as recorded."""

    files: tuple[Recorded, ...]

    def of(self, mutant: Mutant, source: str) -> list[str]:
        """The tests that run the mutant's line, the cheapest first.

        All of the area for a module of which no test runs a line: it has no functions.
        """
        lines = _lines_of_statement(source, mutant.line)
        costs: dict[str, float] = {}
        if lines is None and not any(file.lines.get(mutant.path) for file in self.files):
            costs = {test: s for file in self.files for test, s in file.spent_s.items()}
        for file in self.files:
            module = file.lines.get(mutant.path, {})
            ran = {
                t for line, tests in module.items() if lines is None or line in lines for t in tests
            }
            shared = any(test.endswith(SETUP) for test in ran)
            costs |= {t: s for t, s in file.spent_s.items() if shared or t in ran}
        return sorted(costs, key=lambda test: (costs[test], test))

    def cheapest(self, number: int) -> list[str]:
        """So many tests."""
        costs = {test: s for file in self.files for test, s in file.spent_s.items()}
        return sorted(costs, key=lambda test: (costs[test], test))[:number]

    def cost_s(self, tests: list[str]) -> float:
        """Seconds of CPU that these took when they were recorded."""
        costs = {test: s for file in self.files for test, s in file.spent_s.items()}
        return sum(costs[test] for test in tests)


def recorded(tree: Path, folder: str, kept: Path, dear_s: float) -> Tests:
    """The tests of an area; those files that changed since ``kept`` was written are run again."""
    files = _read(kept)
    code = _digest(sorted((tree / "lstmprof").rglob("*.py")))
    wanted = {
        path.relative_to(tree).as_posix(): _digest([path]) + code
        for path in sorted((tree / folder).rglob("test_*.py"))
    }
    new = [
        name for name, digest in wanted.items() if name not in files or files[name].digest != digest
    ]
    if new:
        files |= _recorded_now(tree, {name: wanted[name] for name in new}, kept, dear_s)
        _write(kept, {name: files[name] for name in wanted})
    return Tests(tuple(files[name] for name in wanted))


def _recorded_now(
    tree: Path, digests: dict[str, str], kept: Path, dear_s: float
) -> dict[str, Recorded]:
    """Run test files once, under coverage."""
    import coverage

    data_file = kept.with_suffix(".coverage")
    data_file.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += ["--hypothesis-seed=0", "-p", "benchmarks.mutants.recording", *digests]
    env = {**os.environ, "PYTHONPATH": str(tree), RECORD: str(data_file), DEAR: str(dear_s)}
    subprocess.run(command, cwd=tree, env=env, check=False, stdout=sys.stderr)
    spent_s: dict[str, float] = json.loads(kept.with_suffix(".seconds.json").read_text("utf-8"))
    data = coverage.CoverageData(str(data_file))
    data.read()
    return split(tree, data, spent_s, digests)


def split(
    tree: Path, data: Any, spent_s: dict[str, float], digests: dict[str, str]
) -> dict[str, Recorded]:
    """Coverage's data by test file and module."""
    files = {name: Recorded(digest) for name, digest in digests.items()}
    for test, cost_s in spent_s.items():
        files[test.partition("::")[0]].spent_s[test] = cost_s
    for path in data.measured_files():
        module = Path(path).relative_to(tree).as_posix()
        for line, tests in data.contexts_by_lineno(path).items():
            for test in tests:
                if file := files.get(test.partition("::")[0]):
                    file.lines.setdefault(module, {}).setdefault(line, []).append(test)
    return files


def _lines_of_statement(source: str, line: int) -> set[int] | None:
    """The lines of the statement around ``line``; none where all of the module's tests matter.

    A statement outside of functions runs when the module is imported, for all tests at once.
    """
    enclosing = [node for node in ast.walk(ast.parse(source)) if line in _own_lines(node)]
    functions = ast.FunctionDef | ast.Lambda
    inside = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, functions) and node.lineno < line <= (node.end_lineno or 0)
    ]
    if not inside or not enclosing:
        return None
    return set(min((_own_lines(node) for node in enclosing), key=len))


def _own_lines(node: ast.AST) -> range:
    """A statement's lines, without those of the statements within it."""
    if not isinstance(node, ast.stmt) or isinstance(node, ast.FunctionDef | ast.ClassDef):
        return range(0)
    body = getattr(node, "body", None)
    last = body[0].lineno - 1 if body else node.end_lineno or node.lineno
    return range(node.lineno, max(last, node.lineno) + 1)


def _digest(paths: list[Path]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _read(kept: Path) -> dict[str, Recorded]:
    if not kept.exists():
        return {}
    return {name: _of(fields) for name, fields in json.loads(kept.read_text("utf-8")).items()}


def _of(fields: dict[str, Any]) -> Recorded:
    """A recording as JSON has it, whose keys are texts."""
    lines = {
        module: {int(line): tests for line, tests in by_line.items()}
        for module, by_line in fields["lines"].items()
    }
    return Recorded(fields["digest"], fields["spent_s"], lines)


def _write(kept: Path, files: dict[str, Recorded]) -> None:
    kept.write_text(json.dumps({name: vars(file) for name, file in files.items()}), "utf-8")
