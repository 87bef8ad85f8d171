"""How much of a step does a GPU wait for its host?

Claim: launching is 72.4 % of the sampled time of Keras's mode 1 in inference, and about as much of
mode 2 (kernel study). Reads the ledger of every run on a GPU; runs of a CPU have no launches.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace

import altair as alt
import pandas as pd

import lstmprof as lp
from analyses import drawing
from analyses.claims import Claim, Measured, quoted
from analyses.printing import main

COMMAND = (
    "lstmprof capture --impl 'torch-*' --impl 'keras-lstm*' --mode forward --device cuda:0 "
    "--workload 1x320-ce-short"
)
#: Time that an infinitely fast host would save (docs/ledger.md), also in tails.
WAITS = ("launch call", "launch latency", "runtime", "alloc", "dispatch", "python", "host")
COLUMNS = ["run", "implementation", "workload", "mode", "launching", "waits_for_host"]


def table(runs: Sequence[lp.Run]) -> pd.DataFrame:
    """Return one row per run on a GPU: its share of launching, and of all waiting for the host."""
    return pd.DataFrame([_row(run) for run in runs if _on_gpu(run)], columns=COLUMNS)


def _on_gpu(run: lp.Run) -> bool:
    return (run.info.device or "cpu") != "cpu"


def _row(run: lp.Run) -> dict[str, object]:
    ledger = run.ledger().to_pandas()
    ledger = ledger[ledger.device.notna()]
    part = ledger["part"].str.removeprefix("tail:")
    idle = ledger.state == "idle"
    whole = ledger.ns.sum()
    return {
        "run": run.name,
        "implementation": run.info.implementation,
        "workload": run.info.workload.name,
        "mode": run.info.mode,
        "launching": float(ledger[idle & part.isin(WAITS[:2])].ns.sum() / whole),
        "waits_for_host": float(ledger[idle & part.isin(WAITS)].ns.sum() / whole),
    }


def claims(rows: pd.DataFrame) -> list[Claim]:
    """Return the share of launching in the forward pass of Keras's mode 1."""
    own = rows[(rows.implementation == "keras-lstm-mode1") & (rows["mode"] == "forward")]
    (claim,) = quoted("kernel_study_launch_share")
    if not len(own):
        return [claim]
    ours = Measured(float(own.launching.iloc[-1]) * 100)
    here = f"keras-lstm-mode1 forward, {own.workload.iloc[-1]}"
    return [replace(claim, ours=ours, here=here, why="the study does not name its sizes")]


def chart(rows: pd.DataFrame) -> alt.LayerChart:
    """Draw the share of each run."""
    return drawing.bars(rows.run, rows.waits_for_host.tolist(), "of the step waits for the host")


if __name__ == "__main__":
    main(sys.modules[__name__])
