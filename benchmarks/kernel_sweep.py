"""Capture the sweeps of the kernel study on this machine into analyses/measured/kernel_study.csv.

One LSTM layer in inference, on one thread of a CPU: batch, time steps and hidden size vary one at
a time around one point. Mixed precision is bf16, because CPUs have no fp16 matmul in PyTorch's or
TensorFlow's LSTM. ``python -m benchmarks.kernel_sweep`` captures the points that the file lacks and
adds each as soon as it is done; ``--list`` prints the commands.
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
#: The point that belongs to all three sweeps: batch, time steps, hidden size.
CENTRE = (16, 100, 256)
SWEEPS = {"batch": (1, 64, 256), "time_steps": (10, 1000), "hidden": (128, 512, 1024)}
#: Runs that take turns with each other: implementations, precisions.
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
    """A size of the sweep; inputs are as wide as the layer."""

    batch: int
    time_steps: int
    hidden: int

    def commands(self, out: str) -> list[list[str]]:
        """Return the arguments of the captures of this point, one for each of ``TURNS``."""
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
    """Return the centre of the sweeps, then each other size of each sweep."""
    centre = Point(*CENTRE)
    others = [
        Point(**{**vars(centre), size: value})
        for size, values in SWEEPS.items()
        for value in values
    ]
    return [centre, *others]


def row(run: lp.Run) -> dict[str, object]:
    """Return the line of the file for a run.

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
    """Return the lines of one point, captured now."""
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
