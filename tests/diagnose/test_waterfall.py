"""The way from the fast step to the slow one: exact, and its largest step first."""

from __future__ import annotations

from diagnose.made import contributor, profile
from hypothesis import given, strategies as st

from lstmprof.diagnose.findings import PROFILER, Difference, findings, lengths, waterfall
from lstmprof.diagnose.step_profile import StepProfile, mean_of


def test_the_parts_of_two_timed_steps_sum_to_the_difference_of_their_medians() -> None:
    fast = profile(
        contributor("busy", "gemm", 70), contributor("idle", "dispatch", 20), median_ns=85
    )
    slow = profile(
        contributor("busy", "gemm", 75), contributor("idle", "python", 60), median_ns=140
    )
    found = waterfall(fast, slow)
    assert found == [
        Difference("idle", "python", 0, 60),
        Difference("idle", "dispatch", 20, 0),
        Difference("", PROFILER, -5, 5),
        Difference("busy", "gemm", 70, 75),
    ]
    assert [d.delta_ns for d in found] == [60, -20, 10, 5]
    assert sum(d.delta_ns for d in found) == 140 - 85


def test_without_timings_the_profiled_steps_are_explained() -> None:
    fast, slow = (
        profile(contributor("busy", "gemm", 70)),
        profile(contributor("busy", "gemm", 90), median_ns=80),
    )
    assert waterfall(fast, slow) == [Difference("busy", "gemm", 70, 90)]
    assert lengths(fast, slow) == (70, 90)


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
    median = draw(st.none() | st.integers(1, 10**13))
    return profile(
        *draw(st.lists(contributors, min_size=1, max_size=12)), median_ns=median, device=device
    )


@given(st.data(), st.sampled_from([None, 0]))
def test_parts_and_causes_sum_to_the_difference(data: st.DataObject, device: int | None) -> None:
    fast, slow = data.draw(profiles(device)), data.draw(profiles(device))
    start, end = lengths(fast, slow)
    assert sum(d.delta_ns for d in waterfall(fast, slow)) == end - start
    found = findings(fast, slow)
    assert sum(f.delta_ns for f in found) == end - start
    assert sum(f.fast_ns for f in found) == start
    assert sum(f.slow_ns for f in findings(None, slow)) == slow.profiled_ns


@given(st.lists(st.integers(0, 10**13), min_size=1), st.integers(1, 50))
def test_the_mean_of_totals_sums_to_the_mean_of_their_sum(totals: list[int], steps: int) -> None:
    means = mean_of(totals, steps)
    assert sum(means) == round(sum(totals) / steps)
    assert all(abs(mean - total / steps) <= 1 for mean, total in zip(means, totals, strict=True))
