"""Counters of the CPU: what the kernel lets be counted, and what is said where it does not."""

from __future__ import annotations

import errno
import os
import sys
import threading
import time
from pathlib import Path

import pytest

from lstmprof.capture.worker.machine import counters
from lstmprof.capture.worker.machine.counters import CpuCounters, CpuEvent, fp_assists, since

SOFTWARE, TASK_CLOCK_NS = 1, 1  # perf_event.h
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="perf and /proc are Linux's")


def spin(seconds: float, spent_s: list[float]) -> None:
    """Use a CPU for so long, and note how long it was."""
    began_s = time.thread_time()
    while time.thread_time() < began_s + seconds:
        pass
    spent_s.append(time.thread_time() - began_s)


@pytest.mark.measured
def test_what_happens_in_a_reading_is_counted_in_threads_that_it_starts_too() -> None:
    counting = CpuCounters([CpuEvent("cycles", SOFTWARE, TASK_CLOCK_NS)])
    if counting.reason:
        pytest.skip(counting.reason)
    within_s, besides_s = list[float](), list[float]()
    for _ in range(2):
        with counting.reading():
            spin(0.02, within_s)
            thread = threading.Thread(target=spin, args=(0.03, within_s))
            thread.start()
            thread.join()
        spin(0.1, besides_s)
    counted_s = counting.facts()["cycles"] / 1e9
    assert sum(within_s) <= counted_s < sum(within_s) + sum(besides_s) / 2


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (errno.ENOENT, "the CPU has no such counters here, as in most virtual machines"),
        (errno.ENOSYS, "this system has no perf_event_open"),
        (errno.EINVAL, "perf_event_open failed: " + os.strerror(errno.EINVAL)),
    ],
)
def test_what_cannot_be_counted_has_no_number_and_a_reason(
    number: int, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(event: CpuEvent) -> int:
        raise OSError(number, "")

    monkeypatch.setattr(counters, "_opened", refused)
    counting = CpuCounters()
    with counting.reading():
        pass
    assert counting.facts() == {"reason": reason}


def test_the_kernel_s_refusal_names_its_setting(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refused(event: CpuEvent) -> int:
        raise PermissionError(errno.EACCES, "")

    monkeypatch.setattr(counters, "_opened", refused)
    (tmp_path / "level").write_text("3\n", "utf-8")
    monkeypatch.setattr(counters, "PARANOID", str(tmp_path / "level"))
    assert CpuCounters().reason == "the kernel forbids it (perf_event_paranoid is 3)"


@pytest.mark.parametrize(
    ("began", "ended", "count"),
    [
        ((5, 10, 10), (9, 20, 20), 4),
        ((5, 10, 10), (9, 30, 15), 16),  # it counted for a quarter of the time
        ((5, 10, 10), (5, 20, 10), None),  # it never ran
    ],
)
def test_a_counter_that_was_shared_in_turn_is_scaled(
    began: tuple[int, int, int], ended: tuple[int, int, int], count: int | None
) -> None:
    assert since(began, ended) == count


@pytest.mark.parametrize(
    ("vendor", "family", "model", "event"),
    [
        ("GenuineIntel", 6, 0xA7, 0x02C1),  # Rocket Lake
        ("GenuineIntel", 6, 0x8F, 0x02C1),  # Sapphire Rapids
        ("GenuineIntel", 6, 0x55, 0x01001ECA),  # Skylake-SP
        ("GenuineIntel", 6, 0x1A, None),
        ("AuthenticAMD", 25, 1, None),
    ],
)
def test_assists_have_an_event_on_known_cpus_alone(
    vendor: str, family: int, model: int, event: int | None
) -> None:
    assert fp_assists(vendor, family, model) == event
