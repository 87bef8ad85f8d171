"""How much longer does one implementation of an LSTM layer take than another, in inference?

Claim of the kernel study (Table 2): PyTorch takes 1.53 times as long as cuDNN alone, and
TensorFlow's layer takes 18.8 times as long as cuDNN alone. Table 2 has mean percentage errors,
(first − second) / first. We compare 1 − error, which is the mean of second / first.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Sequence
from dataclasses import replace

import altair as alt
import pandas as pd

import lstmprof as lp
from analyses import drawing, steps, sweep
from analyses.claims import Claim, Measured, quoted
from analyses.printing import main
from analyses.published import KERNELS, rows as published
from lstmprof.base.numbers import percent

SIZES = (
    "--mode forward --device cuda --workload deepbench-lstm-h512-b16-t25 "
    "--hidden 128,512,1024 --batch 1,16,256 --time-steps 10,100,1000"
)
KERAS, TORCH = ("keras-lstm", "fp32"), ("torch-nn-lstm", "fp32")
#: Smallest ratio for "far slower" and "many more". Chosen by hand: the study gives no limit.
FAR = 2.0
#: Mode of the study → what Keras's layer does in this mode.
_MODES = {
    "TF mode 0": "its defaults",
    "TF mode 1": "many small matmuls",
    "TF mode 2": "few large matmuls",
}
#: Curve of the chart → (numerator, denominator), each as (implementation, precision).
COMPARED = {
    "Keras mode 1 over mode 2": (("keras-lstm-mode1", "fp32"), ("keras-lstm-mode2", "fp32")),
    "Keras over PyTorch": (KERAS, TORCH),
    "PyTorch AMP over PyTorch": (("torch-nn-lstm", "amp-bf16"), TORCH),
    "Keras AMP over Keras": (("keras-lstm", "amp-bf16"), KERAS),
}
COMMAND = (
    "lstmprof capture --impl cudnn-direct --impl torch-nn-lstm --impl keras-lstm "
    "--impl keras-lstm-mode1 --impl keras-lstm-mode2 --precision fp32 --precision amp-fp16 "
    f"{SIZES}"
)


def table(runs: Sequence[lp.Run]) -> pd.DataFrame:
    """Return our mean ratio for each comparison in the study's Table 2."""
    own = steps.table(runs)
    own = own[own["mode"] == "forward"]
    on_gpu = own[own.device != "cpu"]
    # use the runs and the sweeps on a CPU if there are no runs on a GPU
    forward = on_gpu if len(on_gpu) else pd.concat([own, sweep.rows().assign(device="cpu")])
    rows = []
    for line in published("kernel_study").to_dict("records"):
        first, second = (
            forward[
                (forward.implementation == line[f"{which}_implementation"])
                & (_kind(forward["precision"]) == line[f"{which}_precision"].partition("-")[0])
            ].drop_duplicates([*sweep.SIZES, "device"], keep="last")
            for which in ("first", "second")
        )
        both = first.merge(second, on=[*sweep.SIZES, "device"], suffixes=("_first", "_second"))
        rows.append(
            {
                **{name: line[name] for name in ("first", "second", "mpe")},
                "our_mpe": mpe(both.step_ms_first, both.step_ms_second) if len(both) else None,
                "ratio": _mean_ratio(both) if len(both) else None,
                "sizes": len(both),
                "conditions": _conditions(both, line) if len(both) else "",
                "loop": bool(len(both)) and (both.device == "cpu").all() and _compares_cudnn(line),
            }
        )
    return pd.DataFrame(rows)


def _compares_cudnn(line: dict[Hashable, str]) -> bool:
    """Return whether a row of Table 2 compares mode 0 (cuDNN on a GPU) with another layer."""
    return "keras-lstm" in (line["first_implementation"], line["second_implementation"]) and (
        line["first_implementation"] != line["second_implementation"]
    )


def _kind(precision: pd.Series) -> pd.Series:
    """Return ``fp32``, or ``amp`` for any mixed precision, such as ``amp-bf16``."""
    return precision.astype(str).str.split("-").str[0]


def _conditions(both: pd.DataFrame, line: dict[Hashable, str]) -> str:
    device = "CPU" if (both.device == "cpu").all() else "GPU"
    amp = ", bf16" if "amp" in line["second_precision"] and device == "CPU" else ""
    return f"{device}{amp}, {len(both)} sizes"


def mpe(first: pd.Series, second: pd.Series) -> float:
    """Return the mean percentage error as a fraction, negative if ``second`` is slower."""
    return float(((first - second) / first).mean())


def _mean_ratio(both: pd.DataFrame) -> Measured:
    """Return the mean ratio of the second step to the first step, over all sizes."""
    ratios = [
        Measured(row.step_ms_second, row.low_ms_second, row.high_ms_second).over(
            Measured(row.step_ms_first, row.low_ms_first, row.high_ms_first)
        )
        for row in both.itertuples()
    ]
    return Measured.mean(ratios)


