"""What has to happen in the test process before any test module is imported, and second tries.

A test that is marked ``measured`` rests on a measurement of this machine: a capture whose verdict
it reads, a price of recording, a race of processes. Others' work may disturb a measurement, so
such a test has up to three tries, each with fixtures of its own; what is broken fails in all of
them. Whatever needed another try is told at the end. No other test may rest on time.
"""

# TensorFlow's library exports SQLite's functions: imported after it, sqlite3 runs on those.
import gc
import os
import signal
import sqlite3  # noqa: F401
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol
from hypothesis import HealthCheck, settings
from tries import EARLIER_TRIES

# OpenVINO's import forks the process to report itself; JAX, if it is loaded, warns of the fork.
sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]

# How long an example takes says how busy the machine is, the more so with a worker on every core.
# The examples are the same in every run; others: pytest --hypothesis-profile=others.
settings.register_profile(
    "same",
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("others", settings.get_profile("same"), derandomize=False)
settings.load_profile("same")

# A shell lets what it starts in its background ignore SIGINT, and so would every process that a
# test interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# After 700 new containers, as it does by itself, Python looks for cycles among all that thousands
# of tests and five frameworks made: a quarter of the processor time of collecting the tests alone.
gc.set_threshold(50_000)


@pytest.fixture(scope="session")
def session_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for what is made once for all tests of a session, whichever process runs them."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture
def profiles_read_once(session_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one test reads of a profile is there for the others, which leave its run as it is."""
    monkeypatch.setenv("LSTMPROF_CACHE", str(session_folder / "profiles-read"))


TRIES = 3
_FAILED = "an earlier try failed"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run a test that measures up to three times, and report its last try."""
    if item.get_closest_marker("measured") is None:
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for left in reversed(range(TRIES)):
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        if not left or not any(report.failed for report in reports):
            break
        item.config.stash[EARLIER_TRIES] = item.config.stash.get(EARLIER_TRIES, 0) + 1
        item.user_properties.append((_FAILED, _reason(reports)))
        # A measurement may have been made by a fixture of the module or the session. One that
        # does not end well was disturbed too.
        with suppress(Exception, pytest.fail.Exception):
            item.session._setupstate.teardown_exact(None)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def pytest_unconfigure() -> None:
    """Let the process end with no look at all that was imported: 2.5 s of CPU with PyTorch.

    DuckDB would take what is not cleared away for leaks, and list it.
    """
    if "_duckdb" not in sys.modules:
        gc.freeze()


def _reason(reports: Sequence[pytest.TestReport]) -> str:
    failure = next(report for report in reports if report.failed)
    lines = [line[1:].strip() for line in failure.longreprtext.splitlines() if line[:1] == "E"]
    return " ".join(lines)[:400] or failure.longreprtext[-400:]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tell what was disturbed, so that it is seen when it comes often."""
    told = [
        f"{report.nodeid}: {reason}"
        for report in terminalreporter.getreports("passed")
        for name, reason in report.user_properties
        if (report.when, name) == ("call", _FAILED)
    ]
    if told:
        terminalreporter.section("measured again")
        terminalreporter.write_line("\n".join(told))
