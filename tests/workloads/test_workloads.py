"""The networks of the ASR study, and overrides of them."""

import numpy as np
import pytest

from lstmprof.base.errors import UsageError
from lstmprof.workloads import batch, parameter_shapes, weights, with_overrides
from lstmprof.workloads.studies import NAMED, named


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


def test_variable_length_changes_the_lengths_and_the_name_and_padding_is_zero() -> None:
    short = with_overrides(named("1x320-ce-short"), time_steps=20, variable_length=True)
    assert short.name == "1x320-ce-short-t20-varlen"
    data = batch(short, seed=0)
    lengths, inputs = np.asarray(data.lengths), np.asarray(data.inputs)
    assert (lengths[0], lengths.max(), lengths.min() >= 10) == (20, 20, True)
    assert len(set(lengths.tolist())) > 1
    assert all((inputs[n:, i] == 0).all() for i, n in enumerate(lengths))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"hidden": 0}, "hidden must be at least 1"),
        ({"loss": "ctcc"}, "did you mean 'ctc'"),
        ({"optimizer": "adamw"}, "did you mean 'adam'"),
        ({"labels": 3}, "--labels sets the length of CTC targets"),
        ({"loss": "ctc", "time_steps": 20, "labels": 9}, "may need 17 time steps"),
        ({"variable_length": True, "each_step": True}, "needs sequences of one length"),
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


def test_deepbenchs_lists_are_whole() -> None:
    # rnn_problems.h, training + inference: lstm 22 + 15, vanilla 12 + 2, gru 18 + 54
    names = [w.name for w in NAMED if w.name.startswith("deepbench-")]
    assert len(names) == len(set(names))
    counts = {c: sum(n.startswith(f"deepbench-{c}-") for n in names) for c in ("lstm", "vanilla")}
    assert counts == {"lstm": 22 + 15, "vanilla": 12 + 2}
    assert len(names) - sum(counts.values()) == 18 + 54
    assert named("deepbench-lstm-h512-b16-t25").features == 512
    assert "head" not in parameter_shapes(named("deepbench-gru-h512-b32-t1"))


def test_a_language_model_predicts_at_every_step() -> None:
    tiny = with_overrides(named("ptb-large"), hidden=3, batch=2, time_steps=4, features=3)
    data = batch(tiny, seed=0)
    assert np.shape(data.inputs) == np.shape(data.targets) == (4, 2)
    assert parameter_shapes(tiny)["embedding"] == (10_000, 3)


def test_another_hidden_size_changes_the_outputs_of_a_workload_without_a_head() -> None:
    tiny = with_overrides(named("glample-h128-b32"), hidden=5)
    assert (tiny.classes, np.shape(batch(tiny, 0).targets)) == (5, (32, 5))


def test_a_gru_has_three_gates_and_an_rnn_one() -> None:
    short = named("1x320-ce-short")
    rows = [
        parameter_shapes(with_overrides(short, cell=cell))["bias_l0"][0] // 320
        for cell in ("lstm", "gru", "rnn")
    ]
    assert rows == [4, 3, 1]
    assert with_overrides(short, cell="gru").name == "1x320-ce-short-gru"


def test_a_name_like_none_is_told_where_all_stand() -> None:
    with pytest.raises(UsageError, match="'zz'; known: see lstmprof list workloads"):
        named("zz")
