"""What is asked of a profile: of each answer a profile that has it, beside one that has not."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from events.rows import Row, row, table

from lstmprof.breakdown import break_down
from lstmprof.breakdown.check import QUESTIONS, Checked, Document, check, checked
from lstmprof.breakdown.lacks import NOTE, RULES
from lstmprof.breakdown.lacks.advice import RECIPES
from lstmprof.breakdown.tables import TABLES
from lstmprof.cli import run as lstmprof
from lstmprof.events.annotate import annotated
from lstmprof.runs.cache import open_runs
from lstmprof.runs.metadata import run_info
from lstmprof.runs.run import TIMINGS_SCHEMA, Run, open_run, write_tables

PROFILES = Path(__file__).parents[1] / "profiles"
DOCS = Path(__file__).parents[2] / "docs"
HOST = {"pid": 1, "tid": 1}
STREAM = {"device": 0, "stream": 7}

#: host     |step 1------------------)|step 2------------------)
#:           [mm----) [L1)               [mm----) [L2)
#: stream 7                 [k1--)                     [k2--)
WHOLE = [
    row("step", "ProfilerStep#1", 0, 50_000, **HOST),
    row("op", "aten::mm", 1000, 9000, **HOST),
    row("runtime", "cudaLaunchKernel", 7000, 8000, **HOST, correlation_id=1),
    row("kernel", "sgemm", 20_000, 30_000, **STREAM, correlation_id=1),
    row("step", "ProfilerStep#2", 50_000, 100_000, **HOST),
    row("op", "aten::mm", 51_000, 59_000, **HOST),
    row("runtime", "cudaLaunchKernel", 57_000, 58_000, **HOST, correlation_id=2),
    row("kernel", "sgemm", 70_000, 100_000, **STREAM, correlation_id=2),
]


def made(folder: Path, rows: Sequence[Row], timings: pa.Table | None = None, **facts: Any) -> Run:
    folder.mkdir()
    events = annotated(table(list(rows)), captured=False)
    shapes = ["[[4, 4]]" if start == 1000 else None for start in events["start_ns"].to_pylist()]
    events = events.with_columns({"shapes": pa.array(shapes, pa.string())})
    told = {"name": "mine", "source": "ingest", "profile_format": "kineto", "base_ns": 1}
    write_tables(folder, run_info({**told, **facts}), events, timings)
    return open_run(folder)


def answers(run: Run) -> dict[str, tuple[str, str]]:
    """Question → its last state and sentence."""
    return {row.question: (row.state, row.sentence) for row in of(run).rows}


def of(run: Run) -> Checked:
    return checked(break_down(run, tables=()))


def test_every_kind_of_lack_answers_one_question() -> None:
    asked = [kind for question in QUESTIONS for kind in question.lacks]
    assert sorted(asked) == sorted([*(rule.kind for rule in RULES), NOTE])


def test_a_whole_profile_is_ok_and_says_what_it_holds(tmp_path: Path) -> None:
    run = made(tmp_path / "mine", WHOLE)
    assert of(run).state == "ok"
    answered = answers(run)
    assert answered.pop("profiler overhead")[0] == "not recorded"
    assert TABLES["memory"].record in answered["memory"][1]
    numbers = {
        name: re.findall(r"[\d.]+", text)
        for name, (state, text, *_) in answered.items()
        if state == "ok"
    }
    assert numbers == {
        "host": ["2", "0", "2"],
        "GPU activities": ["2", "0", "0.040"],
        "launches": ["2", "2"],
        "events lost": ["2", "2"],
        "clocks": ["0", "2"],
        "steps": ["2", "1", "2"],
        "shapes": ["1", "2"],
    }
    missing = [name for name, (state, *_) in answered.items() if state == "not recorded"]
    assert missing == ["stacks", "memory"]
    assert of(run).record_with == []


@pytest.mark.parametrize(
    ("profiled_ns", "timed_ns", "state", "said"),
    [
        (980, 1000, "ok", "2 % shorter"),
        (1100, 1000, "ok", "10 % longer"),
        (1110, 1000, "warn", "11 % longer than unprofiled ones; record no stacks"),
        (1200, 1000, "warn", "20 % longer"),
        (1210, 1000, "fail", "21 % longer"),
        # the shapes of both steps differ, and so do the times
        (1210, 600, "not recorded", "the steps do different work"),
    ],
)
def test_what_the_profiler_added_is_a_warning_above_a_tenth_and_fails_above_a_fifth(
    profiled_ns: int, timed_ns: int, state: str, said: str, tmp_path: Path
) -> None:
    rows = [
        {"round": 0, "iteration": i, "warmup": i == 0, "wall_ns": wall_ns, "loss": 0.5}
        for i, wall_ns in enumerate([1000, timed_ns] * 3)
    ]
    timings = pa.Table.from_pylist(rows, schema=TIMINGS_SCHEMA)
    facts = {"source": "capture", "device": "cuda:0", "profiled_wall_ns": [profiled_ns] * 2}
    told = answers(made(tmp_path / "mine", WHOLE, timings, **facts))["profiler overhead"]
    assert told[0] == state
    assert said in told[1]


@pytest.mark.parametrize(
    ("settings", "states"),
    [
        ({"record_shapes": 1}, ["not recorded"]),
        ({"record_shapes": 1, "with_modules": 1}, ["warn", "not recorded"]),
    ],
)
def test_what_a_recipe_records_is_no_complaint_and_what_costs_more_a_warning(
    settings: dict[str, int], states: list[str], tmp_path: Path
) -> None:
    run = of(made(tmp_path / "mine", WHOLE, profile_metadata=settings))
    assert [r.state for r in run.rows if r.question == "profiler overhead"] == states


def test_allocations_that_were_to_be_recorded_and_are_not_there_are_told(tmp_path: Path) -> None:
    told = answers(made(tmp_path / "mine", WHOLE, profile_metadata={"profile_memory": 1}))
    assert told["memory"][1].startswith("profile_memory was on, but the run has no allocations")


@pytest.mark.parametrize(("end_ns", "state"), [(9_000, "not recorded"), (16_000, "warn")])
def test_the_profilers_own_events_are_the_least_that_it_took(
    end_ns: int, state: str, tmp_path: Path
) -> None:
    own = row("overhead", "Activity Buffer Request", 1000, end_ns, **HOST)
    told = answers(made(tmp_path / "mine", [*WHOLE, own]))["profiler overhead"]
    assert told[0] == state
    assert f"takes {(end_ns - 1000) // 1000} % of the steps" in told[1]


def test_lost_activities_fail_where_they_are_many(tmp_path: Path) -> None:
    unseen = [
        row("runtime", "cudaLaunchKernel", 40_000 + n, 40_001 + n, **HOST, correlation_id=9 + n)
        for n in range(2)
    ]
    (lost,) = [r for r in of(made(tmp_path / "a", [*WHOLE, *unseen])).rows if "lost" in r.question]
    assert (lost.state, lost.share) == ("fail", 0.5)
    assert lost.sentence.startswith("2 of 4 kernel launches have no recorded kernel")


def test_activities_before_their_launch_show_clocks_that_differ(tmp_path: Path) -> None:
    early = [dict(event) for event in WHOLE]
    early[3]["start_ns"] = 5000
    told = answers(made(tmp_path / "mine", early))["clocks"]
    assert told[0] == "fail"
    assert told[1].startswith("1 of 2 GPU activities begin before their launch call (by up to 2.")


def test_a_profile_of_a_cpu_is_not_asked_for_what_no_cpu_has(tmp_path: Path) -> None:
    steps = [event for event in WHOLE if event["kind"] in ("step", "op")]
    told = answers(made(tmp_path / "mine", steps))
    assert told["GPU activities"][0] == "ok"
    assert not told.keys() & {"launches", "events lost", "clocks"}
    assert of(open_run(tmp_path / "mine")).record_with == []
    without_steps = of(made(tmp_path / "other", WHOLE[1:2]))
    assert without_steps.state == "ok"
    assert without_steps.record_with == ["torch"]


@pytest.mark.parametrize("kept", [("step",), ("step", "op", "runtime")])
def test_a_profile_that_may_lack_its_gpu_is_asked_for_it(
    kept: tuple[str, ...], tmp_path: Path
) -> None:
    told = answers(made(tmp_path / "mine", [event for event in WHOLE if event["kind"] in kept]))
    assert told["launches"][0] == told["clocks"][0] == "not recorded"


def test_kernels_that_were_not_recorded_fail_with_status_3(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = made(tmp_path / "mine", [event for event in WHOLE if event["kind"] != "kernel"])
    assert lstmprof(["check", str(run.path)]) == 3
    shown = capsys.readouterr().out
    assert shown.startswith("mine: fail\n")
    assert "2 kernel launches" in shown
    assert RECIPES["torch"].splitlines()[0] in shown
    assert lstmprof(["check", str(run.path), "--format", "json"]) == 3
    document = msgspec.json.decode(capsys.readouterr().out, type=Document)
    assert (document.exit_status, document.runs[0].state) == (3, "fail")
    assert document.runs[0].record_with == ["torch"]


def test_ranks_are_asked_one_by_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    of_ranks = [{**event, "rank": rank} for rank in (0, 1) for event in WHOLE]
    bad = [event for event in of_ranks if not (event["rank"] == 1 and event["kind"] == "kernel")]
    run = made(tmp_path / "mine", bad)
    by_rank = {(r.rank, r.state) for r in of(run).rows if r.question == "GPU activities"}
    assert by_rank == {(0, "ok"), (1, "fail")}
    assert lstmprof(["check", str(run.path)]) == 3
    shown = capsys.readouterr().out
    assert "rank 0: 2 kernels" in shown
    assert "rank 0 (likewise 1): 2 ops" in shown
    assert shown.count("but no GPU activity was recorded") == 1


@pytest.mark.parametrize("name", ["kineto-today.pt.trace.json", "nsys-2025.sqlite"])
def test_its_counts_are_those_of_the_events(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LSTMPROF_CACHE", str(tmp_path))
    (run,) = open_runs([PROFILES / name])
    kinds = run.events()["kind"].to_pylist()
    (told,) = check([break_down(run, tables=())]).runs
    said = {row.question: row.sentence for row in told.rows if row.state == "ok"}
    others = kinds.count("memcpy") + kinds.count("memset")
    assert said["GPU activities"].startswith(f"{kinds.count('kernel')} kernels and {others} copies")
    assert f"{kinds.count('runtime')} runtime calls" in said["host"]


_PROGRAM = {
    "torch": "import torch\nlayer = torch.nn.LSTM(4, 4)\ndef train(batch): layer(batch)\n"
    "batches = [torch.zeros(3, 2, 4) for _ in range(8)]\n",
    "tensorflow": "import tensorflow as tf\nlayer = tf.keras.layers.Dense(4)\n"
    "def train(batch): layer(batch)\nbatches = [tf.zeros((3, 4)) for _ in range(8)]\n",
    "jax": "import jax, jax.numpy as jnp\ntrain = jax.jit(lambda batch: batch @ batch.T)\n"
    "batches = [jnp.zeros((3, 4)) for _ in range(8)]\n",
}


@pytest.mark.parametrize("framework", _PROGRAM)
def test_the_lines_of_a_recipe_record_steps_and_ops(
    framework: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(framework)
    (tmp_path / "program.py").write_text(_PROGRAM[framework] + RECIPES[framework])
    ran = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    monkeypatch.setenv("LSTMPROF_CACHE", str(tmp_path / "cache"))
    profile = "profile.pt.trace.json" if framework == "torch" else "logdir"
    (run,) = open_runs([tmp_path / profile])
    told = answers(run)
    assert told["steps"] == ("ok", told["steps"][1])
    assert told["steps"][1].startswith("5 marked steps")
    assert told["host"][0] == "ok"
    assert framework != "torch" or (told["shapes"][0], of(run).state) == ("ok", "ok")


@pytest.mark.parametrize(("key", "state"), [("record_shapes", "ok"), ("profile_memory", "warn")])
def test_shapes_are_worth_what_they_cost(key: str, state: str, tmp_path: Path) -> None:
    run = made(tmp_path / "mine", WHOLE, profile_metadata={key: 1})
    assert of(run).state == state
    complained = any("slows each op down" in row.sentence for row in of(run).rows)
    assert complained == (state == "warn")


def test_the_documentation_has_the_lines_and_the_questions() -> None:
    text = (DOCS / "recording.md").read_text(encoding="utf-8")
    for lines in RECIPES.values():
        assert lines in text
    for question in QUESTIONS:
        assert f"| {question.name} |" in text
    assert "check.schema.json" in text
    json.loads((DOCS / "check.schema.json").read_text(encoding="utf-8"))
