"""Allocations and frees of XPlanes: counters of the allocator that tells of them."""

from __future__ import annotations

import itertools
import platform
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import shared_traces
from formats.spaces import GPU, Space, mark

from lstmprof import api
from lstmprof.events import Profile, counters
from lstmprof.events.counters import ALLOCATED, BYTES, CHANGE
from lstmprof.formats import read
from lstmprof.formats.xplane import lines

PINNED = "gpu_host_bfc"


def told(profile: Profile) -> list[tuple[Any, ...]]:
    """Time, device, allocator, name and value, in order."""
    rows = profile.counters.table().to_pylist()
    assert {row["unit"] for row in rows} <= {BYTES}
    assert {row["pid"] for row in rows} <= {None}
    names = ("time_ns", "device", "allocator", "name", "value")
    return [tuple(row[name] for name in names) for row in rows]


def test_an_allocators_memory_is_that_of_the_device_that_it_names(tmp_path: Path) -> None:
    # ns             0      10     20     30     40     50
    # python         |-step-------------------------------|
    #   GPU_1_bfc         +512=768       -512=256
    #   collective                                +64=64
    # tf_Compute                  +8=8 of gpu_host_bfc
    space = Space()
    host = space.plane("/host:CPU")
    space.line(
        *(host, "python", 1000),
        ("step", 0, 50_000, {"step_num": 4}),
        mark(10, 512, 768),
        mark(30, -512, 256),
        mark(40, 64, 64, "GPU_collectivememory_1_bfc"),
    )
    space.line(host, "tf_Compute/7", 1000, mark(20, 8, 8, PINNED.encode()))  # by its number
    profile = space.read(tmp_path)
    assert list(profile.events["name"].to_pylist()) == ["step"]
    assert told(profile) == [
        (10, 1, GPU, ALLOCATED, 768.0),
        (10, 1, GPU, CHANGE, 512.0),
        (20, None, PINNED, ALLOCATED, 8.0),
        (20, None, PINNED, CHANGE, 8.0),
        (30, 1, GPU, ALLOCATED, 256.0),
        (30, 1, GPU, CHANGE, -512.0),
        (40, 1, "GPU_collectivememory_1_bfc", ALLOCATED, 64.0),
        (40, 1, "GPU_collectivememory_1_bfc", CHANGE, 64.0),
    ]


def test_a_tpu_tells_what_is_allocated_and_of_a_free_no_size(tmp_path: Path) -> None:
    space = Space()
    host = space.plane("/host:CPU")
    space.line(
        *(host, "python", 0),
        ("step", 0, 50_000, {"step_num": 4}),
        (
            *("MemoryAllocation", 10_000, 0),
            {"index_on_host": 3, "bytes_allocated": 512, "allocation_bytes": 512},
        ),
        ("MemoryDeallocation", 20_000, 0, {"device_ordinal": 3, "bytes_allocated": 0}),
    )
    assert told(space.read(tmp_path)) == [
        (10, 3, None, ALLOCATED, 512.0),
        (20, 3, None, ALLOCATED, 0.0),
    ]


@pytest.mark.parametrize(
    "stats",
    [
        {"bytes_allocated": 512, "allocation_bytes": 512},  # of nobody
        {"allocator_name": GPU},
        {"allocator_name": GPU, "bytes_allocated": "512", "allocation_bytes": -1},
    ],
)
def test_what_says_nothing_is_no_counter(tmp_path: Path, stats: dict[str, object]) -> None:
    space = Space()
    host = space.plane("/host:CPU")
    events = [("step", 0, 50_000, {"step_num": 4}), ("MemoryAllocation", 10_000, 0, stats)]
    space.line(host, "python", 0, *events)
    assert not space.read(tmp_path).counters


def test_many_marks_of_several_threads_are_read_as_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    space, draws = Space(), random.Random(7)
    host = space.plane("/host:CPU")
    space.line(host, "python", 0, ("step", 0, 10**9, {"step_num": 4}))
    expected = []
    for thread in range(3):
        marks = []
        for number in range(400):
            whose = draws.choice((GPU, PINNED, "mklcpu"))
            by, at_ns = draws.choice((-1, 1)) * draws.randint(1, 10**9), 3 * number + thread
            marks.append(mark(at_ns, by, 10**9 + number, whose))
            device = 1 if whose == GPU else None
            expected += [
                (at_ns, device, whose, ALLOCATED, float(10**9 + number)),
                (at_ns, device, whose, CHANGE, float(by)),
            ]
        space.line(host, f"tf_Compute/{thread}", 0, *marks)
    by_columns = space.read(tmp_path)
    assert told(by_columns) == sorted(expected, key=lambda row: row[0])
    monkeypatch.setattr(lines, "_FEW_EVENTS", 10**9)
    assert told(space.read(tmp_path)) == told(by_columns)
    monkeypatch.setattr(counters, "BATCH_ROWS", 100)
    assert told(space.read(tmp_path)) == told(by_columns)


_PROGRAM = """
import tensorflow as tf
kept = []
with tf.profiler.experimental.Profile("logs"):
    for number in range(3):
        with tf.profiler.experimental.Trace("step", step_num=number, _r=1):
            kept.append(tf.fill((1 << 20,), 1.0))
            tf.fill((1 << 22,), 2.0)
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="no oneDNN, whose allocator tells this")
def test_steps_of_tensorflow_grow_by_the_memory_that_they_keep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tensorflow")
    monkeypatch.setenv("LSTMPROF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "1")
    command = [sys.executable, "-c", _PROGRAM]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    (profile,) = tmp_path.rglob("*.xplane.pb")
    rows = api.read(profile).table("memory").rows()
    assert {(row["device"], row["allocator"]) for row in rows} == {(None, "mklcpu")}
    assert [row["step"] for row in rows if row["phase"] is None] == [None, 0, 1, 2]
    assert [row["grown_bytes"] for row in rows if row["step"] in (1, 2)] == [4 << 20] * 2
    assert [row["allocations"] for row in rows if row["step"] in (1, 2)] == [2, 2]


@shared_traces.needed
def test_real_totals_are_the_sums_of_their_changes() -> None:
    path = shared_traces.FOLDER / "tf" / "jax-te-fused-attn.xplane.pb"
    if not path.is_file():
        pytest.skip(f"no {path.name}")
    rows = told(read(path))
    assert {(device, name) for _, device, name, _, _ in rows} == {(0, "GPU_0_bfc")}
    totals = [value for *_, name, value in rows if name == ALLOCATED]
    changes = [value for *_, name, value in rows if name == CHANGE]
    assert len(totals) == len(changes) == 59
    differences = [after - before for before, after in itertools.pairwise(totals)]
    assert differences == changes[1:]
    assert max(totals) == 663_228_416
