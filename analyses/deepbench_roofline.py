"""How near is a recurrent layer to the fastest matmul, and what does a larger batch cost?

Claim of DeepBench, for cuDNN's LSTM of 512 units on a V100: a batch of 128 takes 1.8 times as long
as a batch of 16, and the forward pass computes 5.6 times as many FLOP/s. Our layers also multiply
the inputs by weights, which doubles the work.
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
from analyses.published import DEEPBENCH, rows as published
from lstmprof.base.numbers import percent
from lstmprof.runs.metadata import condition

COMMAND = "lstmprof capture --impl torch-nn-lstm --workload 'deepbench-lstm-*'"
IMPLEMENTATION = "torch-nn-lstm"
GATES = {"lstm": 4, "gru": 3}
#: Largest number of operations in a step that we capture. More take 30 s or longer on a core.
MOST_OPERATIONS = 2e12
#: Size that grows → sizes that stay equal.
GROWING = {"batch": ["cell", "hidden", "time_steps"], "time_steps": ["cell", "hidden", "batch"]}


def table(runs: Sequence[lp.Run]) -> pd.DataFrame:
    """Return each size's step, the study's and ours, and our share of the matmul peak."""
    own = steps.table(runs)
    fastest = _fastest_products(runs)
    rows = []
    for line in published("deepbench").itertuples():
        name = f"deepbench-{line.cell}-h{line.hidden}-b{line.batch}-t{line.time_steps}"
        captured = own[(own.workload == name) & (own.implementation == IMPLEMENTATION)]
        ours = steps.of(steps.of_network(captured, name), IMPLEMENTATION)
        rate = fastest.get(captured.run.iloc[0]) if ours else None
        share = operations(line) / (ours.value / 1e3) / rate if ours and rate else None
        rows.append({"network": name, **_study(line), "ms": ours, "peak_share": share})
    return pd.DataFrame(rows)


def _fastest_products(runs: Sequence[lp.Run]) -> dict[str, float]:
    """Return the FLOP/s of the fastest matmul on each run's device."""
    fastest: dict[tuple[object, ...], float] = {}
    for run in runs:
        rate = run.info.peaks.gemm_flops_per_s if run.info.peaks else None
        if rate:
            # keep the highest rate of all runs, because the device was slow in some runs
            fastest[_conditions(run)] = max(rate, fastest.get(_conditions(run), 0.0))
    return {run.name: fastest[_conditions(run)] for run in runs if _conditions(run) in fastest}


def _conditions(run: lp.Run) -> tuple[object, ...]:
    return tuple(condition(name, run.info) for name in ("device", "precision", "threads"))


def _study(line: pd.Series) -> dict[str, object]:
    sizes = ("cell", "hidden", "time_steps", "batch")
    rate = recurrence(line) / (line.forward_ms / 1e3) / 1e12
    own = {name: getattr(line, name) for name in sizes}
    return {**own, "their_ms": line.step_ms, "their_tflops": rate}


def recurrence(line: pd.Series) -> int:
    """Count the operations of the forward pass's matmuls with the state h."""
    each = 2 * GATES[line.cell] * line.hidden * line.hidden
    return int(each * line.batch * line.time_steps)


def operations(line: pd.Series) -> int:
    """Count the operations of all matmuls in a training step."""
    # 3: the backward pass has twice as many operations as the forward pass
    # 2: the matmul with the inputs is as large as the matmul with the state
    return 3 * 2 * recurrence(line)


def claims(rows: pd.DataFrame) -> list[Claim]:
    """Return claims about how the step grows with batch size or time steps."""
    made = []
    for by, keep in GROWING.items():
        for (cell, hidden, other), group in rows.groupby(keep, sort=False):
            if len(group) < 2:
                continue
            ordered = group.sort_values(by)
            small, large = ordered.iloc[0], ordered.iloc[-1]
            ours = large.ms.over(small.ms) if large.ms and small.ms else None
            at = f"{keep[-1].replace('_', ' ')} {other}"
            grown = f"{by.replace('_', ' ')} {large[by]} over {small[by]}"
            made.append(
                Claim(
                    DEEPBENCH,
                    f"{cell} of {hidden}, {at}: {grown}",
                    large.their_ms / small.their_ms,
                    ours,
                    here=f"{IMPLEMENTATION}, {large.network} over {small.network}" if ours else "",
                    conditions="CPU",
                    needs=_needs(large),
                    why=_why(small, large),
                    command=f"lstmprof capture --impl {IMPLEMENTATION} --device cuda "
                    f"--workload {small.network} --{by.replace('_', '-')} {small[by]},{large[by]}",
                    place="table",
                    row=f"{cell} of {hidden}, {at}: {grown}",
                    column="step",
                    raw=f"{large.their_ms:g} / {small.their_ms:g} ms",
                )
            )
    return made


def _needs(large: pd.Series) -> str:
    needed = operations(large)
    return f"a GPU: {needed / 1e12:.0f} TFLOP per step" if needed > MOST_OPERATIONS else "a GPU"


def _why(small: pd.Series, large: pd.Series) -> str:
    if pd.isna(small.peak_share) or pd.isna(large.peak_share):
        return ""
    return (
        f"{small.network} and {large.network}: on our CPU, these layers reach "
        f"{percent(small.peak_share)} and {percent(large.peak_share)} of the FLOP/s of the fastest "
        "matmul that we measured on it. On the study's GPU they computed "
        f"{small.their_tflops:.2f} and {large.their_tflops:.2f} TFLOP/s in the forward pass"
    )


def conclusion(rows: pd.DataFrame) -> str:
    """Say what the study found, what our runs show, and why."""
    study = (
        "DeepBench shows that a batch eight times as large makes the step only 1.8 to 3.8 times as "
        "long on a GPU, because a small batch leaves most of the GPU idle"
    )
    ours = [c.ours.value for c in claims(rows) if c.ours and "batch 128 over 16" in c.says]
    if not ours:
        return f"{study}; no run here answers it"
    share = rows.peak_share.dropna()
    return (
        f"{study}. On one CPU thread it makes the step {min(ours):.1f} to {max(ours):.1f} times as "
        f"long, because even a small batch uses the CPU well: it reaches {percent(share.min())} or "
        "more of the FLOP/s of the fastest matmul that we measured"
    )


def chart(rows: pd.DataFrame) -> alt.LayerChart:
    shown = rows[rows.peak_share.notna()]
    return drawing.bars(
        shown.network, shown.peak_share.tolist(), "share of the fastest matmul's speed"
    )


if __name__ == "__main__":
    main(sys.modules[__name__])
