"""The ledger's parts, each under a drawn timeline."""

from __future__ import annotations

import pytest
from events.rows import Row, row, table

from lstmprof.breakdown.attribution.ledger import ledger
from lstmprof.events.annotate.links import linked
from lstmprof.events.annotate.steps import Window, windows

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


#              0   1   2   3   4   5   6   7   8   9 ms
# host         [L1][L2][L3)
# stream 7         [k1-----)
# stream 20                     ~~~~[k2---)         k2 was there when k1 ended, and waited
# stream 7                                     [k3) as k3 did
def test_a_device_that_had_the_work_and_did_not_start_it_waits_with_work_queued() -> None:
    ms = 1_000_000
    rows = [
        row("step", "ProfilerStep#0", 0, 9 * ms, **HOST),
        row("runtime", "cudaLaunchKernel", 0, ms, **HOST, correlation_id=1),
        row("runtime", "cudaLaunchKernel", ms, 2 * ms, **HOST, correlation_id=2),
        row("runtime", "cudaLaunchKernel", 2 * ms, 3 * ms, **HOST, correlation_id=3),
        row("kernel", "k1", ms, 3 * ms, device=0, stream=7, correlation_id=1, category="gemm"),
        row("kernel", "k2", 5 * ms, 7 * ms, device=0, stream=20, correlation_id=2),
        row("kernel", "k3", 8 * ms, 9 * ms, device=0, stream=7, correlation_id=3),
    ]
    assert parts(rows) == {
        "idle:launch call": ms,
        "busy:gemm": 2 * ms,
        "idle:queued": 2 * ms + ms,
        "busy:other": 2 * ms + ms,
    }


#              0      20     40      100     140   200        500  520 µs
# host         [L1)          [L2)            [L3)
# device          ~~~~[k1)       ~~~~~[k2)       ~~~[========k3)
#                  10           60                60   λ is 10 × 60 µs
@pytest.mark.parametrize(("late_us", "most_us"), [(500, 600), (600, 600), (601, 600), (9_000, 600)])
def test_a_launch_is_late_for_ten_times_the_usual_latency_then_the_work_is_queued(
    late_us: int, most_us: int
) -> None:
    def launched(number: int, at_us: int, latency_us: int) -> list[Row]:
        call, start = at_us * 1_000, (at_us + 10 + latency_us) * 1_000
        return [
            row("runtime", "cudaLaunchKernel", call, call + 10_000, **HOST, correlation_id=number),
            row("kernel", "k", start, start + 1_000, **GPU, correlation_id=number, category="gemm"),
        ]

    # before the first the device had not fallen idle; of the others the lower median counts: 60
    rows = [row("step", "step", 0, 20_000_000, **HOST)]
    rows += launched(1, 0, 10) + launched(2, 100, 60) + launched(3, 300, 100)
    rows += launched(4, 500, 60) + launched(5, 700, late_us)
    found = parts(rows)
    late = late_us - min(late_us, most_us)
    assert found["idle:launch latency"] == (10 + 60 + 100 + 60 + late_us - late) * 1_000
    assert found.get("idle:queued", 0) == late * 1_000


def test_a_launch_is_never_late_before_100_microseconds() -> None:
    rows = [
        row("runtime", "cudaLaunchKernel", 0, 1_000, **HOST, correlation_id=1),
        row("kernel", "k", 2_000, 3_000, **GPU, correlation_id=1),
        row("runtime", "cudaLaunchKernel", 4_000, 5_000, **HOST, correlation_id=2),
        row("kernel", "k", 6_000, 7_000, **GPU, correlation_id=2),
        row("runtime", "cudaLaunchKernel", 8_000, 9_000, **HOST, correlation_id=3),
        row("kernel", "k", 129_000, 130_000, **GPU, correlation_id=3),
    ]
    found = parts(rows)
    assert found["idle:launch latency"] == 1_000 + 1_000 + 100_000
    assert found["idle:queued"] == 20_000


#          0   2  4        8        14     18  20
# host     [L1)[L2)   [sync---------)--------
# device      [k1)~~~~~~~~~~~~~~~~~~~~~~~~[k2)
def test_a_launch_that_the_host_waits_for_is_queued_and_no_latency() -> None:
    rows = [
        row("runtime", "cudaLaunchKernel", 0, 1, **HOST, correlation_id=1),
        row("kernel", "k", 2, 3, **GPU, correlation_id=1),
        row("runtime", "cudaLaunchKernel", 3, 4, **HOST, correlation_id=2),
        row("runtime", "cudaStreamSynchronize", 8, 14, **HOST),
        row("kernel", "k", 18, 20, **GPU, correlation_id=2),
    ]
    found = parts(rows)
    assert found["idle:launch latency"] == (2 - 1) + (8 - 4) + (18 - 14)
    assert found["idle:queued"] == 14 - 8


