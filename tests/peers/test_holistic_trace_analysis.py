"""Meta's HolisticTraceAnalysis (HTA) on the same Kineto files. docs/peers.md explains what differs.

HTA rounds starts up and ends down to whole microseconds unless ``HTA_DISABLE_NS_ROUNDING`` is 1:
all but one of the comparisons are made with it. It sums in float64 microseconds.
"""

from __future__ import annotations

import functools
import tarfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import shared_traces
from peers import accounts

from lstmprof.events.schema import ACTIVITY_KINDS

hta = accounts.peer("hta.trace_analysis", "traceinsight")
words = accounts.peer("hta.utils.utils", "traceinsight")
options = accounts.peer("hta.configs.env_options", "traceinsight")

pytestmark = [
    shared_traces.needed,
    pytest.mark.filterwarnings("ignore:::hta"),
    pytest.mark.filterwarnings("ignore:::pandas"),
]

#: HTA's names for activities, of every year.
ACTIVITIES = {"kernel", "memcpy", "memset", "gpu_memcpy", "gpu_memset"}
KINETO = shared_traces.FOLDER / "kineto"
ARCHIVE = KINETO / "param-dlrm-8ranks.tar.gz"
SLOW_INPUT = KINETO / "kineto2021-resnet50-v100-nw0.pt.trace.json.gz"
#: Reading rounds both ends of an activity to whole nanoseconds: its length may differ by one.
EACH_NS = 1.0
#: HTA states times of idleness in hundredths of a microsecond, for each stream and cause.
STATED_NS = 5.0

on_each_file = pytest.mark.parametrize(
    "path",
    [p for p in shared_traces.profiles() if p.match("kineto/*.json*")],
    ids=shared_traces.name,
)


@functools.cache
def analysis(path: Path, *, rounded: bool = False, last_step: bool = True) -> Any:
    """HTA's analysis; skips where it cannot read the file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(options, "disable_ns_rounding", lambda: not rounded)
        try:
            return hta.TraceAnalysis({0: str(path)}, include_last_profiler_step=last_step)
        except TypeError as error:  # pandas 3 refuses the int8 that HTA stores an index in
            pytest.skip(f"HTA fails: {error}")


def activities(found: Any) -> Any:
    """HTA's data frame of activities, ``s_name`` and ``s_cat`` in words."""
    texts = found.t.symbol_table.get_sym_table()
    (frame,) = found.t.traces.values()
    frame = frame.assign(s_name=[texts[n] for n in frame.name], s_cat=[texts[c] for c in frame.cat])
    return frame[frame.s_cat.str.lower().isin(ACTIVITIES)]


def launched(events: pa.Table) -> pa.Table:
    """``events`` with those activities as ranges that HTA drops if a file has two steps or more.

    Their launch calls are not in the file.
    """
    steps = [row for row in accounts.chosen(events, {"step"}) if "Profiler" in row["name"]]
    if len(steps) < 2:
        return events
    pairs = zip(*(events[name].to_pylist() for name in ("kind", "launch_id")), strict=True)
    kinds = ["range" if k in ACTIVITY_KINDS and launch is None else k for k, launch in pairs]
    return accounts.relabelled(events, "kind", kinds)


def occupying(found: Any, events: pa.Table) -> pa.Table:
    """``events`` with what HTA takes for work of the device beyond activities as kernels.

    These are the synchronisations that name a stream. Skips where there is nothing, where it takes
    an op for work of the device, or drops an activity that names no stream.
    """
    if not len(activities(found)):
        pytest.skip("no activity")
    texts = found.t.symbol_table.get_sym_table()
    (frame,) = found.t.traces.values()
    taken = {texts[c].lower() for c in frame[frame.stream.ne(-1)].cat}
    if taken - ACTIVITIES - {"cuda_sync"}:
        pytest.skip(f"HTA takes {taken - ACTIVITIES - {'cuda_sync'}} for work of the device")
    if not taken:
        pytest.skip("HTA finds no stream")
    events = launched(events)
    rows = zip(*(events[c].to_pylist() for c in ("kind", "stream")), strict=True)
    kinds = ["kernel" if k == "device_sync" and s is not None else k for k, s in rows]
    return accounts.relabelled(events, "kind", kinds)


def assert_same_kernels(found: Any, rows: list[dict[str, Any]]) -> None:
    """Count and total a name."""
    theirs = activities(found).groupby("s_name").dur.agg(["count", "sum"]).astype(float)
    ours = accounts.by_name(rows)
    assert {name: count for name, (count, _) in ours.items()} == theirs["count"].to_dict()
    for name, (count, total_ns) in ours.items():
        assert theirs["sum"][name] * 1000 == pytest.approx(total_ns, abs=EACH_NS * count)


