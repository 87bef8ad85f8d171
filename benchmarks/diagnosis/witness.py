"""Compare the breakdown with what a sampling profiler sees from outside, for six implementations.

Each is captured by ``lstmprof capture --sampler``: with py-spy for PyTorch, and with linux-perf for
TensorFlow and JAX, which compute in threads that py-spy does not see. The table, in Markdown, is
for docs/accuracy.md; shares are of the clean step. It takes less than five minutes::

    python benchmarks/diagnosis/witness.py [--seconds 24] [--keep FOLDER]

py-spy must be on PATH or beside this interpreter.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

from lstmprof.breakdown import break_down
from lstmprof.capture.request import PERF, PY_SPY
from lstmprof.runs.run import Run, open_run

#: Pairs (implementation, sampler).
CASES = (
    ("torch-nn-lstm", PY_SPY),
    ("torch-lstmcell-fused", PY_SPY),
    ("torch-lstmcell-basic", PY_SPY),
    ("torch-script", PY_SPY),
    ("tf-lstmcell", PERF),
    ("jax-scan", PERF),
)
#: Largest difference of two shares, in percentage points, that counts as agreement.
AGREES_POINTS = 3.0
#: A part is in the table if it is at least this share of the samples or of the breakdown.
LEAST_SHARE = 0.01


def captured(implementation: str, sampler: str, seconds: float, out: Path) -> Run:
    """Capture ``implementation`` into ``out``, sampled for ``seconds``, unless the run exists."""
    name = f"{implementation}-{sampler}"
    command = [sys.executable, "-m", "lstmprof", "capture", "--impl", implementation]
    command += ["--sampler", sampler, "--sampler-seconds", str(seconds), "--device", "cpu"]
    command += ["--no-peaks", "--out", str(out), "--name", name]
    if not (out / name).exists():
        subprocess.run(command, check=True, stdout=sys.stderr)
    return open_run(out / name)


def table(runs: list[Run]) -> list[str]:
    """Return a Markdown table with one line per run and part of the breakdown.

    A line has both shares of the part, the sampling error, and the difference of the shares.
    """
    lines = [
        "| implementation | sampler, samples | part | ledger % | sampler % | ± | points |",
        "|---|---|---|---:|---:|---:|---:|",
    ]
    for run in runs:
        sampling = (run.info.sampling or ())[-1]
        if sampling.reason:
            lines.append(f"| {run.info.implementation} | {sampling.reason} | | | | | |")
            continue
        rows = [r for r in break_down(run).table("witness").to_pylist() if r["kind"] == "part"]
        total = sum(row["samples"] for row in rows)
        for row in rows:
            ours = row["ledger_share"]
            if max(row["share"], ours or 0) < LEAST_SHARE:
                continue
            points = row["difference_points"]
            cells = (
                f"{run.info.implementation}",
                f"{sampling.sampler}, {total:,}",
                row["name"],
                "–" if ours is None else f"{100 * ours:.1f}",
                f"{100 * row['share']:.1f}",
                f"{100 * row['error']:.1f}",
                "–" if points is None else _marked(points),
            )
            lines.append("| " + " | ".join(cells) + " |")
    return lines


def _marked(points: float) -> str:
    text = f"{points:+.1f}"
    return text if abs(points) <= AGREES_POINTS else f"**{text}**"


def main() -> None:
    """Capture the implementations that the options select, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=24.0, help="of samples, all rounds")
    parser.add_argument(
        "--keep", type=Path, help="folder of the runs, used again if they are there"
    )
    parser.add_argument("--only", help="a part of the names of implementations")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="witness-") as scratch:
        out = arguments.keep or Path(scratch)
        runs = [
            captured(implementation, sampler, arguments.seconds, out)
            for implementation, sampler in CASES
            if (arguments.only or "") in implementation
        ]
        load = os.getloadavg()[1]
        print(
            f"{datetime.date.today()}, {platform.processor() or platform.machine()}, "
            f"{os.cpu_count()} CPUs, load of 5 minutes {load:.1f}\n"
        )
        print("\n".join(table(runs)))


if __name__ == "__main__":
    main()
