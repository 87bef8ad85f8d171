"""Run a mutant's tests in a fork of a process that has already imported what they need.

During the tests, the fault is also in the source file, for processes that the tests start. The
limit is on CPU time, so that a mutant does not count as noticed because the machine is busy.
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
#: Modules that take long to import; none of them is mutated.
PRELOADED = ("_hypothesis_pytestplugin", "hypothesis", "numpy", "pyarrow.compute", "pandas")
PRELOADED += ("pyarrow.parquet", "duckdb", "msgspec", "rich.console", "click", "jinja2")
#: pytest's exit code if it finds none of the chosen tests; this is never the effect of a mutant.
_NO_TESTS = 5
#: CPU seconds, beyond the tests, for the start of a process and the import of modules.
STARTING_S = 20
#: Maximum wall time of a process, as a multiple of its limit on CPU time.
_WAITING = 30
OPTIONS = ("-q", "-p", "no:cacheprovider", "--tb=line")
OPTIONS += ("-W", "ignore::pytest.PytestAssertRewriteWarning")  # preloaded modules


def preload() -> None:
    """Import the modules that the processes of all mutants need."""
    for name in PRELOADED:
        importlib.import_module(name)


@contextmanager
def planted(path: Path, code: str) -> Iterator[None]:
    """Within the context, replace the content of the module at ``path`` by ``code``."""
    original, times = path.read_bytes(), path.stat()
    path.write_text(code, "utf-8")
    try:
        yield
    finally:
        path.write_bytes(original)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))  # so that bytecode stays valid


def outcome(work: Callable[[], int], limit_s: float) -> str:
    """Run ``work`` in a fork; return the outcome of the mutant: killed, survived or timeout.

    ``work`` returns 0 if all tests pass; ``limit_s`` is its limit in CPU seconds.
    """
    status = in_fork(work, limit_s)
    if status in (None, -signal.SIGXCPU, -signal.SIGKILL):
        return TIMEOUT
    if status == _NO_TESTS:
        raise SystemExit("none of the chosen tests was found: remove build/mutants and try again")
    return KILLED if status else SURVIVED


def in_fork(work: Callable[[], int], limit_s: float) -> int | None:
    """Run ``work`` in a fork; return its exit code, −n for signal n, or None if it had to be ended.

    ``limit_s`` is the limit in CPU seconds.
    """
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
            os.killpg(number, signal.SIGKILL)  # processes that it started
        if not ended:
            os.waitpid(number, 0)
    return os.waitstatus_to_exitcode(status) if ended else None


def _work(work: Callable[[], int], limit_s: float) -> None:
    status = 1
    try:
        os.setsid()
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup makes children ignore it
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
    """A pytest plugin: writes the name of the first failing test to the file ``path``."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write the name at once, because this process may be killed at any time."""
        if report.failed and not self._path.exists():
            self._path.write_text(report.nodeid, "utf-8")


class Choosing:
    """A pytest plugin: runs only the tests in ``nodes``, in this order."""

    def __init__(self, nodes: Sequence[str]) -> None:
        self._places = {node: place for place, node in enumerate(nodes)}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Remove tests that are not in the list, and sort the others."""
        items[:] = sorted(
            (item for item in items if item.nodeid in self._places),
            key=lambda item: self._places[item.nodeid],
        )


def collected_and_run(tests: Sequence[str], failure: Path, temporary: Path) -> int:
    """Collect and run ``tests`` until one fails; return pytest's exit code.

    The name of the failed test is written to the file ``failure``.
    """
    files = sorted({test.partition("::")[0] for test in tests})
    options = [*OPTIONS, "-x", f"--basetemp={temporary}"]
    return int(pytest.main([*options, *files], plugins=[Choosing(tests), Failure(failure)]))


def write_to(output: Path) -> None:
    """Redirect stdout and stderr of this process and its children to the file ``output``."""
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
