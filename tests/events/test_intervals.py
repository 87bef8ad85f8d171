"""Interval algebra against instant-by-instant definitions."""

import numpy as np
from hypothesis import given, strategies as st

from lstmprof.events.intervals import (
    FREE,
    Segments,
    filled,
    foremost,
    longer_first,
    overlaps,
    places_among,
)

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


@given(intervals, st.lists(st.tuples(st.integers(-25, 60), st.integers(-3, 20)), max_size=5))
def test_overlaps_of_all_time_tile_each_interval(
    drawn: list[tuple[int, int]], queries: list[tuple[int, int]]
) -> None:
    start = np.array([s for s, _ in drawn], dtype=np.int64)
    end = start + np.array([d for _, d in drawn], dtype=np.int64)
    segments = filled(foremost(start, end, np.arange(len(drawn))))
    low = np.array([q for q, _ in queries], dtype=np.int64)
    high = low + np.array([n for _, n in queries], dtype=np.int64)
    found = overlaps(segments, low, high)
    rows = zip(found.interval, found.start_ns, found.end_ns, found.segment, strict=True)
    tiles = [(i, t, segments.owner[of]) for i, s, e, of in rows for t in range(s, e)]
    instants = [(i, t) for i, (q, n) in enumerate(queries) for t in range(q, q + n)]
    assert [(i, t) for i, t, _ in tiles] == instants
    for _, t, owner in tiles:
        running = [i for i in range(len(drawn)) if start[i] <= t < end[i]]
        assert owner == (running[0] if running else FREE)
    assert (found.end_ns > found.start_ns).all()


@given(
    st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 4)), max_size=14),
    st.sampled_from([1, 2**31, 2**40, 2**60]),
    st.sampled_from([1, 2**21, 2**31, 2**60]),
)
def test_by_start_the_longer_come_first_and_equal_ones_as_they_came(
    drawn: list[tuple[int, int]], start_scale: int, dur_scale: int
) -> None:
    start = np.array([s * start_scale for s, _ in drawn], dtype=np.int64)
    dur = np.array([d * dur_scale for _, d in drawn], dtype=np.int64)
    by_keys = sorted(range(len(drawn)), key=lambda i: (start[i], -dur[i], i))
    assert longer_first(start, dur).tolist() == by_keys


def test_nothing_gives_nothing() -> None:
    none = np.empty(0, dtype=np.int64)
    assert longer_first(none, none).tolist() == []
    found = foremost(none, none, none)
    assert isinstance(found, Segments)
    assert len(found.owner) == 0
    whole = overlaps(filled(found), np.array([3]), np.array([7]))
    assert (whole.start_ns.tolist(), whole.end_ns.tolist()) == ([3], [7])


@given(st.lists(st.integers(-9, 9)).map(sorted), st.lists(st.integers(-9, 9)).map(sorted))
def test_places_among_sorted_numbers(numbers: list[int], at: list[int]) -> None:
    among, instants = (np.array(values, dtype=np.int64) for values in (numbers, at))
    expected = np.searchsorted(among, instants, side="right")
    assert places_among(among, instants).tolist() == expected.tolist()
