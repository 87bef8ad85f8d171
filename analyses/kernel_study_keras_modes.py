"""Which mode of Keras's LSTM layer is the fastest, and why?

Claim: mode 1 (many small matmuls) is faster than mode 2 (few large ones) for batches of 16 or less
and from 1000 time steps on (kernel study). Mode 0 is cuDNN on a GPU; on a CPU it is the layer with
its defaults. Reads the timings and the ledger of forward runs.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import altair as alt
import pandas as pd

import lstmprof as lp
from analyses import drawing, steps
from analyses.claims import Claim, quoted
from analyses.printing import main

COMMAND = (
    "lstmprof capture --impl keras-lstm --impl keras-lstm-mode1 --impl keras-lstm-mode2 "
    "--mode forward --workload 1x320-ce-short --time-steps 20"
)
MODES = {"keras-lstm": 0, "keras-lstm-mode1": 1, "keras-lstm-mode2": 2}


def table(runs: Sequence[lp.Run]) -> pd.DataFrame:
    """Return one row per mode and network: the step, and where it goes."""
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
    """Return the share (0–1) of a ledger's time for which ``chosen`` is True."""
    return float(ledger[chosen].ns.sum() / ledger.ns.sum())


def claims(rows: pd.DataFrame) -> list[Claim]:
    """Return the study's claims about modes 1 and 2 in words; kernel_study_kernels has its
    numbers.
    """
    return quoted("kernel_study_keras_modes")


def chart(rows: pd.DataFrame) -> alt.LayerChart:
    """Draw the step of each mode."""
    labels = "mode " + rows["mode"].astype(str) + ", " + rows.workload.astype(str)
    return drawing.bars(labels, rows.ms.tolist(), "ms a batch, forward")


if __name__ == "__main__":
    main(sys.modules[__name__])
