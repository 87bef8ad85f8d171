"""How many words a second does the language model of the Penn Treebank learn from?

Claim: the small model (200 units) trains 13 epochs in an hour, the large one (1500 units) 55 epochs
in a day (PTB model), so that a word of the large one takes 5.7 times as long. With cuDNN TensorFlow
trains on 2.1 times as many words per second as with BasicLSTMCell (PTB study). Reads the timings.
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
from analyses.published import PTB, PTB_TEMPLATE, rows as published

COMMAND = (
    "lstmprof capture --impl torch-nn-lstm --workload ptb-large; lstmprof capture "
    "--impl torch-nn-lstm --workload ptb-large --hidden 200 --features 200 --time-steps 20"
)
SMALL, LARGE = 200, 1500
#: Hours of an epoch, of README and main.lua.
EPOCH_HOURS = {SMALL: 1 / 13, LARGE: 24 / 55}
#: From main.lua, for both models.
LAYERS, VOCABULARY = 2, 10_000
IMPLEMENTATION = "torch-nn-lstm"


def table(runs: Sequence[lp.Run]) -> pd.DataFrame:
    """Return one row per run of the language model."""
    own = steps.table(runs)
    own = own[own.words_per_s.notna() & own.workload.astype(str).str.startswith("ptb-")]
    own = own[(own["mode"] == "train") & (own["precision"] == "fp32")]
    columns = ["implementation", "workload", "hidden", "step_ms", "words_per_s", "us_a_word"]
    rows = [
        {
            **{name: row[name] for name in columns[:-1]},
            "us_a_word": steps.measured(row).times(1e6 / row.words_per_s / row.step_ms),
        }
        for _, row in own.iterrows()
    ]
    return pd.DataFrame(rows, columns=columns)


def claims(rows: pd.DataFrame) -> list[Claim]:
    """Return the time per word of the large model divided by that of the small one."""
    own = {int(r.hidden): r for r in rows.itertuples() if r.implementation == IMPLEMENTATION}
    both = SMALL in own and LARGE in own
    return [
        *_template(rows),
        Claim(
            PTB,
            "a word of the large model over one of the small",
            EPOCH_HOURS[LARGE] / EPOCH_HOURS[SMALL],
            own[LARGE].us_a_word.over(own[SMALL].us_a_word) if both else None,
            here=f"{IMPLEMENTATION}, {own[LARGE].workload} over {own[SMALL].workload}"
            if both
            else "",
            why=_why() if both else "",
        ),
    ]


def _template(rows: pd.DataFrame) -> list[Claim]:
    """Return the PTB study's words per second relative to BasicLSTMCell, and the ratios that it
    quotes.
    """
    theirs = published("ptb")
    large = rows[rows.workload == "ptb-large"].drop_duplicates("implementation", keep="last")
    word = large.set_index("implementation").us_a_word
    base = theirs.iloc[0]
    made = []
    for row in theirs.iloc[1:].itertuples():
        both = row.gpus == 1 and {row.implementation, base.implementation} <= {*word.index}
        ours = word[base.implementation].over(word[row.implementation]) if both else None
        made.append(
            Claim(
                PTB_TEMPLATE,
                f"{row.system} ({row.words_per_s:,} words per second) over {base.system} "
                f"({base.words_per_s:,})",
                row.words_per_s / base.words_per_s,
                ours,
                here=f"{row.implementation} over {base.implementation}" if both else "",
                needs=_needs(row.implementation, row.gpus),
                command="" if row.gpus > 1 else _command(base.implementation, row.implementation),
            )
        )
    quoted = published("ptb_ratios").itertuples()
    return [*made, *(Claim(PTB_TEMPLATE, q.says, q.ratio, needs="a GPU") for q in quoted)]


def _needs(implementation: str, gpus: int) -> str:
    if gpus > 1:
        return "two GPUs"
    return "a GPU" if implementation == "tf-cudnnlstm" else ""


def _command(*implementations: str) -> str:
    named = " ".join(f"--impl {name}" for name in implementations)
    return f"lstmprof capture {named} --workload ptb-large"


def _why() -> str:
    more = multiplications(LARGE) / multiplications(SMALL)
    return (
        f"the products of a word have {more:.0f} times as many multiplications in the large model"
    )


def multiplications(hidden: int) -> int:
    """Return the multiplications per word: two layers with inputs as wide as themselves, and
    the softmax.
    """
    return LAYERS * 4 * hidden * 2 * hidden + hidden * VOCABULARY


def chart(rows: pd.DataFrame) -> alt.LayerChart:
    """Draw the words per second of each run."""
    labels = rows.implementation + ", " + rows.workload.astype(str)
    return drawing.bars(labels, rows.words_per_s.tolist(), "words a second")


if __name__ == "__main__":
    main(sys.modules[__name__])
