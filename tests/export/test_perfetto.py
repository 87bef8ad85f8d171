"""A Perfetto trace holds the run: every event, and the ledger's numbers to the nanosecond."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import shared_traces
from export.opened import Opened, opened
from export.read_back import check_read_back

import lstmprof as lp
from lstmprof import cli
from lstmprof.base.errors import ProfileError, RunError
from lstmprof.breakdown import Breakdown, break_down
from lstmprof.events import batches
from lstmprof.events.schema import ACTIVITY_KINDS
from lstmprof.export import perfetto
from lstmprof.formats.perfetto.writers import CRITICAL_PATH, DERIVED
from lstmprof.runs.cache import open_runs

PROFILES = Path(__file__).parents[1] / "profiles"
NAMES = ("kineto-2021.pt.trace.json", "kineto-today.pt.trace.json", "nsys-2025.sqlite",
         "tensorflow.xplane.pb")  # fmt: skip


pytestmark = pytest.mark.usefixtures("profiles_read_once")


def broken_down(path: Path) -> Breakdown:
    (run,) = open_runs([path])
    return break_down(run, None, ("ledger",))


def exported(breakdown: Breakdown, tmp_path: Path, name: str = "x.pftrace") -> Opened:
    perfetto.write(breakdown, tmp_path / name)
    return opened(tmp_path / name)


def check(breakdown: Breakdown, trace: Opened) -> None:
    """Hold ``trace`` to the ledger and the events of ``breakdown``."""
    sums: Counter[tuple[object, ...]] = Counter()
    for one in trace.ledger():
        device = one.track.removeprefix("ledger: ").removeprefix("device ")
        step, part = one.arguments.get("step"), one.arguments["part"]
        sums[one.process, device, step, one.category, part] += one.dur_ns
    asked: Counter[tuple[object, ...]] = Counter()
    for row in breakdown.ledger.to_pylist():
        process = breakdown.run.name if row["rank"] is None else f"rank {row['rank']}"
        device = "CPU" if row["device"] is None else str(row["device"])
        asked[process, device, row["step"], row["state"], row["part"]] += row["ns"]
    assert sums == asked
    events = breakdown.events().to_pylist()
    counted = (row["time_ns"] for rows in breakdown.run.counters() for row in rows.to_pylist())
    origin_ns = min(0, *(event["start_ns"] for event in events), *counted)
    drawn = [
        s for s in trace.slices if not s.track.startswith("ledger: ") and s.track not in DERIVED
    ]
    check_paths(breakdown, trace)
    assert Counter((s.name, s.start_ns, s.dur_ns) for s in drawn) == Counter(
        (event["name"] or "?", event["start_ns"] - origin_ns, event["dur_ns"]) for event in events
    )
    check_arrows(events, trace)


def check_paths(breakdown: Breakdown, trace: Opened) -> None:
    """Hold the track of the critical path to the table of that name."""
    sums: Counter[tuple[object, ...]] = Counter()
    for one in trace.slices:
        if one.track == CRITICAL_PATH:
            step, part = one.arguments.get("step"), one.arguments["part"]
            sums[one.process, step, one.category, part] += one.dur_ns
    asked = {}
    for row in breakdown.table("critical_path").to_pylist():
        process = breakdown.run.name if row["rank"] is None else f"rank {row['rank']}"
        asked[process, row["step"], row["state"], row["part"]] = row["path_ns"]
    assert sums == asked


def check_arrows(events: list[dict[str, Any]], trace: Opened) -> None:
    begun = {arrow: s for s in trace.slices for arrow in s.starts}
    ended = {arrow: s for s in trace.slices for arrow in s.ends}
    by_id = {event["event_id"]: event for event in events}
    linked = {
        event["event_id"] + 1: (by_id[event["launch_id"]]["name"], event["name"])
        for event in events
        if event["launch_id"] is not None and event["kind"] in ACTIVITY_KINDS
        and by_id[event["launch_id"]]["start_ns"] <= event["start_ns"]
    }  # fmt: skip
    assert begun.keys() == ended.keys() == linked.keys()
    assert {n: (begun[n].name, ended[n].name) for n in linked} == linked


@pytest.mark.parametrize("name", NAMES)
def test_a_trace_holds_every_event_and_the_ledger(name: str, tmp_path: Path) -> None:
    breakdown = broken_down(PROFILES / name)
    check(breakdown, exported(breakdown, tmp_path))


@pytest.mark.parametrize("name", NAMES)
def test_written_in_batches_it_holds_the_same(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    breakdown = broken_down(PROFILES / name)
    whole = exported(breakdown, tmp_path, "whole.pftrace")
    batches_of = batches.Batches
    monkeypatch.setattr(perfetto, "Batches", lambda packed: batches_of(packed, 40))
    parts = exported(breakdown, tmp_path, "parts.pftrace")
    check(breakdown, parts)
    for tracks in (("steps",), ("phases",)):
        assert [(s.name, s.start_ns, s.dur_ns) for s in parts.on(*tracks)] == [
            (s.name, s.start_ns, s.dur_ns) for s in whole.on(*tracks)
        ]
    assert parts.counters == whole.counters
    assert len(parts.ledger()) == len(whole.ledger())


def test_tracks_are_called_by_what_they_are(tmp_path: Path) -> None:
    breakdown = broken_down(PROFILES / "kineto-today.pt.trace.json")
    trace = exported(breakdown, tmp_path, "x.pftrace.gz")
    tracks = {one.track for one in trace.slices}
    assert {"ledger: device 0", "steps", "stream 7"} <= tracks
    steps = trace.on("steps")
    assert [(s.name, s.dur_ns) for s in steps] == [
        (f"step {w.step}", w.end_ns - w.start_ns) for w in breakdown.windows
    ]
    kernel = next(s for s in trace.on("stream 7") if s.arguments.get("op"))
    assert {"correlation", "stream", "device", "step"} <= kernel.arguments.keys()


def test_counters_are_those_of_the_tables(tmp_path: Path) -> None:
    breakdown = broken_down(PROFILES / "kineto-today.pt.trace.json")
    trace = exported(breakdown, tmp_path)
    of = {name.removeprefix("device 0: "): values for (_, name), values in trace.counters.items()}
    launches = breakdown.table("launches").to_pylist()
    assert max(value for _, value in of["queue length"]) == max(
        r["queue_max"] or 0 for r in launches
    )
    assert of["queue length"][-1][1] == 0
    shares = of["busy share"]
    spent = sum((b - a) * v / 100 for (a, v), (b, _) in itertools.pairwise(shares))
    busy = [e for e in breakdown.events().to_pylist() if e["kind"] in ACTIVITY_KINDS]
    covered = set[int]()
    for event in busy:
        covered.update(range(event["start_ns"], event["start_ns"] + event["dur_ns"], 1))
    assert round(spent) == len(covered)


def kineto(tmp_path: Path, *kernels: dict[str, Any]) -> Path:
    path = tmp_path / "made.pt.trace.json"
    shared = {"ph": "X", "cat": "kernel", "pid": 0}
    call = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 9, "tid": 9}
    args = {"Input Dims": [[64, 320]], "Input type": ["float"], "External id": 4}
    rows = [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 9, "tid": 9, "ts": 0,
             "dur": 50, "args": args}]  # fmt: skip
    for number, kernel in enumerate(kernels):
        of_kernel = {"device": 0, "stream": 7, "correlation": number + 1}
        rows.append({**shared, "tid": 7, "args": of_kernel, **kernel})
        rows.append({**call, "ts": number + 1, "dur": 0.5, "args": {"correlation": number + 1}})
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": rows}))
    return path


def test_slices_that_overlap_on_a_stream_keep_their_lengths(tmp_path: Path) -> None:
    hostile = "a\x1b[31m<script>\u202e☃"
    path = kineto(
        tmp_path,
        {"name": hostile, "ts": 10, "dur": 10},
        {"name": "b", "ts": 15, "dur": 10},
        {"name": "c", "ts": 25, "dur": 1},
    )
    breakdown = broken_down(path)
    trace = exported(breakdown, tmp_path)
    check(breakdown, trace)
    assert [(s.name, s.dur_ns) for s in trace.on("stream 7")] == [
        (hostile, 10_000),
        ("b", 10_000),
        ("c", 1000),
    ]
    (op,) = trace.on("thread 9")[:1]
    assert (op.name, op.dur_ns, json.loads(op.arguments["shapes"])) == (
        "aten::mm",
        50_000,
        [[64, 320]],
    )
    assert trace.on("stream 7")[0].arguments["op"] == "aten::mm"


def test_a_kernel_before_its_launch_has_no_arrow(tmp_path: Path) -> None:
    path = kineto(tmp_path, {"name": "early", "ts": 0.25, "dur": 0.5})
    breakdown = broken_down(path)
    trace = exported(breakdown, tmp_path)
    check(breakdown, trace)
    assert not any(s.starts or s.ends for s in trace.slices)


def test_nothing_is_written_over_or_left_half(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    breakdown = broken_down(PROFILES / "kineto-today.pt.trace.json")
    path = tmp_path / "x.pftrace"
    path.write_text("mine")
    with pytest.raises(RunError, match="already exists; add --force"):
        perfetto.write(breakdown, path)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(perfetto, "_write", full)
    with pytest.raises(RunError, match="No space left on device"):
        perfetto.write(breakdown, path, force=True)
    assert [p.name for p in tmp_path.iterdir()] == ["x.pftrace"]
    assert path.read_text() == "mine"


def test_the_command_says_what_it_wrote(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "x.pftrace"
    profile = str(PROFILES / "kineto-today.pt.trace.json")
    assert cli.run(["export", profile, "--perfetto", str(out)]) == 0
    assert capsys.readouterr().out.startswith(f"wrote {out} (")
    assert opened(out).slices
    assert cli.run(["export", profile]) == 2
    assert cli.run(["export", str(PROFILES), "--perfetto", str(tmp_path / "y")]) == 2
    assert "holds 4 runs" in capsys.readouterr().err


def test_a_notebook_writes_the_same(tmp_path: Path) -> None:
    run = lp.read(PROFILES / "kineto-today.pt.trace.json")
    assert run.to_perfetto(tmp_path / "x.pftrace") == tmp_path / "x.pftrace"
    check(broken_down(PROFILES / "kineto-today.pt.trace.json"), opened(tmp_path / "x.pftrace"))


@shared_traces.needed
@pytest.mark.parametrize("path", shared_traces.profiles(), ids=shared_traces.name)
def test_real_profiles_are_written_whole_and_read_back_the_same(path: Path, tmp_path: Path) -> None:
    try:
        runs = open_runs([path])
    except (ProfileError, RunError) as refusal:
        pytest.skip(f"refused: {refusal}")
    for number, run in enumerate(runs):
        breakdown, out = break_down(run, None, ("ledger",)), tmp_path / f"{number}.pftrace"
        perfetto.write(breakdown, out)
        check(breakdown, opened(out))
        if len(runs) == 1:
            check_read_back(breakdown, out)


@pytest.mark.parametrize("name", ["kineto-today.pt.trace.json", "nsys-2025.sqlite"])
def test_two_runs_are_written_side_by_side_from_one_instant(name: str, tmp_path: Path) -> None:
    given = broken_down(PROFILES / name)
    (lane,) = given.steps()
    out = tmp_path / "pair.pftrace"
    perfetto.write_pair([(given, lane.rank, lane.device)] * 2, out)
    trace = opened(out)
    steps = trace.on("steps")
    assert [one.start_ns for one in steps] == [0, 0]
    assert len({one.dur_ns for one in steps}) == 1
    assert sum(one.dur_ns for one in trace.ledger()) == 2 * steps[0].dur_ns
    begun = Counter(arrow for one in trace.slices for arrow in one.starts)
    ended = Counter(arrow for one in trace.slices for arrow in one.ends)
    assert begun == ended
    assert set(begun.values()) == {1}
    assert max(one.start_ns + one.dur_ns for one in trace.slices) == steps[0].dur_ns
    with pytest.raises(ProfileError, match="is an export of two runs"):
        open_runs([out])
