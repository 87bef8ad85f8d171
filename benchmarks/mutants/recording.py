"""The pytest plugin of a mutant's tests: which lines each test runs, or only the tests chosen.

Loaded by name (``-p benchmarks.mutants.recording``) in a process of its own. With MUTANTS_RECORD it
keeps, beside coverage's data of that name, what each test cost; a test that starts a capture, or
that takes more than MUTANTS_DEAR seconds of CPU, is skipped. With MUTANTS_CHOSEN it runs the tests
that this file names, in its order, and no other.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import NoReturn

import pytest

RECORD = "MUTANTS_RECORD"
DEAR = "MUTANTS_DEAR"
CHOSEN = "MUTANTS_CHOSEN"
#: Ends the name of the context of what ran before a test did: its fixtures, which others may share.
SETUP = "|setup"


def pytest_configure(config: pytest.Config) -> None:
    """Take up recording, choosing, or nothing, as the environment says."""
    if path := os.environ.get(RECORD):
        config.pluginmanager.register(Recording(Path(path), float(os.environ[DEAR])))
    if path := os.environ.get(CHOSEN):
        config.pluginmanager.register(Choosing(json.loads(Path(path).read_text("utf-8"))))


class Choosing:
    """Runs the tests of a list, in the list's order."""

    def __init__(self, nodes: list[str]) -> None:
        self._places = {node: place for place, node in enumerate(nodes)}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Drop what the list lacks and sort the rest."""
        items[:] = sorted(
            (item for item in items if item.nodeid in self._places),
            key=lambda item: self._places[item.nodeid],
        )


class Recording:
    """Keeps the lines and the CPU time of each test that passes."""

    def __init__(self, path: Path, dear_s: float) -> None:
        import coverage

        self._path = path
        self._dear_s = dear_s
        self._spent_s: dict[str, float] = {}
        self._not_passed: set[str] = set()
        self._began_s = 0.0
        self._coverage = coverage.Coverage(
            data_file=str(path), source=["lstmprof"], config_file=False, messages=False
        )
        self._coverage.start()

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """Skip what starts a capture, and what takes long, when it does."""
        from lstmprof.capture import supervisor

        supervisor._started = _skipped  # type: ignore[assignment]
        signal.signal(signal.SIGPROF, _skipped)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Give the test's lines to its name, and its time."""
        self._coverage.switch_context(item.nodeid + SETUP)
        self._began_s = _cpu_s()
        try:
            return (yield)
        finally:
            self._coverage.switch_context("")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        """Run the test under its own name, for no more CPU time than one may cost."""
        self._coverage.switch_context(item.nodeid)
        signal.setitimer(signal.ITIMER_PROF, self._dear_s)
        try:
            return (yield)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            self._spent_s[item.nodeid] = _cpu_s() - self._began_s  # not what others' fixtures end

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember what no mutant can be held against."""
        if not report.passed:
            self._not_passed.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        """Write coverage's data and, beside it, the seconds of each test."""
        self._coverage.stop()
        self._coverage.save()
        spent_s = {
            node: spent_s
            for node, spent_s in self._spent_s.items()
            if node not in self._not_passed and spent_s < self._dear_s
        }
        self._path.with_suffix(".seconds.json").write_text(json.dumps(spent_s, indent=0), "utf-8")


def _skipped(*_: int | FrameType | None) -> NoReturn:
    pytest.skip("dear: no mutant is run against it")


def _cpu_s() -> float:
    """Seconds of CPU of this process and of the children it has waited for."""
    return sum(os.times()[:4])