@on_each_file
def test_every_kernel_ran_as_often_and_as_long(path: Path) -> None:
    events = launched(accounts.events_of(path))
    assert_same_kernels(analysis(path), accounts.chosen(events))


@on_each_file
def test_the_kernel_breakdown_states_the_same_totals(path: Path) -> None:
    found = analysis(path)
    events = occupying(found, accounts.events_of(path))
    _, breakdown = found.get_gpu_kernel_breakdown(
        visualize=False, duration_ratio=1.0, num_kernels=10**6, include_memory_kernels=True
    )
    theirs = dict(zip(breakdown["name"], breakdown["sum (us)"].astype(float), strict=True))
    rows = accounts.chosen(events)
    ours = accounts.by_name([r for r in rows if words.get_kernel_type(r["name"]) != "OTHER"])
    assert theirs.keys() == ours.keys()
    for name, (count, total_ns) in ours.items():
        assert theirs[name] * 1000 == pytest.approx(total_ns, abs=EACH_NS * count)


def test_every_kernel_of_eight_ranks_ran_as_often_and_as_long(tmp_path: Path) -> None:
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    paths = sorted(p for p in tmp_path.rglob("*.json*") if p.is_file())
    assert len(paths) == 8
    for path in paths:
        assert_same_kernels(analysis(path), accounts.chosen(accounts.events_of(path)))


@on_each_file
def test_in_the_same_window_the_device_was_busy_as_long(path: Path) -> None:
    found = analysis(path)
    events = occupying(found, accounts.events_of(path))
    rows = accounts.chosen(events)
    (theirs,) = found.get_temporal_breakdown(visualize=False).to_dict("records")
    account = accounts.parts(events, accounts.span(rows))
    slack_ns = EACH_NS * len(rows)
    assert theirs["idle_time(us)"] * 1000 == pytest.approx(
        accounts.total(account, "idle"), abs=slack_ns
    )
    busy_us = theirs["compute_time(us)"] + theirs["non_compute_time(us)"]
    assert busy_us * 1000 == pytest.approx(accounts.total(account, "busy"), abs=slack_ns)


@on_each_file
def test_kernels_that_compute_took_as_long_together(path: Path) -> None:
    found = analysis(path)
    events = occupying(found, accounts.events_of(path))
    names, kinds = (events[c].to_pylist() for c in ("name", "kind"))
    computes = [
        "kernel" if k in ACTIVITY_KINDS and words.get_kernel_type(n) == "COMPUTATION" else "range"
        for n, k in zip(names, kinds, strict=True)
    ]
    alone = accounts.relabelled(events, "kind", computes)
    (theirs,) = found.get_temporal_breakdown(visualize=False).to_dict("records")
    rows = accounts.chosen(alone)
    busy = accounts.total(accounts.parts(alone, accounts.span(rows)), "busy") if rows else 0
    assert theirs["compute_time(us)"] * 1000 == pytest.approx(busy, abs=EACH_NS * len(names))


@on_each_file
def test_both_take_the_same_kernels_for_collectives(path: Path) -> None:
    rows = accounts.chosen(accounts.events_of(path))
    if not rows:
        pytest.skip("no activity")
    ours = {row["name"] for row in rows if row["category"] == "collective"}
    assert ours == {row["name"] for row in rows if words.is_comm_kernel(row["name"])}


@on_each_file
def test_on_one_stream_the_causes_of_idleness_contain_each_other(path: Path) -> None:
    """HTA gives a gap whole to the host if the launch began in it; lstmprof divides it there.

    Time in which the device had the work, but did not begin it, is ``queued`` in lstmprof.
    """
    found = analysis(path)
    events = occupying(found, accounts.events_of(path))
    rows = accounts.chosen(events)
    if len({row["stream"] for row in rows}) > 1:
        pytest.skip("several streams: HTA counts the idleness of each")
    if any(row["launch_id"] is None for row in rows):
        pytest.skip("kernels without a launch call")
    frame, _ = found.get_idle_time_breakdown(ranks=[0], visualize=False)
    theirs = frame.groupby("idle_category").idle_time.sum() * 1000
    ours = accounts.parts(events, accounts.span(rows))
    launching = sum(ours["idle", part] for part in ("launch call", "launch latency", "queued"))
    slack_ns = EACH_NS * len(rows) + STATED_NS * len(theirs)
    assert theirs.sum() == pytest.approx(accounts.total(ours, "idle"), abs=slack_ns)
    by_host_ns = theirs.get("host_wait", 0.0)
    assert accounts.total(ours, "idle") - launching <= by_host_ns + slack_ns
    assert launching >= theirs.sum() - by_host_ns - slack_ns


