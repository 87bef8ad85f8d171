"""Work beside other work: both are done, the errors of both are raised, and it ends early."""

from __future__ import annotations

from threading import Event

import pytest

from lstmprof.runs.joined_profiles import concurrently


def test_both_are_done_at_the_end() -> None:
    done = []
    with concurrently(lambda stop: done.append(stop.is_set())):
        done.append("here")
    assert sorted(map(str, done)) == ["False", "here"]


def test_an_error_of_the_work_is_raised_at_the_end() -> None:
    def fails(stop: Event) -> None:
        raise OSError("no room")

    done = []
    with pytest.raises(OSError, match="no room"), concurrently(fails):
        done.append("here")
    assert done == ["here"]


def test_where_the_block_raises_the_work_is_told_to_stop() -> None:
    stopped = []
    with pytest.raises(KeyboardInterrupt), concurrently(lambda stop: stopped.append(stop.wait(60))):
        raise KeyboardInterrupt
    assert stopped == [True]
