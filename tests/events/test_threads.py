"""What a runtime call does to its thread, by its name; on which thread an event ran."""

from __future__ import annotations

import pytest
from events.rows import row, table

from lstmprof.events.threads import runtime_state, thread_ids


@pytest.mark.parametrize(
    ("name", "state"),
    [
        ("cudaStreamSynchronize", "sync"),
        ("hipMemcpyWithStream", "sync"),
        ("synchronizeStream", "sync"),
        ("aclrtSynchronizeDevice", "sync"),
        ("zeEventHostSynchronize", "sync"),
        ("clFinish", "sync"),
        ("urQueueFinish", "sync"),
        ("urEventWait", "sync"),
        ("piEventsWait", "sync"),
        ("urEnqueueEventsWait", "runtime"),
        ("cudaStreamWaitEvent", "runtime"),
        ("cudaMemcpyAsync", "runtime"),
        ("cuModuleUnload", "runtime"),
        ("cudaHostAlloc", "alloc"),
    ],
)
def test_a_blocking_call_is_a_synchronisation(name: str, state: str) -> None:
    assert runtime_state(name) == state


def test_overhead_that_lost_its_thread_is_on_the_only_one_with_a_call_around_it() -> None:
    #        0    5   10   15   20   25
    #  1: [ mm  [overhead)   )  [ mm )
    #  2:                [  add [overhead) )
    rows = [
        row("op", "aten::mm", 0, 14, pid=7, tid=1),
        row("overhead", "Activity Buffer Request", 4, 10, pid=None, tid=None),
        row("op", "aten::add", 12, 26, pid=7, tid=2),
        row("op", "aten::mm", 16, 24, pid=7, tid=1),
        row("overhead", "Buffer Flush", 18, 22, pid=None, tid=None),
        row("overhead", "Buffer Flush", 30, 31, pid=None, tid=None),
    ]
    events = table(rows)
    op, request, other_op, _, flush, at_end = thread_ids(events).tolist()
    assert request == op != other_op
    assert flush == at_end not in (op, other_op)  # two threads have a call around it, or none
