"""The verdict: one record of the bottleneck, its cause, the fixes and how certain all this is."""

from __future__ import annotations

import functools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from diagnose.made import contributor, diagnose, profile, span, table
from diagnose_document import Document

from benchmarks.samples import TRACES, samples
from lstmprof.breakdown import Breakdown, break_down
from lstmprof.breakdown.clean.now_and_then import Rare
from lstmprof.breakdown.clean.timings import GOVERNOR, Warning
from lstmprof.diagnose.certainty import Outcome
from lstmprof.diagnose.diagnosis import Diagnosis, alone, compare, diagnose_all
from lstmprof.diagnose.findings.savings import ROOFLINE, Saving
from lstmprof.diagnose.remedies import TABLE, Advice
from lstmprof.diagnose.step_profile import StepProfile
from lstmprof.diagnose.verdict import verdict_of
from lstmprof.diagnose.verdict.verdict_text import (
    clause_ends,
    first_line,
    largest_kinds,
    verdict_lines,
)
from lstmprof.runs.run import open_run

MS = 1_000_000


def ran(name: str, python_ms: float, error: float = 0.01, **fields: Any) -> StepProfile:
    """A run of 10 ms of matmuls and so much Python, timed as it was profiled."""
    step_ns = round((10 + python_ms) * MS)
    given = {"step_ns": step_ns, "span": span(step_ns, error), **fields}
    parts = [
        contributor("busy", "gemm", 10 * MS, "mm"),
        contributor("idle", "python", step_ns - 10 * MS),
    ]
    return profile(*parts, name=name, **given)


def test_of_two_runs_it_has_the_ratio_and_what_the_bottleneck_adds() -> None:
    verdict = compare(ran("a", 1), ran("b", 12)).verdict
    assert (verdict.subject, verdict.baseline, verdict.state) == ("b", "a", "found")
    assert verdict.ratio is not None
    assert (verdict.ratio.value, verdict.times) == (2, "2.00×")
    assert (verdict.kind, verdict.bottleneck) == ("Python", "Python")
    assert (verdict.bottleneck_ns, verdict.whole_ns) == (11 * MS, 11 * MS)
    assert [(d.kind, d.delta_ns) for d in verdict.where] == [("Python", 11 * MS), ("matmul", 0)]
    assert (verdict.certainty, verdict.reasons) == ("measured", ())
    assert (verdict.step.ns, verdict.baseline_ns) == (22 * MS, 11 * MS)


def test_of_a_run_alone_it_has_what_the_bottleneck_takes() -> None:
    diagnosis = alone(ran("a", 1))
    verdict = diagnosis.verdict
    assert diagnosis.differences == ()
    assert (verdict.subject, verdict.baseline, verdict.state) == ("a", None, "found")
    assert (verdict.ratio, verdict.times, verdict.head) == (None, "", "a")
    assert (verdict.kind, verdict.bottleneck) == ("matmul", "matmul")
    assert (verdict.bottleneck_ns, verdict.whole_ns) == (10 * MS, 11 * MS)
    assert [(d.kind, d.slow_ns) for d in verdict.where] == [("matmul", 10 * MS), ("Python", MS)]


@pytest.mark.parametrize(
    ("device", "parts", "then"),
    [
        (None, {}, ""),
        (None, {("input", "input"): 3}, "input takes 21 % of the step (3.0 ms)"),
        (None, {("input", "input"): 1}, ""),
        (None, {("idle", "dispatch"): 5}, ""),
        (0, {("idle", "dispatch"): 5}, "dispatch takes 31 % of the step (5.0 ms)"),
        (
            0,
            {("idle", "dispatch"): 2, ("idle", "python"): 2, ("idle", "sync"): 4},
            "waiting for the host takes 21 % of the step (4.0 ms) and sync takes 21 % of the step "
            "(4.0 ms)",
        ),
        (0, {("busy", "pointwise"): 8}, ""),
    ],
)
def test_of_a_run_alone_it_names_other_waits_of_a_tenth_of_the_step(
    device: int | None, parts: dict[tuple[str, str], int], then: str
) -> None:
    given = {("busy", "gemm"): 10, **parts}
    times = [contributor(*part, ms * MS, f"n{i}") for i, (part, ms) in enumerate(given.items())]
    verdict = alone(profile(contributor("busy", "layout", MS, "c"), *times, device=device)).verdict
    assert (verdict.kind, verdict.then) == ("matmul", then)
    assert verdict.sentence.endswith(f"; next: {then}.") == bool(then)


