"""Sums over nested events and over groups agree with the plain way to compute them."""

from __future__ import annotations

import numpy as np
from hypothesis import given, strategies as st

from lstmprof.events.groups import Forest, Groups, ratio
from lstmprof.events.table import UNKNOWN


@st.composite
def forests(draw: st.DrawFn) -> list[int]:
    """Parents of up to 12 rows, −1 for a root, in no order of depth."""
    count = draw(st.integers(0, 12))
    parents = [draw(st.integers(-1, row - 1)) for row in range(count)]
    place = draw(st.permutations(range(count)))
    mixed = [-1] * count
    for row, parent in enumerate(parents):
        mixed[place[row]] = -1 if parent < 0 else place[parent]
    return mixed


def around(parents: list[int], row: int) -> list[int]:
    found = []
    while parents[row] >= 0:
        row = parents[row]
        found.append(row)
    return found


@given(forests(), st.randoms(use_true_random=False))
def test_a_sum_beneath_is_over_every_row_inside(parents: list[int], random: object) -> None:
    values = [random.randint(0, 9) for _ in parents]  # type: ignore[attr-defined]
    found = Forest(np.array(parents, dtype=np.int64)).beneath(np.array(values, dtype=np.int64))
    rows = range(len(parents))
    assert found.tolist() == [
        sum(values[r] for r in rows if r == row or row in around(parents, r)) for row in rows
    ]


@given(forests(), st.randoms(use_true_random=False))
def test_the_outermost_have_none_of_their_code_around(parents: list[int], random: object) -> None:
    codes = [random.randint(0, 2) for _ in parents]  # type: ignore[attr-defined]
    rows = [r for r in range(len(parents)) if random.random() < 0.7]  # type: ignore[attr-defined]
    found = Forest(np.array(parents, dtype=np.int64)).outermost(
        np.array(rows, dtype=np.int64), np.array(codes, dtype=np.int64)
    )
    assert found.tolist() == [
        not any(r in rows and codes[r] == codes[row] for r in around(parents, row)) for row in rows
    ]


keys = st.sampled_from([UNKNOWN, -1, 0, 1, 7, 2**62, -(2**40)])


@given(st.lists(st.tuples(keys, keys, st.integers(-99, 99), st.booleans()), max_size=30))
def test_groups_are_those_of_a_dictionary(rows: list[tuple[int, int, int, bool]]) -> None:
    columns = [np.array(c, dtype=np.int64) for c in zip(*rows, strict=True)] or [
        np.empty(0, dtype=np.int64)
    ] * 4
    groups, where = Groups(*columns[:2]), columns[3].astype(bool)
    expected: dict[tuple[int, int], list[int]] = {}
    for a, b, value, kept in rows:
        expected.setdefault((a, b), []).extend([value] if kept else [])
    ordered = [expected[key] for key in sorted(expected)]
    assert groups.sizes(where).tolist() == [len(v) for v in ordered]
    assert groups.sums(columns[2], where).tolist() == [sum(v) for v in ordered]
    assert ratio(groups.sums(columns[2], where), groups.sizes(where)).to_pylist() == [
        sum(v) / len(v) if v else None for v in ordered
    ]
