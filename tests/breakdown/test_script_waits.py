"""The time of a clean step in which the script waits, by the lines that were sampled."""

from __future__ import annotations

from collections import Counter

import pytest
from events.rows import row, table

from lstmprof.breakdown.attribution import Intervals, attributed
from lstmprof.breakdown.clean.script_waits import with_waits
from lstmprof.events.annotate.links import linked
from lstmprof.events.annotate.steps import Window
from lstmprof.events.table import EventTable
from lstmprof.runs.fields import ScriptLine

MS, US = 1_000_000, 1_000

#: ::
#:
#:     step  ├─input 2─┼mm 1┼───5───┼mm 1┼10 µs, tanh┼─2─┤     times in ms
STEP_MS = 12


def steps(input_ns: int = 2 * MS) -> tuple[EventTable, Intervals]:
    rows, windows = [], []
    for step in range(2):
        at = STEP_MS * MS * step
        rows.append(row("step", "step", at, at + STEP_MS * MS, tid=1))
        rows.append(row("range", "input", at, at + input_ns, tid=1))
        for begin_ns in (2 * MS, 8 * MS):
            end_ns = at + begin_ns + MS
            rows.append(row("op", "aten::mm", at + begin_ns, end_ns, tid=1, category="gemm"))
        tanh_ns = at + 9 * MS + 10 * US
        rows.append(row("op", "tanh", tanh_ns, at + 9 * MS + MS, tid=1, category="pointwise"))
        windows.append(Window(None, step, at, at + STEP_MS * MS, 0))
    events = linked(table(rows))
    return events, attributed(events, windows, None)[None].by_time()


def times_ns(intervals: Intervals, step: int) -> Counter[str]:
    times: Counter[str] = Counter()
    for number, label, start_ns, end_ns in zip(
        *(column.tolist() for column in (intervals.window, intervals.label)),
        *(column.tolist() for column in (intervals.start_ns, intervals.end_ns)),
        strict=True,
    ):
        if number == step:
            times[intervals.labels[label][1]] += end_ns - start_ns
    return times


@pytest.mark.parametrize(
    ("lines", "waiting_ns"),
    [
        ([], 0),
        ([ScriptLine(waits_ns=None)], 0),
        ([ScriptLine(waits_ns=4 * MS, beside=True)], 0),
        ([ScriptLine(waits_ns=4 * MS), ScriptLine(waits_ns=123)], 4 * MS + 123),
        ([ScriptLine(waits_ns=20 * MS)], 9 * MS),  # ops run in the rest of the step
    ],
)
def test_waits_are_a_part_of_the_time_between_ops(lines: list[ScriptLine], waiting_ns: int) -> None:
    events, intervals = steps()
    split = with_waits(events, intervals, lines)
    for step in (0, 1):
        times = times_ns(split, step)
        assert times["waiting"] == waiting_ns
        assert times["python"] == 9 * MS + 10 * US - waiting_ns
        assert (times["gemm"], times.total()) == (2 * MS, STEP_MS * MS)


@pytest.mark.parametrize(
    ("input_ns", "expected"),
    [
        (2 * MS, [(0, 2), (3, 4)]),
        (MS // 10, [(3, 6)]),  # the input is too short to have much of it
    ],
)
def test_the_input_waits_first_and_then_the_longest_time_between_ops(
    input_ns: int, expected: list[tuple[int, int]]
) -> None:
    events, intervals = steps(input_ns)
    split = with_waits(events, intervals, [ScriptLine(waits_ns=3 * MS)])
    columns = (split.window, split.label, split.start_ns, split.end_ns)
    waits = [
        (start_ns // MS, end_ns // MS)
        for window, label, start_ns, end_ns in zip(*(c.tolist() for c in columns), strict=True)
        if window == 0 and split.labels[label] == ("idle", "waiting")
    ]
    assert waits == expected
