"""A cut of a profile has the same step, with the same ledger, as the whole."""

from __future__ import annotations

import gzip
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
import shared_traces
from export.opened import opened

from lstmprof import cli
from lstmprof.breakdown import Breakdown, break_down
from lstmprof.events.schema import ACTIVITY_KINDS
from lstmprof.export import trace_cut
from lstmprof.runs.cache import open_runs

PROFILES = Path(__file__).parents[1] / "profiles"
KINETO = PROFILES / "kineto-today.pt.trace.json"


pytestmark = pytest.mark.usefixtures("profiles_read_once")


def broken_down(path: Path) -> Breakdown:
    (run,) = open_runs([path])
    return break_down(run, None, ("ledger",))


def of_step(breakdown: Breakdown, step: int) -> list[dict[str, Any]]:
    return [row for row in breakdown.ledger.to_pylist() if row["step"] == step]


def cut(*arguments: object) -> int:
    return cli.run(["cut", *map(str, arguments)])


@pytest.mark.parametrize("name", ["kineto-2021.pt.trace.json", "kineto-today.pt.trace.json"])
def test_each_step_of_a_cut_has_the_ledger_of_the_whole(name: str, tmp_path: Path) -> None:
    whole = broken_down(PROFILES / name)
    for window in whole.windows:
        out = tmp_path / f"{window.step}.json.gz"
        assert cut(PROFILES / name, "--step", window.step, "-o", out) == 0
        small = broken_down(out)
        assert window.step is not None
        assert of_step(small, window.step) == of_step(whole, window.step)
        assert len(small.events()) < len(whole.events())


def test_pieces_of_any_size_are_cut_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cut(KINETO, "--step", 1, "-o", tmp_path / "a.json") == 0
    monkeypatch.setattr(trace_cut, "PIECE_BYTES", 700)
    assert cut(KINETO, "--step", 1, "-o", tmp_path / "b.json") == 0
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()


def document() -> dict[str, Any]:
    """Two steps of one kernel; the second's is launched in the first and runs over its end."""

    def on_host(cat: str, name: str, ts: float, dur: float, **args: Any) -> dict[str, Any]:
        where = {"pid": 9, "tid": 9}
        return {"ph": "X", "cat": cat, "name": name, **where, "ts": ts, "dur": dur, "args": args}

    def kernel(name: str, ts: float, dur: float, number: int) -> dict[str, Any]:
        args = {"device": 0, "stream": 7, "correlation": number}
        where = {"pid": 0, "tid": 7}
        return {
            "ph": "X",
            "cat": "kernel",
            "name": name,
            **where,
            "ts": ts,
            "dur": dur,
            "args": args,
        }

    rows = [
        {"ph": "M", "name": "process_name", "pid": 9, "tid": 0, "args": {"name": "python"}},
        on_host("user_annotation", "ProfilerStep#1", 100, 100),
        on_host("cpu_op", "aten::mm", 110, 40),
        on_host("cuda_runtime", "cudaLaunchKernel", 120, 5, correlation=1),
        {"ph": "s", "id": 1, "cat": "ac2g", "name": "ac2g", "pid": 9, "tid": 9, "ts": 120},
        kernel("first, of step 1", 130, 10, 1),
        {"ph": "f", "id": 1, "cat": "ac2g", "name": "ac2g", "pid": 0, "tid": 7, "ts": 130},
        on_host("cpu_op", "aten::addmm", 160, 20),
        on_host("cuda_runtime", "cudaLaunchKernel", 165, 5, correlation=2),
        {"ph": "s", "id": 2, "cat": "ac2g", "name": "ac2g", "pid": 9, "tid": 9, "ts": 165},
        kernel("early", 180, 5, 3),
        on_host("user_annotation", "ProfilerStep#2", 200.0, 100),
        kernel('sgemm of },{ "a": [}]', 210.25, 10, 2),
        {"ph": "f", "id": 2, "cat": "ac2g", "name": "ac2g", "pid": 0, "tid": 7, "ts": 210.25},
        {"ph": "i", "name": "said in step 2", "pid": 9, "tid": 9, "ts": 250, "s": "t"},
        {"ph": "i", "name": "said in step 3", "pid": 9, "tid": 9, "ts": 350, "s": "t"},
        on_host("user_annotation", "ProfilerStep#3", 300, 100),
        on_host("cpu_op", "aten::relu", 310, 20),
        kernel("of step 3", 320, 10, 9),
    ]
    return {"schemaVersion": 1, "traceEvents": rows, "traceName": "x}]y.json"}


