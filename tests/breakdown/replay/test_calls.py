"""What goes with a call that is not made, under drawn timelines; steps are of a host alone."""

from __future__ import annotations

import pytest
from events.rows import Row, row, table

from lstmprof.breakdown.replay.changes import CHANGES
from lstmprof.breakdown.replay.what_if import predictions
from lstmprof.events.annotate import annotated
from lstmprof.events.annotate.steps import windows

HOST = {"pid": 1, "tid": 1}
ENGINE = "autograd::engine::evaluate_function: "


def op(name: str, start_ns: int, end_ns: int, **columns: object) -> Row:
    return row("op", name, start_ns, end_ns, **HOST, **columns)


def node(name: str, start_ns: int, end_ns: int, number: int) -> list[Row]:
    """An autograd node in the engine's range around it, 1 ns wider at both ends."""
    forward = {"sequence_number": number, "forward_thread": 1}
    return [
        op(f"{ENGINE}{name}", start_ns, end_ns, **forward),
        op(name, start_ns + 1, end_ns - 1, **forward),
    ]


def without(name: str, rows: list[Row]) -> int:
    """Length of the step without ``name``."""
    events = annotated(table(rows), captured=True)
    (window,) = windows(events, captured=True)
    (prediction,) = predictions(events, window, [CHANGES[name]])
    assert prediction.observed_ns == prediction.replayed_ns
    return prediction.predicted_ns


# ns      0    2    6  8            18 20      30   40       46 48       56      60
# host    [step[t)--[clone[copy_-))--[mm----)--[back[CloneB--)--[TBackw--)-)--)
CLONED = [
    row("step", "step", 0, 60, **HOST),
    op("aten::t", 2, 6, sequence_number=1),
    op("aten::clone", 8, 18, sequence_number=2),
    op("aten::copy_", 10, 17),
    op("aten::mm", 20, 30, sequence_number=3),
    row("range", "backward", 36, 58, **HOST),
    *node("CloneBackward0", 40, 46, 2),
    *node("TBackward0", 48, 56, 1),
]


def test_the_view_before_a_copy_goes_with_it_and_so_do_the_nodes_of_both() -> None:
    # t, clone and the ways into them: 0 … 18; the nodes, and the ways into them: 36 … 46, 46 … 56
    assert without("copies", CLONED) == 60 - 18 - 10 - 10


def test_a_view_before_what_stays_stays() -> None:
    rows = [*CLONED, op("aten::view", 18, 20)]  # before mm: the way into it is the view's now
    assert without("copies", rows) == 60 - 18 - 10 - 10


def test_of_a_node_that_goes_the_sums_of_gradients_stay() -> None:
    # host    [step[clone[copy_))[back[evaluate[CloneB-)--[add---))--)--)
    rows = [
        row("step", "step", 0, 40, **HOST),
        op("aten::clone", 0, 10, sequence_number=2),
        op("aten::copy_", 1, 9),
        row("range", "backward", 12, 38, **HOST),
        op(f"{ENGINE}CloneBackward0", 14, 34, sequence_number=2, forward_thread=1),
        op("CloneBackward0", 15, 22, sequence_number=2, forward_thread=1),
        op("aten::add", 24, 33),
    ]
    assert without("copies", rows) == 40 - 10 - 7


def test_copies_that_autograd_makes_of_an_op_that_is_none_are_its_own() -> None:
    # host    [step[split)-[backward--[SplitB[cat---))-)--)
    rows = [
        row("step", "step", 0, 40, **HOST),
        op("aten::split", 0, 10, sequence_number=5),
        row("range", "backward", 12, 38, **HOST),
        *node("SplitBackward0", 16, 30, 5),
        op("aten::cat", 18, 28),
    ]
    assert without("copies", rows) == 40
    assert without("backward-copies", rows) == 40 - 18  # with the way into the node


