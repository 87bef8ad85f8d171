"""Parents, launches, ops and phases, under drawn timelines."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from events.rows import Row, nameless, row, table
from hypothesis import given, strategies as st

from lstmprof.events.annotate.links import launches, linked, parents, phases
from lstmprof.events.schema import PHASES
from lstmprof.events.table import NONE
from lstmprof.events.threads import nesting_order, thread_ids

HOST = {"pid": 1, "tid": 1}
GPU = {"device": 0, "stream": 7}


def by_name(rows: list[Row], column: str) -> dict[str, Any]:
    """Name of each event -> name of the event that ``column`` points to, or the column itself."""
    events = linked(table(rows)).to_pylist()
    names = {r["event_id"]: r["name"] for r in events}
    if column.endswith("_id"):
        return {r["name"]: names.get(r[column]) for r in events}
    return {r["name"]: r[column] for r in events}


def test_a_parent_is_the_innermost_event_around_on_the_same_thread() -> None:
    # thread 1   [a-----------------)      thread 2  [x---)
    #              [b----)  [d---)
    #               [c-)      [overhangs--)
    rows = [
        row("range", "a", 0, 20, **HOST),
        row("op", "b", 2, 8, **HOST),
        row("op", "c", 3, 5, **HOST),
        row("op", "d", 10, 15, **HOST),
        row("op", "overhangs", 12, 25, **HOST),
        row("op", "x", 3, 4, pid=1, tid=2),
    ]
    assert by_name(rows, "parent_id") == {
        "a": None,
        "b": "a",
        "c": "b",
        "d": "a",
        "overhangs": None,
        "x": None,
    }


@given(
    st.lists(
        st.tuples(
            st.integers(0, 12),
            st.integers(0, 9),
            st.sampled_from(["op", "range", "runtime", "python"]),
            st.sampled_from([1, 1, 1, 2, None]),
        ),
        max_size=30,
    )
)
def test_parents_are_those_that_a_stack_of_open_events_gives(
    drawn: list[tuple[int, int, str, int | None]],
) -> None:
    events = table([row(k, "e", at, at + ns, pid=1, tid=tid) for at, ns, k, tid in drawn])
    assert parents(events).tolist() == by_a_stack(events)


def by_a_stack(events: pa.Table) -> list[int]:
    thread = thread_ids(events)
    start, dur = (events.column(c).to_numpy() for c in ("start_ns", "dur_ns"))
    found = [NONE] * len(events)
    for one in sorted(set(thread.tolist()) - {-1}):
        stack: list[int] = []
        for i in nesting_order(events, np.flatnonzero(thread == one)).tolist():
            while stack and start[stack[-1]] + dur[stack[-1]] < start[i] + dur[i]:
                stack.pop()
            found[i] = stack[-1] if stack else NONE
            stack.append(i)
    return found


def test_a_deep_stack_beside_a_long_row_of_events() -> None:
    # [0----------------------) [1--------------------) ... [deepest)  then 300 side by side
    deep = [row("python", str(n), n, 1000 - n, **HOST) for n in range(300)]
    flat = [row("op", f"f{n}", 1001 + n, 1002 + n, **HOST) for n in range(300)]
    links = by_name([*deep, *flat, row("range", "last", 2000, 2001, **HOST)], "parent_id")
    assert [links[str(n)] for n in range(300)] == [None, *map(str, range(299))]
    assert {links[f"f{n}"] for n in range(300)} == {links["last"]} == {None}


def test_a_launch_is_the_earliest_runtime_call_of_its_correlation_and_rank() -> None:
    # host    [aten::mm------------------)
    #           [launch)   [again)   [zero)
    # device               [k)  [lost)  [none)
    rows = [
        row("op", "aten::mm", 0, 20, **HOST),
        row("runtime", "launch", 1, 2, **HOST, correlation_id=4),
        row("runtime", "again", 5, 6, **HOST, correlation_id=4),
        row("runtime", "zero", 7, 8, **HOST, correlation_id=0),
        row("kernel", "k", 5, 9, **GPU, correlation_id=4),
        row("kernel", "lost", 9, 10, **GPU, correlation_id=5),
        row("kernel", "none", 10, 11, **GPU, correlation_id=0),
    ]
    launches = by_name(rows, "launch_id")
    assert (launches["k"], launches["lost"], launches["none"]) == ("launch", None, None)
    ops = by_name(rows, "op_id")
    assert (ops["launch"], ops["k"], ops["lost"]) == ("aten::mm", "aten::mm", None)


def test_equal_correlations_of_two_ranks_are_two_launches() -> None:
    rows = [
        row("runtime", f"launch {r}", r, r + 1, **HOST, correlation_id=4, rank=r) for r in (0, 1)
    ] + [row("kernel", f"k {r}", 5, 6, **GPU, correlation_id=4, rank=r) for r in (0, 1)]
    launches = by_name(rows, "launch_id")
    assert (launches["k 0"], launches["k 1"]) == ("launch 0", "launch 1")


def test_a_correlation_is_of_a_process_where_the_activity_names_one() -> None:
    # process 1  |-L1->|          process 2 launches k2 with the same correlation, and earlier;
    # process 2  |-L2->|          k3 is of process 3, whose launch is lost; k0 names no process
    rows = [
        row("runtime", "L1", 4, 6, pid=1, tid=1, correlation_id=4),
        row("runtime", "L1 again", 6, 7, pid=1, tid=1, correlation_id=4),
        row("runtime", "L2", 2, 3, pid=2, tid=2, correlation_id=4),
        *(
            row("kernel", f"k{p}", 10 + p, 11 + p, device=p, pid=p, correlation_id=4)
            for p in (1, 2)
        ),
        row("kernel", "k3", 20, 21, device=0, pid=3, correlation_id=4),
        row("kernel", "k0", 22, 23, device=0, correlation_id=4),
    ]
    launches = by_name(rows, "launch_id")
    assert [launches[f"k{i}"] for i in range(4)] == ["L2", "L1", "L2", None]


def test_an_external_id_links_an_activity_without_a_launch_unless_it_repeats_the_correlation() -> (
    None
):
    rows = [
        row("op", "aten::mm", 0, 3, **HOST, external_id=9),
        row("kernel", "trimmed", 5, 6, **GPU, correlation_id=70, external_id=9),
        row("kernel", "repeats", 6, 7, **GPU, correlation_id=9, external_id=9),
    ]
    ops = by_name(rows, "op_id")
    assert (ops["trimmed"], ops["repeats"]) == ("aten::mm", None)


def test_an_external_id_is_of_a_rank() -> None:
    rows = [
        row("op", "aten::mm", 0, 3, **HOST, external_id=9, rank=0),
        row("op", "aten::add", 1, 3, **HOST, external_id=9, rank=1),
        row("kernel", "of 0", 5, 6, **GPU, external_id=9, rank=0),
        row("kernel", "of 1", 6, 7, **GPU, external_id=9, rank=1),
        row("kernel", "of 2", 7, 8, **GPU, external_id=9, rank=2),
    ]
    ops = by_name(rows, "op_id")
    assert [ops[f"of {rank}"] for rank in range(3)] == ["aten::mm", "aten::add", None]


def test_phases_come_from_ranges_scopes_and_launches() -> None:
    # main       [step------------------------------------------------------)
    #              [forward---------)  [backward-------)  [Optimizer.step#Adam.step)
    #                [aten::mm [L)-)                        [aten::add_)
    # autograd                           [aten::mul)
    # executor     [gradient_tape/forward/x:MatMul)
    # executor       [gradients_1/forward/y:MatMul)
    # device                      [k)
    rows = [
        row("step", "step", 0, 60, **HOST),
        row("range", "forward", 2, 20, **HOST),
        row("op", "aten::mm", 4, 12, **HOST),
        row("runtime", "L", 6, 8, **HOST, correlation_id=1),
        row("range", "backward", 22, 40, **HOST),
        row("op", "aten::mul", 25, 30, pid=1, tid=2),
        row("range", "Optimizer.step#Adam.step", 42, 58, **HOST),
        row("op", "aten::add_", 44, 48, **HOST),
        row("op", "gradient_tape/forward/x:MatMul", 3, 9, pid=1, tid=3),
        row("op", "gradients_1/forward/y:MatMul", 5, 9, pid=1, tid=4),
        row("kernel", "k", 30, 33, **GPU, correlation_id=1),
    ]
    phases = by_name(rows, "phase")
    assert phases == {
        "step": None,
        "forward": "forward",
        "aten::mm": "forward",
        "L": "forward",
        "backward": "backward",
        "aten::mul": "backward",
        "Optimizer.step#Adam.step": "optimizer",
        "aten::add_": "optimizer",
        "gradient_tape/forward/x:MatMul": "backward",
        "gradients_1/forward/y:MatMul": "backward",
        "k": "forward",
    }


def test_a_scan_is_of_the_forward_pass_and_that_of_its_gradient_of_the_backward_pass() -> None:
    rows = [
        row("op", "theano::forall_inplace,cpu,l0}", 0, 9, **HOST),
        row("op", "theano::Gemm{inplace}", 1, 8, **HOST),
        row("op", "theano::for{inplace{0,1,},cpu,grad_of_scan_fn}", 10, 19, **HOST),
        row("op", "theano::Dot22", 11, 18, **HOST),
        row("op", "theano::for_each{cpu,grad_of_l0}", 20, 29, **HOST),
    ]
    assert by_name(rows, "phase") == {
        "theano::forall_inplace,cpu,l0}": "forward",
        "theano::Gemm{inplace}": "forward",
        "theano::for{inplace{0,1,},cpu,grad_of_scan_fn}": "backward",
        "theano::Dot22": "backward",
        "theano::for_each{cpu,grad_of_l0}": None,
    }


def test_phases_of_xla_come_from_the_path_and_what_has_none_is_of_the_loop_around() -> None:
    # main  [step-----------------------------------)
    # XLA     [while.1----)[while.2-----------)[add.9)
    #           [copy.3)      [copy.4)[dot.5)
    rows = [
        row("step", "step", 0, 60, **HOST),
        row("op", "while.1", 2, 12, pid=1, tid=2, op_name="jit(f)/jvp(forward)/while"),
        row("op", "copy.3", 4, 8, pid=1, tid=2, op_name="copy.3"),
        row("op", "while.2", 12, 40, pid=1, tid=2, op_name="jit(f)/transpose(jvp(forward))/while"),
        row("op", "copy.4", 14, 18, pid=1, tid=2, op_name="copy.4"),
        row("op", "dot.5", 18, 30, pid=1, tid=2, op_name="jit(f)/transpose(jvp(loss))/dot_general"),
        row("op", "add.9", 40, 50, pid=1, tid=2, op_name="jit(f)/optimizer/add"),
    ]
    assert by_name(rows, "phase") == {
        "step": None,
        "while.1": "forward",
        "copy.3": "forward",
        "while.2": "backward",
        "copy.4": "backward",
        "dot.5": "backward",
        "add.9": "optimizer",
    }


def test_a_range_without_a_name_is_no_phase() -> None:
    # [?---)  [backward)
    rows = [row("range", "?", 0, 4, **HOST), row("range", "backward", 6, 9, **HOST)]
    events = nameless(table(rows), 0)
    backward = PHASES.index("backward")
    assert phases(events, parents(events), launches(events)).tolist() == [NONE, backward]
