"""Interval algebra against instant-by-instant definitions."""

import numpy as np
from hypothesis import given, strategies as st

from lstmprof.events.intervals import Segments, foremost, gaps, time_per_label

intervals = st.lists(st.tuples(st.integers(-20, 40), st.integers(0, 25)), max_size=14)


@given(intervals, st.randoms(use_true_random=False))
def test_foremost_is_the_first_in_order_of_those_running(
    drawn: list[tuple[int, int]], random: object
) -> None:
    start = np.array([s for s, _ in drawn], dtype=np.int64)
    end = start + np.array([d for _, d in drawn], dtype=np.int64)
    order = list(range(len(drawn)))
    random.shuffle(order)  # type: ignore[attr-defined]
    found = foremost(start, end, np.array(order, dtype=np.int64))
    for t in range(-21, 70):
        running = [i for i in order if start[i] <= t < end[i]]
        owners = [
            o
            for s, e, o in zip(found.start_ns, found.end_ns, found.owner, strict=True)
            if s <= t < e
        ]
        assert owners == running[:1]
    assert (found.end_ns > found.start_ns).all()


@given(intervals, st.integers(-25, 30), st.integers(0, 40))
def test_gaps_and_segments_tile_the_window(
    drawn: list[tuple[int, int]], start_ns: int, length: int
) -> None:
    start = np.array([s for s, _ in drawn], dtype=np.int64)
    end = start + np.array([d for _, d in drawn], dtype=np.int64)
    covered = foremost(start, end, np.arange(len(drawn)))
    inside = covered.within(start_ns, start_ns + length)
    starts, ends = gaps(covered, start_ns, start_ns + length)
    assert (ends - starts).sum() + (inside.end_ns - inside.start_ns).sum() == length
    for s, e in zip(starts, ends, strict=True):
        assert not any(a < e and b > s for a, b in zip(start, end, strict=True) if b > a)


@given(intervals, st.lists(st.tuples(st.integers(-25, 60), st.integers(-3, 20)), max_size=5))
def test_time_per_label_counts_instants(
    drawn: list[tuple[int, int]], queries: list[tuple[int, int]]
) -> None:
    start = np.array([s for s, _ in drawn], dtype=np.int64)
    end = start + np.array([d for _, d in drawn], dtype=np.int64)
    segments = foremost(start, end, np.arange(len(drawn)))
    labels = segments.owner % 3
    low = np.array([q for q, _ in queries], dtype=np.int64)
    spent = time_per_label(segments, labels, 3, low, low + np.array([n for _, n in queries]))
    for (q, n), row in zip(queries, spent.tolist(), strict=True):
        for label, ns in enumerate(row):
            mine = [
                (s, e)
                for s, e, which in zip(segments.start_ns, segments.end_ns, labels, strict=True)
                if which == label
            ]
            assert ns == sum(1 for t in range(q, q + n) if any(s <= t < e for s, e in mine))


def test_nothing_gives_nothing() -> None:
    none = np.empty(0, dtype=np.int64)
    found = foremost(none, none, none)
    assert isinstance(found, Segments)
    assert len(found.owner) == 0
    assert [a.tolist() for a in gaps(found, 3, 7)] == [[3], [7]]
