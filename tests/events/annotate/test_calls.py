"""What is linked is counted, and what is not."""

from __future__ import annotations

from events.rows import row, table

from lstmprof.events.annotate.calls import coverage
from lstmprof.events.annotate.links import linked

HOST, GPU = {"pid": 1, "tid": 1}, {"device": 0, "stream": 7}


def test_links_are_counted() -> None:
    # host    [aten::mm--------)  [launch 2)  [launch 3)  [host func 9)
    #           [launch 1)
    # device             [k1)              [k2)      [lost 4)
    rows = [
        row("op", "aten::mm", 0, 10, **HOST),
        row("runtime", "cudaLaunchKernel", 1, 3, **HOST, correlation_id=1),
        row("runtime", "cudaGraphLaunch", 11, 13, **HOST, correlation_id=2),
        row("runtime", "cuLaunchKernel", 14, 15, **HOST, correlation_id=3),
        row("runtime", "cudaLaunchHostFunc", 16, 17, **HOST, correlation_id=9),
        row("kernel", "k1", 4, 6, **GPU, correlation_id=1),
        row("kernel", "k2", 14, 15, **GPU, correlation_id=2),
        row("kernel", "lost", 20, 22, **GPU, correlation_id=4),
    ]
    found = coverage(linked(table(rows)))
    assert (found.activities, found.launched, found.issued) == (3, 2, 1)
    assert (found.kernel_launches, found.unanswered) == (3, 1)


def test_an_activity_that_names_its_op_is_linked_to_one() -> None:
    # as XPlane has it: the instruction of a program, and no event of the host for it
    rows = [
        row("kernel", "fusion", 4, 6, **GPU, op_name="jit(step)/dot_general"),
        row("memcpy", "Memcpy HtoD", 7, 8, **GPU),
    ]
    found = coverage(linked(table(rows)))
    assert (found.activities, found.launched, found.issued) == (2, 0, 1)


def test_without_activities_nothing_is_linked() -> None:
    found = coverage(linked(table([row("op", "aten::mm", 0, 10, **HOST)])))
    assert (found.activities, found.launched, found.issued) == (0, 0, 0)
