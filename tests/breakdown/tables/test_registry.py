"""The registry of tables: what it says of each is what the tables are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from events.rows import row, table

from lstmprof.base import names
from lstmprof.base.errors import UsageError
from lstmprof.breakdown import TABLES, break_down
from lstmprof.events.annotate import annotated
from lstmprof.events.annotate.steps import windows
from lstmprof.events.batches import BATCH_EVENTS
from lstmprof.events.table import events_table
from lstmprof.runs.cache import open_runs
from lstmprof.runs.metadata import run_info
from lstmprof.runs.run import open_run, write_tables

HOST = {"pid": 1, "tid": 1}
GPU = {"device": 0, "stream": 7}
ROWS = [
    row("step", "ProfilerStep#1", 0, 50, **HOST),
    *(row("op", name, 1 + 10 * i, 9 + 10 * i, **HOST) for i, name in enumerate("abc")),
    row("runtime", "cudaLaunchKernel", 2, 3, **HOST, correlation_id=1),
    row("runtime", "cudaLaunchKernel", 12, 13, **HOST, correlation_id=2),
    row("kernel", "k", 20, 23, **GPU, correlation_id=1),
    row("kernel", "k", 30, 39, **GPU, correlation_id=2),
]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    facts = {"name": "run", "source": "ingest", "workload": {"time_steps": 4}}
    write_tables(tmp_path / "run", run_info(facts), annotated(table(ROWS), captured=False))
    return tmp_path / "run"


#                 0   2       10  12      20      30 ns
# step            [-----------------------------------)
# forward             [-------)
#   aten::mm              [4-6)
# backward                        [-------------)
#   autograd node                     [14-18)
@pytest.mark.parametrize(
    ("framework", "source", "dispatch", "python"),
    [
        ("torch", "capture", 4 + 6, 8 + 10),  # between the ops of the backward pass
        ("torch", "ingest", 4, 8 + 6 + 10),
        ("tensorflow", "capture", 4 + 10, 8 + 6),  # in the step itself
        ("jax", "capture", 4 + 10, 8 + 6),
        ("cudnn", "capture", 4, 8 + 6 + 10),
    ],
)
def test_time_of_the_framework_between_ops_is_dispatch(
    tmp_path: Path, framework: str, source: str, dispatch: int, python: int
) -> None:
    rows = [
        row("step", "step", 0, 30, **HOST),
        row("range", "forward", 2, 12, **HOST),
        row("op", "aten::mm", 4, 6, **HOST, category="gemm"),
        row("range", "backward", 12, 22, **HOST),
        row("op", "autograd::engine::evaluate_function: MmBackward0", 14, 18, **HOST),
    ]
    (tmp_path / "run").mkdir()
    facts = run_info({"name": "run", "source": source, "framework": framework})
    write_tables(tmp_path / "run", facts, annotated(table(rows), captured=source == "capture"))
    spent = {r["part"]: r["ns"] for r in break_down(open_run(tmp_path / "run")).ledger.to_pylist()}
    assert spent == {"gemm": 2, "dispatch": dispatch, "python": python}


#                 0  2    6                20     24   30 ns
# step            [-----------------------------------)
# input              [---)
# program                                  [------)
#   PjitFunction                             [22-23)
#   fusion, another thread                    [22-24)
@pytest.mark.parametrize("framework", ["tensorflow", "jax"])
def test_python_beside_the_program_of_a_compiled_step_is_python(
    tmp_path: Path, framework: str
) -> None:
    rows = [
        row("step", "step", 0, 30, **HOST),
        row("range", "input", 2, 6, **HOST),
        row("range", "program", 20, 24, **HOST),
        row("op", "PjitFunction", 22, 23, **HOST),
        row("op", "fusion", 22, 24, pid=1, tid=2, category="pointwise"),
    ]
    (tmp_path / "run").mkdir()
    facts = run_info({"name": "run", "source": "capture", "framework": framework})
    write_tables(tmp_path / "run", facts, annotated(table(rows), captured=True))
    spent = {r["part"]: r["ns"] for r in break_down(open_run(tmp_path / "run")).ledger.to_pylist()}
    assert spent["python"] == 20 + 6
    assert sum(spent.values()) - spent["python"] == 4


@pytest.mark.parametrize("name", TABLES)
def test_a_table_has_the_columns_the_registry_says(name: str) -> None:
    known, events = TABLES[name], annotated(table(ROWS), captured=False)
    for made in (
        known.of(events, windows(events, captured=False), run_info({})),
        known.of(annotated(table([]), captured=False), [], run_info({})),
    ):
        assert made.schema.names == [c.name for c in known.columns]
        assert [f.type for f in made.schema] == [c.type for c in known.columns]
        assert all(c.null_when or made.column(c.name).null_count == 0 for c in known.columns)
    assert {n.removeprefix("-") for n in known.order} | set(known.shown) <= set(made.schema.names)
    assert all(column.meaning for column in known.columns)


@pytest.mark.parametrize("name", [name for name, kind in TABLES.items() if kind.reads])
def test_a_table_is_made_of_the_columns_that_it_reads(name: str) -> None:
    known, events = TABLES[name], annotated(table(ROWS), captured=False)
    found = windows(events, captured=False)
    made = known.of(events.select(list(known.reads)), found, run_info({}))
    assert made.equals(known.of(events, found, run_info({})))


@pytest.mark.parametrize(
    "name", [name for name, kind in TABLES.items() if not (kind.needs_files or kind.joined)]
)
def test_a_table_of_a_stored_run_is_that_of_its_events(name: str, run: Path) -> None:
    (opened,) = open_runs([run])
    account, events = break_down(opened), opened.events()
    assert account.table(name).equals(TABLES[name].of(events, account.windows, opened.info))


def test_help_names_every_table() -> None:
    assert tuple(TABLES) == names.TABLES


def test_a_breakdown_makes_the_table_that_is_asked_for(run: Path) -> None:
    (opened,) = open_runs([run])
    breakdown = break_down(opened, tables=())
    ops = breakdown.table("ops")
    assert ops.column("name").to_pylist() == ["b", "a", "c"]
    assert ops.column("device_self_ns").to_pylist() == [9, 3, 0]
    assert breakdown.table("ops") is ops
    assert breakdown.table("launches").column("per_time_step").to_pylist() == [0.5]
    assert breakdown.ledger.equals(break_down(opened).ledger)
    with pytest.raises(UsageError, match=r"unknown table 'opps'; did you mean 'ops'\?"):
        breakdown.table("opps")


def test_tables_made_at_once_need_no_second_look_at_the_events(run: Path) -> None:
    (opened,) = open_runs([run])
    breakdown = break_down(opened, tables=("ledger", "copies"))
    (run / "events.parquet").unlink()
    assert pa.compute.sum(breakdown.ledger.column("ns")).as_py() == 50
    assert breakdown.table("copies").num_rows == 0


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_made_of_its_own_columns_where_events_are_many(
    tmp_path: Path, name: str
) -> None:
    count = BATCH_EVENTS + 1
    times = {"start_ns": np.arange(count), "dur_ns": np.ones(count, dtype=np.int64)}
    texts = {"kind": ["kernel"] * count, "name": ["k"] * count}
    devices = {"device": np.zeros(count, dtype=np.int64)}
    (tmp_path / "run").mkdir()
    events = annotated(events_table(times | texts | devices), captured=False)
    write_tables(tmp_path / "run", run_info({"name": "run", "source": "ingest"}), events)
    made = break_down(open_run(tmp_path / "run"), tables=[name]).table(name)
    assert made.schema.names == [column.name for column in TABLES[name].columns]
