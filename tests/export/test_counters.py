"""What a profile counts is in its Perfetto trace, and in a part that is cut out of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from export.opened import opened
from kineto_documents import document

import lstmprof as lp
from lstmprof.breakdown import break_down
from lstmprof.cli import run as lstmprof
from lstmprof.export import perfetto
from lstmprof.runs.cache import open_runs

#              0         10        20        30 µs
# step         [--- 1 --)[--- 2 --)[--- 3 --)
# allocated  2    5            3       9
# reserved   4    6                    9
# power                  |70


def allocation(at_us: float, total: int, by: int, reserved: int | None = None) -> dict[str, Any]:
    args = {"Total Allocated": total, "Bytes": by, "Device Id": 0, "Device Type": 1}
    args |= {} if reserved is None else {"Total Reserved": reserved}
    return {"ph": "i", "s": "t", "name": "[memory]", "pid": 4, "tid": 4, "ts": at_us, "args": args}


EVENTS = [
    *(
        {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{n}", "pid": 4, "tid": 4}
        | {"ts": 100 + 10 * (n - 1), "dur": 10}
        for n in (1, 2, 3)
    ),
    allocation(98, 2, 2, 4),
    allocation(103, 5, 3, 6),
    allocation(116, 3, -2),
    allocation(124, 9, 6, 9),
    {"ph": "C", "name": "power", "pid": 4, "ts": 110, "args": {"power": 70.5}},
]


@pytest.fixture
def trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LSTMPROF_CACHE", str(tmp_path / "cache"))
    (tmp_path / "trace.pt.trace.json").write_bytes(document(*EVENTS))
    return tmp_path / "trace.pt.trace.json"


def counters_of(path: Path) -> dict[str, list[tuple[int, float]]]:
    return {name: values for (_, name), values in opened(path).counters.items()}


def test_each_is_a_track_of_its_device_or_process(trace: Path, tmp_path: Path) -> None:
    (run,) = open_runs([trace])
    perfetto.write(break_down(run), tmp_path / "x.pftrace")
    assert counters_of(tmp_path / "x.pftrace") == {
        # the first allocation comes before the first event, and no instant is negative
        "device 0: memory allocated": [(0, 2.0), (5_000, 5.0), (18_000, 3.0), (26_000, 9.0)],
        "device 0: memory reserved": [(0, 4.0), (5_000, 6.0), (26_000, 9.0)],
        ": power": [(12_000, 70.5)],
    }


def test_of_a_part_each_begins_with_the_value_that_it_had(trace: Path, tmp_path: Path) -> None:
    place = tmp_path / "step.pftrace"
    assert lstmprof(["cut", str(trace), "--step", "2", "-o", str(place)]) == 0
    assert counters_of(place) == {
        "device 0: memory allocated": [(12_000, 5.0), (18_000, 3.0)],
        "device 0: memory reserved": [(12_000, 6.0)],
        ": power": [(12_000, 70.5)],
    }


def test_where_only_changes_are_told_their_sum_is_drawn(trace: Path, tmp_path: Path) -> None:
    changes = [json.loads(json.dumps(event)) for event in EVENTS]
    for event in changes:
        event.get("args", {}).pop("Total Allocated", None)
    trace.write_bytes(document(*changes))
    (run,) = open_runs([trace])
    perfetto.write(break_down(run), tmp_path / "x.pftrace")
    values = counters_of(tmp_path / "x.pftrace")
    assert [v for _, v in values["device 0: memory allocated since the profile began"]] == [
        *(2.0, 5.0, 3.0, 9.0)
    ]


def test_a_step_that_is_cut_out_needs_the_memory_that_it_needed(
    trace: Path, tmp_path: Path
) -> None:
    place = tmp_path / "step.pt.trace.json"
    assert lstmprof(["cut", str(trace), "--step", "2", "-o", str(place)]) == 0

    def of_step(path: Path) -> list[dict[str, Any]]:
        return [row for row in lp.read(path).table("memory").rows() if row["step"] == 2]

    assert of_step(place) == of_step(trace)
    (row,) = of_step(place)
    assert (row["peak_allocated_bytes"], row["peak_reserved_bytes"], row["frees"]) == (5, 6, 1)
    kept = json.loads(place.read_text("utf-8"))["traceEvents"]
    assert [e["ts"] for e in kept if e["ph"] == "i"] == [103, 116]
