"""Numbers of combinations, against NumPy's sort of them."""

from __future__ import annotations

import numpy as np
from hypothesis import given, strategies as st

from lstmprof.events.groups import numbered
from lstmprof.events.table import UNKNOWN

_KEYS = st.sampled_from([UNKNOWN, -(2**62), -1, 0, 1, 2, 7, 300, 2**62, 2**63 - 1])


@given(st.lists(st.tuples(_KEYS, _KEYS, _KEYS), max_size=40))
def test_numbers_are_the_places_of_the_sorted_combinations(rows: list[tuple[int, ...]]) -> None:
    keys = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    expected = np.unique(keys, axis=1, return_inverse=True)[1] if rows else []
    assert numbered(*keys).tolist() == list(np.reshape(expected, -1))
