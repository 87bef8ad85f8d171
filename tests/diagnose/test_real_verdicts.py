"""The verdicts on real profiles against their ledger: a bottleneck hides no longer part."""

from __future__ import annotations

import functools
import json
from collections import Counter
from pathlib import Path

import msgspec
import pytest
import shared_traces
from diagnose.made import diagnose
from diagnose_document import Document

from lstmprof.base.errors import LstmprofError
from lstmprof.breakdown import Breakdown, break_down
from lstmprof.breakdown.lacks import GPU_UNSEEN
from lstmprof.breakdown.mean_step import WAITS_FOR_HOST
from lstmprof.diagnose.diagnosis import Diagnosis
from lstmprof.diagnose.findings import NAMED_SHARE, causes, wait_of
from lstmprof.diagnose.remedies import TABLE as CATALOGUE
from lstmprof.diagnose.remedies.launching import larger_batch
from lstmprof.diagnose.step_profile import total_ns
from lstmprof.runs.cache import open_runs

pytestmark = [shared_traces.needed, pytest.mark.usefixtures("profiles_read_once")]

#: Kind → the parts of the ledger that it takes all or most of, apart from input and compiling.
PARTS = {
    "sync": {"sync"},
    "queued": {"queued"},
    "cast": {"cast"},
    "copy": {"layout", "transfer", "memset"},
    "communication": {"collective"},
    "CTC": {"ctc"},
    "matmul": {"gemm", "conv", "attention", "rnn"},
    "unknown": {"unattributed", "other"},
}
WAITS = {
    *("launch", "runtime", "dispatch", "Python", "allocation"),
    *("unrecorded", "ranges", "input", "compile", "initialisation"),
}
#: A part of the ledger must be so much longer than what is named to have been hidden by it.
HIDDEN = 1.05


@functools.cache
def read(path: Path) -> tuple[Breakdown, Diagnosis]:
    try:
        (run,) = open_runs([str(path)])
    except LstmprofError as refusal:
        pytest.skip(f"refused: {refusal}")
    breakdown = break_down(run, None, ("ledger",))
    return breakdown, diagnose(breakdown)


def of(name: str) -> tuple[Breakdown, Diagnosis]:
    path = shared_traces.FOLDER / name
    if not path.is_file():
        pytest.skip(f"no profile at {path}")
    return read(path)


def ledger(breakdown: Breakdown, diagnosis: Diagnosis) -> Counter[tuple[str, str]]:
    """(state, part) → ns of the lane that was diagnosed, all its steps."""
    (lane,) = (
        lane
        for lane in breakdown.steps()
        if (lane.rank, lane.device) == (diagnosis.slow.rank, diagnosis.slow.device)
    )
    parts: Counter[tuple[str, str]] = Counter()
    for state, part, ns in lane.parts:
        parts[state, part.removeprefix("tail:")] += ns
    return parts


@pytest.mark.parametrize("path", shared_traces.profiles(), ids=shared_traces.name)
def test_the_bottleneck_hides_no_longer_part_of_the_ledger(path: Path) -> None:
    breakdown, diagnosis = read(path)
    verdict = diagnosis.verdict
    if verdict.state != "found":
        assert (verdict.kind, verdict.bottleneck, verdict.bottleneck_ns) == (None, None, 0)
        assert verdict.words
        assert verdict.words in verdict.sentence
        return
    parts = ledger(breakdown, diagnosis)
    whole = parts.total()
    # a wait for the input comes first with the other waits for the host
    first = next(e.finding for e in diagnosis.findings if e.finding.kind == verdict.kind)
    group = sum(f.finding.slow_ns for f in diagnosis.findings if f.finding.group == first.group)
    named = max(verdict.bottleneck_ns, group) / verdict.whole_ns
    idle = ((part, ns) for (state, part), ns in parts.items() if state == "idle")
    waits = sum(ns for part, ns in idle if part in WAITS_FOR_HOST and part != "host")
    if diagnosis.slow.device is not None and verdict.kind not in WAITS:
        assert waits <= HIDDEN * named * whole, "a wait for the host is longer"
    for kind, names in PARTS.items():
        longest = sum(ns for (state, part), ns in parts.items() if part in names)
        assert kind == verdict.kind or longest <= HIDDEN * named * whole, f"{kind} is longer"


