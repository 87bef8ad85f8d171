"""How much of a step does a GPU wait for its host?

Claim of the kernel study, for inference: launches take 72.4 % of the sampled time of Keras's mode 1
(many small matmuls), and about as much in mode 2 (few large matmuls). We compare only runs on a
GPU, because a CPU has no launches.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace

import altair as alt
import pandas as pd

import lstmprof as lp
from analyses import drawing
from analyses.claims import Claim, Measured, alike, quoted
from analyses.printing import main
from lstmprof.base.numbers import percent

COMMAND = (
    "lstmprof capture --impl 'torch-*' --impl 'keras-lstm*' --mode forward --device cuda:0 "
    "--workload 1x320-ce-short"
)
#: Causes of a device's idle time that an infinitely fast host would remove (docs/ledger.md).
WAITS = ("launch call", "launch latency", "runtime", "alloc", "dispatch", "python", "host")
COLUMNS = ["run", "implementation", "workload", "mode", "launching", "waits_for_host"]


def table(runs: Sequence[lp.Run]) -> pd.DataFrame:
    """Return each GPU run's share of launches, and of all waits for the host."""
    return pd.DataFrame(
        [_row(run) for run in runs if run.info.device not in (None, "cpu")], columns=COLUMNS
    )


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
    """Return claims about the share of launches in Keras's modes 1 and 2."""
    share, same, result = quoted("kernel_study_launch_share")
    launching = rows[rows["mode"] == "forward"].drop_duplicates("implementation", keep="last")
    launching = launching.set_index("implementation")
    if "keras-lstm-mode1" not in launching.index:
        return [share, same, result]
    mode1 = launching.loc["keras-lstm-mode1"]
    ours = Measured(mode1.launching * 100)
    here = f"keras-lstm-mode1 forward, {mode1.workload}"
    why = "the study does not name its sizes"
    share = replace(share, ours=ours, here=here, conditions="GPU", why=why)
    if "keras-lstm-mode2" not in launching.index:
        return [share, same, result]
    mode2 = Measured(launching.loc["keras-lstm-mode2"].launching * 100)
    holds = alike(ours.value, mode2.value)
    same = replace(same, holds=holds, seen=mode2.text("%"), conditions="GPU")
    return [share, same, result]


def conclusion(rows: pd.DataFrame) -> str:
    """Say what the study found, what our runs show, and why."""
    found = "The study found that launches take 72.4 % of the sampled time in Keras's mode 1"
    if not len(rows):
        return f"{found}. Our runs cannot show this share, because a CPU launches nothing"
    shares = ", ".join(f"{row.run} {percent(row.launching)}" for row in rows.itertuples())
    return f"{found}. On our GPU launches take these shares of a step: {shares}"


def chart(rows: pd.DataFrame) -> alt.LayerChart:
    return drawing.bars(rows.run, rows.waits_for_host.tolist(), "of the step waits for the host")


if __name__ == "__main__":
    main(sys.modules[__name__])
