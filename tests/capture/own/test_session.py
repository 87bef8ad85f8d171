"""A session around a user's steps: what it does at which step, and what it refuses."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from capture.own.fake_profiler import FakeProfiler, Recorded

import lstmprof as lp
from lstmprof.base.errors import RunError, UsageError
from lstmprof.capture import captured_run
from lstmprof.capture.own import passes, session as own_session
from lstmprof.capture.own.passes import FEWEST_STEPS, Plan
from lstmprof.capture.own.session import Session, plan_of
from lstmprof.capture.worker import profilers, profiling

PLAN = Plan(warmup=1, timed=4, steps=2, lines=0)


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Throw away no more steps than are profiled, and write the run in this process."""
    monkeypatch.setattr(profiling, "THROWAWAY_NS", 0)
    monkeypatch.setattr(
        own_session, "write_in_child", lambda folder, _: captured_run.written(Path(folder))
    )


def session(place: Path, lines: list[str], plan: Plan = PLAN, **options: Any) -> Session:
    made = FakeProfiler()
    return Session(
        place, framework="torch", plan=plan, profiler=made, report=lines.append, **options
    )


def fake(measuring: Session) -> FakeProfiler:
    assert isinstance(measuring.profiler, FakeProfiler)
    return measuring.profiler


def train(measuring: Session, steps: int) -> Iterator[int]:
    for number in range(steps):
        with measuring.phase("forward"):
            fake(measuring).op()
        yield number
        measuring.step()


def test_steps_are_timed_profiled_and_timed_again_and_then_left_alone(tmp_path: Path) -> None:
    lines: list[str] = []
    with session(tmp_path / "mine", lines) as p:
        seen = [(len(fake(p).calls), p.measured) for _ in train(p, 20)]
        calls = fake(p).calls
    # the first call of step ends no step; then 1 warm-up, 2 timed and 3 profiled early, 2 timed,
    # 2 thrown away, 2 profiled, 1 and 2 timed
    step = ("wait", "wait")  # where it begins, and where it ends
    assert calls == [
        *step * 3,
        *("start", *step * 3, "stop"),
        *step * 2,
        *("start", *step * 2, "stop"),
        *("start", *step * 2, "stop"),
        *step * 3,
    ]
    assert [measured for _, measured in seen].count(False) == 16
    assert seen[-1] == (len(calls), True)
    assert p.path == tmp_path / "mine"
    assert lines == [f"wrote {p.path}; next: lstmprof diagnose {p.path}"]


def test_a_session_that_may_lose_its_first_kernels_begins_with_a_step_that_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def calls(name: str, more: int) -> str:
        with session(tmp_path / name, []) as p:
            list(train(p, PLAN.fewest() + more))
            return "".join({"start": "S", "stop": ""}.get(call, "w") for call in fake(p).calls)

    usual = calls("usual", 3)
    monkeypatch.setattr(FakeProfiler, "starts_late", True)
    assert calls("mine", 3 + usual.count("S")) == usual.replace("S", "Sw")
    run = lp.read(tmp_path / "mine")
    assert len(run.info.profiled_wall_ns or ()) == 2
    events = run.stored.events().to_pylist()
    assert [row["step"] for row in events if row["kind"] == "step"] == [0, 1]
    assert [row["step"] for row in events if row["kind"] == "op"] == [None, 0, 1]


