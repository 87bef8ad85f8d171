"""The networks of the ASR study, and overrides of them."""

import numpy as np
import pytest

from lstmprof.errors import UsageError
from lstmprof.workloads import NAMED, batch, named, weights, with_overrides


def test_the_parameter_count_is_the_studys() -> None:
    # 571 520: one bias, no output bias (arXiv:1806.01818, table 2)
    made = weights(named("1x320-ce-short"), seed=0)
    assert sum(np.size(w) for w in made.values()) == 571_520


def test_overrides_show_in_the_name_and_equal_values_do_not() -> None:
    short = named("1x320-ce-short")
    assert with_overrides(short, time_steps=20, batch=4).name == "1x320-ce-short-b4-t20"
    assert with_overrides(short, hidden=320, bidirectional=None) == short


def test_ctc_keeps_its_proportions_when_shortened() -> None:
    tiny = with_overrides(named("4x320-ctc-long"), time_steps=20)
    assert (tiny.shortest, tiny.labels) == (10, 2)
    data = batch(tiny, seed=0)
    lengths = np.asarray(data.lengths)
    inputs = np.asarray(data.inputs)
    assert lengths.min() >= 10
    assert lengths.max() == 20
    assert all((inputs[n:, i] == 0).all() for i, n in enumerate(lengths))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"hidden": 0}, "hidden must be at least 1"),
        ({"loss": "ctcc"}, "did you mean 'ctc'"),
        ({"labels": 3}, "--labels is the length of CTC targets"),
        ({"loss": "ctc", "time_steps": 20, "labels": 9}, "may need 17 time steps"),
    ],
)
def test_impossible_networks_are_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        with_overrides(named("1x320-ce-short"), **fields)


def test_one_seed_gives_the_same_numbers_and_another_gives_others() -> None:
    tiny = with_overrides(NAMED[0], hidden=3, batch=2, time_steps=4)
    first, again, other = (weights(tiny, seed) for seed in (1, 1, 2))
    assert all(np.array_equal(first[k], again[k]) for k in first)
    assert not any(np.array_equal(first[k], other[k]) for k in first)