def test_what_crosses_the_edge_is_whole_and_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, out = tmp_path / "whole.json.gz", tmp_path / "cut.json"
    source.write_bytes(gzip.compress(json.dumps(document(), indent=1).encode()))
    assert cut(source, "--step", 2, "-o", out) == 0
    small = json.loads(out.read_text())
    assert [e["name"] for e in small["traceEvents"]] == [
        "process_name",
        "aten::addmm",
        "cudaLaunchKernel",
        "ac2g",
        "early",
        "ProfilerStep#2",
        'sgemm of },{ "a": [}]',
        "ac2g",
        "said in step 2",
        "ProfilerStep#3",
        "of step 3",
    ]
    whole = document()
    assert all(event in whole["traceEvents"] for event in small.pop("traceEvents"))
    assert small == {"schemaVersion": 1, "traceName": "x}]y.json"}
    assert of_step(broken_down(out), 2) == of_step(broken_down(source), 2)
    said = capsys.readouterr()
    assert [word for word in said.err.split() if word.isdigit()] == ["0", "5", "3"]
    assert said.out.startswith(f"wrote {out} (11 of 19 entries, ")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--step", 99), "the profile has no step 99; its steps are "),
        (("--steps", "7..3"), "--steps '7..3' is an empty range"),
        (("--steps", "3"), "--steps '3' is not a range"),
        (("--range", "1e9..2"), "--range '1e9..2' is not a range"),
        (("--range", "900000..900001"), "the --range contains no event"),
        ((), "give one of --step, --steps and --range"),
        (("--step", 1, "--range", "1..2"), "exactly one part"),
    ],
)
def test_a_part_that_cannot_be_meant_is_one_line(
    arguments: tuple[object, ...], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cut(KINETO, *arguments, "-o", tmp_path / "x.json") == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_other_formats_are_cut_to_a_perfetto_trace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    profile = PROFILES / "nsys-2025.sqlite"
    assert cut(profile, "--step", 1, "-o", tmp_path / "x.json") == 2
    assert "only a Kineto file can be cut to .json; use -o FILE.pftrace" in capsys.readouterr().err
    assert cut(profile, "--step", 1, "-o", tmp_path / "x.txt") == 2
    out = tmp_path / "x.pftrace.gz"
    assert cut(profile, "--step", 1, "-o", out) == 0
    whole, trace = broken_down(profile), opened(out)
    asked = {(r["state"], r["part"]): r["ns"] for r in of_step(whole, 1)}
    drawn: dict[tuple[str, str], int] = {}
    for one in trace.ledger():
        part = one.category, one.arguments["part"]
        drawn[part] = drawn.get(part, 0) + one.dur_ns
    assert drawn == asked
    assert [s.name for s in trace.on("steps")] == ["step 1"]


def test_an_archive_is_cut_to_a_perfetto_trace_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = tmp_path / "ranks.tar.gz"
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(KINETO, "rank0.json")
    assert cut(archive, "--step", 1, "-o", tmp_path / "x.json") == 1
    assert "is not in torch.profiler's layout" in capsys.readouterr().err
    assert cut(archive, "--step", 1, "-o", tmp_path / "x.pftrace") == 0


def test_a_range_keeps_what_runs_in_it(tmp_path: Path) -> None:
    whole = broken_down(KINETO).events().to_pylist()
    until = max(event["start_ns"] + event["dur_ns"] for event in whole) / 1e6
    assert cut(KINETO, "--range", f"0..{until / 2:.3f}", "-o", tmp_path / "x.json") == 0
    small = broken_down(tmp_path / "x.json").events().to_pylist()
    kernels = [e for e in whole if e["kind"] in ACTIVITY_KINDS]
    inside = [e for e in kernels if e["start_ns"] < round(float(f"{until / 2:.3f}") * 1e6)]
    left = [(e["name"], e["dur_ns"]) for e in small if e["kind"] in ACTIVITY_KINDS]
    assert all((e["name"], e["dur_ns"]) in left for e in inside)
    assert len(inside) <= len(left) < len(kernels)


@shared_traces.needed
@pytest.mark.parametrize(
    "name", ["tl-h100-bert-small.json.gz", "hta-eventsync-multistream.json.gz"]
)
def test_real_profiles(name: str, tmp_path: Path) -> None:
    path = shared_traces.FOLDER / "kineto" / name
    whole = broken_down(path)
    for window in whole.windows[:2]:
        if window.step is None:
            pytest.skip("it marks no steps")
        out = tmp_path / "x.json.gz"
        assert cut(path, "--step", window.step, "-o", out, "--force") == 0
        assert of_step(broken_down(out), window.step) == of_step(whole, window.step)
