"""Run the tests of an area: one process collects them and forks for each test file and mutant."""

from __future__ import annotations

import gc
import hashlib
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import pytest

from benchmarks.mutants import planting, recording, running
from benchmarks.mutants.drawing import Mutant
from benchmarks.mutants.probing import has_functions, is_within_function, probed
from benchmarks.mutants.recording import Recorded, Tests

#: Maximum CPU seconds to record all tests of a file.
_MOST_OF_A_FILE_S = 1800


@dataclass(frozen=True)
class Limits:
    """Limits in CPU seconds.

    A test that takes more than ``dear_s`` is never run. The tests of one mutant take at most
    ``spend_s`` in all.
    """

    dear_s: float
    spend_s: float


@dataclass(frozen=True)
class Place:
    """The folder ``build``: a copy of the checkout, and the files written by the benchmark."""

    build: Path

    @property
    def tree(self) -> Path:
        """Return the folder with the copy of the checkout."""
        return self.build / "tree"

    @property
    def failure(self) -> Path:
        """Return the file with the name of the first test that failed on a mutant."""
        return self.build / "failed.txt"

    @property
    def temporary(self) -> Path:
        """Return the folder for the tests' temporary files."""
        return self.build / "temporary"


Todo = Callable[[Mutant], bool]
Tell = Callable[[Mutant, str, int], None]


class Area:
    """An area of the code: its tests, and the mutants that the tests should notice."""

    def __init__(self, name: str, mutants: Sequence[Mutant], place: Place, limits: Limits) -> None:
        self.name, self.mutants = name, mutants
        self.place, self.limits = place, limits
        self._sound: set[str] = set()
        self._unsound: set[str] = set()

    def run(self, todo: Todo, tell: Tell) -> None:
        """Run the tests of each mutant for which ``todo`` is True.

        ``tell(mutant, outcome, number of tests)`` is called after each mutant.
        """
        collected = running.in_fork(lambda: self._collected(todo, tell), 24 * 3600)
        if collected:
            output = self.place.build / "output.txt"
            raise SystemExit(f"the tests of {self.name} cannot be collected or run: see {output}")
        for mutant in filter(todo, self.mutants):  # mutants outside of functions: import anew
            self.give(mutant, tell, self._run_anew)

    def tests(self, mutant: Mutant) -> list[str]:
        """Return the names of the tests to run on ``mutant``."""
        files = recording.read(self._kept)
        number = self.mutants.index(mutant)
        source = (self.place.tree / mutant.path).read_text("utf-8")
        chosen = Tests([*files.values()]).of(
            number if has_functions(source) else None, self.limits.spend_s, mutant.path
        )
        return [test for test in chosen if test not in self._unsound]

    @property
    def _kept(self) -> Path:
        return self.place.build / f"{self.name}.tests.json"

    def _collected(self, todo: Todo, tell: Tell) -> int:
        """Collect and record the tests, then run them on the mutants within functions.

        Return pytest's exit code.
        """
        warnings.simplefilter("ignore")  # libraries warn about forks
        running.write_to(self.place.build / "output.txt")
        options = [*running.OPTIONS, f"--basetemp={self.place.temporary}"]
        loop = _Loop(self, todo, tell)
        return int(pytest.main([*options, f"tests/{self.name}"], plugins=[loop]))

    def record(self, session: pytest.Session, functions: planting.Functions) -> None:
        """Record each test file, unless its record is valid for the same code and mutants."""
        files = recording.read(self._kept)
        code = _digest(sorted((self.place.tree / "lstmprof").rglob("*.py")))
        code += hashlib.sha256(repr([*self.mutants]).encode()).hexdigest()[:8]
        items: dict[str, list[pytest.Item]] = {}
        for item in session.items:
            items.setdefault(item.nodeid.partition("::")[0], []).append(item)
        recorded: dict[str, Recorded] = {}
        modules = _probed_modules(self.place.tree, self.mutants)
        for name, of_file in items.items():
            digest = _digest([self.place.tree / name]) + code + f" {self.limits.dear_s}"
            if name in files and files[name].digest == digest:
                recorded[name] = files[name]
                continue
            recorded[name] = self._recorded(session, of_file, digest, functions, modules)
            recording.write(self._kept, {**files, **recorded})
        recording.write(self._kept, recorded)

    def _recorded(
        self,
        session: pytest.Session,
        items: Sequence[pytest.Item],
        digest: str,
        functions: planting.Functions,
        modules: Mapping[Path, planting.Source],
    ) -> Recorded:
        answer = self.place.build / "recorded.json"
        answer.unlink(missing_ok=True)

        def work() -> int:
            for path, module in modules.items():
                planting.plant(functions, path, module)
            recorded = recording.record(session, items, digest, self.limits.dear_s)
            recording.write(answer, {"": recorded})
            return 0

        running.in_fork(work, _MOST_OF_A_FILE_S)
        return recording.read(answer).get("", Recorded(digest))

    def give(
        self,
        mutant: Mutant,
        tell: Tell,
        run: Callable[[Mutant | None, Sequence[str]], str],
    ) -> None:
        """Run the tests of ``mutant`` with ``run``, and ``tell`` the outcome.

        If the test that fails also fails without the mutant, exclude the test and try again.
        """
        while True:
            tests = self.tests(mutant)
            outcome = run(mutant, tests) if tests else running.UNTESTED
            failed = self.place.failure.read_text("utf-8") if self.place.failure.exists() else ""
            if outcome != running.KILLED or not failed or failed in self._sound:
                break
            if run(None, [failed]) == running.SURVIVED:
                self._sound.add(failed)
                break
            self._unsound.add(failed)
        tell(mutant, outcome, len(tests))

    def verdict(self, mutant: Mutant | None, tests: Sequence[str], work: Callable[[], int]) -> str:
        """Write ``mutant`` to the tree; return the outcome of ``work``, which runs ``tests``.

        With ``mutant`` None, the tree is unchanged.
        """
        self.place.failure.unlink(missing_ok=True)
        cost_s = Tests([*recording.read(self._kept).values()]).cost_s(tests)
        limit_s = running.STARTING_S + 3 * cost_s
        if mutant is None:
            return running.outcome(work, limit_s)
        path = self.place.tree / mutant.path
        with running.planted(path, mutant.code(path.read_text("utf-8"))):
            return running.outcome(work, limit_s)

    def _run_anew(self, mutant: Mutant | None, tests: Sequence[str]) -> str:
        def work() -> int:
            running.write_to(self.place.build / "output.txt")
            return running.collected_and_run(tests, self.place.failure, self.place.temporary)

        return self.verdict(mutant, tests, work)


