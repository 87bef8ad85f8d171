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

# What machines set for whatever runs on them, by how it begins and by its whole name: threads and
# memory of libraries, the language, the terminal, Python's own switches, and that it is a CI. No
# test, no worker of xdist and no process of a test sees it. A test sets what it is about by itself.
_OF_MACHINES = (
    *("OPENBLAS_", "OMP_", "GOMP_", "KMP_", "MKL_", "BLIS_", "NUMEXPR_", "VECLIB_", "MALLOC_"),
    *("LC_", "CLICOLOR", "TTY_", "PYTHONMALLOC"),
)
_NAMES_OF_MACHINES = {
    *("LANG", "LANGUAGE", "COLUMNS", "LINES", "JUPYTER_COLUMNS", "JUPYTER_LINES"),
    *("NO_COLOR", "FORCE_COLOR", "COLORTERM", "PYTHON_COLORS", "CI", "GITHUB_ACTIONS"),
    *("PYTHONUTF8", "PYTHONIOENCODING", "PYTHONCOERCECLOCALE", "PYTHONUNBUFFERED"),
    *("PYTHONSAFEPATH", "PYTHONOPTIMIZE", "PYTHONDEVMODE", "PYTHONWARNINGS", "PYTHONVERBOSE"),
    *("PYTHONDEBUG", "PYTHONINSPECT", "PYTHONFAULTHANDLER", "PYTHONTRACEMALLOC"),
    "PYTHONPROFILEIMPORTTIME",
}
# Which kernels BLAS may take stays: a machine says so where those that older libraries would take,
# as of a Python of another era, compute wrong or crash on its processor. To clear it would make no
# two machines alike, as the processor chooses then: no test may rest on the last digit of a sum.
_KEPT = {"OPENBLAS_CORETYPE", "MKL_DEBUG_CPU_TYPE", "MKL_ENABLE_INSTRUCTIONS"}
if "benchmarks.mutants" in sys.modules:  # it forks this process, and set that for its sake
    _KEPT.add("OMP_NUM_THREADS")

# pytest's own colours are as the user says.
_COLOUR = "no" if os.environ.get("NO_COLOR") else "yes" if os.environ.get("FORCE_COLOR") else "auto"

for _name in list(os.environ):
    if _name not in _KEPT and (_name.startswith(_OF_MACHINES) or _name in _NAMES_OF_MACHINES):
        del os.environ[_name]
for _name in ("COLUMNS", "LINES"):  # readline, which pytest imports, sets them past os.environ
    os.unsetenv(_name)
os.environ["LANG"] = "C.UTF-8"  # of what is started, too, Python or not

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


# The test files by folder that `make test` leaves to `make test-all`: those that took 9 s and more.
SLOW = {
    "": "analyses analyses_by_hand api gpu_session oldest_dependencies signals",
    "attack": "faults readers",
    "breakdown": "real_profiles_by_definition whole_steps",
    "breakdown/replay": "against_simulator critical_path real_profiles_replayed",
    "breakdown/tables": "shared_profile_tables",
    "capture": "capture failures implementation_file jax killed_capture lines nsys "
    "other_frameworks peaks plan pytensor sampling tensorflow torch_precision worker_imports",
    "capture/callbacks": "callbacks",
    "capture/own": "session watch",
    "capture/script": "launch own_code ranks",
    "commands": "diagnose mcp permissions query",
    "diagnose": "builtin gpu_causes layers_of_others_on_a_gpu programs_of_others torch_causes",
    "diagnose/recommend": "code",
    "docs": "action own_code slow_lstm",
    "events/annotate": "in_batches",
    "export": "perfetto",
    "formats": "kineto_stream kineto_workers read",
    "implementations": "against_reference old_tensorflow tensorflow_precision",
    "report": "in_browser report_of",
    "runs": "cluster damages jobs shares",
}
# Of these, `make test` runs one capture of each large framework.
FIRST_CAPTURES = {
    f"test_a_capture_is_complete[{row}]"
    for row in ("torch-nn-lstm", "tf-lstmcell", "keras-lstm", "jax-scan")
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of slow files as ``slow``."""
    tests = Path(__file__).parent
    slow = {
        tests / folder / f"test_{name}.py"
        for folder, names in SLOW.items()
        for name in names.split()
    }
    for item in items:
        if item.path in slow and item.name not in FIRST_CAPTURES:
            item.add_marker(pytest.mark.slow)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Colour what pytest says as it would without the clearing above."""
    if config.option.color == "auto":
        config.option.color = _COLOUR


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
