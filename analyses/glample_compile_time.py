"""What does the first step cost, and what one example after it?

Claim: with 128 units and batches of 32 the first pass takes 0.03 s in Torch, 3.91 s in TensorFlow
and 7.46 s in Theano, and then an example 434, 820 and 290 µs (glample). Reads the timings.

Torch is PyTorch's own layer here, Theano is PyTensor, TensorFlow's cell is written by hand as
theirs is. Our first step is a whole training step, with compilation and the optimizer's update.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence

import altair as alt
import pandas as pd

import lstmprof as lp
from analyses import drawing, steps
from analyses.claims import Claim, Measured
from analyses.printing import main
from analyses.published import GLAMPLE, rows as published
from lstmprof import implementations

COMMAND = (
    "lstmprof capture --impl torch-nn-lstm --impl tf-lstmcell --impl pytensor-scan "
    "--workload 'glample-h*'"
)
BASE = "torch-nn-lstm"


def table(runs: Sequence[lp.Run]) -> pd.DataFrame:
    """Return one row per library and network of the study, with ours where it was captured."""
    own = steps.table(runs)
    rows = []
    for line in published("glample").itertuples():
        family = "glample" if line.cell == "lstm" else f"glample-{line.cell}"
        network = f"{family}-h{line.hidden}-b{line.batch}"
        captured = steps.of_network(own, network)
        ours = captured[captured.implementation == line.implementation]
        step = steps.of(captured, line.implementation)
        forward = steps.of(steps.of_network(own, network, "forward"), line.implementation)
        an_example = 1e3 / line.batch
        rows.append(
            {
                "network": network,
                "cell": line.cell,
                "library": line.library,
                "implementation": line.implementation,
                "their_first_s": line.compile_s,
                "their_us": line.train_us,
                "first_s": ours.first_step_s.iloc[0] if len(ours) else None,
                "us": step.times(an_example) if step else None,
                "their_forward_us": line.forward_us,
                "forward_us": forward.times(an_example) if forward else None,
            }
        )
    return pd.DataFrame(rows)


#: The claims about each library: column, the study's number, words, possible reason for a
#: difference.
CLAIMED = (
    (
        "first_s",
        "their_first_s",
        "first pass",
        "the first passes differ: other versions of the frameworks, on another machine",
    ),
    (
        "us",
        "their_us",
        "an example in training",
        "the times per example differ: one thread of a CPU here, a GPU in the study",
    ),
    (
        "forward_us",
        "their_forward_us",
        "an example forward",
        "the times per example differ: one thread of a CPU here, a GPU in the study",
    ),
)


def claims(rows: pd.DataFrame) -> list[Claim]:
    """Return first step and example of each library divided by those of Torch."""
    made = []
    for network, group in rows.groupby("network", sort=False):
        base = group[group.implementation == BASE].iloc[0]
        for _, row in group[group.implementation != BASE].iterrows():
            for column, theirs, words, why in CLAIMED:
                ours = _over(row[column], base[column])
                claim = Claim(
                    GLAMPLE,
                    f"{network}: {row.library} over Torch, {words}",
                    row[theirs] / base[theirs],
                    ours,
                    here=f"{row.implementation} over {BASE}" if ours else "",
                    needs=_needs(row.implementation, row.cell),
                    why=why if ours else "",
                )
                made.append(claim)
    return made


def _needs(implementation: str, cell: str) -> str:
    """Return what the claim needs that ``implementation`` lacks; empty if it has the cell."""
    refused = implementations.find(implementation).refusals().get(cell)
    return f"{cell.upper()} cells: {implementation} has none" if refused else ""


def _over(ours: Measured | float | None, base: Measured | float | None) -> Measured | None:
    if isinstance(ours, Measured) and isinstance(base, Measured):
        return ours.over(base)
    if isinstance(ours, float) and isinstance(base, float) and not math.isnan(ours / base):
        return Measured(ours / base)
    return None


def chart(rows: pd.DataFrame) -> alt.LayerChart:
    """Draw the study's first pass and ours."""
    shown = rows[rows.first_s.notna()]
    labels = shown.network + ", " + shown.library
    return drawing.pairs(labels, shown.their_first_s, shown.first_s.tolist(), "s of the first pass")


if __name__ == "__main__":
    main(sys.modules[__name__])
