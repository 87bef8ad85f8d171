"""The clean step: what a step takes when nothing disturbs it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
from breakdown.random_programs import cpu_programs, gpu_programs
from events.rows import Row, row, table
from hypothesis import given, settings, strategies as st

from lstmprof.breakdown.attribution import attributed
from lstmprof.breakdown.clean.clean_step import (
    CleanStep,
    Measured,
    clean_step,
)
from lstmprof.breakdown.clean.slot_times import BETWEEN_THREADED, Z95, Span
from lstmprof.breakdown.clean.timings import Iterations
from lstmprof.events.annotate import CAPTURED, OWN_CODE
from lstmprof.events.annotate.links import linked
from lstmprof.events.annotate.steps import Window
from lstmprof.events.table import EventTable
from lstmprof.runs.metadata import RunInfo, run_info
from lstmprof.runs.run import TIMINGS_SCHEMA

OPS, OP_NS, GAP_NS = 10, 1000, 100
#: Of a step of ten ops and gaps, with what recording takes.
STEP_NS = OPS * (OP_NS + GAP_NS)


def steps_of(
    length_ns: Callable[[int, int], int], steps: int = 10
) -> tuple[pa.Table, list[Window]]:
    """Steps of ten matmuls with gaps of Python; ``length_ns`` is of (step, op)."""
    rows, windows, at = [], [], 0
    for step in range(steps):
        begin, ops = at, []
        for op in range(OPS):
            took = length_ns(step, op)
            if took:
                ops.append(row("op", "aten::mm", at, at + took, tid=1, category="gemm"))
                at += took
            at += GAP_NS
        rows += [row("step", "step", begin, at, tid=1), *ops]
        windows.append(Window(None, step, begin, at, 0))
        at += 50
    return linked(table(rows)), windows


def parts(clean: CleanStep) -> dict[str, float]:
    step = clean.mean_step
    return {part: ns / step.steps for _, part, ns in step.parts}


def timings(walls_ns: list[int]) -> pa.Table:
    columns = {name: [None] * len(walls_ns) for name in TIMINGS_SCHEMA.names}
    columns |= {"iteration": [*range(len(walls_ns))], "round": [0] * len(walls_ns)}
    columns |= {"warmup": [False] * len(walls_ns), "wall_ns": walls_ns}
    return pa.table(columns).cast(pa.schema([pa.field(f.name, f.type) for f in TIMINGS_SCHEMA]))


def measured_run(info: RunInfo, walls: pa.Table) -> Measured:
    return Measured(info, Iterations.of(walls, info))


def measured(walls_ns: list[int], event_ns: float = 10.0) -> Measured:
    recording = {"event_ns": event_ns, "event_inside_ns": event_ns}
    info = run_info({"source": CAPTURED, "device": "cpu", "recording": [recording]})
    return measured_run(info, timings(walls_ns))


def test_preemptions_of_every_step_are_not_in_the_clean_one() -> None:
    events, windows = steps_of(lambda step, op: OP_NS * (100 if step % OPS == op else 1))
    clean = clean_step(events, windows, None, None)
    assert parts(clean) == {"gemm": OPS * OP_NS, "python": OPS * GAP_NS}
    assert clean.span.ns == STEP_NS


def test_parts_sum_to_the_step_and_every_step_takes_it() -> None:
    generator = np.random.default_rng(0)
    lengths = generator.integers(900, 1500, (10, OPS))
    events, windows = steps_of(lambda step, op: int(lengths[step, op]))
    clean = clean_step(events, windows, None, measured([STEP_NS] * 10))
    step = clean.mean_step
    assert sum(ns for _, _, ns in step.parts) == step.total_ns
    assert round(step.total_ns / step.steps) == pytest.approx(round(clean.span.ns), abs=1)
    taken = [window.end_ns - window.start_ns for window in clean.windows]
    assert max(taken) - min(taken) <= 2 * OPS  # what is rounded
    assert sum(taken) == step.total_ns


def test_the_clock_counts_clean_time_only() -> None:
    events, windows = steps_of(lambda step, op: OP_NS * (100 if step == op else 1))
    clean = clean_step(events, windows, None, None)
    ops = clean.events.is_kind("op")
    assert clean.events.dur_ns[ops].tolist() == [OP_NS] * OPS * 10
    again = attributed(clean.events, clean.windows, None)[None]
    sums: Counter[str] = Counter()
    lengths = (again.end_ns - again.start_ns).tolist()
    for label, ns in zip(again.label.tolist(), lengths, strict=True):
        sums[again.labels[label][1]] += ns
    assert {part: ns / 10 for part, ns in sums.items()} == parts(clean)


def test_an_op_of_every_second_step_counts_by_half() -> None:
    events, windows = steps_of(lambda step, op: 0 if op == 0 and step % 2 else OP_NS)
    assert parts(clean_step(events, windows, None, None))["gemm"] == (OPS - 0.5) * OP_NS


@pytest.mark.parametrize(
    ("kind", "name", "listed"),
    [
        ("python", "checkpoint", True),
        ("python", "torch/profiler/profiler.py(271): stop_trace", False),
        ("overhead", "Activity Buffer Request", False),
    ],
)
def test_a_step_of_which_a_quarter_is_rare_lists_it(kind: str, name: str, listed: bool) -> None:
    """What the profiler does itself is no part of a training."""
    rows, windows = [], []
    for step in range(10):
        begin = 10_000 * step
        rows.append(row("step", f"ProfilerStep#{step}", begin, begin + 9_000, tid=1))
        rows.append(row("range", f"batch#{step}", begin, begin + 8_500, tid=1))
        rows.append(row("op", "aten::mm", begin, begin + 1_000, tid=1, category="gemm"))
        if step in (3, 6):
            rows.append(row(kind, name, begin + 2_000, begin + 8_000, tid=1, step=step))
        windows.append(Window(None, step, begin, begin + 9_000, 0))
    clean = clean_step(linked(table(rows)), windows, None, None)
    assert [(rare.name, rare.each_ns) for rare in clean.rare] == [(name, 6_000)] * listed


def test_recording_is_taken_off_until_the_step_is_the_timed_one() -> None:
    timed = STEP_NS - 300
    events, windows = steps_of(lambda step, op: OP_NS)
    clean = clean_step(events, windows, None, measured([timed] * 20))
    assert clean.span.ns == pytest.approx(timed, rel=1e-3)
    assert clean.recording is not None
    assert clean.recording.ns == pytest.approx(300, rel=0.02)


def test_timed_steps_on_a_loaded_machine_tell_nothing_about_recording() -> None:
    events, windows = steps_of(lambda step, op: OP_NS)
    clean = clean_step(events, windows, None, measured([50 * STEP_NS] * 20))
    assert clean.recording is not None
    assert clean.recording.event_ns == 20.0  # twice what it costs in a loop
    assert STEP_NS - 400 < clean.span.ns < STEP_NS


def test_a_clean_step_is_never_longer_than_the_timed_ones() -> None:
    events, windows = steps_of(lambda step, op: OP_NS)
    clean = clean_step(events, windows, None, measured([STEP_NS // 4] * 20, event_ns=0.001))
    assert clean.span.ns == pytest.approx(STEP_NS / 4, rel=1e-6)
    assert clean.recording is not None
    assert clean.recording.ns <= (clean.recording.events + 1) * clean.recording.event_ns


def test_steps_with_different_work_take_about_their_mean_time() -> None:
    events, windows = steps_of(lambda step, op: OP_NS if op <= step else 0)
    walls = [(step + 1) * OP_NS + OPS * GAP_NS for step in range(10)]
    clean = clean_step(events, windows, None, measured(walls, event_ns=0.001))
    assert clean.span.ns == pytest.approx(np.mean(walls), rel=0.08)
    assert clean.span.low_ns < np.mean(walls) < clean.span.high_ns


def omitting_steps(omitted: Callable[[int], int]) -> tuple[EventTable, list[Window]]:
    """Steps that take ``STEP_NS`` each; the op with the number ``omitted(step)`` has no event."""
    rows, windows = [], []
    for step in range(10):
        begin = step * STEP_NS
        rows.append(row("step", "step", begin, begin + STEP_NS, tid=1))
        for op in range(OPS):
            at = begin + op * (OP_NS + GAP_NS)
            if op != omitted(step):
                rows.append(row("op", f"aten::op{op}", at, at + OP_NS, tid=1, category="gemm"))
        windows.append(Window(None, step, begin, begin + STEP_NS, 0))
    return linked(table(rows)), windows


@pytest.mark.parametrize(("others", "reaches"), [(3, True), (0, False)])
def test_the_interval_holds_the_timed_step_if_other_ops_are_omitted_in_each_step(
    others: int, reaches: bool
) -> None:
    """The time of an omitted op is in the gap beside it, so all low percentiles are too short."""
    steps = omitting_steps(lambda step: others * step % OPS)
    span = clean_step(*steps, None, measured([STEP_NS] * 20, event_ns=50)).span
    assert span.ns < 0.92 * STEP_NS
    assert (span.high_ns >= STEP_NS) == reaches


def test_omitted_ops_are_no_work_of_few_steps() -> None:
    steps = omitting_steps(lambda step: 3 * step % OPS)
    walls = [STEP_NS] * 15 + [3 * STEP_NS] * 5  # the mean of disturbed iterations is not the step
    assert clean_step(*steps, None, measured(walls, event_ns=0.001)).span.ns <= STEP_NS


@pytest.mark.parametrize(
    ("ops", "shapes", "varies"),
    [
        ([2, 2, 2], ["[[7,3]]"] * 3, False),
        ([2, 2, 3], ["[[7,3]]"] * 3, True),
        ([2, 2, 2], ["[[7,3]]", "[[9,3]]", "[[7,3]]"], True),
        ([2, 2, 2], [None] * 3, False),
    ],
)
def test_steps_of_other_lengths_are_known_by_their_events_or_shapes(
    ops: list[int], shapes: list[str | None], varies: bool
) -> None:
    counts = dict(enumerate(ops))
    events, windows = steps_of(lambda step, op: OP_NS if op < counts[step] else 0, steps=len(ops))
    kinds, starts = events.column("kind").to_pylist(), events.start_ns.tolist()
    of_step = [sum(start >= w.start_ns for w in windows) - 1 for start in starts]
    recorded = [shapes[n] if kind == "op" else None for n, kind in zip(of_step, kinds, strict=True)]
    events = events.with_columns({"shapes": pa.array(recorded, pa.string())})
    lane = clean_step(events, windows, None, measured([9 * OP_NS] * 9))
    assert lane.work_varies == varies


def test_what_every_third_step_does_is_not_scaled_down_to_the_steps_that_do_not() -> None:
    rows, windows, walls, at = [], [], [], 0
    for step in range(9):
        begin, ops = at, [("aten::mm", OP_NS), ("aten::tanh", 60 * OP_NS)][: 1 if step % 3 else 2]
        for name, took in ops:
            rows.append(row("op", name, at, at + took, tid=1, category="gemm"))
            at += took
        rows.append(row("step", "step", begin, at, tid=1))
        windows.append(Window(None, step, begin, at, 0))
        walls.append(at - begin)
    clean = clean_step(linked(table(rows)), windows, None, measured(walls, event_ns=0.001))
    assert clean.span.ns == pytest.approx(21 * OP_NS, rel=1e-3)


@pytest.mark.parametrize("walls", [[STEP_NS] * 20, [*[STEP_NS] * 19, 90 * STEP_NS]])
def test_what_no_timed_step_can_have_done_is_in_no_clean_step_and_listed(
    walls: list[int],
) -> None:
    """A first evaluation compiles for 80 times a step, inside one of the profiled steps."""
    rows, windows, at = [], [], 0
    for step in range(10):
        begin = at
        for _ in range(OPS):
            rows.append(row("op", "aten::mm", at, at + OP_NS, tid=1, category="gemm"))
            at += OP_NS + GAP_NS
        if step == 5:
            rows.append(row("op", "evaluate", at, at + 80 * STEP_NS, tid=1, category="other"))
            at += 80 * STEP_NS
        rows.append(row("step", "step", begin, at, tid=1))
        windows.append(Window(None, step, begin, at, 0))
    clean = clean_step(linked(table(rows)), windows, None, measured(walls, event_ns=0.001))
    seen = len(set(walls)) > 1
    assert ("other" in parts(clean)) == seen
    if not seen:
        assert clean.span.ns == pytest.approx(STEP_NS, rel=1e-3)
        assert parts(clean)["gemm"] == pytest.approx(OPS * OP_NS, rel=0.02)
    assert [(rare.name, rare.steps) for rare in clean.rare] == [("evaluate", 1)]


@pytest.mark.parametrize(("device", "listed"), [(None, [("forward", 2)]), (0, [])])
def test_a_devices_copy_of_a_range_is_no_event_of_some_steps(
    device: int | None, listed: list[tuple[str, int]]
) -> None:
    """The host runs ahead: all kernels, which place the copies, run in two of its ten steps."""
    rows, windows = [], []
    for step in range(10):
        begin, end = step * STEP_NS, (step + 1) * STEP_NS
        rows.append(row("step", "step", begin, end, tid=1))
        rows.append(row("op", "aten::mm", begin, begin + OP_NS, tid=1, category="gemm"))
        if step in (4, 5):
            rows.append(row("range", "forward", begin + OP_NS, end, tid=2, device=device))
        windows.append(Window(None, step, begin, end, 0))
    clean = clean_step(linked(table(rows)), windows, None, None)
    assert [(rare.name, rare.steps) for rare in clean.rare] == listed


def test_disturbed_steps_widen_the_interval_downwards() -> None:
    generator = np.random.default_rng(0)
    slow = 1 + generator.exponential(3, (10, OPS))
    quiet = clean_step(*steps_of(lambda step, op: OP_NS), None, measured([STEP_NS] * 20)).span
    events, windows = steps_of(lambda step, op: int(OP_NS * slow[step, op]))
    loaded = clean_step(events, windows, None, measured([100 * STEP_NS] * 20)).span
    assert quiet.low_ns > 0.9 * quiet.ns
    assert loaded.low_ns < quiet.ns < loaded.high_ns


def test_a_crowded_machine_widens_the_interval_downwards() -> None:
    facts = {"source": CAPTURED, "device": "cpu", "hardware": {"cores": 2}}
    low_ns = [
        clean_step(
            *steps_of(lambda step, op: OP_NS),
            None,
            measured_run(
                run_info({**facts, "load_average_before": [load] * 3}), timings([STEP_NS])
            ),
        ).span.low_ns
        for load in (0.0, 3.9, 8.0)
    ]
    assert low_ns[0] == low_ns[1] > 1.3 * low_ns[2]


def test_ops_that_every_step_disturbs_take_what_their_like_do() -> None:
    events, windows = steps_of(
        lambda step, op: OP_NS * (1 if op in (2, 5, 8) else 20 + 10 * ((step + op) % 10))
    )
    clean = clean_step(events, windows, None, measured([10**9] * 20, event_ns=0.001))
    assert parts(clean)["gemm"] == pytest.approx(OPS * OP_NS, rel=0.01)


def test_ops_that_are_slow_at_one_place_of_every_step_stay_slow() -> None:
    events, windows = steps_of(lambda step, op: OP_NS * (50 if op < 5 else 1))
    clean = clean_step(events, windows, None, measured([10**9] * 20, event_ns=0.001))
    assert parts(clean)["gemm"] == pytest.approx(255 * OP_NS, rel=0.01)


def test_a_gap_of_a_device_is_that_before_its_next_activity() -> None:
    rows, windows = [], []
    for step in range(10):
        begin = 100_000 * step
        wait = 500 if step else 20_000
        for place, at in enumerate((begin, begin + 1_000 + wait)):
            call = {"correlation_id": 10 * step + place}
            rows.append(row("runtime", "cudaLaunchKernel", at, at + 100, tid=1, **call))
            there = {"device": 0, "stream": 7, "category": "gemm"}
            rows.append(row("kernel", "gemm", at + 200, at + 1_000, **there, **call))
        windows.append(Window(None, step, begin, begin + 50_000, None))
    clean = clean_step(linked(table(rows)), windows, 0, None)
    found = parts(clean)
    assert found["gemm"] == 1_600
    assert clean.mean_step.device == 0
    assert round(sum(found.values()) * 10) == clean.mean_step.total_ns


def test_a_device_whose_host_is_disturbed_waits_in_no_clean_step() -> None:
    rows, windows, at = [], [], 0
    for step in range(10):
        begin = at
        for place in range(OPS):
            call = {"correlation_id": 1 + OPS * step + place}
            launch = begin + 2 * place
            rows.append(row("runtime", "cudaLaunchKernel", launch, launch + 1, tid=1, **call))
            at += 50_000 if place == step else 0
            there = {"device": 0, "stream": 7, "category": "gemm"}
            rows.append(row("kernel", "gemm", at, at + OP_NS, **there, **call))
            at += OP_NS
        windows.append(Window(None, step, begin, at, None))
    clean = clean_step(linked(table(rows)), windows, 0, None)
    assert parts(clean) == {"gemm": OPS * OP_NS}


DATA = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


def steps_after(name: str, waits_ns: list[int]) -> tuple[EventTable, list[Window]]:
    """Steps of one range and then a matmul; the range takes ``waits_ns``."""
    rows, windows, at = [], [], 0
    for step, wait_ns in enumerate(waits_ns):
        end = at + wait_ns + OP_NS
        rows.append(row("step", "step", at, end, tid=1))
        rows.append(row("range", name, at, at + wait_ns, tid=1))
        rows.append(row("op", "aten::mm", at + wait_ns, end, tid=1, category="gemm"))
        windows.append(Window(None, step, at, end, 0))
        at = end
    return linked(table(rows)), windows


@pytest.mark.parametrize(
    ("name", "own", "counts"),
    [(DATA, False, True), (DATA, True, True), ("log", False, True), ("log", True, False)],
)
def test_a_wait_of_every_third_step_is_a_third_of_it_and_listed(
    name: str, own: bool, counts: bool
) -> None:
    """On a busy machine that may be any wait but one for the input."""
    events, windows = steps_after(name, [50_000 if step % 3 == 1 else 10 for step in range(9)])
    clean = clean_step(events, windows, None, measured([OP_NS + 10] * 9, 0.001) if own else None)
    usual_ns = pytest.approx(10, abs=1)
    assert parts(clean)["python"] == (pytest.approx((2 * 10 + 50_000) / 3) if counts else usual_ns)
    assert parts(clean)["gemm"] == pytest.approx(OP_NS, abs=1)
    assert [(rare.name, rare.steps, rare.each_ns) for rare in clean.rare] == [(name, 3, 50_000)]


MS = 1_000_000


def waiting_steps(waits_ms: list[int]) -> tuple[EventTable, list[Window]]:
    """Steps of Python, in which the script waits, and a matmul of 5 ms."""
    rows, windows, at = [], [], 0
    for step, wait_ms in enumerate(waits_ms):
        begin_ns = at + 10_000 + wait_ms * MS
        end_ns = begin_ns + 5 * MS
        rows.append(row("step", "step", at, end_ns, tid=1))
        rows.append(row("op", "aten::mm", begin_ns, end_ns, tid=1, category="gemm"))
        windows.append(Window(None, step, at, end_ns, 0))
        at = end_ns
    return linked(table(rows)), windows


@pytest.mark.parametrize(
    ("profiled_ms", "timed_ms", "others_ms", "expected_ms"),
    [
        # batches come every 20 ms; some were ready, because the profiler's start took long
        ([0, 0, 0, *[15] * 7], [0, 0, 0, *[15] * 17], 0, 15),
        ([0, 0, 0, 0, 0, 0, *[15] * 4], [0, 0, 0, *[15] * 17], 0, 15),
        ([0, 0, 0, 0, 0, 0, *[15] * 4], [*[0] * 9, *[15] * 11], 0, 15),
        ([15] * 10, [0, 0, 0, *[15] * 17], 0, 15),
        ([0, 30], [0, 0, 15, 15], 0, 15),  # too few profiled steps for a percentile
        ([*[10, 0] * 5], [*[10, 0] * 10], 0, 5),
        ([0, 0, 0, *[15] * 7], [0] * 20, 0, 0),  # no timed step waited
        ([0, 0, 0, *[15] * 7], [*[0] * 19, 90], 0, 0),  # few waited
        ([0, 0, *[15] * 7, 0], [0, 0, 0, *[15] * 17], 15, 0),  # other threads wanted a CPU
        ([*[0] * 9, 30], [0, 0, 0, *[15] * 17], 0, 0),  # one wait shows no place
    ],
)
def test_a_wait_that_varies_counts_as_long_as_the_timed_steps_show(
    profiled_ms: list[int], timed_ms: list[int], others_ms: int, expected_ms: float
) -> None:
    walls = timings([(5 + wait_ms) * MS for wait_ms in timed_ms])
    times = {"thread_cpu_ns": 5, "waited_ns": 0, "others_waited_ns": others_ms}
    for name, ms in {**times, "children_waited_ns": 0}.items():
        place = walls.schema.get_field_index(name)
        walls = walls.set_column(place, name, pa.array([ms * MS] * len(walls), pa.int64()))
    facts = {"source": OWN_CODE, "device": "cpu", "threads": 1, "affinity": [0]}
    clean = clean_step(*waiting_steps(profiled_ms), None, measured_run(run_info(facts), walls))
    assert parts(clean)["python"] == pytest.approx(expected_ms * MS, abs=0.02 * MS)
    assert parts(clean)["gemm"] == pytest.approx(5 * MS, abs=0.02 * MS)
    assert clean.span.low_ns < clean.span.ns < clean.span.high_ns


def test_a_wait_of_the_first_step_is_listed_alone() -> None:
    clean = clean_step(*steps_after(DATA, [50_000, 10, 10]), None, None)
    assert parts(clean) == {"python": 10, "gemm": OP_NS}
    assert [(rare.name, rare.steps, rare.each_ns) for rare in clean.rare] == [(DATA, 1, 50_000)]


def launched(op: str, at: int, kernel: str, begins: int, ns: int, number: int) -> list[Row]:
    """An op of 30 ns whose launch enqueues a kernel that runs ``ns`` from ``begins``."""
    call = {"correlation_id": number}
    return [
        row("op", op, at, at + 30, tid=1),
        row("runtime", "cudaLaunchKernel", at + 10, at + 20, tid=1, **call),
        row("kernel", kernel, begins, begins + ns, device=0, stream=7, **call),
    ]


def test_a_host_that_runs_ahead_leaves_no_kernel_in_few_steps() -> None:
    """All kernels run in the last of five steps, because the host waits for none of them."""
    rows, windows = [], []
    for step in range(5):
        begin, runs = 1_000 * step, 4_500 + 10_000 * step
        rows.append(row("step", f"ProfilerStep#{step}", begin, begin + 900, tid=1))
        rows += launched("aten::mm", begin, "gemm", runs, 10_000, step + 1)
        windows.append(Window(None, step, begin, begin + (1_000 if step < 4 else 54_500), 0))
    assert clean_step(linked(table(rows)), windows, 0, None).rare == ()


def test_an_op_of_few_steps_stands_for_its_kernels() -> None:
    rows, windows = [], []
    for step in range(5):
        begin = 20_000 * step
        rows.append(row("step", f"ProfilerStep#{step}", begin, begin + 20_000, tid=1))
        rows += launched("aten::mm", begin, "gemm", begin + 50, 9_000, 10 * step + 1)
        if step == 2:
            rows += launched("evaluate", begin + 40, "softmax", begin + 9_050, 800, 25)
            rows += launched("evaluate", begin + 80, "norm", begin + 9_850, 700, 26)
        windows.append(Window(None, step, begin, begin + 20_000, 0))
    (rare,) = clean_step(linked(table(rows)), windows, 0, None).rare
    assert (rare.name, rare.steps, rare.each_ns) == ("evaluate", 1, 1_500)


def test_allocations_of_the_first_step_are_listed_together() -> None:
    """Each call takes 1 % of a step; the first step makes 200 of them, the others one."""
    rows, windows, at = [], [], 0
    for step in range(4):
        begin = at
        for _ in range(1 if step else 200):
            rows.append(row("runtime", "cudaMalloc", at, at + 100, tid=1, correlation_id=at))
            at += 110
        rows += launched("aten::mm", at, "gemm", at + 50, 9_000, 1_000_000 + step)
        at += 10_000
        rows.append(row("step", f"ProfilerStep#{step}", begin, at, tid=1))
        windows.append(Window(None, step, begin, at, 0))
    (rare,) = clean_step(linked(table(rows)), windows, 0, None).rare
    assert (rare.name, rare.steps, rare.each_ns) == ("cudaMalloc", 1, 20_000)


def test_what_preempts_any_op_is_no_event_of_some_steps() -> None:
    generator = np.random.default_rng(0)
    hits = generator.random((10, OPS)) < 0.2
    events, windows = steps_of(lambda step, op: OP_NS * (20 if hits[step, op] else 1))
    assert clean_step(events, windows, None, None).rare == ()


def test_a_step_that_sleeps_takes_its_sleep_too() -> None:
    walls = timings([10_000] * 20)
    place = walls.schema.get_field_index("cpu_ns")
    walls = walls.set_column(place, "cpu_ns", pa.array([5_000] * 20, pa.int64()))
    assert span_of_threads(walls, 1).ns == pytest.approx(10_000, rel=1e-6)


@pytest.mark.parametrize(
    ("source", "counters", "times"),
    [
        (OWN_CODE, {"cpu_ns": 1}, 1),
        (OWN_CODE, {"cpu_ns": 2}, 3),  # another thread of the process ran meanwhile
        (OWN_CODE, {"cpu_ns": 1, "waited_ns": 1}, 3),  # it slept
        (OWN_CODE, {"cpu_ns": 1, "children_waited_ns": 1}, 3),
        (CAPTURED, {"cpu_ns": 1, "voluntary_switches": 0}, 1),
        (CAPTURED, {"cpu_ns": 1, "voluntary_switches": 1}, 3),  # it may have slept
        (CAPTURED, {"cpu_ns": 1, "voluntary_switches": 1, "thread_cpu_ns": 1, "waited_ns": 2}, 1),
    ],
)
def test_long_ops_that_wait_for_a_cpu_in_every_step_take_what_they_run(
    source: str, counters: dict[str, int], times: int
) -> None:
    """No low percentile of an op of many milliseconds is without interruptions."""
    events, windows = steps_of(lambda step, op: 3 * OP_NS + 2 * GAP_NS)
    walls = timings([3 * STEP_NS] * 20)
    if source == OWN_CODE:
        counters = {"thread_cpu_ns": 1, "waited_ns": 2, **counters}
    for name, steps in counters.items():
        place = walls.schema.get_field_index(name)
        values = pa.array([steps * STEP_NS] * 20, pa.int64())
        walls = walls.set_column(place, name, values)
    facts = {"source": source, "device": "cpu", "threads": 1, "affinity": [0]}
    clean = clean_step(events, windows, None, measured_run(run_info(facts), walls))
    assert clean.span.ns == pytest.approx(times * STEP_NS, rel=0.05)  # recording took the rest


@pytest.mark.parametrize(("cpu_share", "extra"), [(1.0, 9), (0.96, 9), (0.9, 0)])
def test_time_that_moves_from_op_to_op_counts_if_the_timed_steps_had_their_cpu(
    cpu_share: float, extra: int
) -> None:
    events, windows = steps_of(lambda step, op: OP_NS * (10 if step % OPS == op else 1))
    walls = timings([STEP_NS + 9 * OP_NS] * 20)
    place = walls.schema.get_field_index("cpu_ns")
    values = pa.array([round(cpu_share * (STEP_NS + 9 * OP_NS))] * 20, pa.int64())
    walls = walls.set_column(place, "cpu_ns", values)
    facts = {"source": CAPTURED, "device": "cpu", "threads": 1, "affinity": [0]}
    lane = clean_step(events, windows, None, measured_run(run_info(facts), walls))
    assert lane.span.ns == pytest.approx(STEP_NS + extra * OP_NS, rel=0.1)  # minus recording


def test_work_that_no_timed_step_did_stays_out_of_a_raised_step() -> None:
    rows, windows, at = [], [], 0
    for step in range(10):
        begin = at
        # in every step another op takes ten times as long; in one step an evaluation compiles
        lengths = [("aten::mm", OP_NS * (10 if step == op else 1)) for op in range(OPS)]
        lengths += [("aten::compile", 50 * STEP_NS)] * (step == 3)
        for name, took in lengths:
            rows.append(row("op", name, at, at + took, tid=1, category="gemm"))
            at += took
        rows.append(row("step", "step", begin, at, tid=1))
        windows.append(Window(None, step, begin, at, 0))
    wall_ns = 19 * OP_NS
    walls = timings([wall_ns] * 20)
    place = walls.schema.get_field_index("cpu_ns")
    walls = walls.set_column(place, "cpu_ns", pa.array([wall_ns] * 20, pa.int64()))
    facts = {"source": CAPTURED, "device": "cpu", "threads": 1, "affinity": [0]}
    lane = clean_step(linked(table(rows)), windows, None, measured_run(run_info(facts), walls))
    compiling = lane.events.is_one_of("name", "aten::compile")
    assert lane.events.dur_ns[compiling].tolist() == [0]
    assert lane.span.ns == pytest.approx(wall_ns, rel=0.1)


@settings(deadline=None, max_examples=60)
@given(st.lists(cpu_programs | gpu_programs, min_size=3, max_size=5), st.integers(0, 10**9))
def test_no_part_is_negative_and_all_sum_to_the_step(
    programs: list[list[Row]], shift_ns: int
) -> None:
    rows = [
        {**of, "start_ns": of["start_ns"] + 100 * step + shift_ns}
        for step, program in enumerate(programs)
        for of in program
    ]
    if not rows:
        return
    windows = [
        Window(None, n, 100 * n + shift_ns, 100 * n + 90 + shift_ns, None)
        for n in range(len(programs))
    ]
    events = linked(table(rows))
    for device, intervals in attributed(events, windows, None).items():
        if not len(intervals.row):
            continue
        clean = clean_step(events, windows, device, None)
        step = clean.mean_step
        assert all(ns > 0 for _, _, ns in step.parts)
        assert sum(ns for _, _, ns in step.parts) == step.total_ns
        assert clean.span.low_ns <= clean.span.ns <= clean.span.high_ns
        assert (clean.events.dur_ns >= 0).all()


def span_of_threads(walls: pa.Table, threads: int) -> Span:
    cpus = [*range(threads)]
    facts = {"source": CAPTURED, "device": "cpu", "threads": threads, "affinity": cpus}
    events, windows = steps_of(lambda step, op: OP_NS)
    return clean_step(events, windows, None, measured_run(run_info(facts), walls)).span


def test_a_run_without_its_cpus_may_be_shorter_by_its_threads() -> None:
    walls = timings([10 * STEP_NS] * 20)
    for name, ns in (("waited_ns", 9 * STEP_NS), ("thread_cpu_ns", STEP_NS)):
        place = walls.schema.get_field_index(name)
        walls = walls.set_column(place, name, pa.array([ns] * 20, pa.int64()))
    two, three = (span_of_threads(walls, threads) for threads in (2, 3))
    assert two.low_ns / three.low_ns == pytest.approx(1.5**0.9)


@pytest.mark.parametrize(("waited", "expected"), [(0.9, 1.0), (0.1, 9.1)])
def test_the_shortest_timed_step_counts_if_the_others_waited_for_a_cpu(
    waited: float, expected: float
) -> None:
    lengths_ns = [10 * STEP_NS] * 18 + [STEP_NS] * 2
    walls = timings(lengths_ns)
    for name, share in (("waited_ns", waited), ("thread_cpu_ns", 1 - waited)):
        place = walls.schema.get_field_index(name)
        values = pa.array([round(share * ns) for ns in lengths_ns], pa.int64())
        walls = walls.set_column(place, name, values)
    facts = {"source": CAPTURED, "device": "cpu", "threads": 2, "affinity": [0, 1]}
    events, windows = steps_of(lambda step, op: 12 * OP_NS)
    clean = clean_step(events, windows, None, measured_run(run_info(facts), walls))
    assert clean.span.ns == pytest.approx(expected * STEP_NS, rel=0.01)


def test_recording_takes_no_longer_than_the_shortest_events() -> None:
    """On a busy machine an event costs twice its loop, but 1,600 short ops would then take none."""
    events, windows = steps_of(lambda step, op: OP_NS)
    clean = clean_step(events, windows, None, measured([10 * STEP_NS] * 10, 2_000))
    assert clean.recording is not None
    assert 0 < clean.recording.event_ns <= OP_NS
    few = clean_step(events, windows, None, measured([10 * STEP_NS] * 10, 100))
    assert few.recording is not None
    assert few.recording.event_ns == 200


def test_one_process_of_several_threads_may_differ_from_the_next_by_more() -> None:
    one, two = (span_of_threads(timings([STEP_NS] * 20), threads) for threads in (1, 2))
    assert one.high_ns / one.ns < 1.1
    assert two.high_ns / two.ns == pytest.approx(np.exp(Z95 * BETWEEN_THREADED), rel=0.01)


@pytest.mark.parametrize(("call", "sleeps"), [("time.sleep", True), (".get", False), (None, False)])
def test_only_a_sleep_is_as_long_in_every_process_of_several_threads(
    call: str | None, sleeps: bool
) -> None:
    """The script waits for 45 of 50 ms. Another thread, for which it may wait, computes."""
    lines = [{"file": "train.py", "line": 6, "call": call, "waits_ns": 45 * MS}]
    facts = {"source": OWN_CODE, "device": "cpu", "threads": 2, "affinity": [0, 1]}
    facts["script_lines"] = lines
    info, walls = run_info(facts), timings([50 * MS] * 20)
    clean = clean_step(*waiting_steps([45] * 10), None, measured_run(info, walls))
    spans = {part: span for (_, part), span in clean.parts}
    assert parts(clean)["waiting"] == pytest.approx(45 * MS, abs=0.02 * MS)
    assert (spans["waiting"].high_ns < 1.01 * spans["waiting"].ns) == sleeps
    assert spans["gemm"].high_ns > 1.4 * spans["gemm"].ns
    awake = (0.1 if sleeps else 1.0) * Z95 * BETWEEN_THREADED
    assert clean.span.high_ns / clean.span.ns == pytest.approx(np.exp(awake), rel=0.01)