def test_what_a_product_copies_for_itself_stays() -> None:
    # host    [step[addmm[expand)[copy_--)---)[clone[copy_))--)
    rows = [
        row("step", "step", 0, 40, **HOST),
        op("aten::addmm", 0, 20),
        op("aten::expand", 1, 3),
        op("aten::copy_", 4, 8),
        op("aten::clone", 20, 30),
        op("aten::copy_", 22, 29),
    ]
    assert without("copies", rows) == 40 - 10


def test_of_a_long_stretch_before_a_call_goes_what_a_call_costs_elsewhere() -> None:
    # µs      0    1   3   6          26    30        33 34
    # host    [step[mm)---[mm)---------[copy_)---------[mm)--)      ways in: 1, 3 and 3
    rows = [
        row("step", "step", 0, 40_000, **HOST),
        op("aten::mm", 1_000, 3_000),
        op("aten::mm", 6_000, 7_000),
        op("aten::copy_", 26_000, 30_000),
        op("aten::mm", 33_000, 34_000),
    ]
    assert without("copies", rows) == 40_000 - 4_000 - 3_000


def test_views_of_a_value_that_is_asked_for_go_with_it() -> None:
    # host    [step[mm--)--[select)[select)--[item[local))--[mm)--)
    rows = [
        row("step", "step", 0, 60, **HOST),
        op("aten::mm", 2, 12),
        op("aten::select", 14, 20),
        op("aten::as_strided", 15, 19),
        op("aten::select", 20, 26),
        op("aten::item", 28, 36),
        op("aten::_local_scalar_dense", 30, 35),
        op("aten::mm", 40, 50),
    ]
    assert without("syncs", rows) == 60 - 24


@pytest.mark.parametrize(
    ("name", "inner", "saved_ns"),
    [("aten::zeros", "aten::zero_", 10), ("aten::ones", "aten::fill_", 0)],
)
def test_zeros_go_with_their_memory_and_no_other_value_does(
    name: str, inner: str, saved_ns: int
) -> None:
    # host    [step[t)[zeros[empty)[zero_---)-)--[mm--)--)
    rows = [
        row("step", "step", 0, 40, **HOST),
        op("aten::t", 1, 2),  # is not what zeros are made of
        op(name, 2, 12),
        op("aten::empty", 3, 6),
        op(inner, 7, 11),
        op("aten::mm", 20, 30),
    ]
    assert without("zero-fills", rows) == 40 - saved_ns


def sliced(start_ns: int, number: int, *, summed: bool) -> list[Row]:
    """The node of a slice, 30 ns long: zeros of 8, a copy of 5, perhaps a sum of 9."""
    name, forward = "SelectBackward0", {"sequence_number": number, "forward_thread": 1}
    rows = [
        op(f"{ENGINE}{name}", start_ns, start_ns + 30, **forward),
        op(name, start_ns + 1, start_ns + 19, **forward),
        op("aten::select_backward", start_ns + 2, start_ns + 18),
        op("aten::zero_", start_ns + 3, start_ns + 11),
        op("aten::copy_", start_ns + 12, start_ns + 17),
    ]
    return [*rows, op("aten::add_", start_ns + 20, start_ns + 29)] if summed else rows


def test_gradients_of_slices_are_copied_to_their_place_and_not_summed() -> None:
    # host    [step--[select)--[select)--[backward[node 2, not summed)[node 1, summed)-)--)
    rows = [
        row("step", "step", 0, 100, **HOST),
        op("aten::select", 4, 8, sequence_number=1),
        op("aten::as_strided", 5, 7),
        op("aten::select", 12, 16, sequence_number=2),
        row("range", "backward", 20, 90, **HOST),
        *sliced(22, 2, summed=False),
        *sliced(55, 1, summed=True),
    ]
    # the way into the slice whose gradient is summed, and all of its node but the copy, with 3 ns
    # on the way there; the first gradient has nothing to be added to
    assert without("slice-backward", rows) == 100 - 4 - (30 - 5) - 3
    assert without("zero-fills", rows) == 100  # those are a part of the gradients
