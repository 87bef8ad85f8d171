"""The yardstick is as long as its work."""

from __future__ import annotations

import time

import pytest

from lstmprof.capture.worker import yardstick
from lstmprof.runs.records import Yardstick


def test_it_has_the_parts_that_run_json_keeps() -> None:
    assert tuple(yardstick.measured()) == Yardstick.__struct_fields__


@pytest.mark.measured
def test_waiting_is_in_the_wall_time_alone() -> None:
    def work() -> None:
        time.sleep(0.02)

    took = yardstick.times(work)
    assert took.cpu_ns < 10e6
    assert took.wall_ns >= 20e6


@pytest.mark.measured
@pytest.mark.parametrize(
    ("size", "part"),
    [
        ("LOOP_TURNS", "python_cpu_ns"),
        ("PRODUCT_SIZE", "product_cpu_ns"),
        ("COPY_BYTES", "copy_cpu_ns"),
    ],
)
def test_a_part_takes_as_long_as_its_own_size(
    monkeypatch: pytest.MonkeyPatch, size: str, part: str
) -> None:
    whole = getattr(yardstick, size)
    took_ns: dict[int, list[int]] = {whole: [], whole // 8: []}
    for _ in range(8):  # in turn, as the clocks may change
        for number, parts_ns in took_ns.items():
            monkeypatch.setattr(yardstick, size, number)
            parts_ns.append(yardstick.measured()[part])
    # What other work takes of caches and clocks only adds to the least. Undisturbed: 8 times.
    assert min(took_ns[whole]) > 2 * min(took_ns[whole // 8])
