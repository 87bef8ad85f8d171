"""The gate: what a limit means, what decides, and what would tell if nothing does."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec
import pytest
from compare_document import Document
from diagnose.made import contributor, profile, span

from lstmprof.base.errors import UsageError
from lstmprof.diagnose.certainty.pair import Ratio
from lstmprof.diagnose.diagnosis import compare
from lstmprof.diagnose.gate import _range, gate, limits, verdict
from lstmprof.diagnose.step_profile import StepProfile

MS = 1_000_000
SLOWER = limits("slower > 3 %")


def ran(ms: float, name: str = "run", error: float = 0.01, **fields: Any) -> StepProfile:
    """A run of 10 ms of matmuls and Python, whose step of so many ms may be off by ``error``."""
    length = round(ms * MS)
    python = max(length - 10 * MS, 0)
    given: dict[str, Any] = {
        "step_ns": length,
        "span": span(length, error),
        "facts": {"implementation": name},
    }
    parts = [contributor("busy", "gemm", length - python, "mm")]
    parts += [contributor("idle", "python", python)] if python else []
    return profile(*parts, name=name, **{**given, **fields})


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
    assert state(ran(10.0), ran(new_ms), text) == expected  # the ratio may be off by 1.4 %


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("slower > 3", "cannot be parsed"),
        ("slower > 3 ms", "'ms' is not a unit of slower"),
        ("step > 3 %", "use ns, us, µs, ms, s"),
        ("slower > -3 %", "cannot be parsed"),
        ("slower > 3 % and step > 1 ms", "cannot be parsed"),
        ("slower > 3 % or", "joined by 'or'"),
        ("", "write 'slower > 3 %'"),
    ],
)
def test_a_condition_that_cannot_be_meant_is_one_line(text: str, said: str) -> None:
    with pytest.raises(UsageError, match="--fail-if") as fault:
        limits(text)
    assert said in str(fault.value)
    assert "\n" not in str(fault.value)


def test_a_run_that_takes_no_time_cannot_be_compared() -> None:
    told = verdict(ran(10, "a"), ran(0, "b"), SLOWER)
    assert (told.state, told.ratio, told.advice) == ("inconclusive", None, "")
    assert "zero duration" in told.sentence


def test_it_has_what_was_measured_the_interval_and_what_is_next() -> None:
    base, three = ran(10, "a", rounds=3), {"rounds": 3, "error": 0.02}
    told = verdict(base, ran(10.5, "b", **three), SLOWER)
    assert (told.state, told.why) == ("inconclusive", "")
    assert told.ratio is not None
    # 10.5 of 10: 2 and 1 % off, root of the sum of squares
    assert (told.ratio.low, told.ratio.value, told.ratio.high) == pytest.approx(
        (1.027, 1.05, 1.074), abs=0.0005
    )
    for part in ("1.050×", "10.50 ms", "10.00 ms", "1.027×", "1.074×", "3 rounds", "slower > 3 %"):
        assert part in told.sentence
    assert told.advice.startswith("capture both runs again with --rounds ")
    failed = verdict(base, ran(13, "b", **three), SLOWER)
    assert (failed.state, failed.advice) == ("fail", "")
    assert "slower > 3 %" in failed.sentence
    assert failed.why == compare(base, ran(13, "b", **three)).verdict.sentence
    passed = verdict(base, ran(10, "b", **three), limits("slower > 5 %"))
    assert (passed.state, passed.advice, passed.why) == ("pass", "", "")
    assert "slower > 5 %" in passed.sentence


@pytest.mark.parametrize(
    ("ms", "text", "state_then"),
    [
        (10.5, "slower > 3 %", "fail"),
        (10.1, "slower > 3 %", "pass"),
        (10.5, "step > 10.6 ms", "pass"),
    ],
)
def test_the_rounds_that_it_asks_for_tell(ms: float, text: str, state_then: str) -> None:
    asked = {"facts": {"iterations": 30}, "rounds": 3}
    advice = verdict(ran(10, **asked), ran(ms, error=0.03, **asked), limits(text)).advice
    numbers = re.match(r"capture both runs again with --rounds (\d+) --iterations (\d+); ", advice)
    assert numbers, advice
    rounds = int(numbers[1])
    assert int(numbers[2]) == 10 * rounds
    errors = [error * (3 / (rounds + 1)) ** 0.5 for error in (0.01, 0.03)]
    assert state(ran(10, error=errors[0]), ran(ms, error=errors[1]), text) == state_then


def test_a_limit_that_is_what_was_measured_needs_another_limit() -> None:
    told = verdict(ran(10), ran(10.3), SLOWER)
    assert "more than 100 rounds" in told.advice
    assert "--rounds" not in told.advice


def test_own_code_has_no_rounds_to_take() -> None:
    own = {"facts": {"source": "own code"}}
    told = verdict(ran(10, **own), ran(10.5, error=0.03, **own), SLOWER)
    assert "--steps" in told.advice
    assert "--rounds" not in told.advice


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
    assert ([p.name for p in told.only_new], told.only_base) == (["fresh"], ())
    assert len(told.lines) == 1
    assert gate([base[0], base[2]], [new[2], new[0]], SLOWER).exit_status == 0


def test_what_was_measured_before_and_is_no_more_cannot_pass() -> None:
    told = gate([of("a"), of("gone")], [of("a")], SLOWER)
    assert (told.state, told.exit_status) == ("inconclusive", 4)
    assert ([p.name for p in told.only_base], told.only_new) == (["gone"], ())
    assert len(told.lines) == 1


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
    with pytest.raises(UsageError, match=r"no base run \(2\) has a comparable new run"):
        gate([of("a"), of("b")], [of("c"), of("d")], SLOWER)


@pytest.mark.parametrize("ms", [10, 10.3, 13])
def test_json_obeys_its_schema(ms: float) -> None:
    written = json.dumps(gate([ran(10, "a")], [ran(ms, "b")], SLOWER).to_dict())
    document = msgspec.json.decode(written, type=Document)
    (told,) = document.pairs
    assert told.state == document.state
    assert told.ratio_low is not None
    assert told.ratio is not None
    assert told.ratio_low < told.ratio
    assert told.steps == "clean"
    assert (told.advice is not None) == (told.state == "inconclusive")
    assert (told.why is not None) == (told.state == "fail")


def test_the_longer_name_of_two_runs_that_are_called_alike_tells_the_side() -> None:
    told = verdict(ran(10, "same", facts={}), ran(12, "same", facts={}), SLOWER)
    assert (told.base.name, told.new.name) == ("same (base)", "same (new)")


@pytest.mark.parametrize(
    ("ratio", "words"),
    [
        (Ratio(0.0, 1.0, None), "any ratio"),
        (Ratio(1.5, 2.0, None), "at least 1.500× as long"),
        (Ratio(0.0, 1.0, 2.0), "at most 2.000× as long"),
    ],
)
def test_what_a_ratio_may_be_is_told_as_far_as_it_has_ends(ratio: Ratio, words: str) -> None:
    assert _range(ratio) == words