@on_each_file
def test_without_the_last_step_its_launches_are_left_out(path: Path) -> None:
    """HTA's default: what was launched since the last ``ProfilerStep`` began is dropped."""
    found = analysis(path, last_step=False)
    events = accounts.events_of(path)
    steps = [r["start_ns"] for r in accounts.chosen(events, {"step"}) if "Profiler" in r["name"]]
    if len(steps) < 2:
        pytest.skip("no two steps")
    started = dict(zip(*(events[c].to_pylist() for c in ("event_id", "start_ns")), strict=True))
    rows = [
        row
        for row in accounts.chosen(events)
        if row["launch_id"] is not None and started[row["launch_id"]] < max(steps)
    ]
    assert_same_kernels(found, rows)


def test_rounding_takes_up_to_two_microseconds_from_each_kernel() -> None:
    path = KINETO / "tl-h100-bert-small.json.gz"
    rows = accounts.chosen(accounts.events_of(path))
    theirs_us = activities(analysis(path, rounded=True)).dur.sum()
    ours_us = sum(row["dur_ns"] for row in rows) / 1000
    assert (len(rows), ours_us, theirs_us) == (61, 309.437, 254.0)
    assert ours_us - 2 * len(rows) < theirs_us < ours_us


@pytest.mark.parametrize(
    ("name", "theirs_ns", "ours_ns"),
    [("hta-alexnet", 66_327_000, 66_141_000), ("hta-triton", 95_812, 1_760)],
)
def test_waits_and_ops_that_name_a_stream_are_work_in_hta(
    name: str, theirs_ns: int, ours_ns: int
) -> None:
    path = KINETO / f"{name}.json.gz"
    events = accounts.events_of(path)
    (theirs,) = analysis(path).get_temporal_breakdown(visualize=False).to_dict("records")
    busy_us = theirs["compute_time(us)"] + theirs["non_compute_time(us)"]
    account = accounts.parts(events, accounts.span(accounts.chosen(events)))
    assert (round(busy_us * 1000), accounts.total(account, "busy")) == (theirs_ns, ours_ns)


@pytest.mark.parametrize(
    ("path", "last_step", "dropped", "activities_of_file"),
    [
        (SLOW_INPUT, False, 1_516, 9_096),
        (KINETO.parent / "more" / "kineto" / "hta-negative-queue.json.gz", True, 872, 7_747),
    ],
    ids=["launched in the last step", "no launch call"],
)
def test_how_many_activities_hta_drops(
    path: Path, last_step: bool, dropped: int, activities_of_file: int
) -> None:
    there = len(accounts.chosen(accounts.events_of(path)))
    kept = len(activities(analysis(path, last_step=last_step)))
    assert (there - kept, there) == (dropped, activities_of_file)


def test_idle_time_in_numbers() -> None:
    def idle_us(path: Path) -> tuple[dict[str, float], Any]:
        frame, _ = analysis(path).get_idle_time_breakdown(ranks=[0], visualize=False)
        events = accounts.events_of(path)
        ours = accounts.parts(events, accounts.span(accounts.chosen(events)))
        return dict(frame.groupby("idle_category").idle_time.sum()), ours

    theirs, ours = idle_us(SLOW_INPUT)
    launching = sum(ours["idle", part] for part in ("launch call", "launch latency", "queued"))
    by_host_us = (accounts.total(ours, "idle") - launching) / 1000
    assert (round(theirs["host_wait"]), round(by_host_us)) == (382_676, 369_968)
    theirs, ours = idle_us(KINETO / "tg-fsdp-4090-rank0.json.gz")
    idle = round(accounts.total(ours, "idle") / 1000)
    assert (round(sum(theirs.values())), idle) == (1_028_126, 413_202)


def test_files_that_hta_does_not_read() -> None:
    with pytest.raises(ValueError, match=r"Expecting value: line 1 column 1 \(char 0\)"):
        hta.TraceAnalysis({0: str(ARCHIVE)})
    with pytest.raises(IndexError, match="out-of-bounds"):
        analysis(KINETO / "hta-large-int.json.gz").get_temporal_breakdown(visualize=False)
    for path in shared_traces.without_activity():
        found = analysis(path)
        with pytest.raises(IndexError, match="out-of-bounds"):
            found.get_temporal_breakdown(visualize=False)
        with pytest.raises(ValueError, match="No objects to concatenate"):
            found.get_idle_time_breakdown(ranks=[0], visualize=False)
