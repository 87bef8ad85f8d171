"""The way from the fast step to the slow one: exact, and in the one order of the findings."""

from __future__ import annotations

from diagnose.made import contributor, profile
from hypothesis import given, strategies as st

from lstmprof.breakdown.mean_step import mean_of
from lstmprof.diagnose.diagnosis import alone, compare
from lstmprof.diagnose.findings import Difference, PartTimes, findings, waterfall
from lstmprof.diagnose.findings.savings import Saving
from lstmprof.diagnose.step_profile import StepProfile
from lstmprof.diagnose.verdict.verdict_text import largest_kinds

MS = 1_000_000


def test_the_kinds_of_two_steps_sum_to_the_difference_of_their_lengths() -> None:
    fast = profile(contributor("busy", "gemm", 70), contributor("idle", "dispatch", 20))
    slow = profile(contributor("busy", "gemm", 75), contributor("idle", "python", 60))
    found = waterfall(fast, slow)
    assert found == [
        Difference("Python", 0, 60),
        Difference("matmul", 70, 75),
        Difference("dispatch", 20, 0),
    ]
    assert (fast.length_ns, slow.length_ns) == (90, 135)
    assert sum(d.delta_ns for d in found) == 135 - 90


def test_products_and_recurrent_layers_are_netted_before_they_are_named() -> None:
    # one change of form: a loop of products (fast: one op for the layer), and 28 ms of gates
    fast = profile(contributor("busy", "rnn", 51 * MS, "mkldnn_rnn_layer"))
    slow = profile(
        contributor("busy", "gemm", 69 * MS, "aten::mm"),
        contributor("busy", "pointwise", 28 * MS, "aten::tanh"),
    )
    diagnosis = compare(fast, slow)
    assert [(d.kind, d.delta_ns) for d in diagnosis.differences] == [
        ("elementwise", 28 * MS),
        ("matmul", 18 * MS),
    ]
    assert diagnosis.dominant is diagnosis.findings[0]
    assert diagnosis.findings[1].finding.parts == (
        PartTimes("busy", "gemm", 0, 69 * MS),
        PartTimes("busy", "rnn", 51 * MS, 0),
    )


def test_what_a_device_waits_for_its_host_for_is_netted_and_told_together() -> None:
    # launching +10 and Python -8 are one change of how the host gives work: +2, less than casts
    fast = profile(
        contributor("idle", "launch call", 1 * MS),
        contributor("idle", "python", 9 * MS),
        contributor("busy", "gemm", 5 * MS, "k"),
        device=0,
    )
    slow = profile(
        contributor("idle", "launch call", 11 * MS),
        contributor("idle", "python", 1 * MS),
        contributor("busy", "gemm", 5 * MS, "k"),
        contributor("busy", "cast", 4 * MS, "c"),
        device=0,
    )
    kinds = [f.kind for f in findings(fast, slow)]
    assert kinds == ["cast", "launch", "Python", "matmul"]
    on_host = [profile(*p.contributors) for p in (fast, slow)]
    assert findings(*on_host)[0].kind == "launch"


def test_a_wait_for_the_host_of_several_kinds_comes_before_a_longer_single_kind() -> None:
    run = profile(
        contributor("idle", "launch call", 20 * MS),
        contributor("idle", "dispatch", 22 * MS),
        contributor("idle", "python", 18 * MS),
        contributor("busy", "gemm", 40 * MS, "k"),
        device=0,
    )
    diagnosis = alone(run)
    kinds = [e.finding.kind for e in diagnosis.findings]
    assert kinds == ["dispatch", "launch", "Python", "matmul"]
    verdict = diagnosis.verdict
    assert (verdict.kind, verdict.bottleneck) == ("dispatch", "waiting for the host")
    assert (verdict.bottleneck_ns, verdict.whole_ns) == (60 * MS, 100 * MS)


def test_a_wait_for_the_host_never_hides_a_longer_one_for_the_input() -> None:
    run = profile(
        contributor("input", "python", 50 * MS, "enumerate(DataLoader)#_.__next__"),
        contributor("idle", "dispatch", 20 * MS),
        contributor("idle", "python", 20 * MS),
        contributor("busy", "gemm", 10 * MS, "k"),
        device=0,
    )
    verdict = alone(run).verdict
    assert (verdict.kind, verdict.bottleneck) == ("input", "input")
    assert verdict.where[0] == Difference("input", 0, 50 * MS)
    assert (verdict.bottleneck_ns, verdict.whole_ns) == (50 * MS, 100 * MS)


def test_waits_for_the_input_do_not_count_as_waiting_for_the_host() -> None:
    run = profile(
        contributor("input", "python", 22 * MS, "enumerate(DataLoader)#_.__next__"),
        contributor("idle", "dispatch", 20 * MS),
        contributor("idle", "python", 14 * MS),
        contributor("busy", "gemm", 44 * MS, "k"),
        device=0,
    )
    verdict = alone(run).verdict
    assert (verdict.bottleneck, verdict.bottleneck_ns) == ("waiting for the host", 34 * MS)
    assert ("input", "input", "22.0") in largest_kinds(verdict)


def test_waiting_for_the_input_and_for_the_host_together_come_before_longer_work() -> None:
    run = profile(
        contributor("busy", "conv", 38 * MS, "implicit_convolve_sgemm"),
        contributor("input", "python", 33 * MS, "enumerate(DataLoader)#_.__next__"),
        contributor("idle", "dispatch", 9 * MS),
        contributor("busy", "pointwise", 20 * MS, "k"),
        device=0,
    )
    assert [f.kind for f in findings(None, run)][:3] == [
        "input",
        "dispatch",
        "matmul",
    ]


