"""What two runs come to: a cause, no difference, or that nothing tells why.

::

    same calls       ratio may be 1 ─▶ none        all slower by one factor ─▶ unknown
                                                   a part beyond that factor, a setting ─▶ cause
    fewer calls      ratio may be 1 ─▶ none
    other calls      a cause: measured, or likely if the ratio may be 1
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from diagnose.made import contributor, diagnose, profile, span
from diagnose.made_job import breakdown_of
from events.rows import row

from lstmprof.breakdown.lacks import Lack
from lstmprof.diagnose.diagnosis import Diagnosis, alone, compare
from lstmprof.diagnose.findings import causes
from lstmprof.diagnose.findings.savings import ROOFLINE, Saving
from lstmprof.diagnose.step_profile import StepProfile

MS = 1_000_000


def ran(
    name: str,
    gemm_ms: float = 6,
    python_ms: float = 1,
    pointwise_ms: float = 3,
    *,
    error: float = 0.01,
    tanhs: int = 30,
    **fields: Any,
) -> StepProfile:
    """10 matmuls, ``tanhs`` elementwise calls and Python between, timed; ``error`` of the step."""
    parts = [
        contributor("busy", "gemm", round(gemm_ms * MS), "aten::mm", count=10),
        contributor("busy", "pointwise", round(pointwise_ms * MS), "aten::tanh", count=tanhs),
        contributor("idle", "python", round(python_ms * MS)),
    ]
    made = profile(*parts, name=name, **fields)
    return replace(made, step_ns=made.length_ns, span=span(made.length_ns, error))


def times(factor: float, name: str = "b", **fields: Any) -> StepProfile:
    """A run that does the same as ``ran``, each part so many times as long."""
    return ran(name, 6 * factor, factor, 3 * factor, **fields)


def of(slow: StepProfile, **fields: Any) -> Diagnosis:
    return compare(ran("a", **fields), slow)


def test_the_same_code_within_its_interval_is_no_difference() -> None:
    told = of(times(1.3, error=0.2), error=0.2)
    assert (told.outcome.state, told.outcome.differs, told.dominant) == ("none", False, None)
    assert not told.outcome.equal  # they may be: no more is known
    assert "--profile-steps" in told.outcome.advice
    own: Any = {"facts": {"source": "own code"}}
    again = of(times(1.3, error=0.2, **own), error=0.2, **own).outcome.advice
    assert "--steps" in again


def test_steps_under_two_percent_apart_take_equally_long_whatever_they_do() -> None:
    told = of(ran("b", python_ms=1.1, tanhs=300, error=0.0), error=0.0)
    assert (told.outcome.state, told.outcome.equal) == ("none", True)
    assert told.outcome.advice == ""


def test_the_same_code_slower_by_one_factor_has_no_cause() -> None:
    told = of(times(1.5))
    assert (told.outcome.state, told.outcome.differs, told.dominant) == ("unknown", True, None)
    assert told.ratio is not None
    assert (told.ratio.value, told.verdict.certainty) == (1.5, "unknown")
    assert "1.50×" in told.outcome.reason


def test_more_threads_than_cpus_are_the_advice_beside_it() -> None:
    shared: Any = {"facts": {"threads": 4, "affinity": [0]}}
    told = of(times(1.5, **shared), **shared)
    assert "4 threads share 1 CPU" in told.outcome.advice


def test_the_same_code_of_which_one_part_grows_beyond_the_others_has_that_cause() -> None:
    verdict = of(ran("b", 9, 6, 4.5)).verdict
    assert (verdict.kind, verdict.certainty) == ("Python", "measured")


def test_a_part_whose_own_interval_reaches_the_common_factor_is_no_cause() -> None:
    slow = ran("b", 9, 6, 4.5)
    slow = replace(slow, part_spans={("idle", "python"): span(6 * MS, 0.7)})
    told = of(slow)
    assert told.outcome.state == "unknown"


IMPLEMENTATION = {"implementation": "torch-nn-lstm", "framework": "torch"}


def test_the_same_calls_that_a_setting_makes_slower_have_that_cause() -> None:
    on, off = ({**IMPLEMENTATION, "settings": {"onednn": is_on}} for is_on in (True, False))
    told = of(times(2, facts=off), facts=on)
    assert told.verdict.kind == "slower calls"
    assert "oneDNN" in told.verdict.evidence


def test_slower_calls_that_explain_little_are_no_cause_even_if_a_setting_differs() -> None:
    """``aten::tanh`` takes 5 times as long, which is an eighth of the difference."""
    on, off = ({**IMPLEMENTATION, "settings": {"onednn": is_on}} for is_on in (True, False))
    told = of(ran("b", 8.4, 1.4, 0.5, facts=off), pointwise_ms=0.1, facts=on)
    slower = [e.finding for e in told.findings if e.finding.kind == causes.SLOWER]
    assert slower
    assert told.outcome.state == "unknown"


def test_one_call_that_is_slower_than_the_others_is_named_and_no_cause() -> None:
    same: Any = {"facts": IMPLEMENTATION}
    told = of(ran("b", pointwise_ms=15, **same), **same)
    assert (told.outcome.state, told.dominant) == ("unknown", None)
    assert told.findings[0].finding.kind == "slower calls"
    assert "aten::tanh takes 500.0 µs" in told.outcome.reason


@pytest.mark.parametrize(("pointwise_ms", "python_ms", "cause"), [(15, 1, None), (5, 9, "Python")])
def test_slower_calls_without_a_reason_are_no_cause_of_other_code_either(
    pointwise_ms: float, python_ms: float, cause: str | None
) -> None:
    extra = contributor("busy", "layout", MS // 100, "aten::clone", count=20)
    slow = ran("b", 6, python_ms, pointwise_ms, facts=IMPLEMENTATION)
    slow = replace(slow, contributors=(*slow.contributors, extra))
    told = of(slow, facts=IMPLEMENTATION)
    assert told.verdict.kind == cause
    assert ("aten::tanh" in told.outcome.reason) is (cause is None)


def test_several_parts_that_grow_a_little_are_not_called_one_factor() -> None:
    fast = profile(
        contributor("busy", "gemm", 8 * MS, "mm"),
        *(contributor("busy", part, MS // 2, part) for part in ("layout", "cast", "pointwise")),
        contributor("idle", "dispatch", MS // 2, "view", call_overhead=True),
        name="a",
    )
    longer = [c if c.part == "gemm" else replace(c, ns=2 * c.ns) for c in fast.contributors]
    slow = replace(fast, name="b", contributors=tuple(longer))
    fast, slow = (replace(p, span=span(p.length_ns)) for p in (fast, slow))
    told = compare(fast, slow)
    assert (told.outcome.state, told.dominant) == ("unknown", None)
    assert "1.00×" in told.outcome.reason
    assert "by the same factor" not in told.outcome.reason


@pytest.mark.parametrize(("error", "certainty"), [(0.01, "measured"), (0.3, "likely")])
def test_other_calls_are_a_cause_whatever_the_noise(error: float, certainty: str) -> None:
    told = of(ran("b", pointwise_ms=6, tanhs=300, error=error), error=error)
    verdict = told.verdict
    assert (verdict.state, verdict.kind, verdict.certainty) == ("found", "elementwise", certainty)
    assert told.outcome.differs is (certainty == "measured")
    assert verdict.ratio is not None
    assert verdict.ratio.sure is (certainty == "measured")
    assert bool(verdict.reasons) is (certainty == "likely")


def test_fewer_calls_are_no_cause_of_a_step_that_may_be_as_short() -> None:
    """On a starved machine the faster of two scripts seemed slower: 1 call against 50 was named."""
    fast, slow = ran("a", tanhs=300, error=0.3), ran("b", pointwise_ms=6, error=0.3)
    outcome = compare(fast, slow).outcome
    assert (outcome.state, outcome.differs) == ("none", False)
    assert outcome.reason.startswith("may take equally long")
    surely = compare(*(replace(run, span=span(run.length_ns)) for run in (fast, slow))).outcome
    assert surely.differs


@pytest.mark.parametrize(("error", "state"), [(0.01, "unknown"), (0.3, "none")])
def test_other_calls_that_do_not_explain_the_difference_are_no_cause(
    error: float, state: str
) -> None:
    unknown = contributor("busy", "other", 5 * MS, "custom::op", count=100)
    slow = ran("b", error=error)
    slow = replace(slow, contributors=(*slow.contributors, unknown))
    told = of(replace(slow, span=span(slow.length_ns, error)), error=error)
    assert (told.outcome.state, told.dominant) == (state, None)
    assert bool(told.outcome.advice) is (state == "none")


@pytest.mark.parametrize(("early_us", "certainty"), [(0, "measured"), (8, "likely")])
def test_clocks_that_differ_are_a_doubt_about_waits_and_said_first(
    tmp_path: Path, early_us: int, certainty: str
) -> None:
    host = {"pid": 1, "tid": 1}
    rows = [row("step", "step", 0, 1_010_000, **host)]
    for n in range(10):
        at = n * 100_000
        rows += [
            row("op", "aten::mm", at, at + 95_000, **host),
            row("runtime", "cudaLaunchKernel", at + 80_000, at + 84_000, **host, correlation_id=n),
        ]
        start = at + 85_000 - early_us * 1000
        gpu = {"device": 0, "stream": 7, "correlation_id": n}
        rows.append(row("kernel", "gemm", start, start + 20_000, **gpu))
    diagnosis = diagnose(breakdown_of(tmp_path / "r", rows))
    assert diagnosis.verdict.certainty == certainty
    waits = (e for e in diagnosis.findings if e.finding.kind in causes.WAITS)
    assert {e.certainty.level for e in waits} == {certainty}
    assert ("begin before their launch" in diagnosis.lacking[0]) == bool(early_us)


@pytest.mark.parametrize(("unknown_ms", "state"), [(21, "found"), (60, "unknown")])
def test_time_without_a_cause_is_compared_with_times_not_with_savings(
    unknown_ms: int, state: str
) -> None:
    """Without the roofline's saving the matmuls would come first."""
    run = profile(
        contributor("busy", "gemm", 59 * MS, "aten::mm"),
        contributor("idle", "dispatch", 20 * MS, "aten::view"),
        contributor("idle", "host", unknown_ms * MS),
    )
    outcome = alone(run, {"matmul": Saving(10 * MS, ROOFLINE)}).outcome
    assert outcome.state == state
    assert outcome.cause is None or outcome.cause.kind == "dispatch"