class _Loop:
    """A pytest plugin: replaces pytest's loop over the collected tests."""

    def __init__(
        self,
        area: Area,
        todo: Todo,
        tell: Tell,
    ) -> None:
        self._area, self._todo, self._tell = area, todo, tell

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Record the tests, then run them on the mutants within functions."""
        if session.testsfailed:
            raise session.Interrupted(f"{session.testsfailed} errors during collection")
        self._session = session
        self._items = {item.nodeid: item for item in session.items}
        area = self._area
        paths = sorted({mutant.path for mutant in area.mutants})
        self._functions = planting.functions_of(area.place.tree, paths)
        _refuse_captures()
        gc.freeze()
        area.record(session, self._functions)
        session.config.pluginmanager.register(running.Failure(area.place.failure))
        for mutant in filter(self._todo, area.mutants):
            source = (area.place.tree / mutant.path).read_text("utf-8")
            if is_within_function(source, mutant.start):
                area.give(mutant, self._tell, self._run_here)
        return True

    def _run_here(self, mutant: Mutant | None, tests: Sequence[str]) -> str:
        def work() -> int:
            os.ftruncate(1, 0)
            if mutant is not None:
                path = self._area.place.tree / mutant.path
                planting.plant(self._functions, path, path.read_text("utf-8"))
            return self._failed([self._items[test] for test in tests])

        return self._area.verdict(mutant, tests, work)

    def _failed(self, items: Sequence[pytest.Item]) -> int:
        for item, following in zip_longest(items, items[1:]):
            item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
            if self._session.testsfailed:
                return 1
        return 0


def _refuse_captures() -> None:
    from lstmprof.capture.harness import supervisor

    supervisor._started = recording.skipped  # type: ignore[assignment]


def _probed_modules(tree: Path, mutants: Sequence[Mutant]) -> dict[Path, planting.Source]:
    """Return the path of each mutated module -> its code with probes (see ``probing``)."""
    modules = {}
    for path in sorted({mutant.path for mutant in mutants}):
        positions = {n: m.start for n, m in enumerate(mutants) if m.path == path}
        modules[tree / path] = probed((tree / path).read_text("utf-8"), positions)
    return modules


def _digest(paths: Sequence[Path]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
