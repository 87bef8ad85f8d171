"""How long do three epochs of IMDB take, by framework?

Claim of the study "IMDB GRU", for a P100: with cuDNN's GRU, PyTorch takes 16 s, and Keras on
TensorFlow takes 26 s. We multiply our step time by the number of batches in three epochs of 25,000
reviews. This product excludes validation and the loading of reviews.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence

import altair as alt
import pandas as pd

import lstmprof as lp
from analyses import drawing, steps
from analyses.claims import Claim, quoted
from analyses.printing import main
from analyses.published import IMDB, rows as published
from lstmprof.workloads.studies import named as network_named

COMMAND = "lstmprof capture --impl torch-nn-lstm --impl keras-lstm --workload imdb-gru"
NETWORK, BASE = "imdb-gru", "torch-nn-lstm"
#: Study's number of epochs (in params_lstm.py), and of training reviews (in the README).
EPOCHS, REVIEWS = 3, 25_000
#: Framework → the study's notebook.
NOTEBOOKS = {
    "CNTK": "CNTK_RNN.ipynb",
    "Keras (CNTK)": "Keras_CNTK_RNN.ipynb",
    "MXNet (Module API)": "MXNet_RNN.ipynb",
    "TensorFlow": "Tensorflow_RNN.ipynb",
    "Julia Knet": "Knet_RNN.ipynb",
    "R Keras (TensorFlow)": "KerasR_TF_RNN.ipynb",
}
#: GPUs of the study: (column of the table, name).
GPUS = (("k80_s", "K80"), ("p100_s", "P100"))


def table(runs: Sequence[lp.Run]) -> pd.DataFrame:
    """Return the seconds of three epochs in each framework, in the study and here."""
    captured = steps.of_network(steps.table(runs), NETWORK)
    rows = []
    for line in published("imdb").itertuples():
        step = steps.of(captured, str(line.implementation))
        batch = int(captured.batch.iloc[0]) if len(captured) else 1
        batches = EPOCHS * math.ceil(REVIEWS / batch)
        rows.append(
            {
                "system": line.system,
                "implementation": line.implementation,
                "k80_s": line.k80_s,
                "p100_s": line.p100_s,
                "needs": line.needs,
                "here": captured.workload.iloc[0] if step else None,
                "conditions": steps.conditions(captured, network_named(NETWORK).time_steps)
                if step
                else "",
                "s": step.times(batches / 1e3) if step else None,
            }
        )
    return pd.DataFrame(rows)


def claims(rows: pd.DataFrame) -> list[Claim]:
    """Compare each framework's time with PyTorch's on each GPU of the study, as claims."""
    base = rows[rows.implementation == BASE].iloc[0]
    made = []
    for column, gpu in GPUS:
        for _, row in rows[(rows.implementation != BASE) & rows[column].notna()].iterrows():
            ours = row.s.over(base.s) if row.s is not None and base.s is not None else None
            made.append(
                Claim(
                    IMDB,
                    f"{row.system} over PyTorch, on a {gpu}",
                    row[column] / base[column],
                    ours,
                    here=f"{row.implementation} over {BASE}, {row.here}" if ours else "",
                    conditions=row.conditions,
                    needs=f"a GPU and {row.needs}" if isinstance(row.needs, str) else "a GPU",
                    why="on the study's GPUs, cuDNN computed the GRU of these frameworks; on a "
                    "CPU, each framework has its own code for it"
                    if ours
                    else "",
                    command=_command(row),
                    place="table",
                    row=row.system,
                    column=gpu,
                    raw=f"{row[column]:g} / {base[column]:g} s",
                )
            )
    return [*made, *quoted("imdb_epoch")]


def _command(row: pd.Series) -> str:
    """Return the command that measures the ratio of ``row`` on a GPU."""
    if row.implementation == "keras-lstm":
        return COMMAND.replace("--workload", "--device cuda --workload")
    return (
        "git clone https://github.com/ilkarman/DeepLearningFrameworks && cd "
        "DeepLearningFrameworks/notebooks && jupyter nbconvert --to notebook --execute "
        f"{NOTEBOOKS[row.system]} PyTorch_RNN.ipynb"
    )


def conclusion(rows: pd.DataFrame) -> str:
    """Say what the study found, what our runs show, and why."""
    study = (
        "The study found that three epochs take 29 to 35 s on a K80 in frameworks that use cuDNN's "
        "GRU"
    )
    base = rows[rows.implementation == BASE].iloc[0]
    others = rows[rows.s.notna() & (rows.implementation != BASE)]
    if base.s is None or not len(others):
        return f"{study}; no run here answers it"
    ratios = ", ".join(
        f"{row.s.over(base.s).text('×')} for {row.system}" for row in others.itertuples()
    )
    return (
        f"{study}, but 86 s in Keras on CNTK, which did not use cuDNN. On a CPU, the frameworks "
        f"differ because each has its own code for the GRU: compared with PyTorch, the time is "
        f"{ratios}"
    )


def chart(rows: pd.DataFrame) -> alt.LayerChart:
    base = rows[rows.implementation == BASE].iloc[0]
    shown = rows[rows.s.notna() & rows.p100_s.notna() & (rows.implementation != BASE)]
    ours = [seconds.value / base.s.value for seconds in shown.s]
    theirs = shown.p100_s / base.p100_s
    return drawing.pairs(shown.system, theirs, ours, "times as long as PyTorch (study: P100)")


if __name__ == "__main__":
    main(sys.modules[__name__])
