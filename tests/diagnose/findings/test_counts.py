"""Counts and lengths of a profile: what is unknown is None, and a mean that few make is told."""

from __future__ import annotations

import pytest
from diagnose.made import contributor, profile, table, tally

from lstmprof.base.numbers import count, file_size, number_of, quantity
from lstmprof.diagnose.diagnosis import alone
from lstmprof.diagnose.findings.counts import EVIDENCE, QUANTITIES, spread_of
from lstmprof.diagnose.step_profile.tally import Spread


def of(name: str, device: int | None = 0, steps: int = 1, **lengths: list[int]) -> float | None:
    run = profile(device=device, steps=steps, tally=tally(**lengths))
    return QUANTITIES[name].amount(run)


def test_a_length_has_a_mean_a_median_and_a_longest() -> None:
    lengths = [f"{which}_gap_ns" for which in ("mean", "median", "longest")]
    assert [of(name, gap=[1, 1, 1, 97]) for name in lengths] == [25, 1, 97]
    assert [of(name, gap=[]) for name in lengths] == [None, None, None]
    assert [of(name) for name in lengths] == [None, None, None]


def test_a_count_is_that_of_a_step_and_none_where_it_is_unknown() -> None:
    assert of("kernels", steps=2, kernel=[5] * 3) == 1.5
    assert (of("kernels", kernel=[]), of("kernels", None)) == (0, None)
    assert (of("products", product=[]), of("launches")) == (0, None)


def test_layers_are_ops_on_a_host_and_kernels_on_a_device() -> None:
    both = ("layer_ops", "layer_kernels")
    assert [of(name, None, layer=[9, 9]) for name in both] == [2, None]
    assert [of(name, 0, layer=[9, 9]) for name in both] == [None, 2]


@pytest.mark.parametrize(
    ("lengths", "uneven"),
    [
        ([9], False),
        ([9, 10], False),
        ([1, 1, 1, 97], True),
        ([3, 3, 3, 8], False),
        ([1] * 90 + [100] * 10, True),  # none is half of all
        ([0, 0, 5], True),
        ([0, 0], False),
    ],
)
def test_a_few_long_ones_make_a_mean(lengths: list[int], uneven: bool) -> None:
    run = profile(device=0, tally=tally(kernel=lengths))
    spread = spread_of(run, "kernel")
    assert isinstance(spread, Spread)
    assert spread.uneven == uneven


def test_bytes_copied_are_not_those_that_are_set() -> None:
    rows = [{"kind": "memcpy", "bytes": 70}, {"kind": "memset", "bytes": 900}]
    run = profile(device=0, tables={"copies": table(*rows)})
    assert QUANTITIES["copied_bytes"].amount(run) == 70
    run = profile(device=0, tables={"copies": table({"kind": "memcpy", "bytes": None})})
    assert QUANTITIES["copied_bytes"].amount(run) is None


def test_every_count_has_a_noun_of_one_and_every_length_its_statistic() -> None:
    for quantity_ in QUANTITIES.values():
        counts = not quantity_.unit and "_per_" not in quantity_.name
        assert bool(quantity_.singular) == counts, quantity_.name
        assert bool(quantity_.length_of) == bool(quantity_.statistic), quantity_.name
    assert {name for names in EVIDENCE.values() for name in names} <= QUANTITIES.keys()


def test_the_evidence_of_a_finding_has_medians_and_longest() -> None:
    run = profile(
        contributor("idle", "launch call", 9, "cudaLaunchKernel"),
        device=0,
        tally=tally(kernel=[5, 5], gap=[1, 1, 998], launch=[3, 3]),
    )
    (launching,) = alone(run).findings
    counts = {c.quantity: c.slow for c in launching.finding.changes}
    assert (
        counts.items()
        >= {
            **{"launches": 2, "mean_launch_ns": 3, "median_launch_ns": 3, "longest_launch_ns": 3},
            **{"kernels": 2, "mean_kernel_ns": 5, "median_kernel_ns": 5, "longest_kernel_ns": 5},
            **{"median_gap_ns": 1, "longest_gap_ns": 998},
        }.items()
    )


def test_numbers_and_their_nouns() -> None:
    assert [number_of(n, "copy", "copies") for n in (1, 2, 0.5)] == [
        "1 copy",
        "2 copies",
        "0.5 copies",
    ]
    assert [count(n) for n in (0, 0.04, 0.5, 1, 2412)] == ["0", "0.04", "0.5", "1", "2,412"]
    assert [quantity(n, "ns") for n in (1, 0, 120, 5_000)] == ["1 ns", "0 ns", "0.1 µs", "5.0 µs"]


@pytest.mark.parametrize(
    ("size", "said"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (3_090, "3.1 kB"),
        (250_000, "0.2 MB"),
        (2**30, "1,073.7 MB"),
    ],
)
def test_a_file_that_holds_something_has_a_size(size: int, said: str) -> None:
    assert file_size(size) == said
