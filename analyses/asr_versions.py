"""Did PyTorch's LSTMs become faster from version to version?

Claim of the ASR study: on 1x320-ce-long, the cuDNN layer became 1.8 times as fast from PyTorch
0.1.12 to 0.4.0, and the hand-written cell 1.7 times as fast. Reads the timings of one network in
several versions.

No package index has PyTorch before 1.0.0, so the study's steps cannot be measured again. Our runs
compare today's version with an old version that can still be installed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import altair as alt
import pandas as pd

import lstmprof as lp
from analyses import drawing, steps
from analyses.claims import Claim, Measured, quoted
from analyses.printing import main
from analyses.published import ASR, asr_program, rows as published

COMMAND = (
    "lstmprof capture --impl torch-nn-lstm --workload 1x320-ce-short --time-steps 20 "
    "--versions 1.8.1,2.13.0"
)


def table(runs: Sequence[lp.Run]) -> pd.DataFrame:
    """Compare the versions of PyTorch in which an implementation ran."""
    own = steps.table(runs)
    kernels = {run.name: run.info.kernels_used for run in runs}
    own = own[(own.framework == "torch") & (own["mode"] == "train") & (own["precision"] == "fp32")]
    rows = []
    for (implementation, workload), group in own.groupby(["implementation", "workload"]):
        if group.version.nunique() < 2:
            continue
        ordered = _in_turns(group).sort_values(
            "version", key=lambda column: column.map(steps.version_key)
        )
        latest = steps.measured(ordered.iloc[-1])
        rows += [
            {
                "implementation": implementation,
                "workload": workload,
                "version": row.version,
                "ms": row.step_ms,
                "over_newest": _over(steps.measured(row), latest),
                "kernels": kernels[row.run],
            }
            for _, row in ordered.iterrows()
        ]
    columns = ["implementation", "workload", "version", "ms", "over_newest", "kernels"]
    return pd.DataFrame(rows, columns=columns)


def _in_turns(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the largest group of versions that were timed alternately, or else all runs."""
    beside = [group for turns, group in rows.groupby("turns") if turns]
    several = [group for group in beside if group.version.nunique() > 1]
    return max(several, key=len) if several else rows


def _over(step: Measured, latest: Measured) -> Measured:
    return Measured(1.0) if step == latest else step.over(latest)


def claims(rows: pd.DataFrame) -> list[Claim]:
    """Return one claim per older version: its step divided by the newest version's step."""
    made = []
    for (network, system), group in published("asr_versions").groupby(
        ["network", "system"], sort=False
    ):
        newest = group.iloc[-1]
        made += [
            Claim(
                ASR,
                f"{network}: {system} of PyTorch {older.version} over {newest.version}",
                older.step_ms / newest.step_ms,
                needs=f"a GPU and PyTorch {older.version}, which no package index has",
                command=asr_program(str(network), older.implementation),
                place="versions",
                row=f"{system} of PyTorch {older.version} over {newest.version}",
                column=str(network),
                raw=f"{older.step_ms:g} / {newest.step_ms:g} ms",
            )
            for older in group.iloc[:-1].itertuples()
        ]
    return [*made, *quoted("asr_versions")]


def conclusion(rows: pd.DataFrame) -> str:
    """Say what the study found, what our runs show, and why."""
    found = "The study found PyTorch 0.4.0 up to 2.2 times as fast as older versions"
    if not len(rows):
        return f"{found}; no run here is of two versions"
    oldest, newest = rows.iloc[0], rows.iloc[-1]
    return (
        f"{found}. No package index has these versions, so we compare PyTorch {oldest.version} "
        f"with {newest.version} on a CPU. A step of {oldest.implementation} takes "
        f"{oldest.over_newest.text('×')} as long in the older version. {oldest.kernels} computes "
        f"the layer there, and {newest.kernels} in the newer version"
    )


def chart(rows: pd.DataFrame) -> alt.LayerChart:
    labels = rows.implementation + ", " + rows.workload.astype(str) + ", torch " + rows.version
    return drawing.bars(labels, rows.ms.tolist(), "ms per batch")


if __name__ == "__main__":
    main(sys.modules[__name__])
