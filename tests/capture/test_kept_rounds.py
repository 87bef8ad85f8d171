"""Rounds in turn, kept when they are done, without a worker: what one brings back is written here.

::

    sweep     round 1     round 2     round 3
              a    b      b    a      a    b
                                      ▲ a is written here, b when its own is done
"""

from __future__ import annotations

import dataclasses
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from kineto_documents import document, op

from lstmprof.base.errors import CaptureError, LstmprofError
from lstmprof.breakdown import break_down
from lstmprof.capture.harness import kept_rounds, plan, rounds
from lstmprof.capture.harness.rounds import Pace
from lstmprof.capture.harness.supervisor import Progress, Seat, result_in
from lstmprof.capture.request import PROFILED, RESULT, CaptureRequest, CaptureResult
from lstmprof.capture.worker.machine.usage import Waiting
from lstmprof.runs.fields import Counters
from lstmprof.runs.run import Run, open_run, runs_in
from lstmprof.workloads import Workload

TINY = Workload("tiny", 1, 4, False, 2, 5, 3, 3, "ce")
A = CaptureRequest(
    "torch-nn-lstm", TINY, device="cpu", threads=2, iterations=6, profile_steps=2, peaks=True
)
B = dataclasses.replace(A, implementation="torch-lstmcell-fused")
BOTH = {"a": A, "b": B}  # one after the other: of two threads each
IN_TURNS = {name: dataclasses.replace(request, threads=1) for name, request in BOTH.items()}


class Workers:
    """Stands for ``supervisor.capture``: each call is a worker that does what it is asked for.

    The one that ``stops`` is the number of calls before it; ``error`` is how.
    """

    def __init__(self, stops: int | None = None, error: BaseException | None = None) -> None:
        self.requests: list[CaptureRequest] = []
        self.stops, self.error = stops, error
        self.facts: dict[str, Any] = {"versions": {"torch": "2.13"}}

    def __call__(
        self, request: CaptureRequest, scratch: Path, progress: Progress, seat: Seat | None = None
    ) -> CaptureResult:
        if seat:
            seat.take()
        number = len(self.requests)
        (scratch / "worker").mkdir(parents=True)
        if number == self.stops and self.error:
            self.stops = None
            raise self.error
        self.requests.append(request)
        (scratch / "profile").mkdir()
        trace = scratch / "profile" / "trace.json.gz"
        trace.write_bytes(gzip.compress(steps(number, request.profile_steps)))
        result = {
            "metadata": self.metadata(request, number),
            "timings": columns(request.iterations),
            "profiles": ["profile/trace.json.gz"],
        }
        (scratch / RESULT).write_text(json.dumps(result), encoding="utf-8")
        return dataclasses.replace(result_in(scratch), pid=100 + number)

    def metadata(self, request: CaptureRequest, number: int) -> dict[str, Any]:
        walls = [1_000 * (number + 1) + step for step in range(request.profile_steps)]
        return {
            "implementation": request.implementation,
            "framework": "torch",
            "started_at": f"2026-11-22T10:00:{number:02}Z",
            "ended_at": f"2026-11-22T10:01:{number:02}Z",
            "profiled_wall_ns": walls,
            "profiled_cpu_ns": [wall - 1 for wall in walls],
            "profiled_preemptions": [],  # they could not be counted
            "peak_memory_bytes": 100 - number,
            "counters": {"cycles": 10 + number, "fp_assists": None if number else 5},
            **self.facts,
        }


def steps(number: int, count: int) -> bytes:
    """A profile of so many steps, of which only the date tells it from another process's."""
    marks = [
        op(0, ph="X", cat="user_annotation", name="step", ts=100 * step, dur=90)
        for step in range(count)
    ]
    ops = [op(0, name="aten::mm", ts=100 * step + 10, dur=40) for step in range(count)]
    return document(*marks, *ops, baseTimeNanoseconds=10**18 + number * 10**9)


def columns(iterations: int) -> dict[str, list[Any]]:
    """One warm-up and so many iterations that count."""
    count = iterations + 1
    same = dict.fromkeys(
        ("voluntary_switches", "preemptions", "minor_faults", "major_faults"), [1] * count
    )
    return {
        "iteration": list(range(count)),
        "warmup": [True] + [False] * iterations,
        "after_profile": [False] * count,
        "wall_ns": [1_000] * count,
        "device_ns": [None] * count,
        "cpu_ns": [900] * count,
        "loss": [0.5] * count,
        "turn": [None] * count,
        **same,
        **dict.fromkeys(Waiting._fields, [None] * count),
    }


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> Workers:
    stand_in = Workers()
    monkeypatch.setattr(rounds, "capture", stand_in)
    return stand_in


def sweep(
    out: Path, requests: dict[str, CaptureRequest] = BOTH, **how: Any
) -> dict[str, Run | LstmprofError]:
    return dict(rounds.captured_runs([requests], out, **how))


