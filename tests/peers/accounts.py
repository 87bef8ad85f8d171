"""What lstmprof says of a file, in the terms that other profilers use."""

from __future__ import annotations

import functools
import warnings
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lstmprof import formats
from lstmprof.base.errors import ProfileError
from lstmprof.breakdown.attribution.ledger import ledger
from lstmprof.events.annotate import annotated
from lstmprof.events.annotate.steps import Window
from lstmprof.events.schema import ACTIVITY_KINDS

#: By name (count, total_ns).
ByName = dict[str, tuple[int, int]]


def peer(module: str, install: str) -> Any:
    """The module of another profiler; skips where it is not installed."""
    with warnings.catch_warnings():  # its own and its libraries'
        warnings.simplefilter("ignore")
        return pytest.importorskip(module, reason=f"not installed: pip install {install}")


@functools.cache
def events_of(path: Path) -> pa.Table:
    """The annotated events; skips where lstmprof refuses the file."""
    try:
        return annotated(formats.read(path).events, captured=False)
    except ProfileError as refusal:
        pytest.skip(f"refused: {refusal}")


def chosen(events: pa.Table, kinds: Collection[str] = ACTIVITY_KINDS) -> list[dict[str, Any]]:
    """The rows of these kinds."""
    keep = pa.array([kind in kinds for kind in events["kind"].to_pylist()], pa.bool_())
    rows: list[dict[str, Any]] = events.filter(keep).to_pylist()
    return rows


def by_name(rows: list[dict[str, Any]], column: str = "name") -> ByName:
    """Count and total duration of the rows of each name."""
    counts = Counter(row[column] for row in rows)
    totals: Counter[str] = Counter()
    for row in rows:
        totals[row[column]] += row["dur_ns"]
    return {name: (counts[name], totals[name]) for name in counts}


def span(rows: list[dict[str, Any]]) -> Window:
    """From the first start to the last end: the window of those who know no steps."""
    ends = [row["start_ns"] + row["dur_ns"] for row in rows]
    return Window(rows[0]["rank"], None, min(r["start_ns"] for r in rows), max(ends), None)


def parts(events: pa.Table, window: Window) -> Counter[tuple[str, str]]:
    """(state, part) to ns of the one device in ``events``."""
    rows = ledger(events, [window]).to_pylist()
    assert len({row["device"] for row in rows}) == 1
    return Counter({(row["state"], row["part"]): row["ns"] for row in rows})


def total(account: Mapping[tuple[str, str], int], state: str) -> int:
    """Nanoseconds in ``state``."""
    return sum(ns for (of, _), ns in account.items() if of == state)


def relabelled(events: pa.Table, column: str, labels: list[str | None]) -> pa.Table:
    """``events`` with another ``kind`` or ``category`` a row."""
    return events.with_columns({column: pa.array(labels, pa.string())})
