"""How far apart are implementations of one LSTM?

Claim of the ASR study, for a GPU: the slowest LSTM takes 5.1 times as long as the fastest LSTM on
the network 1x320-ce-short, and 7.2 times as long on 1x320-ce-long. We divide each step time by the
step time of PyTorch's own layer, which calls cuDNN in the study and oneDNN on our CPU.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import altair as alt
import pandas as pd

import lstmprof as lp
from analyses import drawing, steps
from analyses.claims import Claim, Measured, number, quoted
from analyses.printing import main
from analyses.published import ASR, asr_program, rows as published
from lstmprof import implementations
from lstmprof.workloads.studies import named as network_named

COMMAND = (
    "lstmprof capture --impl torch-nn-lstm --impl torch-lstmcell-fused --impl torch-lstmcell-basic "
    "--impl tf-lstmblockfusedcell --impl tf-lstmblockcell --impl tf-lstmcell --impl keras-lstm "
    "--impl lasagne-lstm --impl keras-theano-lstm "
    "--workload 1x320-ce-short --time-steps 20    # and 1x320-ce-long; 10 steps of 4x320-…"
)
BASE = "torch-nn-lstm"
#: Network → step time of the study's slowest LSTM over its fastest (both in whole ms).
SPREAD = {
    "1x320-ce-short": 5.1,
    "1x320-ce-long": 7.2,
    "4x320-ce-long": 7.0,
    "4x320-ctc-long": 6.5,
}
NO_RUN = "No run here answers this question"


def table(runs: Sequence[lp.Run]) -> pd.DataFrame:
    """Return the study's step and our step of each LSTM on each network."""
    own = steps.table(runs)
    named = {run.name: run for run in runs}
    rows = []
    for network, theirs in published("asr").groupby("network", sort=False):
        captured = steps.of_network(own, str(network))
        base = steps.of(captured, BASE)
        their_base = float(theirs[theirs.implementation == BASE].step_ms.iloc[0])
        for line in theirs.itertuples():
            ours = steps.of(captured, line.implementation)
            ratio = ours.over(base) if ours and base else None
            rows.append(
                {
                    "network": network,
                    "system": line.system,
                    "implementation": line.implementation,
                    "their_ms": line.step_ms,
                    "their_ratio": line.step_ms / their_base,
                    "their_base_ms": their_base,
                    "here": captured.workload.iloc[0] if ours else None,
                    "conditions": steps.conditions(captured, network_named(str(network)).time_steps)
                    if ours
                    else None,
                    "our_ms": ours,
                    "mean_ms": _mean(captured, line.implementation),
                    "ratio": ratio,
                    **_work(captured, line.implementation, named),
                }
            )
    return pd.DataFrame(rows)


def _mean(captured: pd.DataFrame, implementation: str) -> str | None:
    """Return mean and standard deviation of the timed steps in ms, such as ``12.6 ± 0.31``."""
    own = captured[captured.implementation == implementation]
    if not len(own) or own.std_ms.isna().any():
        return None
    return f"{number(own.mean_ms.iloc[-1])} ± {number(own.std_ms.iloc[-1])}"


def _work(
    captured: pd.DataFrame, implementation: str, named: dict[str, lp.Run]
) -> dict[str, float | None]:
    names = captured[captured.implementation == implementation].run.tolist()
    lacking = dict.fromkeys(("ops_per_time_step", "product_share", "dispatch_share"))
    return steps.work(named[names[-1]]) if names else lacking


def claims(rows: pd.DataFrame) -> list[Claim]:
    groups = [(str(network), group) for network, group in rows.groupby("network", sort=False)]
    why = {network: _why(network, group) for network, group in groups}
    spreads = [_spread(network, group, why[network]) for network, group in groups]
    in_words = [_in_words(line, rows, why) for line in published("asr_claims").itertuples()]
    fastest, wrappers = quoted("asr_spread")
    return [_fastest(fastest, rows), *spreads, *in_words, wrappers] + [
        Claim(
            study=ASR,
            says=f"{row.network}: {row.system} over PyTorch cuDNNLSTM",
            theirs=row.their_ratio,
            ours=row.ratio,
            here=f"{row.implementation}, {row.here}" if row.ratio else "",
            conditions=row.conditions or "",
            needs=_needs(row.implementation),
            why=why[row.network] if row.ratio else "",
            command=_command(row.network, BASE, row.implementation),
            place="table",
            row=row.system,
            column=row.network,
            raw=f"{row.their_ms:g} / {row.their_base_ms:g} ms",
        )
        for row in rows.itertuples()
        if row.implementation != BASE
    ]


def _why(network: str, rows: pd.DataFrame) -> str:
    if not rows.our_ms.notna().any():
        return ""
    time_steps = network_named(network).time_steps
    return f"{network}: {steps.mechanism(rows, time_steps, rows.their_base_ms.iloc[0])}"


