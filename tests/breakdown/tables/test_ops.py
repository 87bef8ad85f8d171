"""The op table by hand on a few rows."""

from __future__ import annotations

from events.rows import row, table

from lstmprof.breakdown.tables import TABLES
from lstmprof.events.annotate import annotated
from lstmprof.events.annotate.steps import windows

ops = TABLES["ops"].of

HOST = {"pid": 1, "tid": 1}
GPU = {"device": 0, "stream": 7}


def launch(at: int, correlation_id: int) -> dict[str, object]:
    return row("runtime", "cudaLaunchKernel", at, at + 1, **HOST, correlation_id=correlation_id)


def kernel(at: int, dur_ns: int, correlation_id: int) -> dict[str, object]:
    return row("kernel", "k", at, at + dur_ns, **GPU, correlation_id=correlation_id)


def test_device_time_goes_to_the_op_that_launched_and_to_those_around_it() -> None:
    # [linear----------------------)          0…20
    #    [addmm------)  [add---)              3…10, 12…18
    #      L1 L2          L3                  5, 7, 14
    #                              [1---)(2)[3--)     30…34, 34…36, 36…39
    rows = [
        row("step", "ProfilerStep#1", 0, 25, **HOST),
        row("op", "aten::linear", 0, 20, **HOST),
        row("op", "aten::addmm", 3, 10, **HOST),
        row("op", "aten::add", 12, 18, **HOST),
        *(launch(5, 1), launch(7, 2), launch(14, 3)),
        *(kernel(30, 4, 1), kernel(34, 2, 2), kernel(36, 3, 3)),
    ]
    events = annotated(table(rows), captured=False)
    found = {r["name"]: r for r in ops(events, windows(events, captured=False)).to_pylist()}
    assert list(found["aten::linear"].values()) == [
        *(None, "aten::linear", 1, 1.0),
        *(20, 7, 9, 0, 3, 0),
    ]
    assert list(found["aten::addmm"].values())[2:] == [1, 1.0, 7, 5, 6, 6, 2, 2]
    assert list(found["aten::add"].values())[2:] == [1, 1.0, 6, 5, 3, 3, 1, 1]


def test_an_op_inside_one_of_its_name_is_counted_and_its_time_is_not_added_again() -> None:
    # [to----------------)  0…20
    #    [copy------)       2…12
    #       [to---)         4…9, launches
    # [to)                  30…32, another
    rows = [
        row("op", "aten::to", 0, 20, **HOST),
        row("op", "aten::copy_", 2, 12, **HOST),
        row("op", "aten::to", 4, 9, **HOST),
        row("op", "aten::to", 30, 32, **HOST),
        *(launch(5, 1), kernel(40, 8, 1)),
    ]
    events = annotated(table(rows), captured=False)
    found = {r["name"]: r for r in ops(events, windows(events, captured=False)).to_pylist()}
    to, copy = found["aten::to"], found["aten::copy_"]
    assert (to["count"], to["per_step"]) == (3, None)
    assert (to["host_total_ns"], to["host_self_ns"]) == (22, 10 + 4 + 2)
    assert (to["device_total_ns"], to["device_self_ns"], to["kernels_total"]) == (8, 8, 1)
    assert (copy["device_total_ns"], copy["device_self_ns"], copy["kernels_self"]) == (8, 0, 0)


def test_device_time_is_unknown_where_a_rank_has_no_activities() -> None:
    rows = [row("op", "aten::mm", 0, 5, **HOST, rank=0), row("op", "aten::mm", 0, 7, rank=1)]
    rows += [row("kernel", "k", 9, 10, **GPU, rank=1)]
    events = annotated(table(rows), captured=False)
    found = ops(events, windows(events, captured=False)).to_pylist()
    assert [(r["rank"], r["host_total_ns"], r["device_total_ns"]) for r in found] == [
        (1, 7, 0),
        (0, 5, None),
    ]


def test_an_empty_profile_has_no_ops() -> None:
    events = annotated(table([]), captured=False)
    assert ops(events, []).num_rows == 0
