"""The gate: what a limit means, what decides, and how often it errs on drawn pairs."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from diagnose.gate.drawn import ITERATIONS, pair
from diagnose.made import contributor, profile

from lstmprof.breakdown.doubts import DRIFT, Warning
from lstmprof.breakdown.timings import CpuTime
from lstmprof.diagnose.gate.document import Document
from lstmprof.diagnose.gate.limits import limits
from lstmprof.diagnose.gate.ratio import Span
from lstmprof.diagnose.gate.verdict import Gate, _range, gate, verdict
from lstmprof.diagnose.step_profile import StepProfile
from lstmprof.errors import UsageError

MS = 1_000_000
SLOWER = limits("slower > 3 %")


def ran(ms: float, name: str = "run", error: float = 0.01, **fields: Any) -> StepProfile:
    """A run whose step of so many ms may be off by ``error``."""
    length = round(ms * MS)
    given: dict[str, Any] = {
        "step_ns": length,
        "interval_ns": (length * (1 - error), length * (1 + error)),
        "facts": {"implementation": name},
    }
    return profile(contributor("busy", "gemm", length, "mm"), name=name, **{**given, **fields})


def state(base: StepProfile, new: StepProfile, text: str = "slower > 3 %") -> str:
    return verdict(base, new, limits(text)).state


@pytest.mark.parametrize(
    ("new_ms", "text", "expected"),
    [
        (11.0, "slower > 3 %", "fail"),
        (10.4, "slower > 3 %", "inconclusive"),
        (10.0, "slower > 3 %", "pass"),
        (9.0, "slower > 3 %", "pass"),
        (10.0, "slower > 1 %", "inconclusive"),
        (9.0, "faster > 3 %", "fail"),
        (11.0, "faster > 3 %", "pass"),
        (11.0, "step > 10.5 ms", "fail"),
        (11.0, "step > 11 ms", "inconclusive"),
        (11.0, "step > 0.0115 s", "pass"),
        (10.0, "slower > 3 % or step > 9 ms", "fail"),
        (10.0, "slower > 1 % or step > 12 ms", "inconclusive"),
        (10.0, "SLOWER>3% OR faster > 3 %", "pass"),
    ],
)
def test_all_that_the_number_may_be_lies_above_the_limit_or_below_it(
    new_ms: float, text: str, expected: str
) -> None:
    assert state(ran(10.0, error=0.001), ran(new_ms, error=0.001), text) == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("slower > 3", "cannot be meant"),
        ("slower > 3 ms", "'ms' is no unit of slower"),
        ("step > 3 %", "give one of ns, us, µs, ms, s"),
        ("slower > -3 %", "cannot be meant"),
        ("slower > 3 % and step > 1 ms", "cannot be meant"),
        ("slower > 3 % or", "joined by 'or'"),
        ("", "write 'slower > 3 %'"),
    ],
)
def test_a_condition_that_cannot_be_meant_is_one_line(text: str, said: str) -> None:
    with pytest.raises(UsageError, match="--fail-if") as fault:
        limits(text)
    assert said in str(fault.value)
    assert "\n" not in str(fault.value)


def test_a_doubt_about_the_longer_run_keeps_it_from_failing_and_is_told_with_its_remedy() -> None:
    drift = (Warning(DRIFT, "the step drifts", "let it cool", 0.15),)
    assert state(ran(10), ran(12)) == "fail"
    told = verdict(ran(10, "a"), ran(12, "b", doubts=drift), SLOWER)
    assert told.state == "inconclusive"
    assert told.advice == "b: the step drifts: let it cool"
    assert state(ran(12, doubts=drift), ran(12), "slower > 6 %") == "inconclusive"


def test_runs_that_had_no_cpu_cannot_be_compared() -> None:
    told = verdict(ran(10, "a"), ran(20, "b", compared_by=None, cpu_share=0.4), SLOWER)
    assert (told.state, told.ratio) == ("inconclusive", None)
    assert "b had its CPU for 40 % of the time" in told.sentence
    assert told.advice == "close other programs, or give each run CPUs of its own"
    fields = Gate(SLOWER, (told,)).to_dict()["pairs"][0]
    assert (fields["ratio"], fields["compared_by"]) == (None, None)


def test_cpu_time_is_compared_where_one_side_needs_it() -> None:
    cpu = [CpuTime(ms * MS, (0.99 * ms * MS, 1.01 * ms * MS), ()) for ms in (10, 12)]
    base = ran(10, "a", cpu=cpu[0])
    told = verdict(base, ran(40, "b", cpu=cpu[1], compared_by="CPU time"), SLOWER)
    assert told.sentence.startswith("by CPU time: b against a: 20.0 % slower")


def test_the_sentences_say_what_was_measured_and_what_is_next() -> None:
    generator = np.random.default_rng(1)
    base, new = pair(generator, 3, 0.01, 0.05)
    told = verdict(base, new, SLOWER)
    assert told.state == "inconclusive"
    assert "as far as 3 rounds each tell); cannot be told from slower > 3 %" in told.sentence
    assert told.advice.startswith("capture both with --rounds ")
    failed = verdict(*pair(generator, 10, 0.01, 0.3), SLOWER)
    assert failed.sentence.endswith("fails: slower > 3 %")
    assert "slower than base" in failed.why
    assert "Python-bound" in failed.why
    passed = verdict(*pair(generator, 20, 0.005, 0.0), limits("slower > 5 %"))
    assert passed.sentence.endswith("within fail-if slower > 5 %")


def test_the_rounds_that_it_asks_for_tell() -> None:
    generator = np.random.default_rng(2)
    advised = []
    for _ in range(20):
        told = verdict(*pair(generator, 5, 0.016, 0.1), limits("slower > 5 %"))
        if told.advice:
            numbers = re.search(r"--rounds (\d+) --iterations (\d+):", told.advice)
            assert numbers, told.advice
            assert int(numbers[2]) == ITERATIONS * int(numbers[1])
            advised.append(int(numbers[1]))
    rounds = sorted(advised)[len(advised) // 2]
    states = [state(*pair(generator, rounds, 0.016, 0.1), "slower > 5 %") for _ in range(20)]
    assert states.count("fail") >= 10


def test_own_code_has_no_rounds_to_take() -> None:
    base, new = pair(np.random.default_rng(3), 1, 0.01, 0.05)
    own = replace(base, info=msgspec.structs.replace(base.info, source="own code"))
    told = verdict(own, new, SLOWER)
    assert told.advice.startswith("run both again on a quieter machine, or capture both networks")


def test_one_round_each_is_advised_to_take_three() -> None:
    told = verdict(*pair(np.random.default_rng(3), 1, 0.01, 0.05), SLOWER)
    assert told.advice == "capture both with --rounds 3, which shows how far processes differ"


def of(name: str, ms: float = 10, **facts: Any) -> StepProfile:
    given = {"implementation": name, "label": "", **facts}
    return ran(ms, facts.pop("run", name), error=0.001, facts=given)


def test_runs_are_paired_by_what_they_are_and_the_worst_pair_decides() -> None:
    base = [of("a"), of("b"), of("c", label="main"), of("gone")]
    new = [of("c", 10, label="pr"), of("b", 20), of("a"), of("fresh")]
    told = gate(base[:3], new, SLOWER)
    assert [(v.base.implementation, v.state) for v in told.verdicts] == [
        ("a", "pass"),
        ("b", "fail"),
        ("c", "pass"),
    ]
    assert (told.state, told.exit_status) == ("fail", 3)
    assert told.lines == ("in what is new alone: fresh",)
    assert gate([base[0], base[2]], [new[2], new[0]], SLOWER).exit_status == 0


def test_what_was_measured_before_and_is_no_more_cannot_pass() -> None:
    told = gate([of("a"), of("gone")], [of("a")], SLOWER)
    assert (told.state, told.exit_status) == ("inconclusive", 4)
    assert told.lines == ("in the base alone: gone",)


def test_workloads_and_labels_are_told_apart() -> None:
    base = [of("a", 10, label="x"), of("a", 20, label="y"), of("a", 30, precision="tf32")]
    new = [of("a", 30, precision="tf32"), of("a", 20, label="y"), of("a", 10, label="x")]
    told = gate(base, new, SLOWER)
    assert [v.ratio.value for v in told.verdicts if v.ratio] == [1, 1, 1]


def test_two_runs_are_a_pair_whatever_they_are_called_if_they_can_be_compared() -> None:
    assert gate([of("a")], [of("b")], SLOWER).state == "pass"
    with pytest.raises(UsageError, match="--across precision"):
        gate([of("a")], [of("b", precision="tf32")], SLOWER)
    assert gate([of("a")], [of("b", precision="tf32")], SLOWER, ["precision"]).state == "pass"
    with pytest.raises(UsageError, match="none of the 2 runs"):
        gate([of("a"), of("b")], [of("c"), of("d")], SLOWER)


@pytest.mark.parametrize("planted", [0.0, 0.05, 0.3])
def test_json_obeys_its_schema(planted: float) -> None:
    pairs = [pair(np.random.default_rng(4), 5, 0.01, planted)]
    written = json.dumps(gate(*zip(*pairs, strict=True), SLOWER).to_dict())  # type: ignore[arg-type]
    document = msgspec.json.decode(written, type=Document)
    (told,) = document.pairs
    assert told.state == document.state
    assert told.ratio_low is not None
    assert told.ratio is not None
    assert told.ratio_low < told.ratio
    assert (told.advice is not None) == (told.state == "inconclusive")
    assert (told.why is not None) == (told.state == "fail")
    assert told.in_turn


def verdicts(
    rounds: int, spread: float, planted: float, text: str, pairs: int = 40
) -> Counter[str]:
    generator = np.random.default_rng(rounds)
    return Counter(state(*pair(generator, rounds, spread, planted), text) for _ in range(pairs))


#: Of processes in turn on a virtual machine: the ratios of docs/diagnosis.md over the root of two.
SPREADS = (0.011, 0.023)


@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("rounds", [3, 10])
def test_of_40_pairs_of_one_code_none_fails(rounds: int, spread: float) -> None:
    counts = verdicts(rounds, spread, 0.0, "slower > 3 %")
    assert counts["fail"] == 0
    assert counts["pass"] + counts["inconclusive"] == 40


@pytest.mark.parametrize(("rounds", "spread"), [(10, 0.011), (10, 0.016), (15, 0.023)])
def test_of_40_slowdowns_of_10_percent_38_fail_with_enough_rounds(
    rounds: int, spread: float
) -> None:
    assert verdicts(rounds, spread, 0.10, "slower > 3 %")["fail"] >= 38


@pytest.mark.parametrize("spread", SPREADS)
def test_with_three_rounds_a_slowdown_of_10_percent_cannot_be_told_but_never_passes(
    spread: float,
) -> None:
    assert verdicts(3, spread, 0.10, "slower > 3 %")["pass"] == 0


@pytest.mark.parametrize("rounds", [3, 10])
def test_a_slowdown_of_just_the_limit_hardly_fails_or_passes(rounds: int) -> None:
    counts = verdicts(rounds, 0.016, 0.05, "slower > 5 %")
    assert counts["inconclusive"] >= 38


def test_the_longer_name_of_two_runs_that_are_called_alike_tells_the_side() -> None:
    told = verdict(ran(10, "same", facts={}), ran(12, "same", facts={}), SLOWER)
    assert (told.base.name, told.new.name) == ("same (base)", "same (new)")


@pytest.mark.parametrize(
    ("span", "words"),
    [
        (Span(0.0, 1.0, None), "anything"),
        (Span(1.5, 2.0, None), "at least 50.0 % slower"),
        (Span(0.0, 1.0, 2.0), "at most 100.0 % slower"),
    ],
)
def test_what_a_ratio_may_be_is_told_as_far_as_it_has_ends(span: Span, words: str) -> None:
    assert _range(span) == words
