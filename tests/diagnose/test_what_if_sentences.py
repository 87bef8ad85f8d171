"""What a replayed step without a cause is said to save."""

from __future__ import annotations

import pytest

from lstmprof.breakdown.attribution.ledger import SCHEMA
from lstmprof.breakdown.replay.what_if import Prediction
from lstmprof.diagnose.verdict.sentences import what_if_sentence

MS = 1_000_000


def told(observed_ms: int, replayed_ms: int, predicted_ms: int) -> str:
    ends = (observed_ms * MS, replayed_ms * MS, predicted_ms * MS)
    return what_if_sentence("no launches", Prediction(*ends, SCHEMA.empty_table()))


@pytest.mark.parametrize(
    ("ends", "lengths", "saved"),
    [
        ((100, 100, 75), "75.0 instead of 100.0 ms", "-25 %"),
        ((100, 100, 100), "100.0 instead of 100.0 ms", "saves nothing"),
        ((90, 100, 100), "100.0 instead of 100.0 ms", "saves nothing"),
        ((0, 0, 0), "0.000 instead of 0.000 ms", "saves nothing"),
    ],
)
def test_what_is_saved_is_of_the_replayed_step(
    ends: tuple[int, int, int], lengths: str, saved: str
) -> None:
    sentence = told(*ends)
    assert sentence.startswith("no launches: ")
    assert lengths in sentence
    assert saved in sentence


def test_a_replay_that_is_off_by_more_than_is_saved_tells_nothing() -> None:
    assert "more than the change saves" in told(100, 150, 140)
    assert "more than the change saves" not in told(100, 150, 50)
    assert "off" not in told(100, 101, 50)
