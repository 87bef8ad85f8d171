"""How long does the first step take, and how long does one example take after it?

Claim of the glample study, for 128 units and batches of 32: the first pass takes 0.03 s in Torch,
3.91 s in TensorFlow and 7.46 s in Theano. A later example takes 434 µs in Torch, 820 µs in
TensorFlow and 290 µs in Theano. Our first pass is a whole training step.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Sequence

import altair as alt
import pandas as pd

import lstmprof as lp
from analyses import drawing, steps
from analyses.claims import Claim, Measured
from analyses.printing import main
from analyses.published import GLAMPLE, rows as published
from lstmprof.base.numbers import percent

COMMAND = (
    "lstmprof capture --impl torch-nn-lstm --impl tf-lstmcell --impl pytensor-scan "
    "--workload 'glample-h*'"
)
BASE = "torch-nn-lstm"


def table(runs: Sequence[lp.Run]) -> pd.DataFrame:
    """Return one row per library and network, with the study's times and ours."""
    own = steps.table(runs)
    named = {run.name: run for run in runs}
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
                **_products(ours, named),
            }
        )
    return pd.DataFrame(rows)


def _products(ours: pd.DataFrame, named: dict[str, lp.Run]) -> dict[str, float | None]:
    """Return which shares of our training step matmuls and dispatch take."""
    shares = steps.work(named[ours.run.iloc[0]]) if len(ours) else {}
    return {name: shares.get(name) for name in ("product_share", "dispatch_share")}


#: Compared times: (column of our time, column of the study's time, name, study's unit).
CLAIMED = (
    ("first_s", "their_first_s", "first pass", "s"),
    ("us", "their_us", "training", "µs"),
    ("forward_us", "their_forward_us", "forward", "µs"),
)


def claims(rows: pd.DataFrame) -> list[Claim]:
    """Compare each library's first pass and times per example with Torch's, as claims."""
    made = []
    for network, group in rows.groupby("network", sort=False):
        base = group[group.implementation == BASE].iloc[0]
        for _, row in group[group.implementation != BASE].iterrows():
            for column, theirs, words, unit in CLAIMED:
                ours = _over(row[column], base[column])
                claim = Claim(
                    GLAMPLE,
                    f"{network}: {row.library} over Torch, {words}",
                    row[theirs] / base[theirs],
                    ours,
                    here=f"{row.implementation} over {BASE}" if ours else "",
                    conditions=f"CPU, {row.implementation}",
                    why=_why(column, row.library, rows[rows.cell == row.cell]) if ours else "",
                    command=_command(str(network), row, column),
                    place=f"table {row.cell}",
                    row=str(network),
                    column=f"{row.library}, {words}",
                    raw=f"{row[theirs]:g} / {base[theirs]:g} {unit}",
                )
                made.append(claim)
    return made


def _why(column: str, library: str, rows: pd.DataFrame) -> str:
    """Say why our ratios of ``library`` to Torch differ from the study's."""
    if column == "first_s":
        return (
            "first pass: our versions of the libraries are newer, and our first pass is a whole "
            "training step"
        )
    ours, torch = (rows[(rows.library == name) & rows.us.notna()] for name in (library, "Torch"))
    if not len(ours) or not len(torch):
        return "one thread of a CPU ran both; the study's GPU launched every op of the loop"
    return (
        f"{library}, {rows.cell.iloc[0].upper()}: matmuls and whole-layer ops take "
        f"{steps.ends(ours.product_share)} of a step of {ours.implementation.iloc[0]} and "
        f"{steps.ends(torch.product_share)} of {BASE}'s step. Dispatch takes "
        f"{steps.ends(ours.dispatch_share)} and {steps.ends(torch.dispatch_share)}. The rest is "
        "mostly elementwise ops of the loop, which run in parallel on a GPU"
    )


def _command(network: str, row: pd.Series, column: str) -> str:
    """Return the command that measures a claim's ratio on a GPU."""
    hidden, batch = re.findall(r"\d+", network)
    if row.library == "Theano":
        return (
            "git clone https://github.com/glample/rnn-benchmarks && cd rnn-benchmarks && "
            f"python theano/rnn.py -n {row.cell} -b {batch} -l {hidden} -s 30"
        )
    return (
        f"lstmprof capture --impl {BASE} --impl {row.implementation} --device cuda "
        f"--mode {'forward' if column == 'forward_us' else 'train'} --workload {network}"
    )


def _over(ours: Measured | float | None, base: Measured | float | None) -> Measured | None:
    if isinstance(ours, Measured) and isinstance(base, Measured):
        return ours.over(base)
    if isinstance(ours, float) and isinstance(base, float) and not math.isnan(ours / base):
        return Measured(ours / base)
    return None


def conclusion(rows: pd.DataFrame) -> str:
    """Say what the study found, what our runs show, and why."""
    study = (
        "The study found that the first pass takes less than a second in Torch, but several "
        "seconds in Theano and TensorFlow, which compile the network. For larger layers, the "
        "libraries take more similar times per example"
    )
    rows = rows[rows.cell == "lstm"]
    tf = rows[(rows.library == "TensorFlow") & rows.us.notna()]
    torch = rows[(rows.library == "Torch") & rows.us.notna()].set_index("network").us
    ratios = [row.us.over(torch[row.network]).value for row in tf.itertuples()]
    if not ratios:
        return f"{study}; no run here answers it"
    firsts = rows[rows.first_s.notna()].groupby("library").first_s.median()
    seconds = ", ".join(f"{name} {value:.2g} s" for name, value in firsts.items())
    theirs = rows.groupby("library").their_first_s.median()
    same = [*firsts.sort_values().index] == [*theirs.sort_values().index]
    return (
        f"{study}. On a CPU the first passes have {'the same' if same else 'another'} order "
        f"({seconds}). Per example, TensorFlow takes {min(ratios):.2f} to {max(ratios):.2f} times "
        "as long as Torch: both compute the same matmuls, which take "
        f"{percent(tf.product_share.min())} to {percent(tf.product_share.max())} of TensorFlow's "
        "step"
    )


def chart(rows: pd.DataFrame) -> alt.LayerChart:
    shown = rows[rows.first_s.notna()]
    labels = shown.network + ", " + shown.library
    return drawing.pairs(labels, shown.their_first_s, shown.first_s.tolist(), "s of the first pass")


if __name__ == "__main__":
    main(sys.modules[__name__])