#              0  1   2                       150 151 ms
# host         |--[L1)-------------------------------|
# device       ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~[k1)      what it did before is not in the profile
def test_the_first_activity_of_a_profile_is_no_measure_of_its_own_latency() -> None:
    rows = [
        row("runtime", "cudaLaunchKernel", 1_000_000, 2_000_000, **HOST, correlation_id=1),
        row("kernel", "k", 150_000_000, 151_000_000, **GPU, correlation_id=1),
    ]
    found = parts(rows)
    assert found["idle:launch latency"] == 100_000
    assert found["idle:queued"] == 147_900_000


#          0    5    10        20        30        40
# window   |-- first ------|------- second ---------|       one profile, its steps borders at 15
# host     [L1)[L2)
# device       [k1--)        queued         [k2-----)
def test_when_a_device_fell_idle_does_not_depend_on_the_window() -> None:
    rows = [
        row("runtime", "cudaLaunchKernel", 0, 3, **HOST, correlation_id=1),
        row("runtime", "cudaLaunchKernel", 5, 8, **HOST, correlation_id=2),
        row("kernel", "k1", 5, 10, **GPU, correlation_id=1, category="gemm"),
        row("kernel", "k2", 30, 40, **GPU, correlation_id=2, category="gemm"),
    ]
    events = linked(table(rows))
    second = ledger(events, [Window(None, 1, 15, 40, 0)]).to_pylist()
    assert {r["part"]: r["ns"] for r in second} == {"queued": 15, "gemm": 10}


def test_of_activities_that_start_together_the_one_that_ends_first_says_what_was_waited_for() -> (
    None
):
    # k2 and k3 start at 20; k3 ends first, and its launch returned before k1 ended
    rows = [
        row("runtime", "cudaLaunchKernel", 0, 1, **HOST, correlation_id=1),
        row("runtime", "cudaLaunchKernel", 15, 16, **HOST, correlation_id=2),
        row("runtime", "cudaLaunchKernel", 2, 3, **HOST, correlation_id=3),
        row("kernel", "k1", 1, 10, **GPU, correlation_id=1, category="gemm"),
        row("kernel", "k2", 20, 30, device=0, stream=8, correlation_id=2, category="gemm"),
        row("kernel", "k3", 20, 25, device=0, stream=9, correlation_id=3, category="gemm"),
    ]
    assert parts(rows)["idle:queued"] == 10


def test_other_accelerators_synchronise_by_other_names() -> None:
    rows = [
        row("runtime", "synchronizeStream", 0, 30, **HOST),
        row("runtime", "runFunction - job_prep_and_submit", 30, 32, **HOST, correlation_id=1),
        row("kernel", "k", 32, 40, **GPU, correlation_id=1, category="gemm"),
    ]
    assert parts(rows) == {"idle:sync": 30, "idle:launch call": 2, "busy:gemm": 8}


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


def test_a_page_migration_waits_for_the_thread_of_the_step() -> None:
    # host    |cudaFree|  unrecorded  |launch|
    # device                        [UVM)     [k)       the driver starts a migration without a call
    rows = [
        row("runtime", "cudaFree", 0, 20, **HOST),
        row("memcpy", "Memcpy UVM HtoD", 30, 32, **GPU, category="transfer"),
        row("runtime", "cudaLaunchKernel", 32, 34, **HOST, correlation_id=1),
        row("kernel", "k", 34, 40, **GPU, correlation_id=1, category="gemm"),
    ]
    assert parts(rows) == {
        "idle:alloc": 20,
        "idle:host": 10,
        "busy:transfer": 2,
        "idle:launch call": 2,
        "busy:gemm": 6,
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


def test_what_has_no_category_is_busy_with_something_else() -> None:
    # host    [step------------)
    # device  [gemm--)[?)[copy-)    of ? nobody knows what it does
    rows = [
        row("step", "step", 0, 16, **HOST),
        row("kernel", "k1", 0, 8, **GPU, category="gemm"),
        row("kernel", "k2", 8, 11, **GPU),
        row("kernel", "k3", 11, 16, **GPU, category="pointwise"),
    ]
    assert parts(rows) == {"busy:gemm": 8, "busy:other": 3, "busy:pointwise": 5}
