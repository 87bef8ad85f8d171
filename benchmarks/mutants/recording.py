"""Which tests come to which mutant, and what each costs: kept for each test file.

A test's mutants are those that it comes to in its own process: what another test computed first and
a cache kept is not among them, so that a mutant may be said to survive which the whole area would
kill.
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

#: Seconds of CPU up to which tests are run before all that cost more.
_TIERS_S = (0.1, 1.0)


@dataclass(frozen=True)
class Recorded:
    """The tests of one file that pass: (seconds of CPU, the mutants that it comes to).

    ``shared`` are those that fixtures come to, which other tests may share.
    """

    digest: str
    tests: dict[str, tuple[float, list[int]]] = field(default_factory=dict)
    shared: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Tests:
    """The tests of one area, as recorded."""

    files: Sequence[Recorded]

    def of(self, number: int | None, most_s: float, module: str) -> list[str]:
        """The tests that come to a mutant of ``module``, all for None, up to ``most_s``.

        First those of a file that is called like it, then the cheapest.
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
            file = test.partition("::")[0]  # its tests in a row: their fixtures are made once
            return not _is_own(test, module), _tier(costs[test]), file, costs[test]

        return sorted(chosen, key=place)

    def cost_s(self, tests: Sequence[str]) -> float:
        """Seconds of CPU that these took when they were recorded."""
        costs = {test: spent_s for file in self.files for test, (spent_s, _) in file.tests.items()}
        return sum(costs[test] for test in tests)


def _is_own(test: str, module: str) -> bool:
    """Whether the test's file is called like the module, or like a folder of it."""
    _, _, *folders = Path(module).with_suffix("").parts
    stem = Path(test.partition("::")[0]).stem
    return any(name.strip("_") in stem for name in folders if name != "__init__")


def _tier(spent_s: float) -> int:
    return sum(spent_s >= limit_s for limit_s in _TIERS_S)


def read(kept: Path) -> dict[str, Recorded]:
    """What was recorded before, by test file."""
    if not kept.exists():
        return {}
    return {name: Recorded(**row) for name, row in json.loads(kept.read_text("utf-8")).items()}


def write(kept: Path, files: dict[str, Recorded]) -> None:
    """Keep what was recorded."""
    kept.write_text(json.dumps({name: vars(file) for name, file in files.items()}), "utf-8")


def record(
    session: pytest.Session, items: Sequence[pytest.Item], digest: str, dear_s: float
) -> Recorded:
    """Run the tests of one file, whose modules are probed.

    A test that starts a capture, or that takes more than ``dear_s`` of CPU, is skipped.
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
        if recording.passed and spent_s <= dear_s:  # processes that it starts are not limited
            recorded.tests[item.nodeid] = (round(spent_s, 4), sorted(recording.numbers))
    return Recorded(digest, recorded.tests, sorted(recording.shared))


class _Recording:
    """The mutants that the test comes to that is run, and whether it passes."""

    def __init__(self, dear_s: float) -> None:
        self.numbers: set[int] = set()
        self.shared: set[int] = set()
        self.passed = True
        self._dear_s = dear_s
        signal.signal(signal.SIGPROF, skipped)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self) -> Iterator[None]:
        """Make its fixtures, which other tests may share."""
        self.numbers.clear()
        with self._limit():
            result = yield
        self.shared |= self.numbers
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Iterator[None]:
        """Run it."""
        with self._limit():
            return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """See whether it passes in every phase."""
        self.passed &= report.passed

    @contextmanager
    def _limit(self) -> Iterator[None]:
        """Skip what takes long, when it does."""
        signal.setitimer(signal.ITIMER_PROF, self._dear_s)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)


def skipped(*_: int | FrameType | Any) -> NoReturn:
    """End the test that is run."""
    pytest.skip("dear: no mutant is run against it")


def _cpu_s() -> float:
    """Seconds of CPU of this process and of the children it has waited for."""
    return sum(os.times()[:4])
