"""The contributors of a lane: the ledger down to the event, what an op is for, input apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest
import shared_traces
from breakdown.random_programs import cpu_programs, gpu_programs, one_window
from events.rows import Row, row, table
from hypothesis import given, settings, strategies as st

from lstmprof import formats
from lstmprof.breakdown.attribution import TAIL
from lstmprof.breakdown.attribution.ledger import ledger
from lstmprof.diagnose.step_profile import total_ns
from lstmprof.diagnose.step_profile.contributors import TINY_OP_NS, contributors
from lstmprof.events.annotate import annotated
from lstmprof.events.annotate.links import linked
from lstmprof.events.annotate.steps import windows

HOST = {"pid": 1, "tid": 1}


def parts_of(rows: Iterable[dict[str, object]]) -> Counter[tuple[str, str]]:
    found: Counter[tuple[str, str]] = Counter()
    for one in rows:
        found[str(one["state"]), str(one["part"]).removeprefix(TAIL)] += int(str(one["ns"]))
    return found


@settings(max_examples=100, deadline=None)
@given(gpu_programs | cpu_programs, st.integers(0, 20), st.integers(1, 45))
def test_the_items_are_the_ledger_down_to_the_event(rows: list[Row], t0: int, length: int) -> None:
    events, window = one_window(rows, t0, t0 + length)
    events = linked(events)
    account = ledger(events, [window]).to_pylist()
    for device in {one["device"] for one in account}:
        expected = parts_of([one for one in account if one["device"] == device])
        assert parts_of(map(vars, contributors(events, [window], None, device))) == expected


@settings(max_examples=60, deadline=None)
@given(gpu_programs | cpu_programs, st.integers(0, 30), st.integers(0, 20))
def test_input_is_cut_out_and_everything_still_sums_to_the_step(
    rows: list[Row], start: int, length: int
) -> None:
    rows = [*rows, row("range", "input", start, start + length, **HOST)]
    events, window = one_window(rows, 0, 45)
    events = linked(events)
    for device in {one["device"] for one in ledger(events, [window]).to_pylist()}:
        assert total_ns(contributors(events, [window], None, device)) == 45


#            0        10       20       30       40       50 µs
# step       |============================================|
# input      |--2
# aten::to      |3 ---- 20|
#   empty         |4-5|
#   copy_             |6 -- 19|                    float → half
# aten::add                  |21-22|      (one µs after the cast)
# aten::mm                                |35 --- 48|
def test_an_arranging_op_serves_the_work_beneath_it() -> None:
    rows = [
        row("step", "step", 0, 50_000, **HOST),
        row("range", "input", 0, 2_000, **HOST),
        row("op", "aten::to", 3_000, 20_000, **HOST),
        row("op", "aten::empty_strided", 4_000, 5_000, **HOST),
        row("op", "aten::copy_", 6_000, 19_000, **HOST),
        row("op", "aten::add", 21_000, 22_000, **HOST),
        row("op", "aten::mm", 35_000, 48_000, **HOST),
    ]
    events = annotated(table(rows), captured=True)
    found = {
        (r.state, r.part, r.name, r.purpose, r.tiny, r.call_overhead): r.ns
        for r in contributors(events, windows(events, captured=True), None, None)
    }
    assert found == {
        ("input", "python", "input", None, False, False): 2_000,
        ("idle", "python", "aten::to", "cast", False, True): 1_000,
        ("idle", "dispatch", "aten::to", "cast", False, False): 3_000,
        ("idle", "dispatch", "aten::empty_strided", "cast", False, False): 1_000,
        ("busy", "cast", "aten::copy_", "cast", False, False): 13_000,
        ("idle", "python", "aten::add", "pointwise", True, True): 1_000,
        ("busy", "pointwise", "aten::add", "pointwise", True, False): 1_000,
        ("idle", "python", "step", None, False, False): 13_000 + 2_000,
        ("busy", "gemm", "aten::mm", "gemm", False, False): 13_000,
    }
    assert 1_000 <= TINY_OP_NS < 13_000


def test_calls_are_counted_once_and_the_time_before_them_not_at_all() -> None:
    rows = [row("step", "step", 0, 100, **HOST)]
    rows += [row("op", "aten::add", start, start + 2, **HOST) for start in (10, 20, 30)]
    events = annotated(table(rows), captured=True)
    counts = {
        (r.name, r.call_overhead): r.count
        for r in contributors(events, windows(events, captured=True), None, None)
    }
    assert counts == {("aten::add", False): 3, ("aten::add", True): 0, ("step", False): 1}


#              0        10        20        30 ns
# ProfilerStep |====================================|
# aten::mm       |2 ------ 11|
# launch            |5-- 9|
# kernel                          |20 -- 28|
def test_a_device_waits_for_what_its_host_was_doing() -> None:
    rows = [
        row("step", "ProfilerStep#3", 0, 30, **HOST),
        row("op", "aten::mm", 2, 11, **HOST),
        row("runtime", "cudaLaunchKernel", 5, 9, **HOST, correlation_id=1),
        row("kernel", "sgemm", 20, 28, device=0, stream=7, correlation_id=1),
    ]
    events = annotated(table(rows), captured=True)
    found = {
        (r.part, r.name): (r.ns, r.count)
        for r in contributors(events, windows(events, captured=True), None, 0)
    }
    assert found == {
        ("python", "ProfilerStep"): (2 + 2, 1),
        ("dispatch", "aten::mm"): (3, 1),
        ("launch call", "cudaLaunchKernel"): (4, 1),
        ("launch latency", "cudaLaunchKernel"): (11, 0),
        ("gemm", "sgemm"): (8, 1),
    }


@shared_traces.needed
@pytest.mark.parametrize(
    "name", ["kineto/tl-h100-bert-small.json.gz", "tf/cpu-macos-mit.xplane.pb"]
)
def test_the_items_of_real_profiles_sum_to_their_ledger(name: str) -> None:
    events = annotated(formats.read(shared_traces.FOLDER / name).events, captured=False)
    found = windows(events, captured=False)
    account = ledger(events, found).to_pylist()
    device = account[0]["device"]
    whole = sum(r["ns"] for r in account if r["device"] == device)
    assert total_ns(contributors(events, found, found[0].rank, device)) == whole
