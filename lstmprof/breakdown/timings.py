"""Statistics of the undisturbed pass, and what the profiler added in the profiled one."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


@dataclass(frozen=True)
class Timings:
    """Of the iterations after warm-up; None is unknown.

    ``std_ns`` is the sample standard deviation (n − 1). ``p95_ns`` is the nearest rank.
    ``compile_ns`` is the first step of the process. ``inflation_share`` is the median profiled step
    over the median undisturbed one, less 1.
    """

    iterations: int
    median_ns: float
    mean_ns: float
    std_ns: float | None
    p95_ns: int
    samples_per_s: float | None
    compile_ns: int | None
    inflation_share: float | None


def timings(table: pa.Table, metadata: Mapping[str, Any]) -> Timings | None:
    """Statistics of ``timings.parquet``; None where no iteration came after warm-up."""
    walls = table.filter(pc.invert(table.column("warmup"))).column("wall_ns").to_pylist()
    if not walls:
        return None
    median = statistics.median(walls)
    batch = (metadata.get("workload") or {}).get("batch")
    profiled = metadata.get("profiled_wall_ns")
    return Timings(
        iterations=len(walls),
        median_ns=float(median),
        mean_ns=statistics.fmean(walls),
        std_ns=statistics.stdev(walls) if len(walls) > 1 else None,
        p95_ns=sorted(walls)[max(-(-95 * len(walls) // 100), 1) - 1],
        samples_per_s=batch / median * 1e9 if batch and median else None,
        compile_ns=metadata.get("compile_ns"),
        inflation_share=statistics.median(profiled) / median - 1 if profiled and median else None,
    )


def slowdowns(medians_ns: Mapping[int, float]) -> dict[int, float]:
    """How many times as long as the fastest each run takes; keys as given."""
    fastest = min(medians_ns.values(), default=0.0)
    return {key: median / fastest for key, median in medians_ns.items() if fastest > 0}
