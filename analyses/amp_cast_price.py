"""What do the casts of mixed precision cost, and what does mixed precision save?

Claim of the kernel study: inference in PyTorch's AMP takes 1.63 times as long as in fp32 on
average, because AMP casts the inputs of cuDNN. Reads the timings and the casts of runs that differ
only in precision, and the steps of many sizes in measured/kernel_study.csv.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import altair as alt
import pandas as pd

import lstmprof as lp
from analyses import drawing, steps, sweep
from analyses.claims import ALIKE, Claim, Measured, quoted
from analyses.printing import main
from lstmprof.base.numbers import percent

COMMAND = (
    "lstmprof capture --impl torch-lstmcell-basic --precision fp32 --precision amp-bf16 "
    "--workload 1x320-ce-short --time-steps 20"
)
TORCH, TORCH_AMP = ("torch-nn-lstm", "fp32"), ("torch-nn-lstm", "amp-bf16")
KERAS, KERAS_AMP = ("keras-lstm", "fp32"), ("keras-lstm", "amp-bf16")
#: TensorFlow's AMP time over its fp32 time: the middle of the study's 10 to 15 % faster.
GAIN = 0.875
#: ``place`` of each claim that needs no exact time, so that the verdict is certain.
COUNTED = ("claim (f), casts",)
SAME = ["implementation", "workload", "mode", "version", "device"]


def table(runs: Sequence[lp.Run]) -> pd.DataFrame:
    """Return the ratio to fp32, and the casts, of each run in mixed precision."""
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
    """Return the kernel study's claims about AMP, with what our runs show."""
    lines = sweep.rows()
    seen = _seen(lines) if len(lines) else {}
    here, conditions = "torch-nn-lstm and keras-lstm, amp-bf16", "CPU, bf16"
    why = _why(lines) if len(lines) else ""
    own = rows[rows.implementation == "torch-nn-lstm"] if len(rows) else rows
    if len(own):
        seen["claim (f), average"] = {"ours": Measured.mean([*own.over_fp32])}
        here, conditions = ", ".join(own.workload), ", ".join(own["precision"].unique())
        why = f"casts take {percent(own.cast_share.max())} of a step at most"
    return [
        replace(
            claim,
            here=here,
            conditions=conditions,
            why=why,
            likely=claim.place not in COUNTED,
            **seen[claim.place],
        )
        if claim.place in seen
        else claim
        for claim in quoted("amp_cast_price")
    ]


def _seen(lines: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """Map the ``place`` of each claim to the fields of ``Claim`` that our sweeps fill."""
    length, hidden = (sweep.ratios(lines, TORCH_AMP, TORCH, s) for s in ("time_steps", "hidden"))
    keras, keras_length = (
        sweep.ratios(lines, KERAS_AMP, KERAS, s) for s in ("hidden", "time_steps")
    )
    amp_length = sweep.along(sweep.of(lines, TORCH_AMP), "time_steps").set_index("time_steps")
    amp_hidden = sweep.along(sweep.of(lines, TORCH_AMP), "hidden").set_index("hidden")
    casts, by_length, by_hidden = amp_length.cast_ms, amp_length.product_ms, amp_hidden.product_ms
    large = keras[keras.index >= 512]
    return {
        "claim (f), casts": {
            "holds": bool((casts > 0).all()),
            "seen": f"casts take {casts.iloc[0]:.3f} ms or more per step",
        },
        "claim (f), average": {"ours": Measured.mean(sweep.measured(lines, TORCH_AMP, TORCH))},
        "claim (f), time steps": {
            "holds": bool(length.iloc[-1] < 1 and length.iloc[-1] < length.iloc[0]),
            "seen": f"AMP over fp32: {sweep.text(length, 'time_steps')}",
        },
        "claim (f), TensorFlow": {
            "holds": bool((large < 1).all() and (large > GAIN / ALIKE).all()),
            "seen": f"AMP over fp32: {sweep.text(large, 'hidden')}",
        },
        "claim (f), small": {
            "holds": bool(keras.iloc[0] > 1 and keras_length.iloc[0] > 1),
            "seen": f"AMP over fp32: {keras.iloc[0]:.2f}× at hidden {keras.index[0]}, "
            f"{keras_length.iloc[0]:.2f}× at {keras_length.index[0]} time steps",
        },
        "claim (g), casts": {
            "holds": bool(casts.is_monotonic_increasing and casts.iloc[-1] > casts.iloc[0]),
            "seen": ", ".join(
                f"{row.cast_ms:.3g} ms ({percent(row.cast_ms / row.step_ms)} of the step) at {at:,}"
                for at, row in amp_length.iterrows()
            )
            + " (time steps)",
        },
        "claim (g), products": {
            "holds": bool(by_length.is_monotonic_increasing and by_hidden.is_monotonic_increasing),
            "seen": f"matmuls: {by_length.iloc[0]:.3g} to {by_length.iloc[-1]:.3g} ms with time "
            f"steps, {by_hidden.iloc[0]:.3g} to {by_hidden.iloc[-1]:.3g} ms with hidden size",
        },
        "claim (g), result": {
            "holds": bool(hidden.iloc[-1] < 1 and hidden.iloc[-1] <= hidden.min() * 1.05),
            "seen": f"AMP over fp32: {sweep.text(hidden, 'hidden')}; casts take "
            + ", ".join(
                f"{percent(row.cast_ms / row.step_ms)} at {at:,}"
                for at, row in amp_hidden.iterrows()
            ),
        },
    }


def _why(lines: pd.DataFrame) -> str:
    own = sweep.of(lines, TORCH_AMP)
    share = own.cast_ms / own.step_ms
    both = own.merge(sweep.of(lines, TORCH), on=sweep.SIZES)
    faster = both.product_ms_y / both.product_ms_x
    return (
        f"in bf16, casts take {percent(share.min())} to {percent(share.max())} of a step of "
        f"PyTorch's layer, and its matmuls are {faster.min():.2f} to {faster.max():.2f} times as "
        "fast as in fp32, on a CPU with bf16 matmul units"
    )


def conclusion(rows: pd.DataFrame) -> str:
    """Say what the study found, what our runs show, and why."""
    study = (
        "The study found that PyTorch takes 1.63 times as long in mixed precision (AMP) as in fp32 "
        "on average, because of casts. AMP saves time only for large layers"
    )
    average = next(c for c in claims(rows) if c.place == "claim (f), average")
    if average.ours is None:
        return f"{study}; no run here answers it"
    return (
        f"{study}. On a CPU, PyTorch takes {average.ours.text('×')} as long in AMP with bf16 as in "
        f"fp32 on average: {_why(sweep.rows())}"
    )


def chart(rows: pd.DataFrame) -> alt.LayerChart:
    labels = rows.implementation + ", " + rows["precision"]
    return drawing.bars(labels, rows.cast_share.tolist(), "of the step are casts")


if __name__ == "__main__":
    main(sys.modules[__name__])