@pytest.mark.parametrize(
    ("diagnosis", "amount"),
    [
        (compare(ran("a", 1), ran("b", 12)), "adds 11.0 of 11.0 ms"),
        (alone(ran("a", 1)), "takes 91 % of the step (10.0 of 11.0 ms)"),
        (alone(ran("a", 1, marked=False)), "takes 91 % of the profile (10.0 of 11.0 ms)"),
        (
            compare(  # 30 ms more of Python, 10 ms less of matmuls
                profile(contributor("busy", "gemm", 50 * MS, "mm"), name="a"),
                profile(
                    contributor("busy", "gemm", 40 * MS, "mm"),
                    contributor("idle", "python", 30 * MS),
                    name="b",
                ),
            ),
            "adds 30.0 ms",
        ),
    ],
)
def test_the_amount_is_of_the_difference_the_step_or_the_profile(
    diagnosis: Diagnosis, amount: str
) -> None:
    assert diagnosis.verdict.amount == amount


@pytest.mark.parametrize(("ms", "named"), [(10, True), (9, False)])
def test_a_kind_of_time_that_takes_as_long_is_named(ms: int, named: bool) -> None:
    parts = [contributor("busy", "gemm", 10 * MS, "mm"), contributor("busy", "pointwise", ms * MS)]
    verdict = alone(profile(*parts)).verdict
    other = {"matmul": "elementwise", "elementwise": "matmul"}[verdict.kind or ""]
    assert verdict.amount.endswith(f"ms, as much as {other})") == named


def test_the_cause_comes_before_the_bottleneck_and_its_counts() -> None:
    verdict = compare(ran("a", 1), ran("b", 12)).verdict
    known = replace(verdict, cause="50 cells", evidence="7 ops")
    assert known.why == f"50 cells; Python {known.amount}: 7 ops"
    assert replace(known, cause="", evidence="").why == f"Python {known.amount}"
    assert known.sentence == f"{known.head}: {known.why}."


@pytest.mark.parametrize(("error", "shown"), [(0.01, False), (0.3, True)])
def test_the_interval_of_the_ratio_is_shown_if_it_is_wide(error: float, shown: bool) -> None:
    verdict = compare(ran("a", 1, error), ran("b", 12, error)).verdict
    assert ("95 %" in verdict.head) is shown


@pytest.mark.parametrize(("error", "rough"), [(0.01, False), (0.95, True)])
def test_parts_are_not_shown_if_the_machine_was_too_busy_to_time_them(
    error: float, rough: bool
) -> None:
    few, many = ({"ops": table({"name": "mm", "count": n, "host_self_ns": MS})} for n in (1, 50))
    diagnosis = compare(ran("a", 1, error, tables=few), ran("b", 12, error, tables=many))
    lines = {line.label: line.text for line in verdict_lines(diagnosis)}
    assert diagnosis.verdict.rough is rough
    assert ("Python" not in lines["Where"]) is rough
    assert ("ratio unknown" in first_line(diagnosis)) is rough
    assert ("Python" not in diagnosis.verdict.sentence) is rough


@pytest.mark.parametrize(
    ("python_ms", "times"), [(12, "2.00×"), (1089, "99.91×"), (11_331, "1,031×")]
)
def test_a_large_ratio_has_no_digits_behind_the_point(python_ms: float, times: str) -> None:
    verdict = compare(ran("a", 1), ran("b", python_ms)).verdict
    assert verdict.times == times
    assert f"b takes {times} as long as a " in verdict.head


@pytest.mark.parametrize(
    ("marked", "lengths"),
    [
        ((True, True), "22.0 against 11.0 ms per step"),
        ((False, False), "22.0 against 11.0 ms in the whole profile"),
        ((True, False), "22.0 ms in the whole profile against 11.0 ms per step"),
    ],
)
def test_a_profile_without_step_markers_is_no_step(marked: tuple[bool, bool], lengths: str) -> None:
    verdict = compare(ran("a", 1, marked=marked[0]), ran("b", 12, marked=marked[1])).verdict
    assert f"({lengths})" in verdict.head
    assert lengths.startswith(verdict.step_ms.partition(" ms")[0])
    assert lengths.endswith(verdict.baseline_ms)


