"""Real profiles replayed: unchanged they take as long as they did, changed not longer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import shared_traces

from lstmprof.breakdown.attribution.ledger import ledger
from lstmprof.breakdown.replay.changes import CHANGES, faster_gemms, unchanged_times
from lstmprof.breakdown.replay.what_if import predictions
from lstmprof.events.annotate.steps import Window, windows
from lstmprof.events.threads import thread_ids

pytestmark = shared_traces.needed
STEPS = 3  # of each profile
MOST_EVENTS = 30_000  # of a profile whose changes are replayed as well
MOST_THREADS = 64  # the ledger of one with more takes a second
MOST_ERROR = 0.01


def profile(path: Path) -> tuple[pa.Table, list[Window]]:
    events = shared_traces.annotated_events(path)
    return events, windows(events, captured=False)[:STEPS]


every_profile = pytest.mark.parametrize("path", shared_traces.profiles(), ids=shared_traces.name)


def account(table: pa.Table) -> list[Any]:
    return sorted(tuple(map(str, row.values())) for row in table.to_pylist())


@every_profile
def test_unchanged_a_step_takes_as_long_as_it_did(path: Path) -> None:
    events, found = profile(path)
    for window in found:
        (same,) = predictions(events, window, [unchanged_times])
        assert abs(same.replayed_ns - same.observed_ns) <= MOST_ERROR * same.observed_ns
        assert account(same.ledger) == account(ledger(events, [window]))


@every_profile
def test_without_a_cause_a_step_is_no_longer_and_adds_up(path: Path) -> None:
    events, found = profile(path)
    if len(events) > MOST_EVENTS or len(np.unique(thread_ids(events))) > MOST_THREADS:
        pytest.skip("too many events or threads to replay every change in a test")
    for window in found[:1]:
        for one in predictions(events, window, [*CHANGES.values(), faster_gemms(2)]):
            assert 0 <= one.predicted_ns <= one.observed_ns
            parts = one.ledger.to_pylist()
            for device in {row["device"] for row in parts}:
                assert sum(r["ns"] for r in parts if r["device"] == device) == one.predicted_ns