def test_the_order_is_by_what_would_be_saved() -> None:
    run = profile(
        contributor("busy", "gemm", 60 * MS, "aten::mm"),
        contributor("idle", "dispatch", 40 * MS, "aten::view"),
    )
    assert [f.kind for f in findings(None, run)] == ["matmul", "dispatch"]
    saved = {"matmul": Saving(20 * MS, "roofline")}
    first, second = findings(None, run, saved)
    assert (first.kind, first.rank, first.saving) == (
        "dispatch",
        1,
        Saving(40 * MS, "time taken"),
    )
    assert (second.kind, second.rank, second.slow_ns) == ("matmul", 2, 60 * MS)


def test_what_hardly_can_be_saved_is_named_where_nothing_else_is_a_good_share() -> None:
    # products at 97 % of their roofline; all else together is a tenth of the step
    run = profile(
        contributor("busy", "gemm", 90 * MS, "aten::mm"),
        contributor("busy", "pointwise", 6 * MS, "aten::tanh"),
        contributor("idle", "dispatch", 4 * MS, "aten::view"),
    )
    told = alone(run, {"matmul": Saving(3 * MS, "roofline")})
    kinds = [e.finding.kind for e in told.findings]
    assert kinds == ["matmul", "elementwise", "dispatch"]
    verdict = told.verdict
    assert (verdict.bottleneck, verdict.bottleneck_ns) == ("matmul", 90 * MS)
    assert told.findings[0].finding.saving == Saving(3 * MS, "roofline")
    assert alone(run, {"matmul": Saving(0, "roofline")}).verdict.bottleneck == "matmul"


def test_what_takes_longer_than_the_bottleneck_but_cannot_be_saved_comes_after_it() -> None:
    run = profile(
        contributor("busy", "gemm", 70 * MS, "aten::mm"),
        contributor("busy", "pointwise", 30 * MS, "aten::tanh"),
    )
    told = alone(run, {"matmul": Saving(5 * MS, "roofline")})
    assert (told.verdict.bottleneck, told.verdict.bottleneck_ns) == ("elementwise", 30 * MS)
    assert told.verdict.where[1] == Difference("matmul", 0, 70 * MS)
    assert told.findings[1].finding.saving == Saving(5 * MS, "roofline")
    assert "5.0 ms more than the roofline" in told.findings[1].sentence
    assert alone(run, {"elementwise": Saving(20 * MS, "roofline")}).verdict.bottleneck == "matmul"


def test_what_has_no_cause_comes_last_whatever_it_takes() -> None:
    run = profile(
        contributor("idle", "queued", 26 * MS, "k"),
        contributor("busy", "collective", 24 * MS, "ncclKernel"),
        contributor("idle", "host", 22 * MS),
        contributor("idle", "python", 7 * MS, "step"),
        contributor("busy", "gemm", 21 * MS, "k"),
        device=0,
    )
    verdict = alone(run).verdict
    assert (verdict.bottleneck, verdict.bottleneck_ns) == ("queued", 26 * MS)
    kinds = [part.kind for part in verdict.where]
    assert kinds == ["queued", "communication", "matmul", "Python", "unrecorded"]


PARTS = st.sampled_from(["gemm", "pointwise", "cast", "layout", "other", "rnn"])
contributors = st.builds(
    contributor,
    st.just("busy"),
    PARTS,
    st.integers(0, 10**12),
    st.none() | st.sampled_from("abc"),
    tiny=st.booleans(),
) | st.builds(
    contributor,
    st.sampled_from(["idle", "input"]),
    st.sampled_from(["python", "dispatch", "sync", "launch call", "unattributed", "profiler"]),
    st.integers(0, 10**12),
)


@st.composite
def profiles(draw: st.DrawFn, device: int | None) -> StepProfile:
    return profile(*draw(st.lists(contributors, min_size=1, max_size=12)), device=device)


@given(st.data(), st.sampled_from([None, 0]))
def test_parts_and_causes_sum_to_the_difference(data: st.DataObject, device: int | None) -> None:
    fast, slow = data.draw(profiles(device)), data.draw(profiles(device))
    start, end = fast.length_ns, slow.length_ns
    rows = waterfall(fast, slow)
    assert sum(d.delta_ns for d in rows) == end - start
    found = findings(fast, slow)
    assert rows == [Difference(f.kind, f.fast_ns, f.slow_ns) for f in found]
    assert [f.rank for f in found] == list(range(1, len(found) + 1))
    for finding in found:
        assert sum(part.slow_ns for part in finding.parts) == sum(
            c.ns for c in finding.contributors
        )
    assert sum(f.delta_ns for f in found) == end - start
    assert sum(f.fast_ns for f in found) == start
    assert sum(f.slow_ns for f in findings(None, slow)) == slow.length_ns


@given(st.lists(st.integers(0, 10**13), min_size=1), st.integers(1, 50))
def test_the_mean_of_totals_sums_to_the_mean_of_their_sum(totals: list[int], steps: int) -> None:
    means = mean_of(totals, steps)
    assert sum(means) == round(sum(totals) / steps)
    assert all(abs(mean - total / steps) <= 1 for mean, total in zip(means, totals, strict=True))