@pytest.mark.parametrize(
    ("python_ms", "error", "certainty"), [(1.1, 0.01, "measured"), (3, 0.3, "unknown")]
)
def test_without_a_difference_it_names_no_bottleneck_and_no_fix(
    python_ms: float, error: float, certainty: str
) -> None:
    diagnosis = compare(ran("a", 1, error), ran("b", python_ms, error))
    verdict = diagnosis.verdict
    assert (verdict.state, verdict.kind, verdict.bottleneck) == ("none", None, None)
    assert (verdict.bottleneck_ns, verdict.fixes) == (0, ())
    assert verdict.certainty == certainty  # that both are equal; that they may be
    assert verdict.sentence.startswith(f"b and a {diagnosis.outcome.reason}")


def test_without_a_known_cause_it_has_the_ratio_and_says_why_not() -> None:
    fast = ran("a", 1)
    doubled = tuple(replace(part, ns=2 * part.ns) for part in fast.contributors)
    diagnosis = compare(fast, replace(fast, name="b", contributors=doubled, span=span(22 * MS)))
    verdict = diagnosis.verdict
    assert (verdict.state, verdict.kind, verdict.bottleneck) == ("unknown", None, None)
    assert verdict.ratio is not None
    assert (verdict.ratio.value, verdict.certainty) == (2, "unknown")
    assert verdict.sentence == f"{verdict.head}: {diagnosis.outcome.words}."
    single = alone(profile(contributor("busy", "other", MS, "custom::op"), name="a")).verdict
    assert (single.state, single.bottleneck, single.certainty) == ("unknown", None, "unknown")
    assert single.sentence == f"a: {single.words}."


def test_several_waits_of_a_device_for_its_host_are_one_bottleneck() -> None:
    def waits(**ms: int) -> StepProfile:
        gaps = (contributor("idle", part, each * MS) for part, each in ms.items())
        return profile(*gaps, contributor("busy", "gemm", 20 * MS, "k"), device=0)

    several = alone(waits(dispatch=30, python=20)).verdict
    assert (several.kind, several.bottleneck) == ("dispatch", "waiting for the host")
    assert (several.bottleneck_ns, several.whole_ns) == (50 * MS, 70 * MS)
    mostly = alone(waits(dispatch=50, python=5)).verdict
    assert (mostly.kind, mostly.bottleneck, mostly.bottleneck_ns) == (
        *("dispatch", "dispatch"),
        50 * MS,
    )


def advice(name: str, saves_ns: int | None, gain_ns: int | None = None, **fields: Any) -> Advice:
    given = {"cause": f"cause of {name}", "fix": "do it", "condition": "", "framework": None}
    return Advice(name, **{**given, "source": "", **fields}, saves_ns=saves_ns, gain_ns=gain_ns)


def test_fixes_come_best_first_a_measured_gain_before_what_is_addressed() -> None:
    some = [
        advice("unknown", None),
        advice("addressed", 3 * MS),
        advice("measured", 9 * MS, 2 * MS),
        advice("best", None, 5 * MS),
    ]
    verdict = verdict_of(None, ran("a", 1), [], Outcome("unknown"), some)
    assert [fix.name for fix in verdict.fixes] == ["best", "addressed", "measured", "unknown"]


def layers(form: str, op: str | None, cells: int) -> dict[str, Any]:
    row = {"form": form, "op": op, "cells": cells, "forward_ns": MS, "backward_ns": None}
    row |= {"per_step": 50.0 if form == "cell op" else 1.0, "calls": 500}
    return {"layers": table(row)}


CELLS, LAYER = layers("cell op", "aten::lstm_cell", 50), layers("layer op", "aten::lstm", 50)


def test_the_cause_is_what_the_slow_run_calls_and_the_baseline_does_not() -> None:
    verdict = compare(ran("a", 1, tables=LAYER), ran("b", 12, tables=CELLS)).verdict
    assert "50 LSTMCell calls per step" in verdict.cause
    assert verdict.why.startswith(f"{verdict.cause}; ")
    assert alone(ran("b", 12, tables=CELLS)).verdict.cause == "50 LSTMCell calls per step"
    assert alone(ran("a", 1, tables=LAYER)).verdict.cause == ""
    equal = compare(ran("a", 1, tables=LAYER), ran("b", 1, tables=CELLS)).verdict
    assert equal.state == "none"
    assert "50 LSTMCell calls per step" in equal.sentence


