"""AMD's TraceLens on the same Kineto files. docs/peers.md explains what differs.

TraceLens adds float64 microseconds counted from the epoch or the machine's start, so that each end
is off by up to half their spacing: 0.12 µs where ``ts`` counts from 1970.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import shared_traces
from peers import accounts

tree_perf = accounts.peer(
    "TraceLens.TreePerf.tree_perf",
    "git+https://github.com/AMD-AGI/TraceLens (not PyPI's tracelens)",
)

pytestmark = [shared_traces.needed, pytest.mark.filterwarnings("ignore:::TraceLens")]

KINETO = shared_traces.FOLDER / "kineto"
#: The categories that TraceLens knows: those of 2022 and later.
ACTIVITIES = ("kernel", "gpu_memcpy", "gpu_memset")
#: Reading rounds both ends of an activity to whole nanoseconds: its length may differ by one.
EACH_NS = 1.0

on_each_file = pytest.mark.parametrize(
    "path",
    [p for p in shared_traces.profiles() if p.match("kineto/*.json*")],
    ids=shared_traces.name,
)


@functools.cache
def analysed(path: Path) -> Any:
    """TraceLens on every activity, those without a launch too; skips where it knows none."""
    found = tree_perf.TreePerfAnalyzer.from_file(str(path), include_unlinked_kernels=True)
    if not activities(found):
        pytest.skip("TraceLens knows no activity of this file")
    return found


def activities(found: Any) -> list[dict[str, Any]]:
    return [event for event in found.tree.events if event.get("cat") in ACTIVITIES]


def slack_ns(found: Any) -> float:
    """What float64 may lose of the ends of all activities, and rounding to nanoseconds."""
    events = activities(found)
    spacing_us = float(np.spacing(max(float(e["ts"] + e["dur"]) for e in events)))
    return len(events) * (spacing_us * 1000 + EACH_NS)


def timeline(found: Any) -> dict[str, float]:
    """TraceLens' parts of the span of all activities, in ns."""
    frame = found.get_df_gpu_timeline()
    return {row["type"]: row["time ms"] * 1e6 for row in frame.to_dict("records")}


def in_their_classes(events: pa.Table) -> pa.Table:
    """``events`` with a category for each of TraceLens' classes; it counts memsets as compute.

    Legacy copies of ROCm are kernels by category and copies by name there.
    """
    utilities = accounts.peer("TraceLens.util", "").TraceEventUtils
    rows = zip(*(events[c].to_pylist() for c in ("name", "kind", "category")), strict=True)
    kinds, categories = [], []
    for name, kind, category in rows:
        copies = kind == "memcpy" or (kind == "kernel" and utilities.is_rocm_legacy_memcpy(name))
        computes = kind in ("kernel", "memset") and not copies
        kinds.append("memcpy" if copies else "kernel" if computes else kind)
        categories.append(
            "transfer" if copies else category if category == "collective" else "other"
        )
    return accounts.relabelled(accounts.relabelled(events, "kind", kinds), "category", categories)


@on_each_file
def test_every_kernel_ran_as_often_and_as_long(path: Path) -> None:
    theirs: dict[str, list[float]] = {}
    for event in activities(analysed(path)):
        theirs.setdefault(event["name"], []).append(event["dur"] * 1000)
    ours = accounts.by_name(accounts.chosen(accounts.events_of(path)))
    assert {name: len(each) for name, each in theirs.items()} == {
        n: c for n, (c, _) in ours.items()
    }
    for name, (count, total_ns) in ours.items():
        assert sum(theirs[name]) == pytest.approx(total_ns, abs=EACH_NS * count)


@on_each_file
def test_no_known_activity_is_missed(path: Path) -> None:
    """Files whose activities TraceLens does not know have the categories of 2021."""
    found = tree_perf.TreePerfAnalyzer.from_file(str(path), include_unlinked_kernels=True)
    rows = accounts.chosen(accounts.events_of(path))
    old = any(event.get("cat") in ("Kernel", "Memcpy", "Memset") for event in found.tree.events)
    assert len(activities(found)) == (0 if old else len(rows))


@on_each_file
def test_in_the_same_window_the_device_was_busy_as_long(path: Path) -> None:
    found = analysed(path)
    events = accounts.events_of(path)
    account = accounts.parts(events, accounts.span(accounts.chosen(events)))
    theirs, slack = timeline(found), slack_ns(found)
    assert theirs["busy_time"] == pytest.approx(accounts.total(account, "busy"), abs=slack)
    assert theirs["idle_time"] == pytest.approx(accounts.total(account, "idle"), abs=slack)
    assert theirs["total_time"] == pytest.approx(sum(account.values()), abs=slack)


@on_each_file
def test_compute_hides_collectives_and_these_hide_copies(path: Path) -> None:
    found = analysed(path)
    events = in_their_classes(accounts.events_of(path))
    account = accounts.parts(events, accounts.span(accounts.chosen(events)))
    theirs, slack = timeline(found), slack_ns(found)
    assert theirs["computation_time"] == pytest.approx(account["busy", "other"], abs=slack)
    assert theirs["exposed_comm_time"] == pytest.approx(account["busy", "collective"], abs=slack)
    assert theirs["exposed_memcpy_time"] == pytest.approx(account["busy", "transfer"], abs=slack)


def test_float64_loses_at_most_52_nanoseconds_of_busy_time() -> None:
    path = KINETO / "tl-mi210-gpu-only.json.gz"
    events = accounts.events_of(path)
    account = accounts.parts(events, accounts.span(accounts.chosen(events)))
    lost_ns = abs(timeline(analysed(path))["busy_time"] - accounts.total(account, "busy"))
    assert (len(accounts.chosen(events)), round(lost_ns)) == (562, 52)


def test_memsets_hide_communication_in_tracelens() -> None:
    path = KINETO / "hta-sampled-rank0.json.gz"
    events = accounts.events_of(path)
    account = accounts.parts(events, accounts.span(accounts.chosen(events)))
    theirs_us = timeline(analysed(path))["exposed_comm_time"] / 1000
    ours_us = account["busy", "collective"] / 1000
    assert (round(theirs_us), round(ours_us)) == (336_981, 336_983)


@pytest.mark.parametrize(
    "name", ["hta-sampled-rank0", "hta-sampled-rank1", "ptbench-a100-memcpy-only"]
)
def test_by_default_activities_without_a_launch_are_left_out(name: str) -> None:
    path = KINETO / f"{name}.json.gz"
    found = tree_perf.TreePerfAnalyzer.from_file(str(path))
    with pytest.raises(ValueError, match="No GPU events found in the trace"):
        found.get_df_gpu_timeline()
    assert all(row["launch_id"] is not None for row in accounts.chosen(accounts.events_of(path)))


def test_files_that_tracelens_does_not_read() -> None:
    with pytest.raises(ValueError, match="Unknown file type"):
        tree_perf.TreePerfAnalyzer.from_file(str(KINETO / "param-dlrm-8ranks.tar.gz"))
    large = tree_perf.TreePerfAnalyzer.from_file(str(KINETO / "hta-large-int.json.gz"))
    with pytest.raises(KeyError, match="args"):
        large.get_df_kernels()
    old = [next(KINETO.glob(f"{name}*")) for name in ("kineto2021-resnet50", "wd-gpuonly")]
    for path in (*old, *shared_traces.without_activity()):
        found = tree_perf.TreePerfAnalyzer.from_file(str(path), include_unlinked_kernels=True)
        with pytest.raises(ValueError, match="No GPU events found in the trace"):
            found.get_df_gpu_timeline()
