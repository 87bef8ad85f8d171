"""Measure how long commands take to start, as whole processes.

Each round runs each command once. A first round, which warms the disk cache and writes bytecode,
does not count. The table has medians, and for comparison the time of an empty Python process and of
the imports that a breakdown needs. Limits: 0.25 s for help and 1.0 s for the breakdown of a small
run. Goals: 0.08 s and 0.3 s. Name three runs to measure also ``diagnose`` of the first two and
``report`` of all. Goals: 0.5 s and 2 s of CPU time.

Example: ``python benchmarks/startup.py traces/my-run traces/second traces/third``
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time

ROUNDS = 15
_NOTHING = "python -c pass"
_IMPORTS = {
    "import click": "import click",
    "import numpy": "import numpy",
    "import pyarrow.parquet, .compute": "import pyarrow.parquet, pyarrow.compute",
    "these, click, msgspec, rich": "import pyarrow.parquet, pyarrow.compute, click, msgspec; "
    "import rich.console, rich.table",
}
#: The environment without PYTHONDONTWRITEBYTECODE, because pip installs lstmprof with bytecode.
_ENVIRONMENT = {
    name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"
}


def commands(runs: list[str], folder: str) -> dict[str, list[str]]:
    """Return the name of each measurement -> its command line, which writes only to ``folder``."""
    lstmprof = [sys.executable, "-m", "lstmprof"]
    run = runs[0]
    page = f"{folder}/report.html"
    of_several = {
        "lstmprof diagnose, two runs": [*lstmprof, "diagnose", *runs[:2]],
        "lstmprof report, three runs": [*lstmprof, "report", *runs[:3], "--out", page, "--force"],
    }
    return {
        _NOTHING: [sys.executable, "-c", "pass"],
        **{name: [sys.executable, "-c", code] for name, code in _IMPORTS.items()},
        "lstmprof --help": [*lstmprof, "--help"],
        "lstmprof list": [*lstmprof, "list"],
        "lstmprof breakdown": [*lstmprof, "breakdown", run],
        "lstmprof breakdown --format json": [*lstmprof, "breakdown", run, "--format", "json"],
        **(of_several if len(runs) > 2 else {}),
    }


def cost(command: list[str]) -> tuple[float, float]:
    """Run ``command``; return its wall time and its CPU time in seconds."""
    start = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=_ENVIRONMENT)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"{' '.join(command)} failed")
    return time.perf_counter() - start, usage.ru_utime + usage.ru_stime


def main(runs: list[str], folder: str) -> None:
    """Measure all commands on ``runs``, and print one row for each."""
    measured = commands(runs, folder)
    costs: dict[str, list[tuple[float, float]]] = {name: [] for name in measured}
    for number in range(ROUNDS + 1):
        for name, command in measured.items():
            found = cost(command)
            costs[name] += [found] if number else []
    medians = {
        name: [statistics.median(column) for column in zip(*found, strict=True)]
        for name, found in costs.items()
    }
    print(f"{'command':34}{'median s':>10}{'CPU s':>8}{'times Python':>14}")
    for name, (seconds, cpu_s) in medians.items():
        ratio = seconds / medians[_NOTHING][0]
        print(f"{name:34}{seconds:10.3f}{cpu_s:8.3f}{ratio:14.1f}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(sys.argv[1:], folder)
