"""How much longer does one implementation of an LSTM layer take than another, in inference?

Claim: PyTorch takes 1.53 times as long as cuDNN alone, TensorFlow's layer 18.8 times (kernel study,
Table 2). Reads the timings of forward runs.

The study gives mean percentage errors: the mean over its grid of sizes of (first − second) / first.
One minus this error is the mean of second over first, which is the number compared here.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Sequence

import altair as alt
import pandas as pd

import lstmprof as lp
from analyses import drawing, steps
from analyses.claims import Claim, Measured, quoted
from analyses.printing import main
from analyses.published import KERNELS, rows as published

SIZES = (
    "--mode forward --device cuda --workload deepbench-lstm-h512-b16-t25 "
    "--hidden 128,512,1024 --batch 1,16,256 --time-steps 10,100,1000"
)
COMMAND = (
    "lstmprof capture --impl cudnn-direct --impl torch-nn-lstm --impl keras-lstm "
    "--impl keras-lstm-mode1 --impl keras-lstm-mode2 --precision fp32 --precision amp-fp16 "
    f"{SIZES}"
)


def table(runs: Sequence[lp.Run]) -> pd.DataFrame:
    """Return one row per comparison of Table 2, with ours over all captured sizes."""
    own = steps.table(runs)
    own = own[own["mode"] == "forward"]
    rows = []
    for line in published("kernel_study").to_dict("records"):
        first, second = (
            own[
                (own.implementation == line[f"{which}_implementation"])
                & (own["precision"] == line[f"{which}_precision"])
            ].drop_duplicates(["workload", "device"], keep="last")
            for which in ("first", "second")
        )
        both = first.merge(second, on=["workload", "device"], suffixes=("_first", "_second"))
        rows.append(
            {
                **{name: line[name] for name in ("first", "second", "mpe")},
                "our_mpe": mpe(both.step_ms_first, both.step_ms_second) if len(both) else None,
                "sizes": len(both),
            }
        )
    return pd.DataFrame(rows)


def mpe(first: pd.Series, second: pd.Series) -> float:
    """Return the study's mean percentage error, as a fraction; negative if ``second`` is slower."""
    return float(((first - second) / first).mean())


def claims(rows: pd.DataFrame) -> list[Claim]:
    """Return the mean ratio of each comparison, and the study's claims in words."""
    ratios = [
        Claim(
            KERNELS,
            f"{row['first']} vs {row['second']}: MPE {row.mpe:.3f}".replace("-", "−")
            + ", so the second's time over the first's is on average",
            1 - row.mpe,
            None if pd.isna(row.our_mpe) else Measured(1 - row.our_mpe),
            here=f"{row.sizes} sizes" if row.sizes else "",
            needs="a GPU",
            command=_command(line),
        )
        for (_, row), line in zip(
            rows.iterrows(), published("kernel_study").to_dict("records"), strict=True
        )
    ]
    return [*ratios, *quoted("kernel_study_kernels")]


def _command(line: dict[Hashable, str]) -> str:
    """Return the command that captures both sides of a row of Table 2 on a GPU."""
    asked = [
        f"--{option} {value}"
        for option, column in (("impl", "implementation"), ("precision", "precision"))
        for value in dict.fromkeys((line[f"first_{column}"], line[f"second_{column}"]))
    ]
    return " ".join(["lstmprof capture", *asked, SIZES])


def chart(rows: pd.DataFrame) -> alt.LayerChart:
    """Draw the study's mean ratios."""
    labels = rows["second"] + " over " + rows["first"]
    return drawing.bars(labels, (1 - rows.mpe).tolist(), "times as long, on average (study)")


if __name__ == "__main__":
    main(sys.modules[__name__])