@pytest.mark.parametrize("path", shared_traces.profiles(), ids=shared_traces.name)
def test_no_saving_is_more_than_its_part_and_the_idle_time_that_it_can_fill(path: Path) -> None:
    """Of a finding its own time and all idle time; of a fix the kinds that it addresses."""
    diagnosis = read(path)[1]
    slow = diagnosis.slow
    idle_ns = 0 if slow.device is None else slow.length_ns - slow.busy_ns
    kinds = causes.by_kind(slow, causes.comparison_of(slow))
    rows = {remedy.name: remedy for remedy in CATALOGUE}
    for explained in diagnosis.findings:
        finding = explained.finding
        assert 0 <= finding.saving.ns <= finding.slow_ns + idle_ns
        assert finding.saving.ns <= slow.length_ns
        for advice in explained.remedies:
            row = rows[advice.name]
            addressed = {finding.kind, *(row.kinds if row.several_kinds else ())}
            part_ns = sum(total_ns(kinds[kind]) for kind in addressed)
            assert 0 <= (advice.saves_ns or 0) <= min(part_ns + idle_ns, slow.length_ns)
            assert (advice.gain_ns or 0) <= slow.length_ns
    for fix in diagnosis.verdict.fixes:
        assert (fix.saves_ns or 0) <= slow.length_ns


@pytest.mark.parametrize("path", shared_traces.profiles(), ids=shared_traces.name)
def test_all_outputs_are_in_one_order(path: Path) -> None:
    diagnosis = read(path)[1]
    verdict = diagnosis.verdict
    document = msgspec.json.decode(json.dumps(diagnosis.to_dict()), type=Document)
    assert [f.rank for f in document.findings] == list(range(1, len(document.findings) + 1))
    times = [(f.kind, f.slow_ns) for f in document.findings]
    assert times == [(part.kind, part.slow_ns) for part in verdict.where]
    assert times == [(e.finding.kind, e.finding.slow_ns) for e in diagnosis.findings]
    assert sum(ns for _, ns in times) == document.slow_ns == verdict.whole_ns
    assert all(0 <= ns <= verdict.whole_ns for _, ns in times)
    if verdict.state == "found":
        first = next(f for f in document.findings if f.certainty.level != "unknown")
        assert first.kind == verdict.kind == document.verdict.kind
        waits = [f for f in document.findings if wait_of(f.kind) == wait_of(first.kind)]
        group = sum(f.slow_ns for f in waits)
        amounts = {first.kind: first.slow_ns, "waiting for the host": group}
        assert verdict.bottleneck_ns == amounts[verdict.bottleneck or ""]
    # large savings come first; of these, the fixes that save half of the bottleneck
    kinds = {row.name: row.kinds for row in CATALOGUE}
    half_ns = next((ns / 2 for kind, ns in times if kind == verdict.kind), 0)
    known = [
        (
            fix.worth_ns < NAMED_SHARE * verdict.whole_ns,
            verdict.kind not in kinds[fix.name] or fix.worth_ns < half_ns,
            -fix.worth_ns,
        )
        for fix in verdict.fixes[1:]
        if fix.worth_ns
    ]
    assert known == sorted(known)
    advised = {fix.name for f in document.findings for fix in f.remedies}
    assert advised == {fix.name for fix in verdict.fixes}


@pytest.mark.parametrize(
    "name",
    [
        "kineto/tl-h100-bert-small.json.gz",
        "kineto/kineto2021-resnet50-v100-nw0.pt.trace.json.gz",
        "kineto/qa-transformer-h100-a.pt.trace.json.gz",
    ],
)
def test_launching_and_waiting_for_the_host_have_one_number_each(name: str) -> None:
    breakdown, diagnosis = of(name)
    parts = ledger(breakdown, diagnosis)
    launching = parts["idle", "launch call"] + parts["idle", "launch latency"]
    findings = {f["kind"]: f for f in diagnosis.to_dict()["findings"]}
    steps = len(breakdown.windows)
    # less what of it is while the input is prepared or something compiles; with launches of other
    # work, which are among the other runtime calls of the ledger
    most = launching + parts.get(("idle", "runtime"), 0)
    assert findings["launch"]["slow_ns"] * steps <= most + steps
    held = sum(
        part["slow_ns"]
        for f in findings.values()
        for part in f["parts"]
        if part["part"] in ("launch call", "launch latency")
    )
    assert abs(held * steps - launching) <= 4 * steps
    (lane,) = breakdown.steps()
    share = diagnosis.slow.waits_for_host_ns / diagnosis.slow.length_ns
    assert lane.waits_for_host_share == pytest.approx(share, abs=1e-5)


