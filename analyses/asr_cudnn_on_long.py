"""Is PyTorch's own LSTM layer further ahead of a loop of cells for longer sequences?

Claim of the ASR study: a loop of hand-written cells takes 2.8 times as long as PyTorch's cuDNN
layer at 100 time steps, and 3.8 times as long at 1000 time steps. Our number is the growth of this
ratio: 1.4 in the study.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import altair as alt
import pandas as pd

import lstmprof as lp
from analyses import drawing, steps
from analyses.claims import Claim, Measured
from analyses.printing import main
from analyses.published import ASR, rows as published
from lstmprof.workloads.studies import named

COMMAND = (
    "lstmprof capture --impl torch-nn-lstm --impl torch-lstmcell-fused --impl torch-lstmcell-basic "
    "--workload 1x320-ce-short --workload 1x320-ce-long"
)
BASE = "torch-nn-lstm"
OTHERS = ("torch-lstmcell-fused", "torch-lstmcell-basic")
COLUMNS = ["implementation", "time_steps", "ms", "base_ms", "lead"]
SHORT, LONG = "1x320-ce-short", "1x320-ce-long"
OWN_LENGTHS = [named(SHORT).time_steps, named(LONG).time_steps]


def table(runs: Sequence[lp.Run]) -> pd.DataFrame:
    """Compare each loop with PyTorch's LSTM layer, by sequence length."""
    own = steps.table(runs)
    rows = []
    for time_steps, captured in _lengths(own):
        base = steps.of(captured, BASE)
        for implementation in OTHERS:
            ours = steps.of(captured, implementation)
            if ours and base:
                rows.append(
                    {
                        "implementation": implementation,
                        "time_steps": time_steps,
                        "ms": ours.value,
                        "base_ms": base.value,
                        "lead": ours.over(base),
                    }
                )
    return pd.DataFrame(rows, columns=COLUMNS)


def _lengths(own: pd.DataFrame) -> list[tuple[int, pd.DataFrame]]:
    """Return (time steps, runs) for each length of ``SHORT``, then for ``LONG``."""
    short = own[own.workload.astype(str).str.fullmatch(rf"{SHORT}(?:-t\d+)?")]
    lengths = [
        (int(str(length)), steps.of_network(rows, SHORT))
        for length, rows in short.groupby("time_steps")
    ]
    return [*lengths, (OWN_LENGTHS[1], steps.of_network(own[own.workload == LONG], LONG))]


def claims(rows: pd.DataFrame) -> list[Claim]:
    """Return one claim per loop: how much longer sequences raise the layer's lead."""
    theirs = published("asr").pivot(index="implementation", columns="network", values="step_ms")
    leads = theirs / theirs.loc[BASE]
    made = []
    for implementation in OTHERS:
        own = rows[rows.implementation == implementation]
        growth: Measured | None = None
        here, conditions = "", ""
        if own.time_steps.nunique() > 1:
            # compare our shortest and longest sequences if a length of the study is missing
            of_study = own[own.time_steps.isin(OWN_LENGTHS)]
            compared = of_study if len(of_study) == len(OWN_LENGTHS) else own
            first, last = compared.iloc[0], compared.iloc[-1]
            growth = last.lead.over(first.lead)
            here = f"{implementation}, {first.time_steps} and {last.time_steps} time steps"
            conditions = f"CPU, {first.time_steps} and {last.time_steps} time steps"
        made.append(
            Claim(
                ASR,
                f"{implementation} over PyTorch cuDNNLSTM: the ratio at 1000 time steps divided "
                "by the ratio at 100",
                leads.loc[implementation, LONG] / leads.loc[implementation, SHORT],
                growth,
                here=here,
                conditions=conditions,
                why="for longer sequences, a loop makes more launches on a GPU and cuDNN's layer "
                "does not. On a CPU, there are no launches, and both LSTMs compute the same matmuls"
                if growth
                else "",
                command=f"lstmprof capture --impl {BASE} --impl {implementation} --device cuda "
                f"--workload {SHORT} --workload {LONG}",
                place="table, growth",
            )
        )
    return made


def conclusion(rows: pd.DataFrame) -> str:
    """Say what the study found, what our runs show, and why."""
    study = (
        "The study found that a loop over cells falls further behind cuDNN's layer for longer "
        "sequences"
    )
    grown = [claim for claim in claims(rows) if claim.ours]
    if not grown:
        return f"{study}; no run here is of two lengths"
    ratios = " and ".join(
        f"{claim.ours.text('×')} for {claim.here.partition(',')[0]}"
        for claim in grown
        if claim.ours
    )
    return (
        f"{study}: the ratio of their steps is 1.3 to 1.4 times as large for 1000 time steps as "
        f"for 100. On a CPU this factor is {ratios} "
        f"({grown[0].here.partition(', ')[2]}). {_comparison(grown)}"
    )


def _comparison(grown: Sequence[Claim]) -> str:
    """Say whether the lead grows less or more in our runs than in the study."""
    pairs = [(claim.ours, claim.theirs) for claim in grown if claim.ours and claim.theirs]
    if all((ours.high or ours.value) < theirs for ours, theirs in pairs):
        return (
            "It is smaller because a CPU has no launches, and both LSTMs compute the same matmuls "
            "per time step"
        )
    if all((ours.low or ours.value) > theirs for ours, theirs in pairs):
        return "It is larger than on a GPU"
    return "Our intervals are too wide to say whether it is smaller than on a GPU"


def chart(rows: pd.DataFrame) -> alt.LayerChart:
    labels = rows.implementation + ", " + rows.time_steps.astype(str) + " steps"
    return drawing.bars(labels, [lead.value for lead in rows.lead], "times PyTorch's own layer")


if __name__ == "__main__":
    main(sys.modules[__name__])
