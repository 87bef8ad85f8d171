"""The rows of a report are the rows of the other verbs, run by run."""

from __future__ import annotations

import html
import sys
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from diagnose import made
from diagnose.made_job import breakdown_of
from events import rows
from report import runs, test_ranks

from lstmprof.base.numbers import with_short_names
from lstmprof.breakdown import Breakdown, account_rows, break_down, rows_of
from lstmprof.diagnose.diagnosis import compare, diagnose_all
from lstmprof.events.annotate import annotated
from lstmprof.events.annotate.links import linked
from lstmprof.events.annotate.steps import Window, windows
from lstmprof.events.table import EventTable, events_table
from lstmprof.report import (
    TABLES,
    page,
    report_of,
    rows as report_rows,
    timeline as timeline_module,
)
from lstmprof.report.model import Group, Report, Timeline
from lstmprof.report.palette import label_of
from lstmprof.report.runs import groups
from lstmprof.report.timeline import MOST_THREADS, depths, timeline
from lstmprof.runs.run import TIMINGS_SCHEMA, write_tables


def report_on(folder: Path) -> tuple[list[Breakdown], Report]:
    breakdowns = [break_down(run, None, TABLES) for run in runs.three(folder)]
    return breakdowns, report_of(breakdowns)


def test_times_are_those_of_the_verdicts_and_of_breakdown(tmp_path: Path) -> None:
    breakdowns, report = report_on(tmp_path)
    timed = {row["run"]: row for row in rows_of(breakdowns, "timings")}
    assert {row["run"] for row in report.times} == set(timed) == {"fast", "slow", "hostile"}
    for row in report.times:
        of_run = timed[row["run"]]
        assert row["step_ns"] == round(of_run["step_ns"])
        assert (row["low_ns"], row["high_ns"]) == (of_run["step_low_ns"], of_run["step_high_ns"])
        assert row["iterations"] == of_run["iterations"]
    (base,) = {d.fast.name for d in report.diagnoses if d.fast}
    assert {row["run"]: row["times"] for row in report.times} == {
        base: "",
        **{d.slow.name: d.verdict.times for d in report.diagnoses},
    }
    assert [(group.baseline, set(group.runs)) for group in report.groups] == [(base, set(timed))]


def test_a_run_that_was_not_timed_is_beside_the_others_that_its_verdict_names(
    tmp_path: Path,
) -> None:
    made = [
        runs.run(tmp_path, "untimed", implementation="a", kernels=2),
        runs.run(tmp_path, "timed", implementation="b", kernels=9, walls_ns=runs.walls(93_000)),
    ]
    report = report_of([break_down(run) for run in made])
    (diagnosis,) = report.diagnoses
    rows = {row["run"]: row for row in report.times}
    assert diagnosis.fast
    assert diagnosis.fast.name == "untimed"
    assert rows["untimed"]["step_ns"] == diagnosis.verdict.baseline_ns
    assert rows["timed"]["step_ns"] == diagnosis.verdict.step.ns
    assert rows["timed"]["times"] == diagnosis.verdict.times


def test_the_ledger_is_that_of_breakdown(tmp_path: Path) -> None:
    breakdowns, report = report_on(tmp_path)
    expected = {
        (row["run"], row["of"], row["state"], row["part"]): row["ns"] * row["profiled_steps"]
        for row in (r | {"of": r["steps"]} for r in account_rows(breakdowns))
    }
    keys = ("run", "of", "state", "part")
    assert {tuple(row[k] for k in keys): row["total_ns"] for row in report.ledger} == expected
    assert {row["steps"] for row in report.ledger} == {2}


def test_a_long_kernel_name_does_not_drown_its_sentence(tmp_path: Path) -> None:
    name = "void copy<" + "std::tuple<float, " * 30 + ">"
    made = [
        runs.run(tmp_path, run, implementation=run, kernels=n, names=(name,))
        for run, n in (("few", 2), ("many", 9))
    ]
    sentence = f"{name} moves elements"
    assert with_short_names(sentence, [name]).endswith("… moves elements")
    written = page.page(report_of([break_down(run) for run in made]))
    verdict = written[written.index('<section id="verdict"') : written.index("</section>")]
    assert name not in html.unescape(verdict)