@pytest.mark.parametrize(
    ("state", "part", "ran"), [("busy", "other", True), ("idle", "unattributed", False)]
)
def test_a_kernel_of_an_unknown_category_is_work(state: str, part: str, ran: bool) -> None:
    """The kernels of most CUDA programs have no category, but the profile shows that they run."""
    run = profile(
        contributor(state, part, 90 * MS, "diverge"), contributor("busy", "gemm", 10 * MS)
    )
    outcome = alone(run).outcome
    assert outcome.state == "unknown"
    assert outcome.reason.count("work of an unknown category") == ran
    assert outcome.reason.count("without a known cause") == (not ran)


@pytest.mark.parametrize("error", [0.01, 0.3])
def test_of_a_profile_that_hides_its_time_no_cause_is_named(error: float) -> None:
    lack = Lack("no events", "nothing was recorded", None, "where its time goes", blinds=True)
    told = of(ran("b", pointwise_ms=6, tanhs=300, error=error, lacks=(lack,)), error=error)
    assert told.outcome.state == "unknown"
    assert lack.kind in told.outcome.reason
    assert told.outcome.differs is (error == 0.01)


@pytest.mark.parametrize(("host_ms", "longest"), [(112.8, "Session.run"), (0.1, "matmuls")])
def test_the_longest_of_what_was_recorded_may_be_on_the_host(host_ms: float, longest: str) -> None:
    lack = Lack("no launches", "no launch is recorded", 1.0, "causes of idle time", blinds=True)
    op = {"name": "Session.run", "count": 1, "host_self_ns": round(host_ms * MS)}
    parts = [
        contributor("busy", "gemm", round(0.529 * MS), "sgemm", count=10),
        contributor("idle", "unattributed", 113 * MS),
    ]
    tables = {"ops": pa.Table.from_pylist([op])}
    told = alone(profile(*parts, device=0, lacks=(lack,), tables=tables))
    assert told.outcome.state == "unknown"
    assert longest in told.outcome.reason


@pytest.mark.parametrize(("error", "level"), [(0.2, "measured"), (0.5, "likely")])
def test_a_run_whose_step_is_known_roughly_has_a_likely_cause(error: float, level: str) -> None:
    made = ran("lstm", error=error)
    verdict = alone(made).verdict
    assert verdict.state == "found"
    assert verdict.certainty == level
    assert bool(verdict.reasons) == (level == "likely")
