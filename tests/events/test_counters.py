"""Counters in files are the counters in memory, rank by rank and each by time."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from lstmprof.events import counters
from lstmprof.events.counters import ALLOCATED, BYTES, Count, Counters, table_of, write_sorted
from lstmprof.events.stored import Folder

_COUNTS = st.builds(
    Count,
    st.integers(-(2**40), 2**40) | st.integers(0, 3),
    st.none() | st.integers(1, 2**22),
    st.none() | st.integers(0, 3),
    st.sampled_from([ALLOCATED, "power", "x"]),
    st.sampled_from([None, BYTES]),
    st.none() | st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([None, "mklcpu", "GPU_0_bfc"]),
)


def in_files(pieces: list[list[Count]]) -> Counters:
    folder = Folder()
    paths: list[Path] = []
    for piece in pieces:
        paths.append(folder.new("counters"))
        write_sorted(paths[-1], table_of(piece))
    return Counters.in_files(paths, folder)


@given(st.lists(st.lists(_COUNTS, min_size=1, max_size=20), max_size=5), st.sampled_from([1, 8]))
def test_files_are_read_as_what_is_in_memory(pieces: list[list[Count]], rows: int) -> None:
    held = Counters.of([table_of(piece) for piece in pieces]).shifted(-5, 3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counters, "BATCH_ROWS", rows)
        stored = in_files(pieces).shifted(-5, 3).table()
    ordered = sorted((c for piece in pieces for c in piece), key=lambda c: c.time_ns)
    expected = [{**c._asdict(), "time_ns": c.time_ns - 5, "rank": 3} for c in ordered]
    assert stored.to_pylist() == held.table().to_pylist() == expected
    assert bool(held) == bool(expected)


def test_ranks_stand_one_after_the_other_and_keep_theirs(tmp_path: Path) -> None:
    first = Counters.of([table_of([Count(9, None, 0, "a", None, 1.0)])]).shifted(1, 0)
    second = in_files([[Count(2, None, 0, "b", None, 2.0)], [Count(1, None, 1, "a", None, 3.0)]])
    both = first + second.shifted(0, 1)
    rows = [(r["rank"], r["time_ns"], r["name"], r["value"]) for r in both.table().to_pylist()]
    assert rows == [(0, 10, "a", 1.0), (1, 1, "a", 3.0), (1, 2, "b", 2.0)]
    both.shifted(10).write_parquet(tmp_path / "counters.parquet")
    written = counters.pq.read_table(tmp_path / "counters.parquet")
    assert written.column("time_ns").to_pylist() == [20, 11, 12]
    assert written.column("rank").to_pylist() == [0, 1, 1]