def test_a_pair_leads_from_the_fast_step_to_the_slow_one(tmp_path: Path) -> None:
    _, report = report_on(tmp_path)
    assert [(p.fast.name, p.slow.name) for p in report.pairs] == [
        ("fast", "hostile"),
        ("fast", "slow"),
        ("slow", "hostile"),
    ]
    for pair in report.pairs:
        ends = pair.fast.length_ns, pair.slow.length_ns
        for column, end_ns in zip(("fast_ns", "slow_ns"), ends, strict=True):
            assert sum(row[column] for row in pair.rows) == end_ns


def test_the_account_of_a_timeline_is_the_ledger_of_its_step(tmp_path: Path) -> None:
    breakdowns, report = report_on(tmp_path)
    ledgers = {b.run.name: b.ledger.to_pylist() for b in breakdowns}
    assert {(t.run, t.step) for t in report.timelines} == {
        (run, s) for run in ledgers for s in (0, 1)
    }
    for drawn in report.timelines:
        ledger = ledgers[drawn.run]
        expected: Counter[str] = Counter()
        for row in ledger:
            if row["step"] == drawn.step:
                expected[label_of(row["state"], row["part"])] += row["ns"]
        found: Counter[str] = Counter()
        columns = drawn.columns
        for track, dur_ns, name in zip(
            columns["track"], columns["dur_ns"], columns["name"], strict=True
        ):
            if drawn.tracks[track].kind == "account":
                found[drawn.names[name]] += dur_ns
        assert found == expected
        assert sum(found.values()) == drawn.dur_ns


def test_the_longest_events_are_drawn_and_the_others_counted(tmp_path: Path) -> None:
    run = runs.run(tmp_path, "one", implementation="torch-nn-lstm", kernels=5)
    (window, _) = break_down(run).windows
    whole = timeline("one", run.events(), window, 10**6)
    part = timeline("one", run.events(), window, 7)
    assert whole.left_out == 0
    assert len(part.columns["dur_ns"]) == 7
    assert part.left_out == len(whole.columns["dur_ns"]) - 7
    assert min(part.columns["dur_ns"]) >= sorted(whole.columns["dur_ns"])[-7]


def test_a_step_of_many_threads_is_drawn_in_linear_time() -> None:
    count = 30_000
    threads = np.arange(count)
    columns = {"kind": ["op"] * count, "name": ["Add"] * count, "pid": [1] * count}
    times = {"start_ns": threads, "dur_ns": [1] * count}
    events = annotated(events_table({**columns, **times, "tid": threads}), captured=False)
    (window,) = windows(events, captured=False)
    begin = time.process_time()
    drawn = timeline("one", events, window, 10**6)
    assert time.process_time() - begin < 2  # one scan of the threads per thread took 4 s
    assert len([track for track in drawn.tracks if track.kind == "host"]) == MOST_THREADS
    assert drawn.left_out == count - MOST_THREADS


def test_the_page_says_how_many_of_the_ranks_are_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = breakdown_of(tmp_path / "job", test_ranks.rows())
    ranks = {window.rank for window in job.windows}
    assert " are drawn." not in page.page(report_of([job]))
    monkeypatch.setattr(timeline_module, "MOST_RANKS", len(ranks) - 1)
    html = page.page(report_of([job]))
    assert f"job: the timelines show {len(ranks) - 1} of {len(ranks)} ranks." in html


