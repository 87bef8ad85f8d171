"""What do the casts of mixed precision cost, and what does it save?

Claim: none is quoted: no text of the kernel study was at hand. It compared mixed precision with
fp32. Reads the timings and the table of casts of runs that differ in precision alone.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import altair as alt
import pandas as pd

import lstmprof as lp
from analyses import drawing, steps
from analyses.claims import Claim
from analyses.printing import main

COMMAND = (
    "lstmprof capture --impl torch-lstmcell-basic --precision fp32 --precision amp-bf16 "
    "--workload 1x320-ce-short --time-steps 20"
)
SAME = ["implementation", "workload", "mode", "version", "device"]


def table(runs: Sequence[lp.Run]) -> pd.DataFrame:
    """One row a run in mixed precision beside its run in fp32: step, casts, who asks for them."""
    own = steps.table(runs)
    named = {run.name: run for run in runs}
    amp = own[own["precision"].astype(str).str.startswith("amp-")]
    pairs = amp.merge(own[own["precision"] == "fp32"], on=SAME, suffixes=("", "_fp32"))
    rows = [_row(pair, named[pair.run]) for _, pair in pairs.iterrows()]
    return pd.DataFrame(rows)


def _row(pair: pd.Series, run: lp.Run) -> dict[str, object]:
    casts = run.table("casts").to_pandas()
    profiled_ns = run.ledger().to_pandas().ns.sum()
    fp32 = steps.measured(
        pair[["step_ms_fp32", "low_ms_fp32", "high_ms_fp32"]].set_axis(
            ["step_ms", "low_ms", "high_ms"]
        )
    )
    asked_by = casts.sort_values("total_ns").within.dropna().astype(str).tolist()
    return {
        "implementation": pair.implementation,
        "workload": pair.workload,
        "precision": pair["precision"],
        "over_fp32": steps.measured(pair).over(fp32),
        "casts_a_step": float(casts.per_step.sum()),
        "cast_share": float(casts.total_ns.sum() / profiled_ns),
        "largest_asked_by": asked_by[-1] if asked_by else None,
    }


def claims(rows: pd.DataFrame) -> list[Claim]:
    """None: no number of the study could be read."""
    return []


def chart(rows: pd.DataFrame) -> alt.LayerChart:
    """The share of casts."""
    labels = rows.implementation + ", " + rows["precision"]
    return drawing.bars(labels, rows.cast_share.tolist(), "of the step are casts")


if __name__ == "__main__":
    main(sys.modules[__name__])
