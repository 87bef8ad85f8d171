"""Record which tests execute which mutants' statements, and the CPU time of each test, per file.

If a cache holds a value that an earlier test computed, a test does not execute the code again, and
the record lacks it. So a mutant may be reported to survive that the whole test suite would kill.
"""

from __future__ import annotations

import builtins
import json
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import pytest

from benchmarks.mutants.probing import REACHED

#: Tests below the first limit (CPU seconds) run first, then tests below the second, then others.
_TIERS_S = (0.1, 1.0)


@dataclass(frozen=True)
class Recorded:
    """The passing tests of one file: name -> (CPU seconds, numbers of mutants that it executes).

    ``shared`` are the mutants that fixtures execute, for all tests of the file. ``digest``
    identifies the code and mutants of the record.
    """

    digest: str
    tests: dict[str, tuple[float, list[int]]] = field(default_factory=dict)
    shared: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Tests:
    """The recorded tests of one area, by file."""

    files: Sequence[Recorded]

    def of(self, number: int | None, most_s: float, module: str) -> list[str]:
        """Return the tests that execute mutant ``number`` of ``module``; with None, all tests.

        Tests in a file named like the module come first, then the fastest. Together they take at
        most ``most_s`` CPU seconds.
        """
        costs = {
            test: spent_s
            for file in self.files
            for test, (spent_s, numbers) in file.tests.items()
            if number is None or number in numbers or number in file.shared
        }
        chosen, sum_s = [], 0.0
        for test in sorted(costs, key=lambda t: (not _is_own(t, module), costs[t], t)):
            sum_s += costs[test]
            if sum_s > most_s:
                break
            chosen.append(test)

        def place(test: str) -> tuple[bool, int, str, float]:
            file = test.partition("::")[0]  # tests of a file together share fixtures
            return not _is_own(test, module), _tier(costs[test]), file, costs[test]

        return sorted(chosen, key=place)

    def cost_s(self, tests: Sequence[str]) -> float:
        """Return the recorded CPU seconds of ``tests``, in total."""
        costs = {test: spent_s for file in self.files for test, (spent_s, _) in file.tests.items()}
        return sum(costs[test] for test in tests)


def _is_own(test: str, module: str) -> bool:
    """Return whether the file name of ``test`` contains the name of ``module`` or of its folder."""
    _, _, *folders = Path(module).with_suffix("").parts
    stem = Path(test.partition("::")[0]).stem
    return any(name.strip("_") in stem for name in folders if name != "__init__")


def _tier(spent_s: float) -> int:
    return sum(spent_s >= limit_s for limit_s in _TIERS_S)


def read(kept: Path) -> dict[str, Recorded]:
    """Return the stored records in the file ``kept``, by test file."""
    if not kept.exists():
        return {}
    return {name: Recorded(**row) for name, row in json.loads(kept.read_text("utf-8")).items()}


def write(kept: Path, files: dict[str, Recorded]) -> None:
    """Store the records ``files`` in the file ``kept``."""
    kept.write_text(json.dumps({name: vars(file) for name, file in files.items()}), "utf-8")


def record(
    session: pytest.Session, items: Sequence[pytest.Item], digest: str, dear_s: float
) -> Recorded:
    """Run the tests ``items`` of one file and return their record; modules must have probes.

    A test that starts a capture, or takes more than ``dear_s`` CPU seconds, is skipped.
    """
    recording = _Recording(dear_s)
    setattr(builtins, REACHED, recording.numbers.add)
    session.config.pluginmanager.register(recording)
    recorded = Recorded(digest)
    for item, following in zip_longest(items, items[1:]):
        before_s = _cpu_s()
        recording.passed = True
        item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
        spent_s = _cpu_s() - before_s
        if recording.passed and spent_s <= dear_s:  # the limit does not stop child processes
            recorded.tests[item.nodeid] = (round(spent_s, 4), sorted(recording.numbers))
    return Recorded(digest, recorded.tests, sorted(recording.shared))


class _Recording:
    """A pytest plugin: records the mutants that the current test executes, and if it passes."""

    def __init__(self, dear_s: float) -> None:
        self.numbers: set[int] = set()
        self.shared: set[int] = set()
        self.passed = True
        self._dear_s = dear_s
        signal.signal(signal.SIGPROF, skipped)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self) -> Iterator[None]:
        """Set up the fixtures of a test; count the mutants that they execute for the whole file."""
        self.numbers.clear()
        with self._limit():
            result = yield
        self.shared |= self.numbers
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Iterator[None]:
        """Run the test with a limit on its CPU time."""
        with self._limit():
            return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note whether the test passes in every phase (setup, call, teardown)."""
        self.passed &= report.passed

    @contextmanager
    def _limit(self) -> Iterator[None]:
        """Skip the current test when it exceeds the limit on CPU time."""
        signal.setitimer(signal.ITIMER_PROF, self._dear_s)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)


def skipped(*_: int | FrameType | Any) -> NoReturn:
    """Skip the current test; a signal handler, and a stand-in for functions."""
    pytest.skip("dear: no mutant is run against it")


def _cpu_s() -> float:
    """Return the CPU seconds of this process and of its ended children."""
    return sum(os.times()[:4])