def test_waiting_for_a_data_loader_is_named_before_the_convolutions() -> None:
    verdict = of("kineto/kineto2021-resnet50-v100-nw0.pt.trace.json.gz")[1].verdict
    assert verdict.kind == "input"
    assert "DataLoader" in verdict.evidence


@pytest.mark.parametrize(
    "name",
    [
        "kineto/hta-sampled-rank0.json.gz",
        "kineto/tl-vllm-cudagraph.json.gz",
        "more/kineto/hta-negative-queue.json.gz",
        "more/kineto/tl-sglang-decode.json.gz",
    ],
)
def test_waiting_with_work_queued_is_not_launching(name: str) -> None:
    verdict = of(name)[1].verdict
    shares = {part.kind: part.slow_ns / verdict.whole_ns for part in verdict.where}
    assert shares["queued"] > 0.3
    assert shares.get("launch", 0) < 0.05
    assert (verdict.kind, verdict.bottleneck) == ("queued", "queued")
    assert "launch" not in verdict.why


def test_only_launches_are_launching_and_other_calls_are_named() -> None:
    findings = {
        f["kind"]: f for f in of("more/kineto/hta-mtia-inference.json.gz")[1].to_dict()["findings"]
    }
    assert findings["sync"]["largest"][0]["name"] == "synchronizeStream"
    assert "launch" not in findings or findings["launch"]["share"] < 0.05
    alexnet = of("kineto/hta-alexnet.json.gz")[1].verdict
    assert alexnet.kind == "initialisation"
    assert "cudaDeviceGetStreamPriorityRange" in alexnet.evidence


def test_nouns_count_what_they_name() -> None:
    resnet = of("kineto/kineto2021-resnet50-v100-nw0.pt.trace.json.gz")[1].to_dict()
    (products,) = (f for f in resnet["findings"] if f["kind"] == "matmul")
    counts = {c["quantity"]: c["slow"] for c in products["counts"]}
    # a forward pass and two products of the backward pass for each of 53, less one input gradient
    assert counts["convolutions"] == 3 * 53 - 1
    assert counts["products"] == 3
    sampled = of("kineto/hta-sampled-rank0.json.gz")[0]
    names = [row["name"] for row in sampled.kernels.to_pylist() if row["category"] == "gemm"]
    assert names
    assert not any("split_embedding" in name or "FBGEMM" in name for name in names)


def test_one_long_gap_is_no_small_batch() -> None:
    fixes = of("more/kineto/tl-sglang-decode.json.gz")[1].verdict.fixes
    assert larger_batch.name not in {fix.name for fix in fixes}


@pytest.mark.parametrize(
    "name",
    [
        "kineto/hm-no-kernels.json",
        "kineto/zoology-a100-launch-no-kernel.json.gz",
    ],
)
def test_a_gpu_of_which_nothing_was_recorded_is_said_first(name: str) -> None:
    diagnosis = of(name)[1]
    assert diagnosis.verdict.state == "unknown"
    _, gravest = diagnosis.lacks[0]
    assert gravest.blinds
    assert gravest.words in diagnosis.verdict.words


def test_a_gpu_that_may_have_worked_unseen_leaves_a_cause_likely() -> None:
    diagnosis = of("kineto/cp-a100-zero-kernels.json.gz")[1]
    assert GPU_UNSEEN in {lack.kind for _, lack in diagnosis.lacks}
    assert "measured" not in {explained.certainty.level for explained in diagnosis.findings}
    assert (diagnosis.verdict.state, diagnosis.verdict.certainty) == ("found", "likely")
    assert any("a GPU may have done" in reason for reason in diagnosis.verdict.reasons)