def _fastest(claim: Claim, rows: pd.DataFrame) -> Claim:
    """Add what our runs show to the claim that no LSTM is faster than cuDNN's layer."""
    ours = rows[rows.ratio.notna() & (rows.implementation != BASE)]
    if not len(ours):
        return claim
    faster = sum(ratio.value < 1 for ratio in ours.ratio)
    return replace(
        claim,
        holds=not faster,
        seen=f"faster than {BASE} (oneDNN on a CPU): {faster} of {len(ours)} others",
        here=", ".join(ours.here.unique()),
        conditions="CPU",
        why="on a CPU, oneDNN computes PyTorch's layer instead of cuDNN",
    )


def _in_words(line: Any, rows: pd.DataFrame, why: dict[str, str]) -> Claim:
    """Make a claim from a sentence of the study, with the ratio from the study's table."""
    sides = [
        (network, rows[(rows.network == network) & rows.implementation.isin(names.split())])
        for network, names in ((line.over_network, line.over), (line.under_network, line.under))
    ]
    (_, over), (_, under) = sides
    needs = [_needs(name) for _, side in sides for name in side.implementation]
    captured = over.our_ms.notna().all() and under.our_ms.notna().all()
    seen = dict.fromkeys([*over.conditions, *under.conditions])
    return Claim(
        ASR,
        f"{line.over_network}: {line.says} (the text says {line.in_words})",
        over.their_ms.mean() / under.their_ms.mean(),
        Measured.mean([*over.our_ms]).over(Measured.mean([*under.our_ms])) if captured else None,
        here=" and ".join(dict.fromkeys([*over.here, *under.here])) if captured else "",
        conditions=", ".join(seen) if captured else "",
        needs=next((need for need in needs if need != "a GPU"), "a GPU"),
        why=why[line.over_network] if captured else "",
        command=_command(line.over_network, *over.implementation, *under.implementation),
    )


def _command(network: str, *implementations_: str) -> str:
    """Return the command that times ``implementations_`` on a GPU."""
    names = dict.fromkeys(name.partition(" ")[0] for name in implementations_)
    theano = [name for name in names if implementations.find(name).framework == "theano"]
    if theano:
        return asr_program(network, theano[0])
    options = " ".join(f"--impl {name}" for name in names)
    return f"lstmprof capture {options} --device cuda --workload {network}"


def _needs(implementation: str) -> str:
    """Return the hardware and software that a capture of ``implementation`` needs."""
    framework = implementations.find(implementation.partition(" ")[0]).framework
    return "a GPU and Theano for CUDA" if framework == "theano" else "a GPU"


def _spread(network: str, rows: pd.DataFrame, why: str) -> Claim:
    captured = rows[rows.our_ms.notna()]
    order = sorted(captured.itertuples(), key=lambda row: row.our_ms.value)
    enough = len(order) > 2
    slowest = rows.loc[rows.their_ms.idxmax()].implementation
    return Claim(
        ASR,
        f"{network}: the slowest over the fastest",
        SPREAD[network],
        order[-1].our_ms.over(order[0].our_ms) if enough else None,
        here=f"{order[-1].implementation} over {order[0].implementation}" if enough else "",
        conditions=order[0].conditions if enough else "",
        why=why if enough else "",
        command=_command(network, BASE, slowest),
    )


def times(rows: pd.DataFrame) -> list[str]:
    """Return our step times as a Markdown table, one column per network."""
    captured = rows[rows.our_ms.notna()]
    if not len(captured):
        return []
    cells = {
        (row.implementation, row.here): number(row.our_ms.value)
        + (f" ({row.mean_ms})" if row.mean_ms else "")
        for row in captured.itertuples()
    }
    networks = list(captured.here.unique())
    lines = [
        f"| {name} | " + " | ".join(cells.get((name, network), "") for network in networks) + " |"
        for name in captured.implementation.unique()
    ]
    return [
        "Our step times in ms: the clean step and, in brackets, the mean and standard deviation of "
        "the timed steps, as in the study. `-t10` or `-t20` in a name means 10 or 20 time steps, "
        "fewer than in the study.",
        "",
        f"| | {' | '.join(networks)} |",
        "|---" * (len(networks) + 1) + "|",
        *lines,
    ]


def conclusion(rows: pd.DataFrame) -> str:
    """Say what the study found, what our runs show, and why."""
    captured = rows[rows.ratio.notna() & (rows.implementation != BASE)]
    if not len(captured):
        return NO_RUN
    ours = [row.ratio.value for row in captured.itertuples()]
    return (
        f"The study found cuDNN's layer up to {SPREAD['1x320-ce-long']} times as fast as the "
        f"slowest LSTM on a GPU. On a CPU the other LSTMs take {min(ours):.2f} to {max(ours):.2f} "
        "times as long as PyTorch's own layer. The LSTMs differ less on a CPU because matmuls, "
        "which all of them need, take most of the step. On a GPU they differ by their number of "
        "launches, and a CPU has no launches"
    )


def chart(rows: pd.DataFrame) -> alt.LayerChart:
    shown = rows[rows.ratio.notna() & (rows.implementation != BASE)]
    return drawing.pairs(
        shown.system + ", " + shown.network,
        shown.their_ratio,
        [ratio.value for ratio in shown.ratio],
        "times as long as PyTorch's layer",
    )


if __name__ == "__main__":
    main(sys.modules[__name__])
