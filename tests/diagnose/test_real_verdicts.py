"""What is said of real profiles, held against their ledger: the first sentence hides nothing."""

from __future__ import annotations

import functools
import json
from collections import Counter
from pathlib import Path

import msgspec
import pytest
import shared_traces

from lstmprof.breakdown import Breakdown, break_down
from lstmprof.breakdown.mean_step import WAITS_FOR_HOST
from lstmprof.diagnose.causes import KINDS
from lstmprof.diagnose.diagnosis import Diagnosis, diagnose
from lstmprof.diagnose.document import Document
from lstmprof.errors import LstmprofError
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
    *("unrecorded", "ranges", "input", "compile"),
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
def test_the_first_sentence_hides_no_longer_part_of_the_ledger(path: Path) -> None:
    breakdown, diagnosis = read(path)
    document = diagnosis.to_dict()
    if document["state"] != "found":
        assert document["cause"] is None
        assert document["reason"] in document["sentence"]
        return
    parts = ledger(breakdown, diagnosis)
    whole = parts.total()
    idle = ((part, ns) for (state, part), ns in parts.items() if state == "idle")
    waits = sum(ns for part, ns in idle if part in WAITS_FOR_HOST and part != "host")
    on_device = diagnosis.slow.device is not None
    cause = document["cause"]
    first = next(f for f in document["findings"] if f["kind"] == cause)
    named = first["slow_ns"] / document["slow_ns"]
    if on_device and cause in WAITS:
        named = max(named, waits / whole)
    elif on_device:
        assert waits <= HIDDEN * named * whole, "a wait for the host is longer"
    for kind, names in PARTS.items():
        longest = sum(ns for (state, part), ns in parts.items() if part in names)
        assert kind == cause or longest <= HIDDEN * named * whole, f"{kind} is longer"


@pytest.mark.parametrize("path", shared_traces.profiles(), ids=shared_traces.name)
def test_all_that_is_said_is_in_one_order(path: Path) -> None:
    diagnosis = read(path)[1]
    document = json.loads(json.dumps(diagnosis.to_dict()))
    msgspec.convert(document, Document)
    findings = document["findings"]
    assert [f["rank"] for f in findings] == list(range(1, len(findings) + 1))
    assert sum(f["slow_ns"] for f in findings) == document["slow_ns"]
    if document["state"] == "found":
        told = [f for f in findings if f["certainty"]["level"] != "unknown"]
        assert told[0]["kind"] == document["cause"]
        named = KINDS[document["cause"]]
        assert named in document["sentence"] or document["cause"] in document["sentence"]


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
    # less what of it is while the input is prepared or something compiles
    assert findings["launch"]["slow_ns"] * steps <= launching + steps
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
    document = of("kineto/kineto2021-resnet50-v100-nw0.pt.trace.json.gz")[1].to_dict()
    assert document["cause"] == "input"
    assert "DataLoader" in document["sentence"]


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
    document = of(name)[1].to_dict()
    shares = {f["kind"]: f["share"] for f in document["findings"]}
    assert shares["queued"] > 0.3
    assert shares.get("launch", 0) < 0.05
    assert document["cause"] == "queued"
    assert "launching kernels" not in document["sentence"]


def test_only_launches_are_launching_and_other_calls_are_named() -> None:
    findings = {
        f["kind"]: f for f in of("more/kineto/hta-mtia-inference.json.gz")[1].to_dict()["findings"]
    }
    assert findings["sync"]["largest"][0]["name"] == "synchronizeStream"
    assert "launch" not in findings or findings["launch"]["share"] < 0.05
    alexnet = of("kineto/hta-alexnet.json.gz")[1].to_dict()
    assert "cudaDeviceGetStreamPriorityRange" in alexnet["sentence"]
    assert alexnet["cause"] == "runtime"


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
    document = of("more/kineto/tl-sglang-decode.json.gz")[1].to_dict()
    advice = [r["sentence"] for f in document["findings"] for r in f["remedies"]]
    assert not any("larger batch" in sentence for sentence in advice)


@pytest.mark.parametrize(
    "name",
    [
        "kineto/hm-no-kernels.json",
        "kineto/zoology-a100-launch-no-kernel.json.gz",
    ],
)
def test_a_gpu_of_which_nothing_was_recorded_is_said_first(name: str) -> None:
    document = of(name)[1].to_dict()
    assert document["state"] == "unknown"
    assert document["lacks"][0]["sentence"]
    assert any(lack["blinds"] for lack in document["lacks"])


def test_a_gpu_that_may_have_worked_unseen_leaves_a_cause_likely() -> None:
    document = of("kineto/cp-a100-zero-kernels.json.gz")[1].to_dict()
    assert document["lacks"]
    levels = {f["certainty"]["level"] for f in document["findings"]}
    assert "measured" not in levels
    assert "likely, because a GPU may have worked" in document["sentence"]
