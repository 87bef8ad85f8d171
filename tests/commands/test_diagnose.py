"""``lstmprof diagnose`` as a user and a program see it."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import shared_traces
from commands.written_runs import HOST, MS, step, write_run
from events.rows import row

from lstmprof.breakdown.recording import RECORDING_NS
from lstmprof.breakdown.spans import BETWEEN_PROCESSES, Z95
from lstmprof.cli import run as lstmprof
from lstmprof.diagnose.document import VERSION
from lstmprof.workloads import with_overrides
from lstmprof.workloads.studies import NAMED

HOSTILE = "aten::<script>|*x*"
#: What recording takes where an op begins or ends.
BORDER_NS = RECORDING_NS // 2


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    write_run(tmp_path, "fast", step(("aten::mm", 9)), 10)
    write_run(tmp_path, "slow", step(("aten::mm", 9), ("aten::tanh", 7), (HOSTILE, 4)), 22)
    write_run(tmp_path, "half", step(("aten::mm", 30)), 30, precision="amp-bf16")
    return tmp_path


def shown(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert lstmprof(["diagnose", *map(str, arguments)]) == 0
    return capsys.readouterr().out


def document(capsys: pytest.CaptureFixture[str], *arguments: object) -> Any:
    return json.loads(shown(capsys, *arguments, "--format", "json"))


def test_json_holds_the_waterfall_and_the_findings_exactly(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (found,) = document(capsys, runs / "slow", runs / "fast")
    apart = math.exp(Z95 * BETWEEN_PROCESSES * math.sqrt(2))
    interval = {"low": 1 / apart, "value": 1.0, "high": apart}
    assert {**found, "waterfall": 0, "findings": 0, "sentence": 0} == {
        "schema_version": VERSION,
        "slow": "slow",
        "fast": "fast",
        "slow_ns": 21 * MS - 5 * BORDER_NS,
        "fast_ns": 10 * MS - BORDER_NS,
        "difference_ns": 11 * MS - 4 * BORDER_NS,
        "steps": "clean",
        "ratio": {name: pytest.approx(2.1 * error, 0.01) for name, error in interval.items()},
        "lost_ns": MS + 5 * BORDER_NS,
        "now_and_then": [],
        "lacks": [],
        "state": "found",
        "reason": None,
        "cause": "elementwise",
        "lane": {"rank": None, "device": None, "of": 1},
        "fast_lane": {"rank": None, "device": None, "of": 1},
        "straggler": None,
        "overlap": None,
        "busy_share": None,
        "roofline": None,
        "what_if": [],
        "doubts": [],
        "settings": [],
        "warnings": [],
        "notes": [],
        "waterfall": 0,
        "findings": 0,
        "sentence": 0,
    }
    assert found["waterfall"][0] == {
        "kind": "elementwise",
        "fast_ns": 0,
        "slow_ns": 7 * MS - RECORDING_NS,
        "delta_ns": 7 * MS - RECORDING_NS,
    }
    for rows in ("waterfall", "findings"):
        assert sum(one["delta_ns"] for one in found[rows]) == found["difference_ns"]
    first = found["findings"][0]
    assert set(first) == {
        *("rank", "kind", "group", "fast_ns", "slow_ns", "delta_ns", "share", "sentence"),
        *("certainty", "reason"),
        *("saves_ns", "saves_by", "counts", "parts", "largest", "remedies"),
    }
    assert [row["kind"] for row in found["waterfall"]] == [f["kind"] for f in found["findings"]]
    assert first["parts"] == [
        {"state": "busy", "part": "pointwise", "fast_ns": 0, "slow_ns": 7 * MS - RECORDING_NS}
    ]
    assert first["largest"] == [
        {
            "name": "aten::tanh",
            "fast_ns": 0,
            "slow_ns": 7 * MS - RECORDING_NS,
            "fast_count": 0.0,
            "slow_count": 1.0,
            "delta_ns": 7 * MS - RECORDING_NS,
        }
    ]
    assert first["counts"][0] == {"quantity": "pointwise", "unit": "", "fast": 0.0, "slow": 1.0}


def test_the_text_says_the_sentence_and_columns_that_add_up(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = shown(capsys, runs / "slow", runs / "fast").splitlines()
    assert lines[0].startswith(
        "slow takes 2.10× as long as fast (21.0 against 10.0 ms per step); "
        "slow has 3 ops per step against 1: elementwise; 7.0 of the 11.0 ms go to"
    )
    (total,) = (line.split() for line in lines if line.split()[:1] == ["sum"])
    assert total == ["sum", "10.000", "21.000", "+11.000", "100.0", "%"]
    assert max(map(len, lines[1:])) <= 160


@pytest.mark.parametrize("option", [(), ("--format", "markdown")])
def test_no_cause_is_shown_of_runs_that_take_equally_long(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: tuple[str, ...]
) -> None:
    one = write_run(tmp_path, "one", step(("aten::mm", 9)), 10)
    like = write_run(tmp_path, "like", step(("aten::mm", 9), ("aten::tanh", 7)), 10)
    text = shown(capsys, one, like, *option)
    assert "like and one take equally long: 10.0 and 10.0 ms" in text
    assert "elementwise" not in text


def test_runs_of_one_implementation_are_called_by_their_labels(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ["torch-a 1", "torch-b 2"]
    for name, ms in zip(names, (9, 20), strict=True):
        implementation, label = name.split()
        facts = {"implementation": implementation, "label": label}
        write_run(tmp_path, label, step(("aten::mm", ms)), ms + 1, **facts)
    (found,) = document(capsys, tmp_path)
    assert names[1] + " takes 2.10× as long as " + names[0] in found["sentence"]


def test_a_folder_is_diagnosed_group_by_group(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = document(capsys, runs)
    assert [(one["slow"], one["fast"]) for one in found] == [("slow", "fast"), ("half", None)]
    across = document(capsys, runs, "--across", "precision")
    assert [(one["slow"], one["fast"]) for one in across] == [("slow", "fast"), ("half", "fast")]
    assert across[1]["notes"] == ["they differ in precision (fp32 against amp-bf16)"]


def test_calls_of_some_steps_are_so_many_in_so_many_steps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        shifted | {"start_ns": shifted["start_ns"] + 10 * MS * number}
        for number in range(3)
        for shifted in step(("aten::mm", 8), *[("aten::tanh", 1)] * (number > 0))
    ]
    write_run(tmp_path, "some", rows, 10)
    assert "0.667 ms, 2 in 3 steps" in shown(capsys, tmp_path / "some")


def test_many_verdicts_come_first_and_a_warning_of_several_once(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slower = step(("aten::mm", 9), ("aten::tanh", 30))
    write_run(runs, "slower", slower, 40)
    write_run(runs, "fastest", step(("aten::mm", 7)), 8, gpu_throttle_reasons=["power cap"])
    lines = shown(capsys, runs).splitlines()
    end = lines.index("")
    assert lines[:end] == [
        "train, fp32:",
        "- fast takes 1.25× as long as fastest; the profile does not hold why (cannot be told)",
        "- slow takes 2.62× as long as fastest: elementwise, 7.0 of the 13.0 ms (measured)",
        "- slower takes 5.00× as long as fastest: elementwise, 30.0 of the 32.0 ms (measured)",
        "train, amp-bf16:",
        "- half is matmul: 97 % of the step (measured)",
    ]
    assert lines.count("train, fp32:") == lines.count("train, amp-bf16:") == 2
    warned = [line for line in lines if line.startswith("warning: ")]
    assert sum("the GPU was throttled: power cap" in line for line in warned) == 1
    text = shown(capsys, runs, "--format", "markdown")
    assert text.startswith("train, fp32:\n\n- fast takes 1.25× as long as fastest;")
    assert "### train, amp-bf16" in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["fast", "half"], "differ in precision (fp32 against amp-bf16); compare them all the sam"),
        (["fast", "slow", "--across", "weather"], "--across"),
        (["nowhere"], "nowhere"),
        (["fast", "--gemm-at-roofline"], "fast: the roofline of its products is not known; give"),
        (["fast", "--peaks", "67"], "peaks '67' are not a rate of products and one of copies"),
    ],
)
def test_a_mistake_is_one_line_with_the_next_step(
    arguments: list[str], said: str, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    named = [str(runs / a) if (runs / a).is_dir() else a for a in arguments]
    assert lstmprof(["diagnose", *named]) in (1, 2)
    printed = capsys.readouterr()
    assert (printed.out, len(printed.err.splitlines())) == ("", 1)
    assert said in printed.err


def test_a_step_without_a_cause_is_replayed_and_the_roofline_told(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workload = asdict(with_overrides(NAMED[0], hidden=8, batch=2, time_steps=3))
    known = {"workload": workload, "seed": 0, "device_name": "d"}
    write_run(runs, "mine", step(("aten::mm", 9), ("aten::view", 4)), 14, **known)
    given = ["--without", "dispatch", "--gemm-at-roofline", "--peaks", "1GFLOP/s,1GB/s"]
    (found,) = document(capsys, runs / "mine", *given)
    dispatch, gemm = found["what_if"]
    assert (dispatch["change"], dispatch["predicted_ns"]) == (
        "without dispatch",
        pytest.approx(10 * MS, abs=1_000),
    )
    assert dispatch["bottleneck"] == {
        "state": "busy",
        "part": "gemm",
        "ns": pytest.approx(9 * MS, abs=1_000),
    }
    assert gemm["change"] == "gemm at roofline"
    assert 5 * MS < gemm["predicted_ns"] < 6 * MS
    assert found["roofline"]["peaks"] == {"gemm_flops_per_s": 1e9, "copy_bytes_per_s": 1e9}
    assert found["roofline"]["share"] == pytest.approx(
        found["roofline"]["step_ns"] / (14 * MS), rel=1e-3
    )
    text = shown(capsys, runs / "mine", *given)
    assert "without dispatch: 10.0 instead of 14.0 ms (-29 %); then busy gemm is the most" in text
    assert "roofline: the device could do this step's work in" in text


def test_a_step_in_another_form_is_forecast_and_says_so(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workload = asdict(with_overrides(NAMED[0], hidden=8, batch=2, time_steps=3))
    known = {"workload": workload, "seed": 0, "device_name": "d"}
    write_run(runs, "mine", step(("aten::mm", 9), ("aten::view", 4)), 14, **known)
    given = ["--as", "layer", "--as", "compiled", "--peaks", "1GFLOP/s,1GB/s"]
    (found,) = document(capsys, runs / "mine", *given)
    assert [(w["change"], w["form"]) for w in found["what_if"]] == [
        ("as one layer op", "layer"),
        ("compiled", "compiled"),
    ]
    assert all("forecast" in w["sentence"] for w in found["what_if"])
    assert lstmprof(["diagnose", str(runs / "fast"), "--as", "layer"]) == 2
    assert "the network that it runs is not known" in capsys.readouterr().err


def test_peaks_that_nothing_can_be_held_against_are_told_of(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (found,) = document(capsys, runs / "fast", "--peaks", "1GFLOP/s,1GB/s")
    assert found["notes"][0].startswith("the peaks are compared with nothing")
    assert found["roofline"] is None


def test_markdown_is_a_table_in_which_no_name_is_markup(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = shown(capsys, runs / "slow", runs / "fast", "--format", "markdown")
    assert page.startswith("**slow takes 2.10× as long as fast ")
    assert "| elementwise | 0.000 | 7.000 | +7.000 | 63.6 % |" in page
    assert "<script>" not in page
    widths = {line.replace("\\|", "").count("|") for line in page.splitlines() if line[:1] == "|"}
    assert widths == {4, 6}


@shared_traces.needed
def test_one_profile_of_an_h100_is_host_bound(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LSTMPROF_CACHE", str(tmp_path))
    path = shared_traces.FOLDER / "kineto" / "tl-h100-bert-small.json.gz"
    (found,) = document(capsys, path)
    assert "the GPU waits for its host 93 % of the step (4.1 of 4.4 ms)" in found["sentence"]
    assert "60 kernel launches per step" in found["sentence"]
    assert sum(one["slow_ns"] for one in found["findings"]) == found["slow_ns"] == 4_426_114
    shares = {one["kind"]: one["share"] for one in found["findings"]}
    waits = shares["Python"] + shares["dispatch"] + shares["launch"]
    assert 0.90 < waits < 0.95
    assert lstmprof(["breakdown", str(path)]) == 0
    assert "waits for the host 93 %" in capsys.readouterr().out


def test_two_real_captures_are_explained_to_the_nanosecond(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    tiny = ["--hidden=4", "--batch=2", "--time-steps=10", "--iterations=20", "--profile-steps=2"]
    tiny += ["--rounds=1", "--no-peaks"]
    names = ["torch-nn-lstm", "torch-lstmcell-basic"]
    chosen = [word for name in names for word in ("--impl", name)]
    assert lstmprof(["capture", *chosen, *tiny, "--out", str(tmp_path)]) == 0
    capsys.readouterr()
    (found,) = document(capsys, tmp_path)
    # Ops of a few µs: which run a busy machine makes the slower, and by what, is chance.
    assert sum(d["delta_ns"] for d in found["waterfall"]) == found["difference_ns"] > 0
    assert sum(f["delta_ns"] for f in found["findings"]) == found["difference_ns"]


@pytest.mark.parametrize("marked", [True, False])
def test_a_count_is_of_a_step_only_where_one_is_marked(
    marked: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    step = [row("step", "step", 0, 90 * MS, **HOST)] if marked else []
    rows = [*step, row("op", "aten::mm", 10 * MS, 80 * MS, **HOST)]
    assert lstmprof(["diagnose", str(write_run(tmp_path, "run", rows, 90))]) == 0
    text = capsys.readouterr().out
    assert ("matmuls per step" in text, "70.000 ms in 1" in text) == (marked, True)


def test_time_before_a_call_is_in_no_calls(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    op = row("op", "aten::mm", 9_000, 400_000, **HOST)
    rows = [row("step", "step", 0, 400_000, **HOST), op]
    assert lstmprof(["diagnose", str(write_run(tmp_path, "run", rows, 0.4))]) == 0
    text = capsys.readouterr().out
    assert ("0.009 ms" in text, " in 0" in text) == (True, False)