def kept_in(out: Path) -> list[str]:
    return sorted(p.parent.relative_to(out / kept_rounds.ROUNDS).as_posix() for p in out.glob(KEPT))


KEPT = f"{kept_rounds.ROUNDS}/*/*/{kept_rounds.KEPT_FILE}"


def test_every_round_is_profiled_and_the_run_tells_step_by_step(
    workers: Workers, tmp_path: Path
) -> None:
    run = rounds.capture_run(A, tmp_path, name="a")
    assert [r.profile_steps for r in workers.requests] == [2, 2, 2]  # three rounds unless asked
    assert [r.iterations for r in workers.requests] == [2, 2, 2]
    assert [r.peaks for r in workers.requests] == [True, False, False]
    info = run.info
    assert info.rounds == tuple(f"2026-11-22T10:00:0{n}Z" for n in range(3))
    assert info.ended_at == "2026-11-22T10:01:02Z"
    assert info.profiled_rounds == (0, 0, 1, 1, 2, 2)
    assert info.profiled_wall_ns == (1000, 1001, 2000, 2001, 3000, 3001)
    assert info.profiled_cpu_ns == (999, 1000, 1999, 2000, 2999, 3000)
    assert info.profiled_preemptions is None  # unknown, not none
    assert (info.iterations, info.peak_memory_bytes) == (6, 100)
    assert info.counters == Counters(cycles=33)  # assists were not counted in every round
    assert info.recorded is not None
    assert (info.recorded[0].steps, info.recorded[0].length_ns) == (6, 3 * 190_000)
    windows = break_down(run).windows
    assert [w.step for w in windows] == list(range(6))
    starts = [w.start_ns for w in windows]
    assert starts == [r * 10**9 + s * 100_000 for r in range(3) for s in range(2)]
    names = sorted(p.name for p in (run.path / "profile").iterdir())
    assert names == [f"round-{n}-trace.json.gz" for n in range(3)]


def test_rounds_share_the_profiled_steps_if_their_number_is_not_given(
    workers: Workers, tmp_path: Path
) -> None:
    rounds.capture_run(dataclasses.replace(A, profile_steps=None), tmp_path, name="a")
    assert [r.profile_steps for r in workers.requests] == [PROFILED // 3] * 3


def test_as_many_rounds_as_iterations_where_nobody_asked(workers: Workers, tmp_path: Path) -> None:
    few = dataclasses.replace(A, iterations=2)
    assert len(rounds.capture_run(few, tmp_path, name="few").info.rounds or ()) == 2
    with pytest.raises(LstmprofError, match="2 iterations are fewer than 3 rounds"):
        rounds.capture_run(few, tmp_path, name="no", rounds=3)


def test_a_run_is_written_as_soon_as_its_last_round_is_done(
    workers: Workers, tmp_path: Path
) -> None:
    results = rounds.captured_runs([BOTH], tmp_path)
    name, run = next(results)
    assert (name, isinstance(run, Run), len(workers.requests)) == ("a", True, 5)
    assert [r.name for r in runs_in(tmp_path)] == ["a"]
    assert kept_in(tmp_path) == ["b/0", "b/1"]
    assert [name for name, _ in results] == ["b"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b"]
    order = [r.implementation for r in workers.requests]
    assert order == [r.implementation for r in (A, B, B, A, A, B)]


def test_runs_that_took_turns_are_written_when_their_last_round_is_done(
    workers: Workers, tmp_path: Path
) -> None:
    results = rounds.captured_runs([IN_TURNS], tmp_path)
    assert (next(results)[0], len(workers.requests)) == ("a", 6)
    assert [r.name for r in runs_in(tmp_path)] == ["a"]
    assert kept_in(tmp_path) == ["b/0", "b/1", "b/2"]
    assert [name for name, _ in results] == ["b"]
    order = [r.implementation for r in workers.requests]
    assert order == [r.implementation for r in (A, B, B, A, A, B)]
    turn_with = [r.turn_with for r in workers.requests]
    assert turn_with == [("a", "b")] * 2 + [("b", "a")] * 2 + [("a", "b")] * 2


@pytest.mark.parametrize("both", [BOTH, IN_TURNS])
@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, CaptureError])
def test_what_stops_a_sweep_costs_the_worker_in_progress(
    workers: Workers, tmp_path: Path, kind: type[BaseException], both: dict[str, CaptureRequest]
) -> None:
    error = kind("stopped")
    workers.stops, workers.error = 3, error  # a's second round, after a b b
    if isinstance(error, CaptureError):
        results = sweep(tmp_path, both)
        assert results["a"] is error  # b does not suffer
        assert isinstance(results["b"], Run)
    else:
        with pytest.raises(kind) as stop:
            sweep(tmp_path, both)
        (note,) = stop.value.__notes__
        assert note.startswith(f"kept 3 rounds of 2 runs in {tmp_path / '.rounds'}; the same")
    there = ["a/0"] if isinstance(error, CaptureError) else ["a/0", "b/0", "b/1"]
    assert kept_in(tmp_path) == there
    assert not list(tmp_path.glob(".partial*"))

    before, workers.stops, said = len(workers.requests), None, list[str]()
    todo = {"a": both["a"]} if isinstance(error, CaptureError) else both
    results = dict(rounds.captured_runs([todo], tmp_path, progress=said.append))
    assert all(isinstance(run, Run) for run in results.values())
    assert len(workers.requests) - before == 3 * len(todo) - len(there)
    assert said[0] == "resuming a: 1 of 3 rounds are done"
    assert open_run(tmp_path / "a").info.rounds is not None
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b"]


