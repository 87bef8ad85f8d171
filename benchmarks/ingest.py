"""Compare the time and memory to read a big Kineto profile: lstmprof, HTA and TraceLens.

A profile is grown from a real one (``big_profiles``). In each round every tool reads it once, in
its own process; the medians of the process times are compared. HTA and TraceLens run in the
interpreter that ``--peers`` names (docs/peers.md says how to install them).

Example: ``python benchmarks/ingest.py real.pt.trace.json.gz --bytes 1e8 --peers /venv/bin/python``
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import big_profiles

_INGEST = (
    "import sys; from lstmprof.__main__ import main;"
    "sys.argv[1:] = ['ingest', sys.argv[1], '--out', sys.argv[2], '--force'];"
    "main()"
)
_BREAKDOWN = (
    "import sys; from pathlib import Path; from lstmprof.runs.run import runs_in;"
    "from lstmprof.breakdown import break_down;"
    "[break_down(run) for run in runs_in(Path(sys.argv[2]))]"
)
_JSON = "import json, sys; json.load(open(sys.argv[1]))"
_HTA = (
    "import logging, sys; logging.disable(); from hta.trace_analysis import TraceAnalysis;"
    "TraceAnalysis({0: sys.argv[1]}, include_last_profiler_step=True)"
)
_TRACELENS = (
    "import sys; from TraceLens.TreePerf.tree_perf import TreePerfAnalyzer;"
    "TreePerfAnalyzer.from_file(sys.argv[1]).get_df_gpu_timeline()"
)
_LOOK_S = 0.02  # seconds between two measurements of memory
_OWN = {"lstmprof ingest": _INGEST, "lstmprof breakdown": _BREAKDOWN, "json.load": _JSON}
_PEERS = {"HTA parse": _HTA, "TraceLens timeline": _TRACELENS}


@dataclass(frozen=True)
class Cost:
    """Time and peak memory of one process, including the processes that it starts.

    ``cpu_seconds`` is comparable even on a busy machine. ``ok`` is True if the process succeeded.
    """

    seconds: float
    cpu_seconds: float
    memory_mb: float
    ok: bool


def cost(python: str, code: str, *words: str) -> Cost:
    """Run ``code`` with the arguments ``words`` in a new ``python`` process; return its cost."""
    start = time.perf_counter()
    child = subprocess.Popen(
        [python, "-c", code, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    most_bytes = 0
    while (ended := os.wait4(child.pid, os.WNOHANG))[0] == 0:
        most_bytes = max(most_bytes, _resident_bytes(child.pid))
        time.sleep(_LOOK_S)
    _, status, usage = ended
    child.returncode = os.waitstatus_to_exitcode(status)
    return Cost(
        time.perf_counter() - start,
        usage.ru_utime + usage.ru_stime,
        max(most_bytes / 1e6, usage.ru_maxrss * 1024 / 1e6),
        child.returncode == 0,
    )


def _resident_bytes(pid: int) -> int:
    """Return the resident memory of process ``pid`` and its children; shared pages count twice."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        tasks = list(Path(f"/proc/{pid}/task").glob("*/children"))
        children = [int(one) for task in tasks for one in task.read_text().split()]
    except (OSError, IndexError):  # the process has ended
        return 0
    return pages * resource.getpagesize() + sum(map(_resident_bytes, children))


def main() -> None:
    """Print one row per tool: median time, peak memory, and time relative to lstmprof's ingest."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("profile", type=Path, help="a real Kineto profile to grow")
    parser.add_argument("--bytes", type=float, default=1e8, help="size to grow it to")
    parser.add_argument("--gzip", action="store_true", help="write it gzipped")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peers", help="the Python that has HTA and TraceLens")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        big = Path(folder) / ("big.json.gz" if given.gzip else "big.json")
        big_profiles.write(given.profile, int(given.bytes), big)
        tools = [(name, sys.executable, code) for name, code in _OWN.items()]
        tools = [tool for tool in tools if not (given.gzip and tool[2] == _JSON)]
        if given.peers:
            tools += [(name, given.peers, code) for name, code in _PEERS.items()]
        costs: dict[str, list[Cost]] = {name: [] for name, *_ in tools}
        for _ in range(given.rounds):
            for name, python, code in tools:
                costs[name].append(cost(python, code, str(big), str(Path(folder) / "runs")))
        print(f"{big.name}, {big.stat().st_size / 1e6:.0f} MB, {given.rounds} rounds")
    report(costs)


def report(costs: dict[str, list[Cost]]) -> None:
    """Print one row per tool; ``costs`` maps a tool's name to its costs, one per round."""
    own = [one.seconds for one in costs["lstmprof ingest"]]
    own_cpu = [one.cpu_seconds for one in costs["lstmprof ingest"]]
    print(f"{'':20}{'median s':>10}{'CPU s':>8}{'MB':>8}{'times ingest':>14}{'by CPU':>8}")
    for name, found in costs.items():
        if not all(one.ok for one in found):
            print(f"{name:20}    failed")
            continue
        seconds = statistics.median(one.seconds for one in found)
        ratio = statistics.median(one.seconds / mine for one, mine in zip(found, own, strict=True))
        cpu_seconds = statistics.median(one.cpu_seconds for one in found)
        by_cpu = statistics.median(
            one.cpu_seconds / mine for one, mine in zip(found, own_cpu, strict=True)
        )
        memory_mb = max(one.memory_mb for one in found)
        print(
            f"{name:20}{seconds:10.2f}{cpu_seconds:8.2f}{memory_mb:8.0f}{ratio:14.2f}{by_cpu:8.2f}"
        )


if __name__ == "__main__":
    main()