def test_each_run_has_its_median_step_before_any_has_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, report = report_on(tmp_path)
    one = max(len(drawn.columns["track"]) for drawn in report.timelines)
    all_ = sum(len(drawn.columns["track"]) for drawn in report.timelines)
    assert [drawn.run for drawn in report.timelines] == [r.run for r in report.runs for _ in (0, 1)]
    monkeypatch.setattr(timeline_module, "ALL_EVENTS", all_ // 2 + one - 1)
    _, fewer = report_on(tmp_path / "again")
    assert len(fewer.timelines) < len(report.timelines)
    assert {drawn.run for drawn in fewer.timelines} == {facts.run for facts in report.runs}
    assert {drawn.which for drawn in fewer.timelines} >= {"median length"}


def test_no_step_is_drawn_that_has_no_room_and_events_are_read_once_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[tuple[str, int, int | None]] = []

    def counted(run: str, events: EventTable, window: Window, *rest: Any) -> Timeline:
        drawn.append((run, id(events), window.step))
        return timeline(run, events, window, *rest)

    monkeypatch.setattr(timeline_module, "timeline", counted)
    _, report = report_on(tmp_path)
    assert len(drawn) == len(report.timelines) == 6
    assert len({(run, events) for run, events, _ in drawn}) == 3
    sizes = [len(t.columns["track"]) for t in report.timelines]
    drawn.clear()
    monkeypatch.setattr(timeline_module, "ALL_EVENTS", sum(sizes[::2]))
    _, fewer = report_on(tmp_path / "again")
    assert [step for _, _, step in drawn] == [0, 0, 0]
    assert [t.step for t in fewer.timelines] == [0, 0, 0]


def test_a_kernel_of_a_timeline_leads_to_its_launch_and_has_what_was_recorded(
    tmp_path: Path,
) -> None:
    run = runs.run(tmp_path, "one", implementation="torch-nn-lstm", kernels=3)
    drawn = timeline("one", run.events(), break_down(run).windows[0], 10**6)
    streams = [place for place, track in enumerate(drawn.tracks) if track.kind == "stream"]
    kernels = [i for i, track in enumerate(drawn.columns["track"]) if track in streams]
    launches = [drawn.columns["launch"][i] for i in kernels]
    assert [drawn.names[drawn.columns["name"][i]] for i in launches] == ["cudaLaunchKernel"] * 3
    texts, places = drawn.facts["correlation_id"]
    assert [texts[places[i]] for i in kernels] == ["1", "2", "3"]
    assert [texts[places[i]] for i in launches] == ["1", "2", "3"]
    words, of_event = drawn.facts["launched_with"]
    assert [words[of_event[i]][:46] for i in kernels] == [
        "grid 80 × 1 × 1, block 128 × 1 × 1 (128 thread"
    ] * 3
    assert {of_event[i] for i in launches} == {-1}
    ledger = [i for i, track in enumerate(drawn.columns["track"]) if track == 0]
    assert {places[i] for i in ledger} == {drawn.columns["launch"][i] for i in ledger} == {-1}
    assert "shapes" not in drawn.facts


def test_a_launch_that_is_not_drawn_has_no_arrow(tmp_path: Path) -> None:
    run = runs.run(tmp_path, "one", implementation="torch-nn-lstm", kernels=3)
    window = break_down(run).windows[0]
    whole = timeline("one", run.events(), window, 10**6)
    lengths = sorted(whole.columns["dur_ns"])
    kernels = sum(length >= runs.KERNEL for length in lengths)
    assert runs.LAUNCH < runs.KERNEL
    assert set(timeline("one", run.events(), window, kernels).columns["launch"]) == {-1}


def test_a_thread_has_the_number_of_the_system_or_its_place_and_its_name() -> None:
    hashed, mine = -(2**62), {"pid": 1, "tid": 812}
    made = [
        rows.row("op", "jit_step", 0, 40, pid=1, tid=hashed),
        rows.row("op", "jit_step", 50, 90, pid=1, tid=hashed),
        rows.row("op", "jit_step", 95, 99, pid=1, tid=hashed),
        rows.row("op", "MatMul", 0, 40, **mine),
        rows.row("op", "MatMul", 50, 90, **mine),
        rows.row("op", "Add", 0, 10, pid=1, tid=2**40),
    ]
    names = {"812": "tf_Compute/-812", str(hashed): f"py_xla_callback/{hashed}"}
    events = annotated(rows.table(made), captured=False)
    (window,) = windows(events, captured=False)
    drawn = timeline("one", events, window, 10**6, names)
    labels = [track.label for track in drawn.tracks if track.kind == "host"]
    assert labels == ["thread 1, py_xla_callback", "thread 812, tf_Compute", "thread 3"]


def test_only_comparable_runs_are_paired_and_names_are_made_unique(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("a", "b")]
    made = [runs.run(folder, "same", implementation="torch-nn-lstm") for folder in folders]
    other = runs.run(tmp_path, "x", implementation="torch-nn-lstm", facts={"precision": "amp-fp16"})
    report = report_of([break_down(run) for run in [*made, other]])
    assert [facts.run for facts in report.runs] == ["same", "same (2)", "x"]
    assert [group.runs for group in report.groups] == [("same", "same (2)"), ("x",)]
    assert len(report.pairs) == 1


def test_across_a_condition_runs_are_compared_and_it_is_not_told_as_shared(tmp_path: Path) -> None:
    made = [
        runs.run(tmp_path, name, implementation="x", kernels=n, facts={"precision": name})
        for name, n in (("fp32", 9), ("amp-fp16", 4))
    ]
    report = report_of([break_down(run) for run in made], across=("precision",))
    (group,), (pair,), (verdict,) = report.groups, report.pairs, report.diagnoses
    assert (pair.fast.name, pair.slow.name, verdict.slow.name) == ("amp-fp16", "fp32", "fp32")
    assert "1x320-ce-short" in group.conditions
    assert "fp" not in group.conditions


@pytest.mark.parametrize(
    ("sources", "said"),
    [
        (("own code", "own code"), "your code"),
        (("ingest", "ingest"), "imported profiles"),
        (("ingest", "own code"), "your code and imported profiles"),
    ],
)
def test_runs_that_do_not_say_what_they_computed_are_called_by_their_source(
    sources: tuple[str, str], said: str
) -> None:
    first, second = (
        made.profile(made.contributor("busy", "gemm", 1000, "mm"), name=name, facts={"source": of})
        for name, of in zip("ab", sources, strict=True)
    )
    (group,) = groups([compare(first, second)])
    assert group.conditions.split(", ")[0] == said


def test_what_was_not_measured_is_said(tmp_path: Path) -> None:
    run = runs.run(tmp_path, "untimed", implementation="torch-nn-lstm", facts={"peaks": None})
    said = " ".join(report_of([break_down(run)]).missing)
    for words in ("not measured for untimed", "roofline", "No cast"):
        assert words in said
    assert "GPU" not in said


@pytest.mark.parametrize("hidden", [(32, 64), (32, 32)])
def test_a_sweep_is_one_where_sizes_vary(tmp_path: Path, hidden: tuple[int, int]) -> None:
    made = [
        runs.run(tmp_path, f"run{i}", implementation="x", hidden=h, walls_ns=runs.walls(50_000))
        for i, h in enumerate(hidden)
    ]
    report = report_of([break_down(run) for run in made])
    assert [row["hidden"] for row in report.sweep] == ([32, 64] if len(set(hidden)) == 2 else [])


def test_what_ran_in_one_size_is_no_row_of_a_sweep(tmp_path: Path) -> None:
    made = [
        runs.run(tmp_path, f"run{i}", implementation=name, hidden=h, walls_ns=runs.walls(50_000))
        for i, (name, h) in enumerate((("x", 32), ("x", 64), ("y", 32)))
    ]
    report = report_of([break_down(run) for run in made])
    assert [(row["implementation"], row["hidden"]) for row in report.sweep] == [
        ("x", 32),
        ("x", 64),
    ]


def test_the_title_of_many_runs_names_the_ends_of_the_largest_group(tmp_path: Path) -> None:
    made = [
        runs.run(tmp_path, name, implementation=name, kernels=n, walls_ns=runs.walls(100_000))
        for name, n in (("a", 3), ("b", 2), ("c", 9))
    ]
    other = [runs.run(tmp_path, f"d{h}", implementation="d", hidden=h) for h in (64, 128)]
    report = report_of([break_down(run) for run in [*made, *other]])
    assert report.title == "b to c: 3 runs of 1x320-ce-short, 2 others"


def test_the_first_way_is_that_of_the_largest_verdict() -> None:
    profiles = [
        made.profile(made.contributor("busy", "gemm", ns, "mm"), name=name)
        for name, ns in (("fastest", 10), ("slow", 15), ("slower", 30))
    ]
    of_group: Any = [SimpleNamespace(facts=SimpleNamespace(group=0), profile=p) for p in profiles]
    pairs = report_rows.pairs(of_group, [Group(0, "", tuple(p.name for p in profiles), "fastest")])
    assert [(pair.fast.name, pair.slow.name) for pair in pairs] == [
        ("fastest", "slower"),
        ("fastest", "slow"),
        ("slow", "slower"),
    ]


def test_a_long_series_is_drawn_in_cells_that_hold_every_iteration(tmp_path: Path) -> None:
    walls = tuple(range(1_000_000, 1_020_002))
    run = runs.run(tmp_path, "long", implementation="x", walls_ns=walls)
    cells = report_of([break_down(run)]).stability
    assert len(cells) <= 6_000
    assert sum(cell["iterations"] for cell in cells) == 20_000
    assert [c["iteration"] + c["iterations"] for c in cells[:-1]] == [
        c["iteration"] for c in cells[1:]
    ]
    assert cells[0]["off_share"] < 0 < cells[-1]["off_share"]


def test_no_cell_is_of_two_rounds_or_of_both_sides_of_a_profile(tmp_path: Path) -> None:
    run = runs.run(tmp_path, "rounds", implementation="x", walls_ns=(1_000_000,) * 40_000)
    table = pq.read_table(run.path / "timings.parquet")
    # round 1: 9,999 counted, profile, 10,001 more; round 2: 20,000
    changed = {
        "round": [int(i >= 20_000) for i in range(40_000)],
        "after_profile": [9_999 < i < 20_000 for i in range(40_000)],
        "warmup": [i in (0, 10_000, 20_000) for i in range(40_000)],
    }
    for name, values in changed.items():
        at = TIMINGS_SCHEMA.get_field_index(name)
        table = table.set_column(at, TIMINGS_SCHEMA.field(name), pa.array(values))
    write_tables(run.path, run.info, run.events(), table)
    cells = report_of([break_down(run)]).stability
    counts: dict[str, int] = {}
    for cell in cells:
        counts[cell["place"]] = counts.get(cell["place"], 0) + cell["iterations"]
    assert counts == {
        "round 1": 9_999,
        "round 1, after its profile": 9_999,
        "round 2": 19_999,
    }
    ends = {cell["iteration"] + cell["iterations"] for cell in cells}
    assert {10_000, 20_000, 40_000} <= ends


def test_of_very_many_runs_each_is_led_to_from_the_fastest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_rows, "MOST_PAIRS", 2)
    _, report = report_on(tmp_path)
    pairs = {(p.fast.name, p.slow.name) for p in report.pairs}
    assert pairs == {("fast", "slow"), ("fast", "hostile")}
    assert any("compared only with the baseline" in sentence for sentence in report.missing)


def test_diagnoses_that_are_there_are_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    breakdowns, report = report_on(tmp_path)
    diagnoses = diagnose_all(breakdowns)
    monkeypatch.delattr(sys.modules[report_of.__module__], "diagnose_all")
    again = report_of(breakdowns, diagnoses=diagnoses)
    assert [d.sentence for d in again.diagnoses] == [d.sentence for d in report.diagnoses]
    assert (again.runs, again.groups, again.ledger) == (report.runs, report.groups, report.ledger)


def test_depths_are_the_numbers_of_calls_around_each() -> None:
    ops = [rows.row("op", f"op{n}", n, 200 - n, tid=1) for n in range(37)]
    beside = [rows.row("op", "alone", 300, 301, tid=1), rows.row("op", "other", 0, 9, tid=2)]
    events = linked(rows.table([*ops, *beside]))
    parent = events.rows_named("parent_id").tolist()

    def around(row: int) -> int:
        return 0 if parent[row] < 0 else 1 + around(parent[row])

    assert depths(events).tolist() == [around(row) for row in range(len(events))]
    assert max(depths(events)) == 36
