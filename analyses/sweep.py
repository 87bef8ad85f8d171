"""Read measured/kernel_study.csv: step times of one LSTM layer in inference, by size.

``python -m benchmarks.kernel_sweep`` writes the file on a CPU. Each sweep varies only the batch,
the time steps or the hidden size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pandas as pd

from analyses.claims import Measured
from lstmprof.base.numbers import percent

FILE = Path(__file__).parent / "measured" / "kernel_study.csv"
SIZES = ["batch", "time_steps", "hidden"]
#: Layer of a sweep: (implementation, precision).
Layer = tuple[str, str]


def rows() -> pd.DataFrame:
    return pd.read_csv(FILE) if FILE.exists() else pd.DataFrame(columns=COLUMNS)


COLUMNS = [
    *("implementation", "precision", *SIZES, "step_ms", "low_ms", "high_ms"),
    *("ops", "cast_ms", "product_ms", "version", "date", "machine"),
]


def of(lines: pd.DataFrame, layer: Layer) -> pd.DataFrame:
    implementation, precision = layer
    return lines[(lines.implementation == implementation) & (lines["precision"] == precision)]


def along(lines: pd.DataFrame, size: str) -> pd.DataFrame:
    """Return the rows in which only ``size`` varies, smallest first."""
    others = [name for name in SIZES if name != size]
    at = lines.groupby(others)[size].transform("nunique")
    return lines[at == at.max()].sort_values(size, kind="stable")


def ratios(lines: pd.DataFrame, over: Layer, under: Layer, size: str) -> pd.Series:
    """Return the ratio of two layers' steps at each ``size``, such as 0.93 at batch 1."""
    both = of(lines, over).merge(of(lines, under), on=SIZES, suffixes=("", "_under"))
    chosen = along(both, size)
    quotient = chosen.step_ms / chosen.step_ms_under
    return quotient.set_axis(chosen[size].astype(int))


def measured(lines: pd.DataFrame, over: Layer, under: Layer) -> list[Measured]:
    """Return the ratio of two layers' steps at each common size, with its interval."""
    both = of(lines, over).merge(of(lines, under), on=SIZES, suffixes=("", "_under"))
    return [
        Measured(line.step_ms, line.low_ms, line.high_ms).over(
            Measured(line.step_ms_under, line.low_ms_under, line.high_ms_under)
        )
        for line in both.itertuples()
    ]


def sure(lines: pd.DataFrame, over: Layer, under: Layer, size: str) -> bool:
    """Return whether the 95 % interval of each ratio along ``size`` excludes 1."""
    chosen = [along(of(lines, layer), size) for layer in (over, under)]
    quotients = measured(pd.concat(chosen), over, under)
    return not any((q.low or q.value) <= 1 <= (q.high or q.value) for q in quotients)


def crossovers(ratio: pd.Series) -> list[float]:
    """Return the sizes at which ``ratio`` passes 1, by interpolation on logarithmic axes."""
    pairs = list(ratio.items())
    return [
        math.exp(math.log(a) + (math.log(b) - math.log(a)) * math.log(p) / math.log(p / q))
        for (a, p), (b, q) in pairwise(pairs)
        if (p - 1) * (q - 1) < 0
    ]


def text(ratio: pd.Series, size: str) -> str:
    """Return ratios as text: ``0.93× at 1, 1.20× at 256 (batch)``."""
    values = ", ".join(f"{value:.2f}× at {at:,}" for at, value in ratio.items())
    return f"{values} ({size.replace('_', ' ')})"


def machine(lines: pd.DataFrame) -> str:
    """Say when, on which machine and how exactly the sweeps were captured."""
    parts: Sequence[str] = [*lines.date.unique(), *lines.machine.unique(), *lines.version.unique()]
    below = 1 - (lines.low_ms / lines.step_ms).median()
    return (
        f"{', '.join(map(str, parts))}). The lower end of the 95 % interval of such a step is "
        f"{percent(below)} below the step (median of all sizes)"
    )
