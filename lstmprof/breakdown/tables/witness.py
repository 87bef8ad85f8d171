"""What a sampler saw of timed steps, beside the ledger: an outside witness.

Reads the samples of a run, which were sorted into the ledger's own parts when it was captured, and
the breakdown of its clean step. First the parts: their share of the samples, of the time in the
breakdown, and by how many points these differ. Then the Python lines that took more than 1 %
themselves, in no op, which no event of the profile shows: hooks, logging, a loop's own work; and
the garbage collector, wherever it ran.

A thread that waits for another is in no share. Samples are of threads, so that shares are of the
time of all threads: those of a step in which two compute at once are not the ledger's.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from lstmprof.breakdown.mean_step import MeanStep
from lstmprof.events.schema import Column, schema

#: A line that takes less of a step is not named.
LEAST_SHARE = 0.01
#: Half of a 95 % interval in standard deviations of a normal distribution.
_Z = 1.96
PART, LINE = "part", "line"
#: What code that XLA generated may be: the ledger tells these apart by names, which samples lack.
_MAY_BE_COMPILED = ("pointwise", "layout", "reduction", "cast", "rng", "softmax_loss", "optimizer")

_NOT_THERE = "the breakdown has no such part or covers a device, or the row is a line of code"
COLUMNS = (
    Column.text("kind", "part (a part of the ledger) or line (a Python line that no event shows)"),
    Column.text("name", "name of the part; for a line, its function and line number"),
    Column.integer("samples", "number of samples in the part or line"),
    Column.real("share", "samples of the row, divided by all samples in which no thread waited"),
    Column("error", pa.float64(), "share", "half of the 95 % interval of share (binomial)"),
    Column.real(
        "ledger_share", "share of the part in the clean step, by the breakdown", _NOT_THERE
    ),
    Column.real("difference_points", "share minus ledger_share, in percentage points", _NOT_THERE),
)


def witness(samples: pa.Table | None, steps: Sequence[MeanStep]) -> pa.Table:
    """``COLUMNS``: parts and lines of ``samples``, the largest first; none where nobody sampled."""
    rows = [] if samples is None else [*_rows(samples.to_pylist(), steps)]
    return pa.Table.from_pylist(rows, schema=schema(COLUMNS))


def _rows(
    samples: list[dict[str, object]], steps: Sequence[MeanStep]
) -> Iterator[dict[str, object]]:
    # a breakdown without samples needs no rules
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
    error = _Z * math.sqrt(share * (1 - share) / total) if total else None
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
    """Part → its share of the step on the host; empty where the lanes are devices."""
    spent: Counter[str] = Counter()
    for step in steps:
        for state, part, ns in step.parts if step.device is None else ():
            if state in ("busy", "idle"):  # what profiling changed besides is of no part
                spent[part.removeprefix("tail:")] += ns
    total = sum(spent.values())
    return {part: ns / total for part, ns in spent.items()} if total else {}


def _merged(shares: Mapping[str, float], compiled: str) -> dict[str, float]:
    """``shares`` with those of what may be compiled added up as ``compiled``."""
    merged: dict[str, float] = {}
    for name, share in shares.items():
        name = compiled if name in _MAY_BE_COMPILED else name
        merged[name] = merged.get(name, 0) + share
    return merged
