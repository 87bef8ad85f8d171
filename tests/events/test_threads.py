"""What a runtime call does to its thread, by its name."""

from __future__ import annotations

import pytest

from lstmprof.events.threads import runtime_state


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