def stopped(out: Path, workers: Workers) -> None:
    """One round of each is done."""
    workers.stops, workers.error = len(workers.requests) + 2, KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        sweep(out)
    assert kept_in(out) == ["a/0", "b/0"]
    workers.stops = None


def test_rounds_of_another_request_version_or_machine_are_not_used(
    workers: Workers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def not_used(reason: str, request: CaptureRequest = A, **how: Any) -> None:
        said: list[str] = []
        before = len(workers.requests)
        rounds.capture_run(request, out, name="a", progress=said.append, **how)
        assert len(workers.requests) - before == how.get("rounds", 3)
        assert said[0] == f"a: discarding 1 round of a stopped capture, because {reason}"
        assert kept_in(out) == ["b/0"]

    for number in range(6):
        out = tmp_path / str(number)
        stopped(out, workers)
        if number == 0:
            not_used("the options have changed", dataclasses.replace(A, seed=1))
        elif number == 1:
            not_used("the options have changed", rounds=2)
        elif number == 2:
            not_used("--force is given", force=True)
        elif number == 3:
            (out / kept_rounds.ROUNDS / "a" / "0" / RESULT).write_text("{", encoding="utf-8")
            not_used("these rounds are damaged, or from another lstmprof version")
        elif number == 4:
            with monkeypatch.context() as patch:
                patch.setattr(kept_rounds, "__version__", "9")
                not_used("the version of lstmprof has changed")
        else:
            with monkeypatch.context() as patch:
                patch.setattr("socket.gethostname", lambda: "elsewhere")
                not_used("these rounds ran on another machine")


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"versions": {"torch": "2.14"}}, "versions.torch is 2.13 in round 1 and 2.14 in round 2"),
        (
            {"settings": {"environment": {"OMP_WAIT_POLICY": "active"}}},
            "settings.environment.OMP_WAIT_POLICY is None in round 1 and active in round 2",
        ),
    ],
)
def test_rounds_between_which_something_changed_make_no_run(
    workers: Workers, tmp_path: Path, changed: dict[str, Any], name: str
) -> None:
    stopped(tmp_path, workers)
    workers.facts |= changed
    error = sweep(tmp_path)["a"]
    assert isinstance(error, CaptureError)
    assert name in str(error)
    assert kept_in(tmp_path) == []  # else no capture would ever come to its end


def test_rounds_outlast_a_run_that_cannot_be_written(workers: Workers, tmp_path: Path) -> None:
    stopped(tmp_path, workers)
    in_the_way = tmp_path / "a"
    results = rounds.captured_runs([{"a": A}], tmp_path)
    workers.stops, workers.error = len(workers.requests) + 1, OSError("unexpected")
    with pytest.raises(OSError, match="unexpected"):
        next(results)
    assert kept_in(tmp_path) == ["a/0", "a/1", "b/0"]
    in_the_way.mkdir()
    workers.stops = None
    assert isinstance(sweep(tmp_path)["a"], LstmprofError)
    assert kept_in(tmp_path)[:2] == ["a/0", "a/1"]


def test_kept_rounds_are_no_runs_and_in_nobodys_way(workers: Workers, tmp_path: Path) -> None:
    stopped(tmp_path, workers)
    assert runs_in(tmp_path) == []
    assert list(tmp_path.glob("[!.]*")) == []  # what a shell makes of traces/*
    (planned,) = plan.plan([A.implementation], [TINY], ["fp32"], A, tmp_path)
    assert planned.skip is None


def test_a_sweep_says_how_far_it_is_by_the_times_that_rounds_took() -> None:
    pace = Pace()
    for name in ("a", "b"):
        pace.plan(name, 3)
    assert pace.words("a", 0, 3) == "1 of 2 captures, round 1 of 3"  # nothing is measured
    pace.finished("a", 10.0)
    assert pace.words("b", 0, 3) == "2 of 2 captures, round 1 of 3, about 50 s left"
    pace.finished("b", 100.0)
    assert pace.words("b", 1, 3) == "2 of 2 captures, round 2 of 3, about 4 min left"  # 2·10+2·100
    pace.finished("b", None)  # it was there already
    assert pace.left_s() == 120.0
    pace.ended("b")
    assert pace.left_s() == 20.0
    alone = Pace()
    alone.plan("a", 1)
    assert alone.words("a", 0, 1) == ""
