"""PyTorch's memory snapshots: a history as ``_dump_snapshot`` writes it, and hostile pickles.

::

    µs                  10   20   30   40   50   60
    1000 (train.py:7)        |--------)              100 bytes requested, 512 with rounding
    2000 (backward)               |----------        300
    3000 (before)       ----------------)            700
    4000 (before)       ---------------------        50
    segments            2048          +4096   -2048
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import lstmprof as lp
from lstmprof import formats
from lstmprof.base.errors import ForeignFileError, ProfileError
from lstmprof.cli import run as lstmprof
from lstmprof.events.counters import ALLOCATED, ALLOCATED_BY
from lstmprof.formats import raw_file, sources

EPOCH_US = 1_748_730_219_596_671
MALLOC = {"name": "DeviceCachingAllocator::malloc", "filename": "??", "line": 0}
LIBRARY = {"name": "forward", "filename": "/lib/site-packages/torch/nn/rnn.py", "line": 9}
OWN = {"name": "forward", "filename": "/home/me/train.py", "line": 7}
LOOP = {"name": "<module>", "filename": "/home/me/train.py", "line": 20}
ENGINE = {"name": "torch::autograd::Engine::thread_main()", "filename": "??", "line": 0}
FORWARD, BACKWARD = [MALLOC, LIBRARY, OWN, LOOP], [MALLOC, ENGINE]


def entry(us: int, action: str, addr: int, size: int, frames: Sequence[Any] = ()) -> dict[str, Any]:
    place = {"addr": addr, "size": size, "stream": 0}
    return {"action": action, **place, "time_us": EPOCH_US + us, "frames": frames or FORWARD}


HISTORY = [
    entry(20, "alloc", 1000, 100, FORWARD),
    entry(30, "alloc", 2000, 300, BACKWARD),
    entry(40, "free_requested", 1000, 100),
    entry(40, "free_completed", 1000, 100),
    entry(40, "segment_alloc", 8000, 4096),
    entry(50, "free_requested", 3000, 700),
    entry(60, "segment_free", 0, 2048),
]


def block(address: int, size: int, requested: int, state: str) -> dict[str, Any]:
    sizes = {"size": size, "requested_size": requested}
    return {"address": address, **sizes, "state": state, "frames": FORWARD}


BLOCKS = [
    block(2000, 512, 300, "active_allocated"),
    block(4000, 512, 50, "active_allocated"),
    block(1000, 512, 100, "inactive"),
    block(5000, 512, 60, "active_awaiting_free"),
]
SNAPSHOT = {
    "segments": [
        {"device": 0, "address": 1000, "total_size": 4096, "segment_pool_id": (0, 0)}
        | {"is_expandable": False, "blocks": BLOCKS, "frames": []}
    ],
    "device_traces": [HISTORY, []],
    "allocator_settings": {"max_split_size": -1, "garbage_collection_threshold": 0.25},
    "external_annotations": [],
}


def write(folder: Path, content: object, protocol: int = 4) -> Path:
    path = folder / "snapshot.pickle"
    path.write_bytes(content if isinstance(content, bytes) else pickle.dumps(content, protocol))
    return path


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_the_memory_table_has_the_peak_of_the_device_and_of_each_line(
    tmp_path: Path, protocol: int
) -> None:
    profile = formats.read(write(tmp_path, SNAPSHOT, protocol))
    assert (profile.format, profile.base_ns) == ("memory_snapshot", (EPOCH_US + 20) * 1000)
    table = lp.read(tmp_path / "snapshot.pickle").table("memory").to_pandas().astype(object)
    rows = table.where(table.notna(), None).drop(columns=["rank", "allocator", "step", "phase"])
    assert rows.values.tolist() == [
        # device, line, peak, reserved, grown, allocations and their bytes, frees and their bytes
        [0, None, 1150, 6144, -400, 2, 400, 2, 800],
        [0, "(before the snapshot's history)", 750, *[None] * 6],
        [0, "(backward)", 300, *[None] * 6],
        [0, "forward (/home/me/train.py:7)", 100, *[None] * 6],
    ]


def test_the_lines_sum_to_the_total_at_each_time(tmp_path: Path) -> None:
    counters = formats.read(write(tmp_path, SNAPSHOT)).counters.table().to_pylist()
    of_lines: dict[str, float] = {}
    totals = []
    for row in counters:
        if row["name"].startswith(ALLOCATED_BY):
            of_lines[row["name"]] = row["value"]
            totals.append(sum(of_lines.values()))
    expected = [row["value"] for row in counters if row["name"] == ALLOCATED]
    assert expected == [850, 1150, 1050, 350]
    assert totals == [750, *expected]


def test_torch_s_own_snapshot_of_a_cpu_profile_has_the_peak_that_torch_computes(
    tmp_path: Path,
) -> None:
    torch = pytest.importorskip("torch")
    viz = pytest.importorskip("torch.cuda._memory_viz")
    layer = torch.nn.LSTM(8, 8)
    recorded = {"profile_memory": True, "record_shapes": True, "with_stack": True}
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], **recorded
    ) as made:
        layer(torch.ones(5, 4, 8))[0].sum().backward()
    snapshot = viz._profile_to_snapshot(made)
    (device,) = (number for number, trace in enumerate(snapshot["device_traces"]) if trace)
    held = sum(
        block["requested_size"]
        for segment in snapshot["segments"]
        for block in segment["blocks"]
        if block["state"] == "active_allocated"
    )
    peak = held
    for each in reversed(snapshot["device_traces"][device]):
        held -= {"alloc": 1, "free_requested": -1}.get(each["action"], 0) * each["size"]
        peak = max(peak, held)
    row = lp.read(write(tmp_path, snapshot)).table("memory").to_pandas().iloc[0]
    assert (row["device"], row["peak_allocated_bytes"]) == (device, peak)


def test_a_snapshot_without_times_keeps_the_order(tmp_path: Path) -> None:
    history = [{k: v for k, v in each.items() if k != "time_us"} for each in HISTORY]
    profile = formats.read(write(tmp_path, SNAPSHOT | {"device_traces": [history]}))
    assert "has no times" in profile.notes[-1]
    assert profile.base_ns is None
    allocated = [r for r in profile.counters.table().to_pylist() if r["name"] == ALLOCATED]
    assert [(row["time_ns"], row["value"]) for row in allocated] == [
        *((0, 850), (1000, 1150), (2000, 1050), (5000, 350))
    ]


@pytest.mark.parametrize(
    ("command", "status"), [("breakdown", 0), ("diagnose", 1), ("report", 1), ("check", 0)]
)
def test_commands_say_that_a_snapshot_has_no_steps(
    command: str, status: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert lstmprof([command, str(write(tmp_path, SNAPSHOT))]) == status
    told = capsys.readouterr()
    assert "no steps, ops or kernels" in told.out + told.err


class Hostile:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("protocol", [2, 4])
def test_a_pickle_that_would_run_code_is_refused_and_runs_nothing(
    tmp_path: Path, protocol: int
) -> None:
    made = tmp_path / "made"
    path = write(tmp_path, SNAPSHOT | {"metadata": Hostile(made)}, protocol)
    with pytest.raises(ForeignFileError, match=r"GLOBAL\), which could run code") as caught:
        formats.read(path)
    assert str(caught.value).isprintable()
    assert not made.exists()
    pickle.loads(path.read_bytes())
    assert made.is_dir()  # so the pickle is hostile


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"segments": []}, "no memory snapshot of PyTorch"),
        ([1, 2], "no memory snapshot of PyTorch"),
        (SNAPSHOT | {"device_traces": [[], []]}, "_record_memory_history()"),
        (SNAPSHOT | {"device_traces": [[{"action": 5}]]}, "$.device_traces[0][0].action"),
        (SNAPSHOT | {"segments": [{"device": 0}]}, "is damaged"),
        (SNAPSHOT | {"segments": []}, "device 0 freed memory that it never had"),
        (SNAPSHOT | {"device_traces": [HISTORY * 100] * 100}, "repeats lists"),
        (SNAPSHOT | {"bytes": b"x"}, "could run code"),
        (SNAPSHOT | {7: 0}, "a key is not a text"),
        (pickle.dumps(SNAPSHOT)[:-1], "is damaged"),
        (pickle.dumps(SNAPSHOT)[:200], "is damaged"),
        (b"\x80\x04a.", "is damaged"),
        (b"\x80\x04}h\x05.", "is damaged"),
        (b"\x80\x04\x82\x01.", "could run code"),
        (b"\x80\x04}r\xff\xff\xff\x7f.", "no memory snapshot"),  # pickle would take 32 GiB
    ],
)
def test_other_pickles_are_refused(tmp_path: Path, content: object, words: str) -> None:
    path = write(tmp_path, content)
    with pytest.raises(ProfileError) as caught:
        formats.read(path)
    assert words in str(caught.value)
    assert str(caught.value).startswith(str(path))
    assert str(caught.value).isprintable()


def test_a_pickle_of_many_objects_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(raw_file, "FREE_OBJECT_BYTES", 2**20)
    with pytest.raises(ProfileError, match="its objects would take too much memory"):
        formats.read(write(tmp_path, b"\x80\x04" + b"]" * 50_000))


def test_a_folder_skips_pickles_of_other_programs(tmp_path: Path) -> None:
    write(tmp_path, SNAPSHOT)
    (tmp_path / "weights.pkl").write_bytes(pickle.dumps(b"weights"))
    read = [source.name for group in sources.groups(tmp_path) for source in group]
    assert sorted(read) == ["snapshot.pickle", "weights.pkl"]
    assert [run.name for run in lp.read_all(tmp_path)] == ["snapshot"]
