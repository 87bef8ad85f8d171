"""The table of samples: stack samples of timed steps, compared with the breakdown.

It shows whether the breakdown is right. It also lists Python lines that no event shows, such as
hooks, logging and the garbage collector. Samples of threads that wait for another do not count.
Shares refer to the time of all threads, so they differ if two threads compute at once.
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

#: Least share of samples of a line in the table.
LEAST_SHARE = 0.01
PART, LINE = "part", "line"
#: Categories of work that XLA may have compiled: samples lack the op names that would show it.
_MAY_BE_COMPILED = ("pointwise", "layout", "reduction", "cast", "rng", "softmax_loss", "optimizer")

_NOT_THERE = "the breakdown has no such part on the host"
COLUMNS = (
    Column.text("kind", "part (see the table ledger) or line (of Python)"),
    Column.text("name", "name of the part; for a line, its function and line number"),
    Column.integer("samples", "number of samples in the part or line"),
    Column.real("share", "samples of the row, divided by all samples in which no thread waited"),
    Column("error", pa.float64(), "share", "half of the 95 % interval of share (binomial)"),
    Column.real(
        "ledger_share", "share of the part in the step, as `breakdown` shows it", _NOT_THERE
    ),
    Column.real("difference_points", "share minus ledger_share, in percentage points", _NOT_THERE),
)


def witness(samples: pa.Table | None, steps: Sequence[MeanStep]) -> pa.Table:
    """Return one row per kind of work or idle cause, then one per Python line."""
    rows = [] if samples is None else [*_rows(samples.to_pylist(), steps)]
    return pa.Table.from_pylist(rows, schema=schema(COLUMNS))


def _rows(
    samples: list[dict[str, object]], steps: Sequence[MeanStep]
) -> Iterator[dict[str, object]]:
    # only needed for runs with samples
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
    """Merge all kinds of work that may be compiled code."""
    merged: dict[str, float] = {}
    for name, share in shares.items():
        name = compiled if name in _MAY_BE_COMPILED else name
        merged[name] = merged.get(name, 0) + share
    return merged