def test_the_run_is_one_that_every_stage_reads(tmp_path: Path) -> None:
    with session(tmp_path / "mine", []) as p:
        list(train(p, 20))
    run = lp.read(tmp_path / "mine")
    info = run.info
    assert (info.source, info.framework, info.profiler) == ("own code", "torch", "fake")
    assert (info.implementation, info.precision, info.mode, info.seed) == (None,) * 4
    assert info.shapes_cost is None
    assert not info.workload
    assert info.counters.reason == "the process had started its threads before"
    assert (info.iterations, len(info.profiled_wall_ns or ())) == (4, 2)
    table = run.stored.timings()
    assert table is not None
    assert table.column("warmup").to_pylist() == [True] * 3 + [False] * 2 + [True, False, False]
    assert table.column("after_profile").to_pylist() == [False] * 5 + [True] * 3
    assert table.column("loss").to_pylist() == [None] * 8
    assert info.warmup == 3
    ledger = run.ledger().rows()
    steps = {row["step"] for row in ledger}
    assert steps == {0, 1}
    assert {row["part"] for row in ledger} >= {"gemm", "python"}
    assert {row["name"] for row in run.table("ranges")} == {"step", "forward"}
    assert len(list((tmp_path / "mine" / "profile").glob("*.gz"))) == 1
    assert lp.diagnose(run).sentence


@pytest.mark.parametrize(("shapes_s", "recorded"), [(-1e-3, True), (20e-3, False)])
def test_shapes_are_recorded_where_that_was_seen_to_be_cheap(
    shapes_s: float, recorded: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profiler = FakeProfiler(shapes_s)
    clock = SimpleNamespace(perf_counter_ns=lambda: profiler.now_ns)
    monkeypatch.setattr(passes, "time", clock)
    monkeypatch.setattr(passes, "has_compiled", lambda: False)  # by other tests
    with Session(
        *(tmp_path / "mine",), framework="torch", plan=PLAN, profiler=profiler, report=str
    ) as p:
        list(train(p, PLAN.fewest(3)))
    assert p.path is not None
    # an early one, one to throw away, one to try, the one that counts
    assert profiler.sessions == [False, False, True, recorded]
    cost = lp.read(p.path).info.shapes_cost
    assert cost is not None
    assert (cost <= 0.05) == recorded


def test_a_session_is_freed_before_the_next_step_begins(tmp_path: Path) -> None:
    gc.disable()
    alive: list[int] = []
    try:
        with session(tmp_path / "mine", []) as p:
            known = weakref.WeakSet[Recorded]()
            for _ in train(p, 20):
                known.add(fake(p).events)
                alive.append(len(known))
    finally:
        gc.enable()
    assert max(alive) == 2  # the one before is kept until a longer one ends
    assert alive[PLAN.fewest()] == 1


def test_a_step_may_have_a_begin_of_its_own(tmp_path: Path) -> None:
    with session(tmp_path / "mine", []) as p:
        for _ in range(20):
            p.step_begin()
            fake(p).op()
            p.step_end("loss")
        calls = fake(p).calls
    assert p.path is not None
    assert calls.count("wait for loss") == 15


def test_a_training_that_ends_after_its_profile_leaves_what_was_measured(tmp_path: Path) -> None:
    lines: list[str] = []
    with suppress(ZeroDivisionError), session(tmp_path / "mine", lines) as p:
        for number in train(p, 20):
            _ = 1 // (14 - number)
    run = lp.read(tmp_path / "mine")
    assert run.info.iterations == 2
    words = "the run has 2 timed and 2 profiled steps"
    assert lines[0] == f"the training ended while timing again: {words}"


@pytest.mark.parametrize(
    ("steps", "timed", "profiled"),
    [
        (FEWEST_STEPS, 2, 1),  # within the early session
        (7, 2, 3),  # after it
        (8, 3, 3),  # while timing
        (10, 2, 3),  # within the next session, which has fewer steps
        (11, 2, 2),  # after it
        (PLAN.fewest() - 1, 2, 2),  # within the last one
    ],
)
def test_a_short_training_leaves_what_was_measured_and_says_how_little(
    steps: int, timed: int, profiled: int, tmp_path: Path
) -> None:
    lines: list[str] = []
    with session(tmp_path / "mine", lines) as p:
        list(train(p, steps))
        with p.phase("forward"):  # what follows the last step is in none
            fake(p).op()
    words = f"the run has {timed} timed and {profiled} profiled steps; these times are inaccurate"
    assert words in lines[0]
    run = lp.read(tmp_path / "mine")
    assert run.info.iterations == timed
    assert len(run.info.profiled_wall_ns or ()) == profiled
    assert {row["step"] for row in run.ledger().rows()} == set(range(profiled))
    assert lp.diagnose(run).sentence


def test_a_writer_that_cannot_read_the_profile_is_told_in_one_line(tmp_path: Path) -> None:
    lines: list[str] = []
    with session(tmp_path / "mine", lines) as p:
        list(train(p, 20))
        assert p.measured
        (profile,) = next(tmp_path.iterdir()).glob("steps*")
        profile.write_text("{")
    assert (p.path, len(lines)) == (None, 1)
    assert p.reason is not None
    assert "did not write" in p.reason
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        (0, "the training never called step(); call step() at the end of each step"),
        (4, "the training ended after 3 steps, while profiling; a run needs 5 steps; train longer"),
    ],
)
def test_too_few_steps_leave_no_run_and_one_line(tmp_path: Path, steps: int, words: str) -> None:
    lines: list[str] = []
    with session(tmp_path / "mine", lines) as p:
        list(train(p, steps))
    assert p.path is None
    assert p.reason is not None
    assert words in p.reason
    assert lines == [p.reason]
    assert list(tmp_path.iterdir()) == []
    assert fake(p).calls.count("start") == fake(p).calls.count("stop")