def test_the_cause_is_that_of_a_fix_for_half_of_the_time() -> None:
    diagnosis = alone(ran("b", 12, tables=CELLS))
    parts = [explained.finding for explained in diagnosis.findings]
    name = next(row.name for row in TABLE if row.several_kinds and not row.first)
    for saves_ms, is_named in ((12, True), (10, False)):
        fix = advice(name, saves_ms * MS)
        verdict = verdict_of(None, diagnosis.slow, parts, diagnosis.outcome, [fix])
        assert (verdict.cause == fix.cause) is is_named


def test_the_fix_for_the_cause_comes_before_a_larger_known_gain() -> None:
    diagnosis = compare(ran("a", 1, tables=LAYER), ran("b", 12, tables=CELLS))
    parts = [explained.finding for explained in diagnosis.findings]
    some = [
        advice("look inside", 5 * MS),
        advice("layer in one op", None, seen="50 LSTMCell calls per step"),
    ]
    verdict = verdict_of(diagnosis.fast, diagnosis.slow, parts, diagnosis.outcome, some)
    assert [fix.name for fix in verdict.fixes] == ["layer in one op", "look inside"]


@pytest.mark.parametrize(("saves_ms", "level"), [(12, "likely"), (None, "unknown")])
def test_a_cause_with_a_known_saving_is_likely_though_no_kind_of_time_is_sure(
    saves_ms: int | None, level: str
) -> None:
    name = next(row.name for row in TABLE if row.first)
    fix = advice(name, None if saves_ms is None else saves_ms * MS)
    unsure = Outcome("unknown", "the profiler may have worked")
    parts = [explained.finding for explained in alone(ran("a", 1)).findings]
    verdict = verdict_of(None, ran("a", 1), parts, unsure, [fix])
    assert (verdict.cause, verdict.certainty) == (fix.cause, level)
    assert verdict.reasons == ((unsure.reason,) if level == "likely" else ())


@pytest.mark.parametrize(
    ("larger", "first", "claims"),
    [(None, "pin memory", True), ("TF32", "pin memory", True), ("other", "pin memory", False)],
)
def test_no_part_is_the_largest_that_could_be_saved_if_a_fix_saves_more(
    larger: str | None, first: str, claims: bool
) -> None:
    """Matmuls take 10 ms and could save 1 ms; the copies take 8 ms."""
    run = profile(
        contributor("busy", "gemm", 10 * MS, "mm"),
        contributor("busy", "transfer", 8 * MS, "Memcpy HtoD (Pageable -> Device)"),
        device=0,
    )
    diagnosis = alone(run, {"matmul": Saving(MS, ROOFLINE)})
    assert diagnosis.verdict.kind == "copy"
    some = [advice("pin memory", 7 * MS), *([advice(larger, 9 * MS)] if larger else [])]
    parts = [explained.finding for explained in diagnosis.findings]
    verdict = verdict_of(None, run, parts, diagnosis.outcome, some)
    assert verdict.fixes[0].name == first
    plain = verdict_of(None, run, parts, diagnosis.outcome, some[:1]).amount
    assert (verdict.amount == plain) is (larger is None)
    assert verdict.amount.endswith(" ms)") is not claims


def test_a_fix_for_two_kinds_of_time_is_shown_once() -> None:
    diagnosis = alone(ran("b", 12, tables=CELLS))
    twice = (advice("warm up", 5 * MS), advice("warm up", 3 * MS), advice("other", MS, fix="look"))
    first = replace(diagnosis.findings[0], remedies=twice)
    shown = replace(diagnosis, findings=(first, *diagnosis.findings[1:]))
    lines = [line for line in verdict_lines(shown) if line.label == "Fix"]
    assert [line.text for line in lines] == ["do it", "look"]


def test_a_count_of_ops_is_a_cause_of_what_grows_with_them_and_is_shown_once() -> None:
    def made(name: str, state: str, part: str, ops: int) -> StepProfile:
        parts = [contributor("busy", "gemm", MS, "aten::mm")]
        parts += [contributor(state, part, ops * MS, "aten::view")]
        tables = {"ops": table({"name": "aten::view", "count": ops, "host_self_ns": 9})}
        return profile(*parts, name=name, tables=tables)

    def verdict(state: str, part: str) -> Any:
        return compare(made("a", state, part, 2), made("b", state, part, 20)).verdict

    assert "20 ops per step" in verdict("idle", "python").cause
    waits = verdict("idle", "sync")
    assert (waits.kind, waits.cause) == ("sync", "")
    dispatch = verdict("idle", "dispatch")
    assert (dispatch.kind, dispatch.cause) == ("dispatch", "")
    assert dispatch.why.count("20 ops per step") == 1


