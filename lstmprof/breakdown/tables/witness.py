"""The table of stack samples, which checks the breakdown by an independent measurement.

Example: matmuls have 40 % of the step in the breakdown, and 38 % of the samples. The table also
shows Python lines that have no events, such as hooks, logging and the garbage collector.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from lstmprof.breakdown.clean.script_waits import SCRIPT_WAITS
from lstmprof.breakdown.clean.slot_times import Z95
from lstmprof.breakdown.mean_step import MeanStep
from lstmprof.events.schema import Column, schema

#: Share of all samples above which lstmprof lists a line in the table.
LEAST_SHARE = 0.01
PART, LINE = "part", "line"
#: Categories that samples cannot tell apart in code that XLA compiled, which has no op names.
_MAY_BE_COMPILED = ("pointwise", "layout", "reduction", "cast", "rng", "softmax_loss", "optimizer")

_NOT_THERE = "the breakdown has no such part on the host"
COLUMNS = (
    Column.text("kind", "part (see the table ledger) or line (of Python)"),
    Column.text("name", "name of the part; for a line, its function and line number"),
    Column.integer("samples", "number of samples in the part or line"),
    Column.real(
        "share",
        "samples of the part or line, divided by all samples except samples of waiting threads",
    ),
    Column("error", pa.float64(), "share", "half of the 95 % interval of share (binomial)"),
    Column.real(
        "ledger_share", "share of the part in the step, as `breakdown` shows it", _NOT_THERE
    ),
    Column.real("difference_points", "share minus ledger_share, in percentage points", _NOT_THERE),
)


def witness(samples: pa.Table | None, steps: Sequence[MeanStep]) -> pa.Table:
    """Return one row per part (kind of work or idle cause), then one per Python line."""
    rows = [] if samples is None else [*_rows(samples.to_pylist(), steps)]
    return pa.Table.from_pylist(rows, schema=schema(COLUMNS))


def _rows(
    samples: list[dict[str, object]], steps: Sequence[MeanStep]
) -> Iterator[dict[str, object]]:
    # import here, because only runs with samples need this module
    from lstmprof.events.annotate.sampled_stacks import (
        COMPILED,
        GARBAGE_COLLECTOR,
        PYTHON,
        UNKNOWN,
        WAITING,
        is_python,
    )

    parts: Counter[str] = Counter()
    lines: Counter[str] = Counter()
    for row in samples:
        part, count, line = str(row["part"]), int(str(row["count"])), row["line"]
        parts[part] += count
        frames = row["frames"]
        assert isinstance(frames, list)
        in_python = part == PYTHON or is_python(frames[-1])
        if line is not None and part != WAITING and (in_python or line == GARBAGE_COLLECTOR):
            lines[str(line)] += count
    # omit waiting threads. All computing threads count, unlike in the breakdown.
    del parts[WAITING]
    total = sum(parts.values())
    accounted = _ledger_shares(steps)
    if parts[COMPILED]:
        parts, accounted = Counter(_merged(parts, COMPILED)), _merged(accounted, COMPILED)
    names = [*parts, *(name for name in accounted if name not in parts)]
    for name in sorted(names, key=lambda name: (-parts[name], name)):
        ours = accounted.get(name, 0.0) if accounted and name != UNKNOWN else None
        yield _row(PART, name, parts[name], total, ours)
    for name, count in sorted(lines.items(), key=lambda row: (-row[1], row[0])):
        if count > LEAST_SHARE * total:
            yield _row(LINE, name, count, total, None)


def _row(kind: str, name: str, count: int, total: int, ours: float | None) -> dict[str, object]:
    share = count / total if total else 0.0
    error = Z95 * math.sqrt(share * (1 - share) / total) if total else None
    return {
        "kind": kind,
        "name": name,
        "samples": count,
        "share": share,
        "error": error,
        "ledger_share": ours,
        "difference_points": None if ours is None else 100 * (share - ours),
    }


def _ledger_shares(steps: Sequence[MeanStep]) -> dict[str, float]:
    """Return each part's share of the host's step: ``{"gemm": 0.4, …}``."""
    spent: Counter[str] = Counter()
    for step in steps:
        for state, part, ns in step.parts if step.device is None else ():
            if (
                state in ("busy", "idle") and part != SCRIPT_WAITS
            ):  # samples of waits do not count, either
                spent[part.removeprefix("tail:")] += ns
    total = sum(spent.values())
    return {part: ns / total for part, ns in spent.items()} if total else {}


def _merged(shares: Mapping[str, float], compiled: str) -> dict[str, float]:
    """Add up the shares of all kinds of work that XLA may have compiled."""
    merged: dict[str, float] = {}
    for name, share in shares.items():
        name = compiled if name in _MAY_BE_COMPILED else name
        merged[name] = merged.get(name, 0) + share
    return merged
