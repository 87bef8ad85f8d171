"""Capture the sweeps of the kernel study on this machine into analyses/measured/kernel_study.csv.

The network is one LSTM layer in inference, on one thread of a CPU. Each sweep varies one of batch,
time steps and hidden size; the other two keep the values of ``CENTRE``. Mixed precision is bf16,
because on CPUs PyTorch's and TensorFlow's LSTMs have no fp16 matmul. ``python -m
benchmarks.kernel_sweep`` captures the points that the file lacks, and adds the rows of each point
to the file as soon as it is captured. ``--list`` prints the commands.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

import lstmprof as lp

SWEEP = Path(__file__).resolve().parents[1] / "analyses" / "measured" / "kernel_study.csv"
#: The point that belongs to all three sweeps: (batch, time steps, hidden size).
CENTRE = (16, 100, 256)
SWEEPS = {"batch": (1, 64, 256), "time_steps": (10, 1000), "hidden": (128, 512, 1024)}
#: Captures of each point: (implementations, precisions). The runs of one capture alternate.
TURNS = (
    (("torch-nn-lstm", "keras-lstm"), ("fp32", "amp-bf16")),
    (("keras-lstm-mode1", "keras-lstm-mode2"), ("fp32",)),
)
SETTINGS = (
    *("--mode", "forward", "--device", "cpu", "--workload", "deepbench-lstm-h512-b16-t25"),
    *("--rounds", "1", "--iterations", "25", "--warmup", "2", "--timing-seconds", "3"),
    *("--profile-steps", "6", "--no-peaks"),
)


@dataclass(frozen=True)
class Point:
    """A combination of sizes in a sweep; the number of input features equals ``hidden``."""

    batch: int
    time_steps: int
    hidden: int

    def commands(self, out: str) -> list[list[str]]:
        """Return lstmprof's arguments for each of ``TURNS``; runs are saved in ``out``."""
        size = ("--batch", self.batch, "--time-steps", self.time_steps)
        width = ("--hidden", self.hidden, "--features", self.hidden)
        return [
            [
                "capture",
                *(word for name in names for word in ("--impl", name)),
                *(word for name in precisions for word in ("--precision", name)),
                *SETTINGS,
                *map(str, (*size, *width)),
                *("--out", out),
            ]
            for names, precisions in TURNS
        ]


def points() -> list[Point]:
    """Return the centre of the sweeps, then the other points of each sweep."""
    centre = Point(*CENTRE)
    others = [
        Point(**{**vars(centre), size: value})
        for size, values in SWEEPS.items()
        for value in values
    ]
    return [centre, *others]


def row(run: lp.Run) -> dict[str, object]:
    """Return the row of the CSV file for a run, by column.

    Times are of the clean step, in ms; ``ops`` counts the ops of a profiled step.
    """
    info, timings = run.info, run.timings()
    assert timings is not None
    events = run.table("events").to_pandas()
    profiled = events[events["step"].notna()]
    steps = profiled["step"].nunique()
    (clean,) = run.breakdown.steps()
    parts_ms = {part: ns / 1e6 for _, part, ns in clean.mean_parts}
    versions = info.versions or {}
    low, high = timings.step_low_ns, timings.step_high_ns
    return {
        "implementation": info.implementation,
        "precision": info.precision,
        "batch": info.workload.batch,
        "time_steps": info.workload.time_steps,
        "hidden": info.workload.hidden,
        "step_ms": round(timings.step_ns / 1e6, 4),
        "low_ms": None if low is None else round(low / 1e6, 4),
        "high_ms": None if high is None else round(high / 1e6, 4),
        "ops": int((profiled.kind == "op").sum() / steps),
        "cast_ms": round(parts_ms.get("cast", 0.0), 4),
        "product_ms": round(parts_ms.get("gemm", 0.0) + parts_ms.get("rnn", 0.0), 4),
        "version": f"{info.framework} {versions.get(info.framework or '')}",
        "date": str(info.started_at)[:10],
        "machine": f"{info.hardware.cpu_model}, {info.threads} thread",
    }


def captured(point: Point) -> list[dict[str, object]]:
    """Capture one point, and return the rows of its runs for the CSV file."""
    lines = []
    for words in point.commands("runs"):
        with tempfile.TemporaryDirectory(prefix="kernel-sweep-") as folder:
            command = [sys.executable, "-m", "lstmprof", *words[:-1], folder]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            lines += [row(run) for run in lp.read_all([folder])]
    return lines


def main() -> None:
    """Capture every point that the file lacks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", action="store_true", help="print the commands only")
    if parser.parse_args().list:
        for point in points():
            for words in point.commands("runs"):
                print("lstmprof", *words)
        return
    for point in points():
        lines = pd.read_csv(SWEEP) if SWEEP.exists() else pd.DataFrame(columns=[*vars(point)])
        if (lines[[*vars(point)]] == [*vars(point).values()]).all(axis=1).any():
            continue
        pd.concat([lines, pd.DataFrame(captured(point))]).to_csv(SWEEP, index=False)


if __name__ == "__main__":
    main()
