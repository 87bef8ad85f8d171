"""Advice to use another implementation is compared with its run, if one is there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from diagnose.made import contributor, profile, span
from report import runs

from lstmprof.breakdown import break_down
from lstmprof.diagnose.diagnosis import diagnose_all, with_measured_gain
from lstmprof.diagnose.remedies import Advice
from lstmprof.diagnose.step_profile import StepProfile

MS = 1_000_000
ADVICE = Advice(
    name="one op",
    cause="a loop",
    fix="use b",
    condition="a loop",
    framework=None,
    saves_ns=None,
    source="https://x",
    implementation="b",
)


def ran(implementation: str, ms: int) -> StepProfile:
    length = ms * MS
    part = contributor("busy", "gemm", length, "mm")
    facts = {"implementation": implementation}
    return profile(part, name=implementation, facts=facts, step_ns=length, span=span(length))


def test_a_faster_run_gives_its_time_to_the_advice() -> None:
    given = with_measured_gain(ADVICE, ran("a", 50), [ran("c", 10), ran("b", 60), ran("b", 20)])
    assert given is not None
    assert (given.measured_ns, given.gain_ns) == (20 * MS, 30 * MS)


@pytest.mark.parametrize("ms", [50, 51, 70])
def test_what_was_no_faster_is_not_advised(ms: int) -> None:
    assert with_measured_gain(ADVICE, ran("a", 50), [ran("c", 10), ran("b", ms)]) is None


def test_what_did_not_run_is_advised_without_a_time() -> None:
    assert with_measured_gain(ADVICE, ran("a", 50), [ran("c", 10)]) == ADVICE


@pytest.mark.parametrize(("kernels", "advised"), [(45, False), (20, True), (None, True)])
def test_a_diagnosis_compares_its_advice_with_the_other_runs(
    tmp_path: Path, kernels: int | None, advised: bool
) -> None:
    versions = {"facts": {"versions": {"torch": "2.13.0"}, "framework": "torch"}}
    ran_kernels = {"torch-lstmcell-fused": 9, "torch-lstmcell-basic": 40}
    if kernels is not None:
        ran_kernels["torch-nn-lstm"] = kernels
    made = [
        runs.run(
            *(tmp_path, name),
            implementation=name,
            kernels=count,
            walls_ns=runs.walls(count * runs.PERIOD),
            **versions,
        )
        for name, count in ran_kernels.items()
    ]
    slow = next(
        d
        for d in diagnose_all([break_down(run) for run in made])
        if d.slow.implementation == "torch-lstmcell-basic"
    )
    assert ("torch-nn-lstm" in {a.implementation for a in slow.remedies}) is advised


def script(name: str, form: str, ms: int, batch: int | None = None) -> StepProfile:
    """A script of one's own, not one of lstmprof's implementations."""
    length = ms * MS
    layers = pa.table({"form": [form], "batch": [batch]})
    part = contributor("busy", "gemm", length, "mm")
    facts = {"framework": "torch", "versions": {"torch": "2.13.0"}}
    return replace(
        profile(part, name=name, facts=facts, step_ns=length, span=span(length)),
        tables={"layers": layers},
    )


@pytest.mark.parametrize(
    ("form", "ms", "gain"),
    [("layer op", 20, 30 * MS), ("cell op", 20, None), ("layer op", 60, "not advised")],
)
def test_a_script_with_the_layer_op_shows_what_the_layer_op_gains(
    form: str, ms: int, gain: int | str | None
) -> None:
    one_op = replace(ADVICE, name="layer in one op", implementation=None)
    given = with_measured_gain(one_op, script("train", "cell op", 50), [script("faster", form, ms)])
    if gain == "not advised":
        assert given is None
    else:
        assert given is not None
        measured_with = None if gain is None else "faster"
        assert (given.gain_ns, given.measured_with) == (gain, measured_with)


@pytest.mark.parametrize(("batch", "known"), [(8, True), (4, False), (None, True)])
def test_a_script_of_other_sizes_shows_no_gain(batch: int | None, known: bool) -> None:
    one_op = replace(ADVICE, name="layer in one op", implementation=None)
    slow, other = script("train", "cell op", 50, 8), script("faster", "layer op", 20, batch)
    given = with_measured_gain(one_op, slow, [other])
    assert given is not None
    assert (given.gain_ns is not None) is known
