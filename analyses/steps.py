"""The step times that the analyses compare: one row per timed run."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import pandas as pd

import lstmprof as lp
from analyses.claims import Measured
from lstmprof.base.numbers import percent

#: Categories of matmuls, and of ops that compute a whole layer.
PRODUCTS = ("gemm", "rnn")
#: Host time of a kernel launch in µs: the median cudaLaunchKernel of a loop on an H200
#: (tests/h200/loop).
LAUNCH_US = 8.6
COLUMNS = (
    *("run", "implementation", "framework", "version", "workload", "cell", "layers", "hidden"),
    *("batch", "time_steps", "precision", "mode", "device"),
    *("step_ms", "low_ms", "high_ms", "mean_ms", "std_ms", "first_step_s", "words_per_s", "turns"),
)


def table(runs: Sequence[lp.Run]) -> pd.DataFrame:
    """Return one row per timed run, with its step time without a profiler."""
    captured = (_row(run) for run in runs if run.info.source == "capture")
    return pd.DataFrame([row for row in captured if row], columns=[*COLUMNS])


def _row(run: lp.Run) -> dict[str, object] | None:
    timings = run.timings()
    if timings is None:
        return None
    info, network, step = run.info, run.info.workload, timings.step_ns
    low, high = timings.step_low_ns, timings.step_high_ns
    return {
        "run": run.name,
        "implementation": info.implementation,
        "framework": info.framework,
        "version": (info.versions or {}).get(info.framework or ""),
        "workload": network.name,
        "cell": network.cell,
        "layers": network.layers,
        "hidden": network.hidden,
        "batch": network.batch,
        "time_steps": network.time_steps,
        "precision": info.precision,
        "mode": info.mode,
        "device": info.device,
        "step_ms": step / 1e6,
        "low_ms": None if low is None else low / 1e6,
        "high_ms": None if high is None else high / 1e6,
        "mean_ms": timings.mean_ns / 1e6,
        "std_ms": None if timings.std_ns is None else timings.std_ns / 1e6,
        "first_step_s": None if timings.compile_ns is None else timings.compile_ns / 1e9,
        "words_per_s": network.words / step * 1e9 if network.words else None,
        "turns": info.turn_with or (),
    }


def of_network(rows: pd.DataFrame, network: str, mode: str = "train") -> pd.DataFrame:
    """Return each implementation's newest fp32 run of ``network``."""
    shortened = rf"{re.escape(network)}(?:-t\d+)?(?:-y\d+)?(?:-data)?"
    named = rows.workload.astype(str).str.fullmatch(shortened)
    usual = rows[named & (rows["precision"] == "fp32") & (rows["mode"] == mode)]
    # keep only runs with the most time steps
    longest = usual[usual.time_steps == usual.time_steps.max()]
    return newest(longest)


def newest(rows: pd.DataFrame) -> pd.DataFrame:
    """Keep each implementation's run with the newest version of its framework."""
    # sort equal versions by the number of runs that were timed alternately with the run
    keys = rows.version.map(version_key), rows.turns.map(len)
    order = rows.assign(_key=[*zip(*keys, strict=True)]).sort_values("_key", kind="stable")
    return order.groupby("implementation", sort=False).tail(1).drop(columns="_key")


def version_key(version: object) -> tuple[int, ...]:
    """Return a sort key: (2, 13, 0) for ``2.13.0+cpu``; an unknown version sorts first."""
    numbers = str(version).partition("+")[0].split(".")
    return tuple(int(part) if part.isdigit() else 0 for part in numbers)


def measured(row: pd.Series) -> Measured:
    """Return the step time of a row in ms, with its 95 % interval."""
    low, high = (None if _missing(row[c]) else float(row[c]) for c in ("low_ms", "high_ms"))
    return Measured(float(row["step_ms"]), low, high)


def of(rows: pd.DataFrame, implementation: str) -> Measured | None:
    """Return the step time of ``implementation`` in ms."""
    own = rows[rows.implementation == implementation]
    return measured(own.iloc[-1]) if len(own) else None


def work(run: lp.Run) -> dict[str, float | None]:
    """Return the ops per time step, and the step's shares of matmuls and of dispatch."""
    ops = run.table("layers").to_pandas().ops_per_time_step.dropna()
    ledger = run.ledger().to_pandas()
    times = ledger.groupby("part").ns.sum() / ledger.ns.sum()
    return {
        "ops_per_time_step": float(ops.sum()) if len(ops) else None,
        "product_share": float(times.reindex(PRODUCTS).sum()),
        "dispatch_share": float(times.get("dispatch", 0.0)),
    }


def mechanism(rows: pd.DataFrame, time_steps: int, cudnn_ms: float) -> str:
    """Say why the implementations differ more on a GPU than on a CPU."""
    captured = rows[rows.dispatch_share.notna()].drop_duplicates("implementation")
    dispatch, products = (ends(captured[c]) for c in ("dispatch_share", "product_share"))
    shares = (
        f"on our CPU, matmuls and ops that compute a whole layer take {products} of a step, and "
        f"every implementation needs them. Dispatch takes {dispatch}"
    )
    counted = captured[captured.ops_per_time_step.notna()].sort_values("ops_per_time_step")
    if not len(counted):
        return shares
    few, many = counted.iloc[0], counted.iloc[-1]
    launches = many.ops_per_time_step * time_steps
    return (
        f"{shares}. The forward pass runs {few.ops_per_time_step:.3g} "
        f"({few.implementation}) to {many.ops_per_time_step:.3g} ({many.implementation}) ops per "
        f"time step. On a GPU each op is at least one launch, which takes {LAUNCH_US} µs on an "
        f"NVIDIA H200. For the study's {time_steps} time steps, {many.implementation} would make "
        f"{launches:,.0f} launches, so its forward pass would take at least "
        f"{launches * LAUNCH_US / 1e3:.3g} ms. The study's cuDNN layer took {cudnn_ms:g} ms for "
        "the whole training step"
    )


def conditions(rows: pd.DataFrame, own_length: int) -> str:
    """Say how the runs differ from a study's: ``CPU, 20 time steps``."""
    devices = ["CPU" if device == "cpu" else "GPU" for device in rows.device]
    lengths = [f"{length} time steps" for length in rows.time_steps if length != own_length]
    return ", ".join(dict.fromkeys([*devices, *lengths]))


def ends(shares: pd.Series) -> str:
    """Return the least and the greatest share as text: ``2 % to 11 %``."""
    return " to ".join(dict.fromkeys(percent(share) for share in (shares.min(), shares.max())))


def _missing(value: object) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))
