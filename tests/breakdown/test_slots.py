"""The same place in each step is one slot."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from events.rows import row, table
from hypothesis import given, settings, strategies as st

from lstmprof.breakdown.clean import slots
from lstmprof.breakdown.clean.slots import slots_of_events
from lstmprof.events.annotate.links import linked
from lstmprof.events.annotate.steps import Window

STEP_NS = 10_000


def program(steps: Sequence[Sequence[str]]) -> tuple[pa.Table, list[Window]]:
    """Steps of ops 100 ns long, one after the other; ``a.b`` is ``b`` inside ``a``."""
    rows = []
    for number, names in enumerate(steps):
        begin = number * STEP_NS
        rows.append(row("step", f"ProfilerStep#{number}", begin, begin + STEP_NS, tid=1))
        for place, name in enumerate(names):
            at = begin + 10 + 100 * place
            outer, _, inner = name.partition(".")
            rows.append(row("op", outer, at, at + 100, tid=1))
            if inner:
                rows.append(row("op", inner, at + 10, at + 60, tid=1))
    windows = [Window(None, n, n * STEP_NS, (n + 1) * STEP_NS, 0) for n in range(len(steps))]
    return linked(table(rows)), windows


def by_step(steps: Sequence[Sequence[str]]) -> list[list[tuple[str, int]]]:
    """(name, slot) of the ops of each step, in order."""
    events, windows = program(steps)
    slot = slots_of_events(events, windows)
    codes, names = events.texts("name")
    found: list[list[tuple[str, int]]] = [[] for _ in steps]
    for place in np.argsort(events.start_ns, kind="stable").tolist():
        if events.is_kind("op")[place]:
            number = int(events.start_ns[place]) // STEP_NS
            found[number].append((names[codes[place]], int(slot[place])))
    return found


def test_equal_steps_are_matched_one_to_one() -> None:
    first, second = by_step([["a.x", "b", "a.x"]] * 2)
    assert first == second
    assert len({slot for _, slot in first}) == len(first)


def test_an_op_that_one_step_lacks_moves_no_other() -> None:
    whole, without = by_step([["a", "log", "b", "a", "b"], ["a", "b", "a", "b"]])
    assert [pair for pair in whole if pair[0] != "log"] == without


def test_ops_in_another_order_are_matched_by_their_names() -> None:
    first, second = by_step([["a", "b", "c", "d"], ["c", "a", "b", "d"]])
    assert sorted(first) == sorted(second)


def test_one_name_beneath_two_parents_is_two_slots() -> None:
    (step,) = by_step([["a.x", "b.x"]])
    inner = [slot for name, slot in step if name == "x"]
    assert len(set(inner)) == 2


def test_shapes_tell_slots_apart() -> None:
    rows = [row("op", "aten::mm", at, at + 10, tid=1) for at in (0, 100, 200)]
    windows = [Window(None, n, 100 * n, 100 * n + 100, 0) for n in range(3)]
    shapes = {"shapes": ["[[2, 2]]", "[[3, 3]]", "[[2, 2]]"]}
    first, second, third = slots_of_events(linked(table(rows)).with_columns(shapes), windows)
    assert first == third != second


def test_activities_are_matched_beneath_their_launches() -> None:
    rows = []
    for begin in (0, 1000):
        for place, late in enumerate((0, 300 if begin else 0)):
            at, number = begin + 100 * place, begin + place + 1
            call = {"tid": 1, "correlation_id": number}
            rows.append(row("runtime", "cudaLaunchKernel", at, at + 10, **call))
            there = {"device": 0, "stream": 7, "correlation_id": number}
            rows.append(row("kernel", "k", at + 50 + late, at + 90 + late, **there))
    windows = [Window(None, n, 1000 * n, 1000 * n + 1000, 0) for n in range(2)]
    events = linked(table(rows))
    slot = slots_of_events(events, windows)
    kernels = slot[events.is_kind("kernel")].reshape(2, 2)
    assert kernels[0].tolist() == kernels[1].tolist()
    assert len(set(kernels[0].tolist())) == 2


def test_work_on_any_thread_of_a_pool_is_one_slot() -> None:
    rows = [
        row("op", name, begin + at, begin + at + 50, tid=thread)
        for begin, threads in ((0, (2, 3)), (1000, (3, 2)))
        for at, name, thread in zip((0, 100), ("a", "b"), threads, strict=True)
    ]
    windows = [Window(None, n, 1000 * n, 1000 * n + 1000, None) for n in range(2)]
    events = linked(table(rows))
    slot = slots_of_events(events, windows)[np.argsort(events.start_ns)]
    assert slot[:2].tolist() == slot[2:].tolist()


NAMES = st.lists(st.sampled_from(["a", "b", "c", "a.x", "b.x"]), max_size=8)


@settings(deadline=None, max_examples=60)
@given(st.lists(NAMES, min_size=2, max_size=4))
def test_a_slot_has_one_name_and_at_most_one_event_per_step(steps: list[list[str]]) -> None:
    names: dict[int, set[str]] = defaultdict(set)
    for step in by_step(steps):
        numbers = [slot for _, slot in step]
        assert len(set(numbers)) == len(numbers)
        for name, slot in step:
            names[slot].add(name)
    assert all(len(some) == 1 for some in names.values())


def test_very_long_sequences_are_matched_by_occurrence(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(slots, "MOST_PAIRS", 1)
    first, second = by_step([["a", "b", "a"], ["a", "a"]])
    assert [slot for name, slot in first if name == "a"] == [slot for _, slot in second]
