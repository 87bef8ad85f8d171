"""How many words per second does the Penn Treebank language model train on?

Claim of the PTB model: the small model (200 units) trains 13 epochs in an hour, and the large model
(1500 units) 55 epochs in a day. A word of the large model thus takes 5.7 times as long.

Claim of the PTB study: TensorFlow trains on 2.1 times as many words per second with cuDNN as with
BasicLSTMCell. Reads the timings.
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
from analyses.published import PTB, PTB_TEMPLATE, rows as published
from lstmprof.base.numbers import percent

COMMAND = (
    "lstmprof capture --impl torch-nn-lstm --workload ptb-large; lstmprof capture "
    "--impl torch-nn-lstm --workload ptb-large --hidden 200 --features 200 --time-steps 20"
)
SMALL, LARGE = 200, 1500
#: Number of units → the study's hours per epoch, from README and main.lua.
EPOCH_HOURS = {SMALL: 1 / 13, LARGE: 24 / 55}
#: Number of layers and vocabulary size of both models, from main.lua.
LAYERS, VOCABULARY = 2, 10_000
IMPLEMENTATION = "torch-nn-lstm"


def table(runs: Sequence[lp.Run]) -> pd.DataFrame:
    """Return one row per run of the language model."""
    own = steps.table(runs)
    own = own[own.words_per_s.notna() & own.workload.astype(str).str.startswith("ptb-")]
    own = own[(own["mode"] == "train") & (own["precision"] == "fp32")]
    own = own.sort_values(["hidden", "implementation"], ascending=False, kind="stable")
    named = {run.name: run for run in runs}
    columns = ["implementation", "workload", "hidden", "step_ms", "words_per_s"]
    rows = [
        {
            **{name: row[name] for name in columns},
            "us_a_word": steps.measured(row).times(1e6 / row.words_per_s / row.step_ms),
            "machine": named[row.run].info.hardware.cpu_model,
            "product_share": steps.work(named[row.run])["product_share"],
        }
        for _, row in own.iterrows()
    ]
    return pd.DataFrame(rows, columns=[*columns, "us_a_word", "machine", "product_share"])


def claims(rows: pd.DataFrame) -> list[Claim]:
    """Return the PTB study's claims, and the ratio of the models' times per word."""
    own = {int(r.hidden): r for r in rows.itertuples() if r.implementation == IMPLEMENTATION}
    both = SMALL in own and LARGE in own
    return [
        *_template(rows),
        *quoted("ptb_words_per_second"),
        Claim(
            PTB,
            "a word of the large model over one of the small",
            EPOCH_HOURS[LARGE] / EPOCH_HOURS[SMALL],
            own[LARGE].us_a_word.over(own[SMALL].us_a_word) if both else None,
            here=f"{IMPLEMENTATION}, {own[LARGE].workload} over {own[SMALL].workload}"
            if both
            else "",
            why=_why() if both else "",
            command=COMMAND.replace(f"{IMPLEMENTATION} ", f"{IMPLEMENTATION} --device cuda "),
        ),
    ]


def _template(rows: pd.DataFrame) -> list[Claim]:
    """Return one claim per cell: words per second relative to BasicLSTMCell."""
    theirs = published("ptb")
    large = rows[rows.workload == "ptb-large"].drop_duplicates("implementation", keep="last")
    word = large.set_index("implementation").us_a_word
    base = theirs.iloc[0]
    made = []
    for row in theirs.iloc[1:].itertuples():
        both = row.gpus == 1 and {row.implementation, base.implementation} <= {*word.index}
        ours = word[base.implementation].over(word[row.implementation]) if both else None
        two = "lstmprof run ptb_word_lm.py --model=large --rnn_mode=basic --num_gpus=2"
        made.append(
            Claim(
                PTB_TEMPLATE,
                f"words per second of {row.system} over those of {base.system}",
                row.words_per_s / base.words_per_s,
                ours,
                here=f"{row.implementation} over {base.implementation}" if both else "",
                needs="two GPUs" if row.gpus > 1 else "a GPU",
                why=_mechanism(large, base.implementation, row.implementation) if both else "",
                command=two if row.gpus > 1 else _command(base.implementation, row.implementation),
                place="table",
                row=row.system,
                column=f"over {base.system}",
                raw=f"{row.words_per_s:,} / {base.words_per_s:,} words per second",
            )
        )
    return made


def _mechanism(large: pd.DataFrame, *implementations: str) -> str:
    shares = large.set_index("implementation").product_share
    each = " and ".join(f"{percent(shares[name])} ({name})" for name in implementations)
    return f"matmuls, which both cells compute, take {each} of the step on one thread of a CPU"


def _command(*implementations: str) -> str:
    named = " ".join(f"--impl {name}" for name in implementations)
    return f"lstmprof capture {named} --device cuda --workload ptb-large"


def _why() -> str:
    more = multiplications(LARGE) / multiplications(SMALL)
    return (
        f"the matmuls of a word have {more:.0f} times as many multiplications in the large model. "
        "On a CPU they take most of the step. On a GPU, the small model leaves most of the GPU idle"
    )


def multiplications(hidden: int) -> int:
    """Count the multiplications per word, in the LSTM layers and the output layer."""
    return LAYERS * 4 * hidden * 2 * hidden + hidden * VOCABULARY  # inputs as wide as the layer


def conclusion(rows: pd.DataFrame) -> str:
    """Say what the studies found, what our runs show, and why."""
    study = (
        "The study found that TensorFlow trains on 2.1 times as many words per second with cuDNN "
        "as with BasicLSTMCell"
    )
    block = next((c for c in claims(rows) if c.row == "LSTMBlockCell" and c.ours), None)
    word = next(c for c in claims(rows) if c.study is PTB)
    parts = []
    if block and block.ours:
        parts.append(
            f"On a CPU it trains on {block.ours.text('×')} as many words per second with "
            f"LSTMBlockCell as with BasicLSTMCell (study: {block.their_number}): {block.why}"
        )
    if word.ours:
        parts.append(
            f"A word of the large model takes {word.ours.text('×')} as long as a word of the small "
            f"model on our CPU, and {word.their_number} as long on Zaremba's GPU: {word.why}"
        )
    return f"{study}. " + (". ".join(parts) or "No run here answers it")


def chart(rows: pd.DataFrame) -> alt.LayerChart:
    labels = rows.implementation + ", " + rows.workload.astype(str) + ", " + rows.machine
    return drawing.bars(labels, rows.words_per_s.tolist(), "words per second")


if __name__ == "__main__":
    main(sys.modules[__name__])