def test_the_cause_is_a_setting_of_the_same_implementation() -> None:
    def made(name: str, matmuls: int, implementation: str | None) -> StepProfile:
        settings = {"onednn": name == "a", "deterministic": name == "a"}
        return profile(
            contributor("busy", "gemm", matmuls * MS, "aten::mm", count=matmuls),
            name=name,
            facts={"implementation": implementation, "settings": settings},
        )

    known, unknown = (
        compare(made("a", 1, row), made("b", 3, row)).verdict for row in ("torch-nn-lstm", None)
    )
    assert (known.kind, unknown.kind) == ("matmul", "matmul")
    assert "oneDNN off instead of on" in known.cause
    assert "deterministic" not in known.cause  # which costs the fast run time


def test_what_the_machine_took_and_what_happens_now_and_then_are_of_the_subject() -> None:
    rare = (Rare("gc", 2, 3 * MS),)
    verdict = compare(ran("a", 1, lost_ns=9), ran("b", 12, lost_ns=5 * MS, rare=rare)).verdict
    assert (verdict.lost_ns, verdict.now_and_then) == (5 * MS, rare)


@pytest.mark.parametrize(
    "diagnosis",
    [
        compare(ran("a", 1), ran("b", 12)),
        compare(ran("a", 1), ran("b", 1)),
        alone(ran("a", 1)),
        alone(profile(contributor("busy", "other", MS, "custom::op"))),
    ],
)
def test_json_has_the_record_and_null_for_what_is_unknown(diagnosis: Diagnosis) -> None:
    written = json.dumps(diagnosis.to_dict())
    found, verdict = msgspec.json.decode(written, type=Document).verdict, diagnosis.verdict
    assert (found.subject, found.baseline) == (verdict.subject, verdict.baseline)
    assert (found.kind, found.bottleneck) == (verdict.kind, verdict.bottleneck)
    assert (found.cause, found.evidence) == (verdict.cause or None, verdict.evidence or None)
    assert (found.sentence, found.certainty) == (verdict.sentence, verdict.certainty)
    assert (found.step_low_ns, found.step_ns, found.step_high_ns) == (
        *(verdict.step.low_ns, verdict.step.ns, verdict.step.high_ns),
    )
    assert (found.ratio is None) is (verdict.ratio is None)


def test_reasons_to_doubt_the_times_are_in_json_with_their_run() -> None:
    doubt = Warning(GOVERNOR, "the CPU governor is 'powersave'", "set it to 'performance'")
    written = json.dumps(compare(ran("a", 1), ran("b", 12, doubts=(doubt,))).to_dict())
    (found,) = msgspec.json.decode(written, type=Document).doubts
    assert (found.run, found.kind) == ("b", "governor")


@functools.cache
def read(place: Path) -> Breakdown:
    return break_down(open_run(place))


@pytest.mark.parametrize("place", samples(), ids=lambda place: place.name)
def test_the_parts_of_a_sample_sum_to_its_step(place: Path) -> None:
    found = diagnose(read(place))
    verdict = found.verdict
    shares = [part.slow_ns / verdict.whole_ns for part in verdict.where]
    assert sum(part.slow_ns for part in verdict.where) == verdict.whole_ns == found.slow.length_ns
    assert all(0 <= share <= 1 for share in shares)
    assert len({part.kind for part in verdict.where}) == len(verdict.where)
    assert verdict.state == "found"
    assert 0 < verdict.bottleneck_ns <= verdict.whole_ns


def test_the_parts_of_two_samples_sum_to_the_difference_of_their_steps() -> None:
    found = diagnose_all([read(place) for place in samples() if place.parent == TRACES])
    alike = ("torch-lstmcell-fused", "torch-lstmcell-basic")  # as long as each other
    found += diagnose_all([read(TRACES / name) for name in alike])
    pairs = [(d.fast, d.slow, d.verdict) for d in found if d.fast is not None]
    assert {verdict.state for *_, verdict in pairs} >= {"found", "none"}
    for fast, slow, verdict in pairs:
        assert sum(part.delta_ns for part in verdict.where) == verdict.whole_ns
        assert verdict.whole_ns == slow.length_ns - fast.length_ns >= 0
        assert all(part.fast_ns >= 0 <= part.slow_ns for part in verdict.where)
        assert (verdict.bottleneck_ns > 0) is (verdict.state == "found")


