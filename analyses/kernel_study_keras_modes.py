"""Which mode of Keras's LSTM layer is the fastest, and why?

Claim of the kernel study: mode 1 (many small matmuls) is faster than mode 2 (few large matmuls) for
batches of 16 or less. Mode 1 is also faster for 1000 time steps or more. Mode 0 is Keras's layer
with default options, which calls cuDNN on a GPU.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace

import altair as alt
import pandas as pd

import lstmprof as lp
from analyses import drawing, steps, sweep
from analyses.claims import ALIKE, Claim, quoted
from analyses.printing import main
from lstmprof.base.numbers import percent

MODE1, MODE2 = ("keras-lstm-mode1", "fp32"), ("keras-lstm-mode2", "fp32")
COMMAND = (
    "lstmprof capture --impl keras-lstm --impl keras-lstm-mode1 --impl keras-lstm-mode2 "
    "--mode forward --workload 1x320-ce-short --time-steps 20"
)
MODES = {"keras-lstm": 0, "keras-lstm-mode1": 1, "keras-lstm-mode2": 2}


def table(runs: Sequence[lp.Run]) -> pd.DataFrame:
    """Return, per network and mode, the step time and the shares of matmuls and idle time."""
    own = steps.table(runs)
    own = own[own.implementation.isin(MODES) & (own["mode"] == "forward")]
    ledgers = {run.name: run.ledger().to_pandas() for run in runs if run.name in set(own.run)}
    rows = []
    for workload, group in own.groupby("workload"):
        captured = steps.newest(group[group["precision"] == "fp32"])
        fastest = captured.loc[captured.step_ms.idxmin()]
        for _, row in captured.iterrows():
            ledger = ledgers[row.run]
            rows.append(
                {
                    "workload": workload,
                    "mode": MODES[row.implementation],
                    "batch": row.batch,
                    "time_steps": row.time_steps,
                    "ms": row.step_ms,
                    "over_fastest": steps.measured(row).over(steps.measured(fastest)),
                    "products": part_share(ledger, ledger["part"].isin(("gemm", "rnn"))),
                    "idle": part_share(ledger, ledger.state == "idle"),
                }
            )
    return pd.DataFrame(rows).sort_values(["workload", "mode"]) if rows else pd.DataFrame()


def part_share(ledger: pd.DataFrame, chosen: pd.Series) -> float:
    return float(ledger[chosen].ns.sum() / ledger.ns.sum())


def claims(rows: pd.DataFrame) -> list[Claim]:
    """Return the study's claims about modes 1 and 2, with what our sweeps show."""
    lines = sweep.rows()
    by_batch, by_length = quoted("kernel_study_keras_modes")
    if not len(lines):
        return [by_batch, by_length]
    batch, length = (sweep.ratios(lines, MODE1, MODE2, size) for size in ("batch", "time_steps"))
    few = batch[batch.index <= 16]
    return [
        _seen(by_batch, bool((few < 1).all() and batch.iloc[-1] > ALIKE), batch, "batch"),
        _seen(by_length, bool(length.iloc[0] > 1 > length.iloc[-1]), length, "time_steps"),
    ]


def _seen(claim: Claim, holds: bool, ratio: pd.Series, size: str) -> Claim:
    return replace(
        claim,
        holds=holds,
        likely=not sweep.sure(sweep.rows(), MODE1, MODE2, size),
        seen=f"mode 1 over mode 2: {sweep.text(ratio, size)}",
        here="keras-lstm-mode1, keras-lstm-mode2",
        conditions="CPU",
        why=_why(sweep.rows()),
    )


def _why(lines: pd.DataFrame) -> str:
    """Explain the difference between modes 1 and 2 by their ops and matmuls."""
    one, two = (sweep.of(lines, mode) for mode in (MODE1, MODE2))
    ops = [(side.ops / side.time_steps).median() for side in (one, two)]
    products = [(side.product_ms / side.step_ms).median() for side in (one, two)]
    rest = [((side.step_ms - side.product_ms) / side.ops).median() * 1e3 for side in (one, two)]
    return (
        f"mode 1 runs {ops[0]:.3g} ops per time step, and mode 2 only {ops[1]:.3g}. Matmuls take "
        f"{percent(products[0])} of a step in mode 1, and {percent(products[1])} in mode 2. The "
        f"other work takes {rest[0]:.1f} µs per op in mode 1, and {rest[1]:.1f} µs per op in mode "
        "2. On a GPU, each of these ops is a launch"
    )


def conclusion(rows: pd.DataFrame) -> str:
    """Say what the study found, what our runs show, and why."""
    study = (
        "The study found that mode 1 of Keras's layer (many small matmuls) is faster than mode 2 "
        "(few large matmuls) for small batches and for long sequences"
    )
    ratios = [ratio.value for ratio in sweep.measured(sweep.rows(), MODE1, MODE2)]
    if not ratios:
        return f"{study}; no run here answers it"
    return (
        f"{study}. On a CPU, at {len(ratios)} sizes, mode 1 takes {min(ratios):.2f} to "
        f"{max(ratios):.2f} times as long as mode 2: {_why(sweep.rows())}"
    )


def chart(rows: pd.DataFrame) -> alt.LayerChart:
    labels = "mode " + rows["mode"].astype(str) + ", " + rows.workload.astype(str)
    return drawing.bars(labels, rows.ms.tolist(), "ms per batch, forward")


if __name__ == "__main__":
    main(sys.modules[__name__])
