"""What do the casts of mixed precision cost, and what does it save?

Claim: in inference PyTorch's AMP takes 1.63 times as long as fp32 on average, because it casts the
inputs of cuDNN (kernel study). Reads the timings and the casts of runs that differ in precision
alone.
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
from analyses.published import KERNELS, rows as published
from lstmprof.numbers import percent

COMMAND = (
    "lstmprof capture --impl torch-lstmcell-basic --precision fp32 --precision amp-bf16 "
    "--workload 1x320-ce-short --time-steps 20"
)
SAME = ["implementation", "workload", "mode", "version", "device"]


def table(runs: Sequence[lp.Run]) -> pd.DataFrame:
    """Return one row per run in mixed precision and its run in fp32: step, casts, their op."""
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
    """Return PyTorch's mean ratio of Table 2 with each PyTorch run, and the claims in words."""
    table = published("kernel_study")
    (error,) = table[(table["first"] == "PyTorch") & (table["second"] == "PyTorch AMP")].mpe
    own = rows[rows.implementation.str.startswith("torch-")] if len(rows) else rows
    measured = [
        Claim(
            KERNELS,
            "(f) PyTorch AMP over PyTorch, on average over all sizes",
            1 - error,
            row.over_fp32,
            here=f"{row.implementation}, {row.workload}, {row.precision}",
            why=f"here casts take {percent(row.cast_share)} of a step of {row.implementation} in "
            f"{row.precision}, with {row.casts_a_step:.0f} casts per step; the study's layer is "
            "one call of cuDNN in inference, which casts its inputs on a GPU",
        )
        for row in own.itertuples()
    ]
    return [*measured, *quoted("amp_cast_price")]


def chart(rows: pd.DataFrame) -> alt.LayerChart:
    """Draw the share of casts."""
    labels = rows.implementation + ", " + rows["precision"]
    return drawing.bars(labels, rows.cast_share.tolist(), "of the step are casts")


if __name__ == "__main__":
    main(sys.modules[__name__])
