"""Runs of a pattern, on texts whose letters are the entries."""

import numpy as np
import pytest

from lstmprof.breakdown.recurrent.profiles.recorded import repeats
from lstmprof.events.intervals import Ints


def codes(text: str) -> Ints:
    return np.frombuffer(text.encode(), np.uint8).astype(np.int64)


def found(text: str) -> list[tuple[int, int, int]]:
    """Runs of a pattern with a product P and activations s and t, that begins with a P."""
    runs = repeats(
        codes(text),
        wanted=lambda pattern: {ord(c) for c in "Pst"} <= set(pattern.tolist()),
        begins=lambda pattern: pattern[0] == ord("P") and pattern[-1] != ord("P"),
        least=3,
    )
    return [(run.start, run.period, run.count) for run in runs]


@pytest.mark.parametrize(
    ("text", "runs"),
    [
        ("PPst" * 4, [(0, 4, 4)]),
        ("PPst" * 2, []),  # two of a kind are in any network
        ("xx" + "PPst" * 3 + "P", [(2, 4, 3)]),
        ("PPPP", []),  # products alone are no cell
        ("PPst" * 3 + "z" + "PPst" * 4, [(0, 4, 3), (13, 4, 4)]),
        # the end of a loop looks like that of the next one, which begins with its products
        ("PQst" * 3 + "PRst" * 4, [(0, 4, 3), (12, 4, 4)]),
        ("PstH" * 5, [(0, 4, 5)]),
        ("PPst" * 200, [(0, 4, 200)]),
    ],
)
def test_a_pattern_is_found_where_it_comes_round(
    text: str, runs: list[tuple[int, int, int]]
) -> None:
    assert found(text) == runs
