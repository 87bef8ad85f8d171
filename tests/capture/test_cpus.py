"""Which CPUs a worker takes."""

import pytest

from lstmprof.capture.worker.machine import host


@pytest.mark.parametrize(
    ("count", "expected"), [(1, [2]), (2, [2, 3]), (3, [1, 2, 3]), (4, [0, 1, 2, 3])]
)
def test_the_idlest_are_taken_and_of_equals_the_last(
    count: int, expected: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    # busy ticks   cpu 0  1  2  3
    # while watched    9  5  0  5
    samples = iter([dict.fromkeys(range(4), 100), {0: 109, 1: 105, 2: 100, 3: 105}])
    monkeypatch.setattr(host, "_busy_ticks", lambda: next(samples))
    monkeypatch.setattr(host, "SAMPLE_S", 0.0)
    assert host.idlest([0, 1, 2, 3], count) == expected


def test_cpus_that_the_system_tells_nothing_of_count_as_idle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(host, "_busy_ticks", dict)
    monkeypatch.setattr(host, "SAMPLE_S", 0.0)
    assert host.idlest([4, 5, 6], 1) == [6]
