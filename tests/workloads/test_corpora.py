"""Batches from a user's copy of a study's data: small ones, made here as the studies' are."""

from __future__ import annotations

import dataclasses
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from lstmprof.base.errors import UsageError
from lstmprof.workloads import Batch, batch, with_overrides
from lstmprof.workloads.studies import named

Imdb = Callable[..., str]


@pytest.fixture
def imdb(tmp_path: Path) -> Imdb:
    """Keras's file: arrays of lists, and of labels."""

    def write(*reviews: list[int], labels: list[int] | None = None) -> str:
        lists = np.empty(len(reviews), dtype=object)
        lists[:] = reviews
        path = tmp_path / "imdb.npz"
        np.savez(path, x_train=lists, y_train=np.array(labels or [1] * len(reviews)))
        return str(path)

    return write


def _text(tmp_path: Path, text: str) -> str:
    path = tmp_path / "ptb.train.txt"
    path.write_text(text, encoding="utf-8")
    return str(path)


def _pairs(data: Batch) -> tuple[list[list[int]], list[list[int]]]:
    return np.asarray(data.inputs).T.tolist(), np.asarray(data.targets).T.tolist()


def test_a_text_runs_in_stretches_beside_each_other_and_the_target_is_the_next_word(
    tmp_path: Path,
) -> None:
    path = _text(tmp_path, "the cat sat\nthe dog sat\n")
    # often: <eos> sat the, by name; then cat, dog
    #   the cat sat <eos> | the dog sat <eos>
    #   2   3   1   0     | 2   4   1   0
    model = with_overrides(named("ptb-large"), batch=2, time_steps=3, data=path)
    inputs, targets = _pairs(batch(model, seed=0))
    assert inputs == [[2, 3, 1], [2, 4, 1]]
    assert targets == [[3, 1, 0], [4, 1, 0]]
    assert model.name == "ptb-large-b2-t3-data"


def test_words_beyond_the_vocabulary_share_its_last_number(tmp_path: Path) -> None:
    path = _text(tmp_path, "a a a b b c d\n" * 8)
    base = named("ptb-large")
    model = with_overrides(base, batch=1, time_steps=7, classes=3, data=path)
    small = dataclasses.replace(model, vocabulary=3)
    (inputs,), _ = _pairs(batch(small, seed=0))
    assert sorted(set(inputs)) == [0, 1, 2]  # a, b, and all that is rarer


def test_another_seed_reads_another_place_of_the_text(tmp_path: Path) -> None:
    path = _text(tmp_path, " ".join(f"w{i:03}" for i in range(400)))
    model = with_overrides(named("ptb-large"), batch=2, time_steps=5, data=path)
    drawn = [_pairs(batch(model, seed)) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1]
    assert drawn[0] != drawn[2]


def test_reviews_begin_with_one_keep_their_end_and_are_filled_in_front(imdb: Imdb) -> None:
    path = imdb([5, 6], [10, 11, 12, 13, 40_000], labels=[0, 1])
    network = with_overrides(named("imdb-gru"), batch=2, time_steps=4, data=path)
    inputs, targets = _pairs(batch(network, seed=0))
    rows = dict(zip(targets, inputs, strict=True))
    assert rows == {0: [0, 1, 8, 9], 1: [14, 15, 16, 2]}


def test_labels_may_be_of_any_integer_type(imdb: Imdb, tmp_path: Path) -> None:
    path = imdb(*([[1, 2, 3]] * 64))
    data = batch(with_overrides(named("imdb-gru"), time_steps=6, data=path), seed=0)
    assert np.asarray(data.targets).tolist() == [1] * 64
    assert np.asarray(data.inputs).shape == (6, 64)


class Hostile:
    """A pickle that would run something."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return print, ("ran",)


def test_a_pickle_that_names_more_than_arrays_is_refused_and_runs_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "imdb.npz"
    lists = np.empty(1, dtype=object)
    lists[:] = [Hostile()]
    np.savez(path, x_train=lists, y_train=np.array([1]))
    network = with_overrides(named("imdb-gru"), batch=1, data=str(path))
    with pytest.raises(UsageError, match=r"imdb\.npz: .*it refers to builtins\.print"):
        batch(network, seed=0)
    assert capsys.readouterr().out == ""


def test_what_is_no_such_file_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "other.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("notes.txt", pickle.dumps([1]))
    network = with_overrides(named("imdb-gru"), batch=1, data=str(path))
    with pytest.raises(UsageError, match=r"is neither a text nor imdb\.npz .*x_train"):
        batch(network, seed=0)
    short = with_overrides(named("ptb-large"), data=_text(tmp_path, "too short\n"))
    with pytest.raises(UsageError, match="has 3 words, too few for 20 sequences of 35"):
        batch(short, seed=0)
    with pytest.raises(UsageError, match="does not predict the next word"):
        batch(with_overrides(named("imdb-gru"), data=_text(tmp_path, "a b\n")), seed=0)


def test_a_network_that_reads_no_tokens_is_refused() -> None:
    with pytest.raises(UsageError, match="does not read tokens, but --data gives tokens"):
        with_overrides(named("1x320-ce-short"), data="ptb.train.txt")
