"""The ledger's parts, each under a drawn timeline."""

from __future__ import annotations

from events.rows import Row, row, table

from lstmprof.breakdown.ledger import ledger
from lstmprof.events.annotate.links import linked
from lstmprof.events.annotate.steps import windows

HOST = {"pid": 1, "tid": 1}
GPU = {"device": 0, "stream": 7}


def parts(rows: list[Row], *, captured: bool = False) -> dict[str, int]:
    """``state:part`` -> ns over all windows and devices."""
    events = linked(table(rows))
    found: dict[str, int] = {}
    for r in ledger(events, windows(events, captured=captured)).to_pylist():
        key = f"{r['state']}:{r['part']}"
        found[key] = found.get(key, 0) + r["ns"]
    return found


def test_a_gap_is_split_at_the_launch_that_ends_it() -> None:
    # ns      0    2    4    6    8    10   12   14   16
    # host    [step-----------------------------------)
    # op           [aten::mm--------)
    # launch            [L1-)
    # device                     [k1---)
    rows = [
        row("step", "step", 0, 16, **HOST),
        row("op", "aten::mm", 2, 8, **HOST),
        row("runtime", "cudaLaunchKernel", 4, 6, **HOST, correlation_id=1),
        row("kernel", "gemm", 9, 12, **GPU, correlation_id=1, category="gemm"),
    ]
    assert parts(rows) == {
        "idle:python": 2,
        "idle:dispatch": 2,
        "idle:launch call": 2,
        "idle:launch latency": 3,
        "busy:gemm": 3,
        "idle:tail:python": 4,
    }


def test_waiting_for_the_host_is_named_by_its_innermost_event() -> None:
    # host    [step------------------------------------------)
    #          [sync-)[malloc)[event record)[overhead)[L)
    # device                                            [k)
    rows = [
        row("step", "step", 0, 22, **HOST),
        row("runtime", "cudaStreamSynchronize", 1, 4, **HOST),
        row("runtime", "cudaMalloc", 4, 8, **HOST),
        row("runtime", "cudaEventRecord", 8, 13, **HOST),
        row("overhead", "Buffer Flush", 13, 19, **HOST),
        row("runtime", "cudaLaunchKernel", 19, 20, **HOST, correlation_id=1),
        row("kernel", "k", 20, 22, **GPU, correlation_id=1, category="gemm"),
    ]
    assert parts(rows) == {
        "idle:python": 1,
        "idle:sync": 3,
        "idle:alloc": 4,
        "idle:runtime": 5,
        "idle:profiler": 6,
        "idle:launch call": 1,
        "busy:gemm": 2,
    }


def test_an_activity_without_a_known_launch_is_unattributed() -> None:
    # device  [k1)   [k2)      k2 was trimmed of its launch; without ops no thread ran the tail
    rows = [
        row("kernel", "k", 0, 3, **GPU, category="gemm"),
        row("kernel", "k", 7, 9, **GPU, correlation_id=5, category="gemm"),
        row("memcpy", "Memcpy HtoD", 0, 11, device=1, stream=1, category="transfer"),
    ]
    assert parts(rows) == {
        "busy:gemm": 5,
        "busy:transfer": 11,
        "idle:unattributed": 4,
        "idle:tail:unattributed": 2,
    }


def test_a_kernel_that_starts_before_its_launch_waited_for_the_host() -> None:
    # clock skew:   device [k)   then the launch
    rows = [
        row("step", "step", 0, 10, **HOST),
        row("kernel", "k", 3, 5, **GPU, correlation_id=1, category="gemm"),
        row("runtime", "cudaLaunchKernel", 6, 8, **HOST, correlation_id=1),
    ]
    assert parts(rows) == {
        "idle:python": 3,
        "busy:gemm": 2,
        "idle:tail:python": 3,
        "idle:tail:runtime": 2,
    }


def test_of_concurrent_activities_compute_goes_first_then_the_earlier() -> None:
    # stream 1  [copy-------------------)
    # stream 2      [nccl------------)
    # stream 3          [gemm----)
    # stream 4             [add-----)
    rows = [
        row("memcpy", "Memcpy HtoD", 0, 20, device=0, stream=1, category="transfer"),
        row("kernel", "nccl", 3, 17, device=0, stream=2, category="collective"),
        row("kernel", "gemm", 6, 11, device=0, stream=3, category="gemm"),
        row("kernel", "add", 8, 14, device=0, stream=4, category="pointwise"),
    ]
    assert parts(rows) == {
        "busy:transfer": 6,
        "busy:collective": 6,
        "busy:gemm": 5,
        "busy:pointwise": 3,
    }


def test_foreign_windows_go_from_marker_to_marker_and_captured_ones_end_with_their_range() -> None:
    # host    [ProfilerStep#7)     [ProfilerStep#8)
    # device       [k------------)                [k--)
    rows = [
        row("step", "ProfilerStep#7", 0, 5, **HOST),
        row("step", "ProfilerStep#8", 10, 15, **HOST),
        row("kernel", "k", 2, 8, **GPU, category="gemm"),
        row("kernel", "k", 14, 19, **GPU, category="gemm"),
    ]
    events = linked(table(rows))
    foreign = windows(events, captured=False)
    assert [(w.step, w.start_ns, w.end_ns) for w in foreign] == [(7, 0, 10), (8, 10, 19)]
    own = windows(events, captured=True)
    assert [(w.step, w.start_ns, w.end_ns) for w in own] == [(7, 0, 5), (8, 10, 15)]


def test_on_a_cpu_a_computing_op_is_busy_and_an_arranging_one_is_dispatch() -> None:
    # main      [step-------------------------------)
    #             [aten::linear----------)
    #                  [aten::addmm--)
    # autograd                        [aten::mul-)
    rows = [
        row("step", "step", 0, 30, **HOST),
        row("op", "aten::linear", 4, 20, **HOST),
        row("op", "aten::addmm", 7, 15, **HOST, category="gemm"),
        row("op", "aten::mul", 18, 24, pid=1, tid=2, category="pointwise"),
    ]
    assert parts(rows) == {
        "idle:python": 4 + 6,
        "idle:dispatch": 3 + 3,
        "busy:gemm": 8,
        "busy:pointwise": 6,
    }


def test_ops_that_launched_unseen_work_did_not_compute_on_the_host() -> None:
    # launches were recorded, the device's activities were not
    rows = [
        row("op", "aten::mm", 0, 10, **HOST, category="gemm"),
        row("runtime", "cudaLaunchKernel", 4, 6, **HOST, correlation_id=1),
    ]
    assert parts(rows) == {"idle:dispatch": 8, "idle:runtime": 2}


def test_without_ops_the_tail_goes_to_the_thread_with_most_runtime_calls() -> None:
    # thread 1  [cudaLaunchKernel)  [cudaStreamSynchronize-----)
    # thread 2     [a range-----------------------------------------)
    # device                          [k------)
    rows = [
        row("runtime", "cudaLaunchKernel", 0, 4, pid=1, tid=1, correlation_id=1),
        row("runtime", "cudaStreamSynchronize", 6, 20, pid=1, tid=1),
        row("range", "a range", 1, 20, pid=1, tid=2),
        row("kernel", "k", 8, 14, device=0, stream=7, correlation_id=1),
    ]
    assert parts(rows)["idle:tail:sync"] == 6