def claims(rows: pd.DataFrame) -> list[Claim]:
    """Return the study's claims: a mean ratio per comparison, and quoted sentences."""
    ratios = [
        Claim(
            KERNELS,
            f"{row['first']} vs {row['second']}: the second's time over the first's, on average",
            1 - row.mpe,
            None if row.loop else row.ratio,
            seen=f"{row.ratio.text('×')}, but mode 0 does not use cuDNN" if row.loop else "",
            here=f"{row.sizes} sizes" if row.sizes else "",
            conditions=row.conditions,
            why=_why(line) if row.sizes else "",
            command=_command(line),
            place="Table 2",
            row=f"{row['first']} vs {row['second']}",
            column="second over first",
            raw=f"MPE {row.mpe:.3f}".replace("-", "−"),
        )
        for (_, row), line in zip(
            rows.iterrows(), published("kernel_study").to_dict("records"), strict=True
        )
    ]
    return [*ratios, *map(_from_sweep, quoted("kernel_study_kernels"))]


def _why(line: dict[Hashable, str]) -> str:
    """Say why our ratio on a CPU differs from the study's."""
    lines = sweep.rows()
    first, second = (
        sweep.of(
            lines,
            (line[f"{which}_implementation"], line[f"{which}_precision"].replace("fp16", "bf16")),
        )
        for which in ("first", "second")
    )
    if not len(first) or not len(second):
        return ""
    if "amp" in line["second_precision"]:
        share = (second.cast_ms / second.step_ms).median()
        faster = second.product_ms.sum() / first.product_ms.sum()
        loop = ". On a CPU, mode 0 loops over the time steps, and each time step casts"
        return (
            f"{line['second']}: casts take {percent(share)} of a step (median). All matmuls "
            f"together take {faster:.2f}× as long in bf16 as in fp32, on a CPU with bf16 matmul "
            f"units{loop if line['first_implementation'] == 'keras-lstm' else ''}"
        )
    per_step = [(side.ops / side.time_steps).median() for side in (first, second)]
    return (
        f"{_in_words(line['first'])} runs {per_step[0]:.3g} ops per time step, and "
        f"{_in_words(line['second'])} runs {per_step[1]:.3g}. These counts are too low, because "
        "TensorFlow's profiler omits very short ops"
    )


def _in_words(name: str) -> str:
    """Explain the mode: ``TF mode 1 (Keras's layer with many small matmuls)``."""
    return f"{name} (Keras's layer with {_MODES[name]})" if name in _MODES else name


def _from_sweep(claim: Claim) -> Claim:
    """Add what our sweep shows if the claim compares TensorFlow with PyTorch."""
    lines = sweep.rows()
    if not claim.place.startswith("claim (e)") or not len(lines):
        return claim
    both = sweep.of(lines, KERAS).merge(sweep.of(lines, TORCH), on=sweep.SIZES)
    ratio = both.step_ms_x / both.step_ms_y
    ops = (both.ops_x.median(), both.ops_y.median())
    seen = {
        "claim (e), time": f"keras-lstm takes {ratio.min():.2f} to {ratio.max():.2f} times as long "
        f"(median {ratio.median():.2f})",
        "claim (e), ops": f"keras-lstm runs {ops[0]:,.0f} ops per step, torch-nn-lstm "
        f"{ops[1]:,.0f} (medians)",
    }
    return replace(
        claim,
        holds=bool(ratio.median() > FAR if claim.place.endswith("time") else ops[0] > FAR * ops[1]),
        likely=claim.place.endswith("time")
        and not all(sweep.sure(lines, KERAS, TORCH, size) for size in sweep.SIZES),
        seen=seen[claim.place],
        here=f"keras-lstm and torch-nn-lstm, {len(both)} sizes",
        conditions=f"CPU, {len(both)} sizes",
        why="on a GPU, mode 0 and PyTorch call cuDNN; on a CPU, mode 0 loops over the time steps "
        "and PyTorch calls oneDNN once",
    )


def _command(line: dict[Hashable, str]) -> str:
    """Return the command that captures both sides of a row of Table 2 on a GPU."""
    options = [
        f"--{option} {value}"
        for option, column in (("impl", "implementation"), ("precision", "precision"))
        for value in dict.fromkeys((line[f"first_{column}"], line[f"second_{column}"]))
    ]
    return " ".join(["lstmprof capture", *options, SIZES])


def conclusion(rows: pd.DataFrame) -> str:
    """Say what the study found, what our runs show, and why."""
    study = (
        "The study found that PyTorch's layer takes 1.53 times as long as cuDNN alone, and "
        "TensorFlow's layer 18.8 times as long, because TensorFlow runs many more ops besides the "
        "same kernel"
    )
    ops = next((c for c in claims(rows) if c.place == "claim (e), ops" and c.seen), None)
    time = next((c for c in claims(rows) if c.place == "claim (e), time" and c.seen), None)
    if ops is None or time is None:
        return f"{study}; no run here answers it"
    times = time.seen.replace(" (", " as torch-nn-lstm (")
    return (
        f"{study}. On a CPU, which has no cuDNN, {times}. The reason is the same: {ops.seen}, "
        "because Keras loops over the time steps, but PyTorch calls oneDNN only once"
    )


def chart(rows: pd.DataFrame) -> alt.HConcatChart:
    """Draw each ratio of ``COMPARED`` over batch, time steps and hidden size."""
    lines = sweep.rows()
    series = {
        name: {size: sweep.ratios(lines, over, under, size) for size in sweep.SIZES}
        for name, (over, under) in COMPARED.items()
    }
    return drawing.sweeps(series)


if __name__ == "__main__":
    main(sys.modules[__name__])
