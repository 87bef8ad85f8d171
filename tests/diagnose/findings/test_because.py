"""The reason for a finding explains it, counts what it names, and says what takes the time."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from diagnose.made import contributor, profile, table, tally

from lstmprof.breakdown.lacks import GPU_UNSEEN, Lack
from lstmprof.diagnose.certainty import certainty_of
from lstmprof.diagnose.findings import Finding, findings
from lstmprof.diagnose.findings.because import because, named, pace, worth_a_line
from lstmprof.diagnose.findings.counts import QUANTITIES
from lstmprof.diagnose.remedies import remedies
from lstmprof.diagnose.seen import Seen
from lstmprof.diagnose.step_profile import StepProfile
from lstmprof.diagnose.step_profile.contributors import Contributor

MS = 1_000_000


def run(
    *contributors: Contributor,
    lengths: dict[str, list[int]] | None = None,
    ops: int | None = None,
    **fields: Any,
) -> StepProfile:
    tables = {} if ops is None else {"ops": table({"name": "aten::view", "count": ops})}
    return profile(*contributors, tables=tables, tally=tally(**lengths or {}), **fields)


def only(kind: str, slow: StepProfile, fast: StepProfile | None = None) -> Finding:
    (finding,) = (f for f in findings(fast, slow) if f.kind == kind)
    return finding


def reason(kind: str, slow: StepProfile, fast: StepProfile | None = None) -> str:
    return because(only(kind, slow, fast))


def in_order(text: str, *parts: str) -> bool:
    """Whether a text has these parts, one after the other."""
    return re.search(".*".join(map(re.escape, parts)), text) is not None


SGEMM, CONV = "ampere_sgemm_128x64_nn", "sm80_xmma_fprop_implicit_gemm_f32"


def test_convolutions_are_named_as_such_and_the_most_is_first() -> None:
    resnet = run(
        contributor("busy", "gemm", MS, SGEMM),
        contributor("busy", "conv", 52 * MS, CONV, count=52),
        contributor("busy", "conv", MS, "void at::native::im2col_kernel<float>(long)", count=52),
        lengths={"convolution": [MS] * 52, "product": [MS], "kernel": [MS] * 105},
        device=0,
    )
    why = reason("matmul", resnet)
    assert in_order(why, "52 convolutions per step", "1.000 ms each", "1 matmul", "1.000 ms")


@pytest.mark.parametrize(
    ("launch_ns", "copy_ns", "launches", "copies"),
    [(19 * MS, MS, True, False), (MS, 19 * MS, False, True), (9 * MS, 11 * MS, True, True)],
)
def test_a_call_that_copies_launches_no_kernel(
    launch_ns: int, copy_ns: int, launches: bool, copies: bool
) -> None:
    waits = run(
        contributor("idle", "launch call", launch_ns, "cudaLaunchKernel"),
        contributor("idle", "launch call", copy_ns - 10, "hipMemcpy"),
        contributor("idle", "launch call", 10, "cudaMemsetAsync"),
        contributor("busy", "gemm", MS, SGEMM),
        device=0,
    )
    words = named(only("launch", waits))
    assert ("kernel launches" in words, "copies" in words) == (launches, copies)


def test_more_of_them_is_no_reason_where_one_takes_it_all() -> None:
    lengths = [4000, 4000, 4000, 2 * MS]
    slow = run(
        contributor("idle", "launch call", sum(lengths), "cudaLaunchKernel"),
        lengths={"launch": lengths},
        device=0,
    )
    fast = run(
        contributor("idle", "launch call", 8000, "cudaLaunchKernel"),
        lengths={"launch": [4000, 4000]},
        device=0,
        name="fast",
    )
    why = reason("launch", slow, fast)
    assert in_order(why, "4 kernel launches", "2.0 ms", "longest 2.000 ms", "baseline: 2 kernel")


def test_without_steps_nothing_is_a_step() -> None:
    whole = run(
        contributor("busy", "gemm", 4 * MS, SGEMM),
        lengths={"product": [2 * MS] * 2},
        device=0,
        marked=False,
    )
    assert in_order(reason("matmul", whole), "2 matmuls", "2.000 ms each")
    assert "step" not in reason("matmul", whole)


def test_the_median_and_the_longest_where_one_long_item_makes_the_mean() -> None:
    lengths = [1000] * 7 + [93 * MS]
    first = run(
        contributor("busy", "gemm", sum(lengths), "aten::mm", count=8),
        lengths={"product": lengths},
    )
    assert in_order(reason("matmul", first), "8 matmuls", "median 1.0 µs", "longest 93.000 ms")


def test_what_takes_the_time_in_each_and_no_count_that_is_none() -> None:
    lstmcell = run(
        contributor("busy", "gemm", 61 * MS, "aten::mm", count=33),
        lengths={"product": [61 * MS // 33] * 33},
        facts={"implementation": "tf-lstmcell"},
    )
    layers = run(
        contributor("busy", "rnn", 132 * MS, "aten::mkldnn_rnn_layer", count=2),
        contributor("busy", "gemm", 3 * 48_000, "aten::mm", count=3),
        lengths={"product": [48_000] * 3, "layer": [66 * MS] * 2},
        facts={"implementation": "torch-nn-lstm"},
    )
    why = reason("matmul", layers, lstmcell)
    assert in_order(why, "2 oneDNN", "132.0 ms", "baseline: 33 matmuls", "61.0 ms")
    assert " 3 matmuls" not in why  # 0.1 % of the time
    assert "none" not in why


@pytest.mark.parametrize(
    ("calls", "said"),
    [
        (3, ("3 matmuls", "9.000 ms each", "baseline: 2.000 ms")),
        (1, ("1 matmul", "9.0 ms", "baseline: 2.0 ms")),
    ],
)
def test_a_count_that_is_equal_is_no_reason(calls: int, said: tuple[str, ...]) -> None:
    def with_products(ms: int, name: str) -> StepProfile:
        product = contributor("busy", "gemm", calls * ms * MS, "aten::mm", count=calls)
        return run(product, lengths={"product": [ms * MS] * calls}, name=name)

    text = reason("matmul", with_products(9, "slow"), with_products(2, "fast"))
    assert in_order(text, *said)
    assert text.count("matmul") == 1  # and no count of the fast run


@pytest.mark.parametrize(
    ("to_dtype", "why"), [(None, "aten::copy_ takes 9.0 ms"), ("c10::Half", "10 casts")]
)
def test_what_may_be_a_copy_to_a_gpu_is_no_cast(to_dtype: str | None, why: str) -> None:
    casts = {"op": "aten::to", "within": None, "from_dtype": None, "to_dtype": to_dtype}
    slow = run(
        contributor("busy", "cast", 9 * MS, "aten::copy_", count=10),
        lacks=(Lack(GPU_UNSEEN, "no GPU activity was recorded"),),
    )
    tables = {"casts": table({**casts, "count": 10, "total_ns": 9 * MS, "bytes": None})}
    found = only("cast", replace(slow, tables=tables))
    assert ("copies" in named(found)) == (to_dtype is None)
    assert why in because(found)
    reasons = certainty_of(found, [found]).reasons
    assert any("copies" in reason for reason in reasons) == (to_dtype is None)
    assert ("casts" in {c.quantity for c in worth_a_line(found)}) == (to_dtype is not None)
    assert any(advice.name == "keep one type" for advice in remedies(found)) == (
        to_dtype is not None
    )


def test_ops_are_no_reason_where_one_of_them_takes_it_all() -> None:
    def dispatching(draws: int) -> StepProfile:
        return run(
            contributor("idle", "dispatch", 90 * MS, "aten::normal_", count=draws),
            contributor("idle", "dispatch", MS, "aten::view", count=100 - draws),
            ops=100,
        )

    assert in_order(reason("dispatch", dispatching(1)), "aten::normal_", "90.0 ms")
    assert "100 ops" not in reason("dispatch", dispatching(1))
    assert "100 ops" in reason("dispatch", dispatching(60))


def test_a_count_is_the_reason_where_so_many_less_would_save_it() -> None:
    few = run(contributor("idle", "dispatch", 2 * MS, "aten::view"), ops=61, name="few")
    many = run(contributor("idle", "dispatch", 20 * MS, "aten::view"), ops=2412, name="many")
    assert in_order(reason("dispatch", many, few), "2,412 ops per step", "baseline: 61")
    assert "ms" not in reason("dispatch", many, few)
    # of 70 too few are more; of 90 a third fewer would save 6.5 of the 18 ms: each takes longer
    for ops in (70, 90):
        slow = run(contributor("idle", "dispatch", 20 * MS, "aten::view"), ops=ops, name="slow")
        why = reason("dispatch", slow, few)
        assert in_order(why, f"{ops} ops", "20.0 ms", "baseline: 61 ops", "2.0 ms")


def test_a_count_of_what_takes_little_of_it_is_no_reason() -> None:
    waiting = run(
        contributor("idle", "host", 90 * MS),
        contributor("idle", "launch call", MS, "cudaLaunchKernel", count=60),
        contributor("idle", "launch latency", 9 * MS, "cudaMemcpyAsync"),
        contributor("idle", "python", 30 * MS),
        lengths={"launch": [9000] * 60},
        ops=500,
        device=0,
    )
    assert reason("unrecorded", waiting) == ""
    assert reason("Python", waiting) == ""
    assert in_order(reason("launch", waiting), "cudaMemcpyAsync", "9.0 ms")
    assert "60" not in reason("launch", waiting)


def test_what_an_unknown_number_takes_is_not_counted() -> None:
    why = reason("matmul", run(contributor("busy", "gemm", MS, "aten::mm")))
    assert in_order(why, "aten::mm", "1.0 ms")
    assert "matmul" not in why


def test_a_copy_in_element_by_element_work_is_not_counted_there() -> None:
    optimizer = run(
        contributor("busy", "optimizer", MS, "multi_tensor_apply_kernel"),
        contributor("busy", "optimizer", 2 * MS, "Memcpy DtoD (Device -> Device)"),
        lengths={"pointwise": [MS], "copy": [2 * MS]},
        device=0,
    )
    assert in_order(reason("elementwise", optimizer), "1 elementwise op", "1.000 ms")
    assert "cop" not in reason("elementwise", optimizer)


def test_copies_and_memsets_are_two_things() -> None:
    moved = run(
        contributor("busy", "layout", 2 * MS, "Memcpy DtoD (Device -> Device)"),
        contributor("busy", "memset", MS, "Memset (Device)"),
        lengths={"copy": [2 * MS], "memset": [MS // 2] * 2},
        device=0,
    )
    why = reason("copy", moved)
    assert in_order(why, "1 copy", "2.000 ms", "2 memsets", "500.0 µs each")


def test_the_pace_of_a_device_is_of_kernels_and_tells_a_long_gap() -> None:
    steady = run(
        contributor("busy", "gemm", 4 * MS),
        lengths={"kernel": [MS] * 4, "gap": [2000] * 3, "launch": [5] * 4},
        device=0,
    )
    said = ("4 kernel launches per step", "1,000 per second", "1.000 ms", "gap", "2.0 µs")
    assert in_order(pace(steady), *said)
    captured = pace(replace(steady, seen=Seen(captured=3)))
    assert in_order(captured, said[0], "3 of them captured into a CUDA graph", *said[1:])
    once = run(
        contributor("busy", "gemm", 100 * MS),
        lengths={"kernel": [MS] * 4, "gap": [1, 1, 96 * MS], "launch": [5]},
        device=0,
        marked=False,
    )
    assert in_order(pace(once), "1 kernel launch", "10 per second", "1.000 ms", "gap", "96.000 ms")
    assert "1 ns" not in pace(once)
    assert "step" not in pace(once)
    assert pace(run(contributor("busy", "gemm", MS), device=0)) == ""


def test_a_table_shows_the_mean_or_the_median_and_the_longest_and_no_zeros() -> None:
    def shown(lengths: list[int]) -> list[str]:
        product = contributor("busy", "gemm", MS, SGEMM)
        finding = only("matmul", run(product, lengths={"product": lengths}, device=0))
        return [change.quantity for change in worth_a_line(finding)]

    assert shown([5, 5]) == ["products", "mean_product_ns"]
    assert shown([1, 1, 98]) == ["products", "median_product_ns", "longest_product_ns"]
    assert QUANTITIES["mean_product_ns"].unit == "ns"


def test_the_time_of_products_is_named_by_what_they_are() -> None:
    def named_of(*parts: tuple[str, str, int]) -> str:
        busy = [contributor("busy", part, ms * MS, name) for part, name, ms in parts]
        return named(only("matmul", run(*busy)))

    assert named_of(("conv", "aten::mkldnn_convolution", 52), ("gemm", "aten::mm", 1)) == (
        "convolutions"
    )
    assert named_of(("rnn", "aten::mkldnn_rnn_layer", 60), ("gemm", "aten::mm", 40)) == (
        "recurrent layers and matmuls"
    )
    assert named_of(("gemm", "aten::mm", 1)) == "matmuls"


def test_work_that_overlaps_is_told_by_its_share_and_not_as_the_length_of_one() -> None:
    # nine products of 2 ms each on several threads hold 9 of the step's ms
    slow = run(
        contributor("busy", "gemm", 9 * MS, "aten::mm", count=9),
        lengths={"product": [2 * MS] * 9},
        name="slow",
    )
    fast = run(
        contributor("busy", "gemm", MS, "aten::mm", count=9),
        lengths={"product": [MS // 9] * 9},
        name="fast",
    )
    why = reason("matmul", slow, fast)
    assert in_order(why, "9 matmuls", "9.0 ms", "baseline: 9 matmuls", "1.0 ms")
    assert "each" not in why


def test_a_long_one_among_many_is_told_against_a_faster_run_too() -> None:
    lengths = [1000] * 7 + [93 * MS]
    slow = run(
        contributor("busy", "gemm", sum(lengths), "aten::mm", count=8),
        lengths={"product": lengths},
        name="slow",
    )
    fast = run(
        contributor("busy", "gemm", 8000, "aten::mm", count=8),
        lengths={"product": [1000] * 8},
        name="fast",
    )
    why = reason("matmul", slow, fast)
    assert in_order(
        why, "8 matmuls take 93.0 ms", "longest 93.000 ms", "baseline: 8 matmuls", "0.008 ms"
    )


def test_a_long_one_beside_which_others_ran_is_not_told_as_longer_than_all() -> None:
    slow = run(
        contributor("busy", "gemm", 50 * MS, "aten::mm", count=8),
        lengths={"product": [1000] * 7 + [93 * MS]},
        name="slow",
    )
    fast = run(
        contributor("busy", "gemm", 8000, "aten::mm", count=8),
        lengths={"product": [1000] * 8},
        name="fast",
    )
    why = reason("matmul", slow, fast)
    assert in_order(why, "8 matmuls take 50.0 ms", "baseline: 8 matmuls", "0.008 ms")
    assert "longest" not in why


def test_the_step_itself_is_no_culprit_of_the_step() -> None:
    def of(step_ns: int, backward_ns: int) -> str:
        return reason(
            "Python",
            profile(
                contributor("idle", "python", step_ns * MS, "step"),
                contributor("idle", "python", backward_ns * MS, "backward"),
                tables={"ranges": table({"name": "step", "kind": "step", "count": 1})},
            ),
        )

    assert in_order(of(3, 1), "3.0 ms", "outside the step's ranges")
    assert of(30, 1) == ""
    assert in_order(of(1, 3), "3.0 ms", "backward")
