"""A mutant's tests, run in a fork of a process that has imported what they need.

The fault is written into the tree, so that processes which the tests start have it too, and taken
out again. The limit is one of CPU time: a busy machine kills no mutant.
"""

from __future__ import annotations

import importlib
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

KILLED = "killed"
SURVIVED = "survived"
TIMEOUT = "timeout"
UNTESTED = "no test runs it"
#: What costs the most to import, none of it mutated.
PRELOADED = ("_hypothesis_pytestplugin", "hypothesis", "numpy", "pyarrow.compute", "pandas")
PRELOADED += ("pyarrow.parquet", "duckdb", "msgspec", "rich.console", "click", "jinja2")
#: pytest's own, where it finds none of the chosen tests: no mutant does that.
_NO_TESTS = 5
#: Seconds of CPU beside those of the tests: a process' start and the modules' import.
STARTING_S = 20
#: How much longer than its CPU time a process may take: it waits, and others work too.
_WAITING = 30
OPTIONS = ("-q", "-p", "no:cacheprovider", "--tb=line")
OPTIONS += ("-W", "ignore::pytest.PytestAssertRewriteWarning")  # what is preloaded


def preload() -> None:
    """Import what every mutant's process needs."""
    for name in PRELOADED:
        importlib.import_module(name)


@contextmanager
def planted(path: Path, code: str) -> Iterator[None]:
    """The module at ``path`` with this ``code``, for as long as the context."""
    original, times = path.read_bytes(), path.stat()
    path.write_text(code, "utf-8")
    try:
        yield
    finally:
        path.write_bytes(original)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))  # its bytecode holds again


def outcome(work: Callable[[], int], limit_s: float) -> str:
    """What becomes of a mutant where ``work``, done in a fork, returns 0 if all tests pass."""
    status = in_fork(work, limit_s)
    if status in (None, -signal.SIGXCPU, -signal.SIGKILL):
        return TIMEOUT
    if status == _NO_TESTS:
        raise SystemExit("none of the chosen tests was found: remove build/mutants and try again")
    return KILLED if status else SURVIVED


def in_fork(work: Callable[[], int], limit_s: float) -> int | None:
    """The exit status of a fork that does ``work``, −n of signal n; None if it did not end."""
    number = os.fork()
    if number == 0:
        _work(work, limit_s)
    until = time.monotonic() + limit_s * _WAITING
    ended, status = 0, 0
    try:
        while not ended and time.monotonic() < until:
            time.sleep(0.02)
            ended, status = os.waitpid(number, os.WNOHANG)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(number, signal.SIGKILL)  # what it leaves behind
        if not ended:
            os.waitpid(number, 0)
    return os.waitstatus_to_exitcode(status) if ended else None


def _work(work: Callable[[], int], limit_s: float) -> None:
    status = 1
    try:
        os.setsid()
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup's children ignore it
        resource.setrlimit(resource.RLIMIT_CPU, (int(limit_s) + 1, int(limit_s) + 2))
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
        sys.dont_write_bytecode = True
        status = work()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


class Failure:
    """Keeps the name of the first test that fails."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write it down: this process may be ended at any time."""
        if report.failed and not self._path.exists():
            self._path.write_text(report.nodeid, "utf-8")


class Choosing:
    """Runs the tests of a list, in the list's order."""

    def __init__(self, nodes: Sequence[str]) -> None:
        self._places = {node: place for place, node in enumerate(nodes)}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Drop what the list lacks and sort the rest."""
        items[:] = sorted(
            (item for item in items if item.nodeid in self._places),
            key=lambda item: self._places[item.nodeid],
        )


def collected_and_run(tests: Sequence[str], failure: Path, temporary: Path) -> int:
    """pytest's exit status, of these tests up to the first that fails."""
    files = sorted({test.partition("::")[0] for test in tests})
    options = [*OPTIONS, "-x", f"--basetemp={temporary}"]
    return int(pytest.main([*options, *files], plugins=[Choosing(tests), Failure(failure)]))


def write_to(output: Path) -> None:
    """Send what this process and its children print to a file."""
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