def test_what_ended_a_training_too_early_is_told_with_all_steps_that_it_had(
    tmp_path: Path,
) -> None:
    lines: list[str] = []

    def program() -> None:
        with session(tmp_path / "mine", lines) as p:
            p.observed = 6
            list(train(p, 3))
            raise KeyError

    with pytest.raises(KeyError):
        program()
    (line,) = lines
    assert "the training ended by KeyError after 8 steps, while timing; " in line
    assert line.endswith(f"a run needs {FEWEST_STEPS + 5} steps")


def test_the_next_command_can_be_pasted_whatever_the_name_of_the_run(tmp_path: Path) -> None:
    lines: list[str] = []
    with session(tmp_path / "a b", lines) as p:
        list(train(p, 20))
    assert lines == [f"wrote {p.path}; next: lstmprof diagnose '{p.path}'"]


def test_the_verdict_on_the_run_is_printed_unless_it_is_to_be_quiet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, quiet in (("mine", False), ("other", True)):
        with session(tmp_path / name, [], quiet=quiet) as p:
            list(train(p, 20))
        shown = [line for line in capsys.readouterr().err.splitlines() if line.startswith(name)]
        assert len(shown) == (0 if quiet else 1)
    own_session.show_verdict(str(tmp_path / "nowhere"), sys.executable)
    assert capsys.readouterr().err == ""


def test_as_many_steps_as_are_asked_for_make_a_run(tmp_path: Path) -> None:
    with session(tmp_path / "mine", []) as p:
        list(train(p, FEWEST_STEPS - 1))
    assert p.path is None
    with session(tmp_path / "mine", []) as p:
        list(train(p, FEWEST_STEPS))
    assert p.path is not None


def test_an_error_of_the_program_is_the_program_s(tmp_path: Path) -> None:
    lines: list[str] = []
    fault = KeyError("mine")

    def program() -> None:
        with session(tmp_path / "mine", lines) as p:
            p.step()
            raise fault

    with pytest.raises(KeyError) as raised:
        program()
    assert raised.value is fault
    assert len(lines) == 1


def test_a_profiler_that_fails_stops_the_measuring_and_not_the_training(tmp_path: Path) -> None:
    lines: list[str] = []
    with session(tmp_path / "mine", lines) as p:
        fake(p).fault = RuntimeError("Profiler is already enabled\non this thread")
        assert list(train(p, 9)) == list(range(9))
    place = tmp_path / "mine"
    words = "stopped while profiling: RuntimeError: Profiler is already enabled"
    assert lines == [f"did not write {place}: {words}"]
    with session(tmp_path / "other", []) as p:  # and another may begin
        p.step()


