"""One mutant's tests, run in a process that was forked when pytest and the tables were imported.

The fault is written into the tree, so that processes which the tests start have it too, and taken
out again. The limit is one of CPU time: a busy machine kills no mutant.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import resource
import signal
import sys
import time
import traceback
from pathlib import Path

from benchmarks.mutants.recording import CHOSEN

KILLED = "killed"
SURVIVED = "survived"
TIMEOUT = "timeout"
UNTESTED = "no test runs it"
#: What costs the most to import, none of it mutated.
PRELOADED = ("pytest", "_hypothesis_pytestplugin", "hypothesis", "numpy", "pyarrow.compute")
PRELOADED += ("pyarrow.parquet", "pandas", "duckdb", "msgspec", "rich.console", "click", "jinja2")
#: pytest's own, where it finds none of the chosen tests: no mutant does that.
NO_TESTS = 5
#: Seconds of CPU beside those of the tests: a process' start and the modules' import.
STARTING_S = 20
#: How much longer than its CPU time a process may take: it waits, and others work too.
WAITING = 30


def preload() -> None:
    """Import what every mutant's process needs."""
    for name in PRELOADED:
        importlib.import_module(name)


def verdict(path: Path, code: str, tests: list[str], limit_s: float, output: Path) -> str:
    """What becomes of the module ``path`` with this ``code`` under these tests."""
    if not tests:
        return UNTESTED
    original = path.read_bytes()
    path.write_text(code, "utf-8")
    try:
        return _ended(_started(tests, limit_s, output), limit_s * WAITING)
    finally:
        path.write_bytes(original)


def _started(tests: list[str], limit_s: float, output: Path) -> int:
    """The number of a process that runs the tests in the current folder."""
    chosen = output.with_suffix(".chosen.json")
    chosen.write_text(json.dumps(tests), "utf-8")
    number = os.fork()
    if number:
        return number
    status = 1
    try:
        os.setsid()
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup's children ignore it
        resource.setrlimit(resource.RLIMIT_CPU, (int(limit_s) + 1, int(limit_s) + 2))
        os.environ[CHOSEN] = str(chosen)
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
        sys.dont_write_bytecode = True
        _write_to(output)
        status = _pytest(sorted({test.partition("::")[0] for test in tests}))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _pytest(files: list[str]) -> int:
    import pytest

    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "benchmarks.mutants.recording"]
    options += ["--hypothesis-seed=0", "--tb=line"]
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # what is preloaded
    return int(pytest.main([*options, *files]))


def _write_to(output: Path) -> None:
    """Send what this process and its children print to a file."""
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    for stream in (1, 2):
        os.dup2(descriptor, stream)


def _ended(number: int, wall_s: float) -> str:
    """Wait for the process and end what it leaves behind."""
    until = time.monotonic() + wall_s
    ended, status = os.waitpid(number, os.WNOHANG)
    while not ended and time.monotonic() < until:
        time.sleep(0.05)
        ended, status = os.waitpid(number, os.WNOHANG)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(number, signal.SIGKILL)
    if not ended:
        os.waitpid(number, 0)
        return TIMEOUT
    if os.WIFSIGNALED(status):
        return TIMEOUT if os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL) else KILLED
    code = os.waitstatus_to_exitcode(status)
    if code == NO_TESTS:
        raise SystemExit("none of the chosen tests was found: remove build/mutants and try again")
    return KILLED if code else SURVIVED
