"""Which waits for the host lie beside the profiler's own work whose thread is not known."""

from __future__ import annotations

from events.rows import row, table

from lstmprof.breakdown.attribution import attributed
from lstmprof.diagnose.step_profile.contributors import lost_overhead_ns
from lstmprof.events.annotate.links import linked
from lstmprof.events.annotate.steps import Window

HOST = {"pid": 1, "tid": 1}
WINDOWS = [Window(None, 0, 0, 100, None)]


def lost(*overheads: tuple[int, int], **thread: int | None) -> int:
    #        0        40    50   60         100
    #  host  [ mm     [call)                )
    #  GPU                       [ kernel   )
    rows = [
        row("op", "aten::mm", 0, 100, **HOST),
        row("runtime", "cudaLaunchKernel", 40, 50, **HOST, correlation_id=1),
        row("kernel", "k", 60, 100, device=0, correlation_id=1),
        *(row("overhead", "Activity Buffer Request", *of, **thread) for of in overheads),
    ]
    events = linked(table(rows))
    return lost_overhead_ns(events, WINDOWS, None, attributed(events, WINDOWS, None)[0])


def test_what_lies_in_dispatch_is_counted_once() -> None:
    nowhere = {"pid": None, "tid": None}
    assert lost((5, 30), (20, 35), **nowhere) == 30
    assert lost((30, 45), **nowhere) == 10  # from 40 on it is the launch call that is waited for
    assert lost((50, 95), **nowhere) == 0  # a launch on its way, then the device is busy
    assert lost((5, 30), **HOST) == 0  # of a known thread the ledger has it