def test_a_run_that_is_there_is_replaced_by_force_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    with pytest.raises(RunError, match="already exists"), session(tmp_path / "mine", []):
        pass
    with session(tmp_path / "mine", [], force=True) as p:
        list(train(p, 20))
    assert p.path is not None


def test_a_folder_that_is_there_is_told_before_anything_begins(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    with pytest.raises(RunError, match="already exists; pass force=True to overwrite it"):
        lp.profile(tmp_path / "mine")
    with pytest.raises(UsageError, match="cannot name a run"):
        lp.profile(tmp_path / ".mine")


def test_two_at_once_are_refused(tmp_path: Path) -> None:
    with session(tmp_path / "mine", []) as p:
        with pytest.raises(UsageError, match=r"another lstmprof\.profile is active"):
            session(tmp_path / "other", []).begin()
        list(train(p, 20))
    assert p.path is not None


def test_step_belongs_to_one_thread(tmp_path: Path) -> None:
    lines: list[str] = []
    faults: list[UsageError] = []

    def other() -> None:
        try:
            p.step()
        except UsageError as fault:
            faults.append(fault)

    with session(tmp_path / "mine", lines) as p:
        p.step()
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        p.step()
    assert "several threads" in str(faults[0])
    assert len(lines) == 1


def test_a_step_does_not_end_inside_a_phase(tmp_path: Path) -> None:
    with session(tmp_path / "mine", []) as p:
        p.step()
        with pytest.raises(UsageError, match="inside the phase 'input'"), p.phase("input"):
            p.step()


def test_no_phase_is_called_as_the_step(tmp_path: Path) -> None:
    with session(tmp_path / "mine", []) as p:
        p.step()
        with pytest.raises(UsageError, match="a phase cannot be named 'step'"), p.phase("step"):
            pass


def test_a_forked_process_has_no_part_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with session(tmp_path / "mine", []) as p:
        p.step()
        with monkeypatch.context() as forked:
            forked.setattr(os, "getpid", lambda: 1)
            p.step()
            p.end()
        assert (p.steps, p.measured) == (0, False)
        list(train(p, 20))
    assert p.path is not None


def test_numbers_that_cannot_be_meant_are_refused() -> None:
    with pytest.raises(UsageError, match="steps must be at least 1, not 0"):
        plan_of(5, 20, 0)


def test_the_framework_is_the_one_that_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("torch", "tensorflow", "jax", "keras"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    with pytest.raises(UsageError, match="no framework is imported yet"):
        profilers.framework_of()
    monkeypatch.setitem(sys.modules, "jax", Module())
    assert profilers.framework_of() == "jax"
    monkeypatch.setitem(sys.modules, "torch", Module())
    with pytest.raises(UsageError, match=r"torch, jax; .*framework='torch'"):
        profilers.framework_of()
    assert profilers.framework_of("jax") == "jax"
    with pytest.raises(UsageError, match="unknown framework 'pytorch'; did you mean 'torch'"):
        profilers.framework_of("pytorch")


class Module:
    """A module that is imported."""

    __version__ = "1"


def test_a_training_loads_no_table_library(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    program = (
        "import sys, torch, lstmprof as lp\n"
        f"with lp.profile({str(tmp_path / 'mine')!r}) as p: p.step()\n"
        "print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert not {"pyarrow", "pandas", "click", "msgspec", "duckdb"} & set(done.stdout.split())


def test_a_step_that_is_not_measured_costs_a_few_calls(tmp_path: Path) -> None:
    """Of 0.1 µs or so: less than one percent of a millisecond."""
    p = session(tmp_path / "mine", [])  # as one that has measured everything: nothing is to be done
    assert p.measured
    calls: list[str] = []
    before = sys.getprofile()
    sys.setprofile(lambda frame, event, _: calls.append(event))
    try:
        with p.phase("input"):
            pass
        with p.phase("optimizer"):
            pass
        p.step()
    finally:
        sys.setprofile(before)
    assert calls.count("call") + calls.count("c_call") <= 10