@pytest.mark.parametrize(
    ("call", "named"), [("time.sleep", True), ("tokenise", False)], ids=["sleeps", "computes"]
)
def test_a_sleep_is_named_though_a_busy_machine_made_the_rest_of_its_steps_longer(
    call: str, named: bool
) -> None:
    place = {"file": "train.py", "line": 6, "function": "<module>", "call": call}
    facts = {"script_lines": [{**place, "share": 0.3, "ns": 9_000_000}]}
    slow = profile(contributor("idle", "python", 10), contributor("busy", "gemm", 2), facts=facts)
    assert ("train.py:6" in alone(slow).verdict.why) == named


PLACE = {"file": "train.py", "line": 6, "function": "step", "share": 0.5, "ns": 5 * MS}


def waiting(name: str, python_ms: int, waits_ms: int, *lines: dict[str, Any] | None) -> StepProfile:
    """A run of 2 ms of matmuls, Python and waits, with these lines of its script; none: unknown."""
    times = {("busy", "gemm"): 2, ("idle", "python"): python_ms, ("idle", "waiting"): waits_ms}
    parts = [contributor(*part, ms * MS) for part, ms in times.items() if ms]
    facts = {"script_lines": [line for line in lines if line is not None] if lines else None}
    return profile(*parts, name=name, facts=facts, step_ns=sum(times.values()) * MS)


@pytest.mark.parametrize(
    ("line", "python_ms", "waits_ms", "kind"),
    [
        ({"call": "time.sleep", "waits_ns": 5 * MS}, 1, 5, "waiting"),
        ({"waits_ns": 5 * MS}, 1, 5, "waiting"),  # takes a lock
        ({"waits_ns": 5 * MS}, 0, 3, "waiting"),  # ops of other threads ran meanwhile
        ({"call": "tokenise", "waits_ns": MS}, 5, 1, "Python"),
        ({"call": "time.sleep", "waits_ns": None}, 6, 0, "Python"),
        ({"call": "time.sleep", "waits_ns": None, "beside": True}, 6, 0, "Python"),
    ],
)
def test_the_verdict_names_the_line_that_waits(
    line: dict[str, Any], python_ms: int, waits_ms: int, kind: str
) -> None:
    verdict = alone(waiting("a", python_ms, waits_ms, {**PLACE, **line})).verdict
    times = {part.kind: part.slow_ns for part in verdict.where}
    assert (verdict.kind, times.get("waiting", 0)) == (kind, waits_ms * MS)
    assert sum(times.values()) == (2 + python_ms + waits_ms) * MS
    assert ("train.py:6" in verdict.cause) is not line.get("beside", False)


def test_waits_of_one_run_are_compared_only_with_known_waits_of_the_other() -> None:
    sleeps = {**PLACE, "call": "time.sleep", "waits_ns": 5 * MS}
    slow = waiting("slow", 1, 5, sleeps)
    known, unknown = (
        compare(waiting("fast", 1, 0, *lines), slow).verdict for lines in ([None], [])
    )
    assert (known.kind, known.cause) == ("waiting", "train.py:6 sleeps (time.sleep)")
    assert unknown.kind == "Python"


def test_the_longest_kinds_are_shown_and_the_others_summed() -> None:
    parts = [("gemm", 9), ("pointwise", 8), ("layout", 7), ("cast", 6), ("embedding", 5)]
    busy = [contributor("busy", part, ms * MS, part) for part, ms in parts]
    idle = [contributor("idle", "dispatch", 4 * MS, "op"), contributor("idle", "host", 30 * MS)]
    shown = largest_kinds(alone(profile(*busy, *idle, device=0)).verdict)
    assert [kind for kind, _, _ in shown[:2]] == ["unrecorded", "matmul"]
    assert shown[-1] == ("other", "other", "4.0")


def test_a_text_with_a_shortened_name_of_a_kernel_can_be_cut_after_the_name() -> None:
    text = "work takes 40 % (most of it add(int, float *, …) and copies 4 %; next: x (a; b)"
    ends = [text[:end] for end in clause_ends(text)]
    assert [end.split()[-1] for end in ends] == ["next", "%", "…)"]
