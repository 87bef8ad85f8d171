"""How long a step of each run takes, as the analyses compare them: one row a timed run.

Reads run.json and the timings. Where a run lost its CPU to other processes too often, and all have
CPU time, CPU time stands for wall time in all rows: ``measure`` says which.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import pandas as pd

import lstmprof as lp
from analyses.claims import Measured
from lstmprof.breakdown.iterations import iterations_of
from lstmprof.breakdown.rounds import Round
from lstmprof.breakdown.timings import Timings

CPU, WALL = "CPU time", "wall time"
COLUMNS = (
    *("run", "implementation", "framework", "version", "workload", "cell", "layers", "hidden"),
    *("batch", "time_steps", "precision", "mode", "device", "measure"),
    *("step_ms", "low_ms", "high_ms", "first_step_s", "words_per_s", "rounds", "turns"),
)


def table(runs: Sequence[lp.Run]) -> pd.DataFrame:
    """``COLUMNS`` of each run that was timed; ms are those of an undisturbed step."""
    timed = [(run, run.timings()) for run in runs if run.info.source == "capture"]
    kept = [(run, timings) for run, timings in timed if timings is not None]
    measure = _measure([timings for _, timings in kept])
    return pd.DataFrame([_row(run, timings, measure) for run, timings in kept], columns=[*COLUMNS])


def _measure(timings: Sequence[Timings]) -> str:
    disturbed = any(t.compared_by != WALL for t in timings)
    return CPU if disturbed and all(t.cpu_step_ns is not None for t in timings) else WALL


def _row(run: lp.Run, timings: Timings, measure: str) -> dict[str, object]:
    info, network = run.info, run.info.workload
    by_cpu = measure == CPU
    step = timings.cpu_step_ns if by_cpu else timings.step_ns
    low = timings.cpu_step_low_ns if by_cpu else timings.step_low_ns
    high = timings.cpu_step_high_ns if by_cpu else timings.step_high_ns
    assert step is not None
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
        "measure": measure,
        "step_ms": step / 1e6,
        "low_ms": None if low is None else low / 1e6,
        "high_ms": None if high is None else high / 1e6,
        "first_step_s": None if timings.compile_ns is None else timings.compile_ns / 1e9,
        "words_per_s": network.words / step * 1e9 if network.words else None,
        "rounds": _rounds(run, by_cpu),
        "turns": info.turn_with or (),
    }


def _rounds(run: lp.Run, by_cpu: bool) -> tuple[Round, ...]:
    table = run.stored.timings()
    assert table is not None
    iterations = iterations_of(table, run.info)
    return iterations.rounds("CPU time") if by_cpu else iterations.kept.rounds()


def of_network(rows: pd.DataFrame, network: str, mode: str = "train") -> pd.DataFrame:
    """Steps in fp32 of ``network`` or of it shortened; of several lengths the longest's rows.

    Of an implementation in several versions the newest.
    """
    shortened = rf"{re.escape(network)}(?:-t\d+)?(?:-y\d+)?(?:-data)?"
    named = rows.workload.astype(str).str.fullmatch(shortened)
    usual = rows[named & (rows["precision"] == "fp32") & (rows["mode"] == mode)]
    longest = usual[usual.time_steps == usual.time_steps.max()]
    return newest(longest)


def newest(rows: pd.DataFrame) -> pd.DataFrame:
    """One row an implementation: of its newest version the run that took turns with most others."""
    keys = rows.version.map(version_key), rows.turns.map(len)
    order = rows.assign(_key=[*zip(*keys, strict=True)]).sort_values("_key", kind="stable")
    return order.groupby("implementation", sort=False).tail(1).drop(columns="_key")


def version_key(version: object) -> tuple[int, ...]:
    """A version's place among others: ``2.13.0+cpu`` → (2, 13, 0); an unknown one is the oldest."""
    numbers = str(version).partition("+")[0].split(".")
    return tuple(int(part) if part.isdigit() else 0 for part in numbers)


def measured(row: pd.Series) -> Measured:
    """The step of a row, ms."""
    low, high = (None if _missing(row[c]) else float(row[c]) for c in ("low_ms", "high_ms"))
    paired = row.get("rounds", ()), row.get("turns", ())
    return Measured(float(row["step_ms"]), low, high, *paired)


def of(rows: pd.DataFrame, implementation: str) -> Measured | None:
    """The step of ``implementation``, ms; None where no run is of it."""
    own = rows[rows.implementation == implementation]
    return measured(own.iloc[-1]) if len(own) else None


def _missing(value: object) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))
