"""Real profiles of every era, where they are at hand: read with their counts, or refused."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from lacking import lacks
from shared_traces import FOLDER, needed

from lstmprof.base.errors import ProfileError
from lstmprof.events.schema import ACTIVITY_KINDS
from lstmprof.formats import read

pytestmark = needed

#: What is not read, and the words of the refusal.
REFUSED = {
    "kineto/param-dlrm-8ranks.tar.gz": "is a tar archive",
    "tf/tpu-inference-utf8-corrupted.xplane.pb": "the XPlane protobuf is truncated or damaged",
    "nsys/empty-capture.sqlite": "has no CUDA call and no NVTX range",
    "nvprof/empty-session.sql": "has no CUDA call and no NVTX range",
    "tf1/horovod_timeline_small.json": "with begin/end events only",
}
#: Where the index counts all activities: a TensorFlow 1 timeline marks copies by repeating them.
ALL_ACTIVITIES = "tf1"


def index() -> list[dict]:
    file = FOLDER / "INDEX.json"
    return json.loads(file.read_text("utf-8")) if file.is_file() else []


@pytest.mark.parametrize("name", [e["file"] for e in index() if e["file"] in REFUSED])
def test_refused(name: str) -> None:
    with pytest.raises(ProfileError) as caught:
        read(FOLDER / name)
    assert REFUSED[name] in str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    "entry", [e for e in index() if e["file"] not in REFUSED], ids=lambda entry: entry["file"]
)
def test_read_with_all_kernels(entry: dict) -> None:
    profile = read(FOLDER / entry["file"])
    kinds = profile.events["kind"].to_pylist()
    counted = ACTIVITY_KINDS if entry["file"].startswith(ALL_ACTIVITIES) else ("kernel",)
    assert sum(kind in counted for kind in kinds) == entry.get("kernels", 0)
    starts = profile.events["start_ns"].to_pylist()
    assert min(starts) == 0
    profile.events.validate(full=True)
    for kind, device, tid in zip(
        kinds, *(profile.events[c].to_pylist() for c in ("device", "tid")), strict=True
    ):
        if kind in ACTIVITY_KINDS:
            assert (device is not None, tid) == (True, None)


def test_the_step_of_an_h100_trace_to_the_nanosecond() -> None:
    events = read(FOLDER / "kineto/tl-h100-bert-small.json.gz").events.to_pylist()
    (step,) = [e for e in events if e["kind"] == "step"]
    assert (step["name"], step["dur_ns"]) == ("ProfilerStep#6", 4_426_114)
    end_ns = step["start_ns"] + step["dur_ns"]
    busy_ns = set()
    for e in events:
        if e["kind"] in ACTIVITY_KINDS:
            first, last = e["start_ns"], e["start_ns"] + e["dur_ns"]
            busy_ns.update(range(max(first, step["start_ns"]), min(last, end_ns)))
    assert len(busy_ns) == 309_437


def test_two_processes_on_two_gpus_of_an_export_that_lost_half_its_launches() -> None:
    profile = read(FOLDER / "nsys/h100-2gpu-1s.sqlite")
    kernels = [e for e in profile.events.to_pylist() if e["kind"] == "kernel"]
    assert Counter((e["pid"], e["device"]) for e in kernels) == {(111, 0): 1721, (112, 1): 1721}
    waits = [e for e in profile.events.to_pylist() if e["kind"] == "device_sync"]
    assert {(e["pid"], e["device"]) for e in waits} == {(111, 0), (112, 1)}
    assert lacks(profile)["kernels without a launch call"].sentence.startswith("2,276 of 4,368 GPU")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("nsys/titanrtx-nvtx-only.sqlite", "GPU unused or not recorded"),
        ("nsys/rtx3080-2kernels.sqlite", "no framework ops"),
    ],
)
def test_an_export_without_one_half_says_so(name: str, kind: str) -> None:
    assert next(iter(lacks(read(FOLDER / name)))) == kind
