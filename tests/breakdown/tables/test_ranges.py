"""The range table by hand on a few rows."""

from __future__ import annotations

from events.rows import row, table

from lstmprof.breakdown.tables.ops import ranges
from lstmprof.events.annotate import annotated
from lstmprof.events.annotate.steps import windows

MAIN, AUTOGRAD = {"pid": 1, "tid": 1}, {"pid": 1, "tid": 2}
GPU = {"device": 0, "stream": 7}


def test_time_on_host_and_device_of_steps_phases_and_ranges() -> None:
    # main      [step#4---------------------------)[step#5------)
    #            [forward--------)[backward----)
    #              [lstm---)  L2
    #               L1
    # autograd                      L3
    # device                                          [1)[2-)[3--)
    rows = [
        row("step", "ProfilerStep#4", 0, 50, **MAIN),
        row("step", "ProfilerStep#5", 50, 70, **MAIN),
        row("range", "forward", 2, 20, **MAIN),
        row("range", "lstm", 4, 12, **MAIN),
        row("range", "backward", 22, 40, **MAIN),
        row("range", "lstm", 60, 70, device=0),  # the device's copy of a range
        row("runtime", "cudaLaunchKernel", 6, 7, **MAIN, correlation_id=1),
        row("runtime", "cudaLaunchKernel", 15, 17, **MAIN, correlation_id=2),
        row("runtime", "cudaLaunchKernel", 30, 31, **AUTOGRAD, correlation_id=3),
        row("kernel", "a", 60, 62, **GPU, correlation_id=1),
        row("kernel", "b", 62, 65, **GPU, correlation_id=2),
        row("kernel", "c", 65, 69, **GPU, correlation_id=3),
    ]
    events = annotated(table(rows), captured=False)
    found = ranges(events, windows(events, captured=False)).to_pylist()
    assert {r["name"]: tuple(r.values())[2:] for r in found} == {
        "ProfilerStep": ("step", 2, 70, 35.0, 14 + 20, 9, 0),
        "forward": ("phase", 1, 18, 18.0, 18 - 8 - 2, 5, 3),
        "lstm": ("range", 1, 8, 8.0, 7, 2, 2),
        "backward": ("phase", 1, 18, 18.0, 18, 4, 4),
    }


def test_a_range_inside_one_of_its_name_is_not_added_again() -> None:
    rows = [row("range", "layer", 0, 10, **MAIN), row("range", "layer", 2, 6, **MAIN)]
    events = annotated(table(rows), captured=False)
    (one,) = ranges(events, []).to_pylist()
    assert (one["count"], one["total_ns"], one["mean_ns"], one["self_ns"]) == (2, 10, 7.0, 10)
    assert (one["device_total_ns"], one["device_self_ns"]) == (None, None)


def test_of_ranges_that_start_together_the_shorter_is_inside() -> None:
    # main      [outer---------)       autograd launches in the inner one
    #           [inner---)
    rows = [
        row("range", "inner", 0, 20, **MAIN),
        row("range", "outer", 0, 40, **MAIN),
        row("runtime", "cudaLaunchKernel", 5, 6, **AUTOGRAD, correlation_id=1),
        row("kernel", "a", 60, 67, **GPU, correlation_id=1),
    ]
    for given in (rows, [rows[1], rows[0], *rows[2:]]):
        events = annotated(table(given), captured=False)
        found = ranges(events, windows(events, captured=False)).to_pylist()
        assert {r["name"]: (r["device_total_ns"], r["device_self_ns"]) for r in found} == {
            **{"outer": (7, 0), "inner": (7, 7)}
        }


def test_an_empty_profile_has_no_ranges() -> None:
    events = annotated(table([]), captured=False)
    assert ranges(events, []).num_rows == 0
