"""``lstmprof diagnose`` as a user and a program see it."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import shared_traces
from commands.written_runs import HOST, MS, step, write_run
from events.rows import row

from lstmprof.breakdown.clean.recording import RECORDING_NS
from lstmprof.breakdown.clean.slot_times import BETWEEN_PROCESSES, Z95, Span
from lstmprof.cli import run as lstmprof
from lstmprof.diagnose.diagnosis import VERSION
from lstmprof.diagnose.remedies import Advice
from lstmprof.diagnose.verdict.verdict_text import gained
from lstmprof.workloads import with_overrides
from lstmprof.workloads.studies import NAMED

HOSTILE = "aten::<script>|*x*"
#: What recording takes where an op begins or ends.
BORDER_NS = RECORDING_NS // 2
#: Runs of one known network are compared, without being named.
WORKLOAD = asdict(with_overrides(NAMED[0], hidden=8, batch=2, time_steps=3))


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    slow = step(("aten::mm", 9), ("aten::tanh", 7), (HOSTILE, 4))
    write_run(tmp_path, "fast", step(("aten::mm", 9)), 10, workload=WORKLOAD)
    write_run(tmp_path, "slow", slow, 22, workload=WORKLOAD)
    half = {"precision": "amp-bf16", "workload": WORKLOAD}
    write_run(tmp_path, "half", step(("aten::mm", 30)), 30, **half)
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
    assert {**found, "waterfall": 0, "findings": 0, "verdict": 0} == {
        "schema_version": VERSION,
        "slow": "slow",
        "fast": "fast",
        "slow_ns": 21 * MS - 5 * BORDER_NS,
        "fast_ns": 10 * MS - BORDER_NS,
        "difference_ns": 11 * MS - 4 * BORDER_NS,
        "steps": "clean",
        "lacks": [],
        "state": "found",
        "reason": None,
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
        "verdict": 0,
    }
    verdict = found["verdict"]
    assert {name: verdict[name] for name in ("subject", "baseline", "kind", "certainty")} == {
        "subject": "slow",
        "baseline": "fast",
        "kind": "elementwise",
        "certainty": "measured",
    }
    assert verdict["ratio"] == {n: pytest.approx(2.1 * e, 0.01) for n, e in interval.items()}
    assert (verdict["lost_ns"], verdict["now_and_then"]) == (MS + 5 * BORDER_NS, [])
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


def labelled(text: str, label: str) -> list[str]:
    """The lines of a verdict that begin with ``label``, without it."""
    lines = [line.split(maxsplit=1) for line in text.splitlines()]
    return [line[-1] for line in lines if line[:1] == [label]]


def test_the_text_is_a_verdict_whose_waterfall_adds_up(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = shown(capsys, runs / "slow", runs / "fast", "--waterfall")
    lines = text.splitlines()
    assert "baseline: fast, 10.0 ms per step" in lines
    (first,) = (line for line in lines if line.startswith("slow   21.0 ms"))
    assert "2.10×" in first
    (where,) = labelled(text, "Where")
    assert "elementwise +7.0" in where
    (total,) = (line.split() for line in lines if line.split()[:1] == ["sum"])
    assert total == ["sum", "10.000", "21.000", "+11.000", "100.0", "%"]
    assert max(map(len, lines)) <= 100


def test_a_verdict_has_eight_lines_and_its_details_are_asked_for(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = shown(capsys, runs / "slow", runs / "fast")
    assert not labelled(text, "evidence")
    assert not labelled(text, "time")
    baseline, first, *verdict = text.split("\n\n")[0].splitlines()
    assert baseline.startswith("baseline: ")
    assert "2.10×" in first
    assert [line.split()[0] for line in verdict[:2]] == ["Why", "Fix"]
    assert 2 <= len(verdict) <= 7
    text = shown(capsys, runs / "slow", runs / "fast", "--evidence")
    assert labelled(text, "evidence")
    assert labelled(text, "elementwise")
    assert labelled(text, "unrecorded") == []


@pytest.mark.parametrize("option", [(), ("--format", "markdown"), ("--evidence",)])
def test_no_cause_is_shown_of_runs_that_take_equally_long(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: tuple[str, ...]
) -> None:
    one = write_run(tmp_path, "one", step(("aten::mm", 9)), 10)
    like = write_run(tmp_path, "like", step(("aten::mm", 9), ("aten::tanh", 7)), 10)
    text = shown(capsys, one, like, *option)
    assert "take equally long" in text
    assert "elementwise" not in text


def test_runs_of_one_implementation_are_called_by_their_labels(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ["torch-a 1", "torch-b 2"]
    for name, ms in zip(names, (9, 20), strict=True):
        implementation, label = name.split()
        facts = {"implementation": implementation, "label": label, "workload": WORKLOAD}
        write_run(tmp_path, label, step(("aten::mm", ms)), ms + 1, **facts)
    (found,) = document(capsys, tmp_path)
    assert [found["verdict"][name] for name in ("baseline", "subject")] == names


def test_a_folder_is_diagnosed_group_by_group(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = document(capsys, runs)
    assert [(one["slow"], one["fast"]) for one in found] == [("slow", "fast"), ("half", None)]
    across = document(capsys, runs, "--across", "precision")
    assert [(one["slow"], one["fast"]) for one in across] == [("slow", "fast"), ("half", "fast")]
    assert across[1]["notes"] == ["the runs differ in precision (fp32 and amp-bf16)"]


def test_conditions_are_the_heading_only_if_they_differ(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alike = shown(capsys, runs / "slow", runs / "fast").splitlines()
    (measured,) = (number for number, line in enumerate(alike) if line.startswith("Measured: "))
    assert measured > 4
    groups = shown(capsys, runs)
    assert "Measured: " not in groups
    assert groups.startswith("1x320-ce-short-h8-b2-t3 (1 layer of 8 units")


def test_calls_of_some_steps_are_so_many_in_so_many_steps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        shifted | {"start_ns": shifted["start_ns"] + 10 * MS * number}
        for number in range(3)
        for shifted in step(("aten::mm", 8), *[("aten::tanh", 1)] * (number > 0))
    ]
    write_run(tmp_path, "some", rows, 10)
    assert "0.667 ms, 2 in 3 steps" in shown(capsys, tmp_path / "some", "--evidence")


def test_many_verdicts_are_a_line_each_worst_first_and_a_warning_of_several_once(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hot = {"gpu_throttle_reasons": ["power cap"], "workload": WORKLOAD}
    for ms in (12, 14, 16, 18, 20):
        write_run(runs, f"ms{ms}", step(("aten::mm", 9), ("aten::tanh", ms - 10)), ms, **hot)
    text = shown(capsys, runs)
    lines = [line.split() for line in text.splitlines()]
    first = lines.index(["run", "ms", "per", "step", "vs.", "baseline", "why"])
    ordered = ["slow", "ms20", "ms18", "ms16", "ms14", "ms12"]
    assert [line[0] for line in lines[first + 1 : first + 7]] == ordered
    (alone,) = [line for line in lines if line[:1] == ["half"]]
    assert alone[1] == "30.0"
    assert len(labelled(text, "Why")) == 3
    assert text.count("the GPU was throttled: power cap") == 1
    (warning,) = [line for line in text.splitlines() if line.startswith("Warning")]
    assert "ms12 (also ms14, ms16 and 2 more runs)" in warning
    page = shown(capsys, runs, "--format", "markdown")
    assert page.startswith("- 'slow' takes ")
    assert page.count("### ") == 1


def test_many_kinds_of_warnings_are_named_in_one_line_and_told_if_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    doubtful = {"gpu_throttle_reasons": ["power cap"], "notes": ["one was left out"]}
    run = write_run(tmp_path, "run", [row("op", "aten::mm", 0, 9 * MS, **HOST)], 9, **doubtful)
    (line,) = [line for line in shown(capsys, run).splitlines() if line.startswith("Warning")]
    kinds = ("no step markers", "problems in the profile's file", "clocks")
    assert all(kind in line for kind in kinds)
    text = shown(capsys, run, "--warnings")
    assert len([line for line in text.splitlines() if line.startswith("Warning: ")]) == len(kinds)
    assert "one was left out" in text


def test_a_missing_path_is_refused_before_another_is_read(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert lstmprof(["diagnose", str(runs / "fast"), str(runs / "gone")]) == 2
    printed = capsys.readouterr()
    assert (printed.out, len(printed.err.splitlines())) == ("", 1)
    assert "gone" in printed.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["fast", "half"], "--across precision"),
        (["fast", "slow", "--across", "weather"], "--across"),
        (["nowhere"], "nowhere"),
        (["fast", "--gemm-at-roofline"], "--peaks"),
        (["fast", "--peaks", "67"], "'67'"),
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
    known = {"workload": WORKLOAD, "seed": 0, "device_name": "d"}
    write_run(runs, "mine", step(("aten::mm", 9), ("aten::view", 4)), 14, **known)
    given = ["--without", "dispatch", "--gemm-at-roofline", "--peaks", "1GFLOP/s,1GB/s"]
    (found,) = document(capsys, runs / "mine", *given)
    dispatch, gemm = replays = found["what_if"]
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
    text = shown(capsys, runs / "mine", *given, "--roofline")
    assert len(labelled(text, "If")) == len(replays)
    assert labelled(text, "Roofline:")


def test_a_step_in_another_form_is_forecast_and_says_so(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known = {"workload": WORKLOAD, "seed": 0, "device_name": "d"}
    write_run(runs, "mine", step(("aten::mm", 9), ("aten::view", 4)), 14, **known)
    given = ["--as", "layer", "--as", "compiled", "--peaks", "1GFLOP/s,1GB/s"]
    (found,) = document(capsys, runs / "mine", *given)
    assert [(w["change"], w["form"]) for w in found["what_if"]] == [
        ("as one layer op", "layer"),
        ("compiled", "compiled"),
    ]
    write_run(runs, "other", step(("aten::mm", 9)), 10)
    assert lstmprof(["diagnose", str(runs / "other"), "--as", "layer"]) == 2
    assert capsys.readouterr().err.startswith("lstmprof: error: other: ")


def test_peaks_that_nothing_can_be_held_against_are_told_of(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(runs, "other", step(("aten::mm", 9)), 10)
    (found,) = document(capsys, runs / "other", "--peaks", "1GFLOP/s,1GB/s")
    assert len(found["notes"]) == 1
    assert found["roofline"] is None


def test_markdown_is_a_table_in_which_no_name_is_markup(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = shown(capsys, runs / "slow", runs / "fast", "--format", "markdown")
    assert page.splitlines()[2].startswith("**'slow' takes 2.10× as long as 'fast' ")
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
    assert found["verdict"]["bottleneck"] == "waiting for the host"
    launches = {"quantity": "launches", "unit": "", "fast": None, "slow": 60.0}
    assert any(launches in finding["counts"] for finding in found["findings"])
    assert sum(one["slow_ns"] for one in found["findings"]) == found["slow_ns"] == 4_426_114
    shares = {one["kind"]: one["share"] for one in found["findings"]}
    waits = shares["Python"] + shares["dispatch"] + shares["launch"]
    assert 0.90 < waits < 0.95
    assert lstmprof(["breakdown", str(path)]) == 0
    assert "93 %" in capsys.readouterr().out


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
    text = shown(capsys, write_run(tmp_path, "run", rows, 90), "--evidence")
    assert ("matmuls per step" in text, "70.000 ms in 1" in text) == (marked, True)


def test_time_before_a_call_is_in_no_calls(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    op = row("op", "aten::mm", 9_000, 400_000, **HOST)
    rows = [row("step", "step", 0, 400_000, **HOST), op]
    text = shown(capsys, write_run(tmp_path, "run", rows, 0.4), "--evidence")
    assert ("other 0.009" in text, " in 0" in text) == (True, False)


@pytest.mark.parametrize(
    ("before_ms", "after_ms", "words"),
    [
        (29, 9, "real gain: 20.0 ms (from 30.0 to 10.0 ms per step"),
        (9, 29, "real loss: 20.0 ms (from 10.0 to 30.0 ms per step"),
    ],
)
def test_since_an_earlier_run_the_gain_is_shown_beside_the_forecast(
    before_ms: int, after_ms: int, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = write_run(tmp_path, "before", step(("aten::mm", before_ms)), before_ms + 1)
    after = write_run(tmp_path, "after", step(("aten::mm", after_ms)), after_ms + 1)
    assert lstmprof(["diagnose", str(after), "--since", str(before)]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("forecast of the first fix: ")
    assert words in last


def test_the_forecast_is_of_the_first_fix_of_the_earlier_verdict() -> None:
    fix = Advice("n", "c", "f", "", None, 12_000_000, "")
    before = SimpleNamespace(step=Span(44e6, 45e6, 46e6), fixes=(fix,))
    after = SimpleNamespace(step=Span(33e6, 34e6, 35e6), fixes=())
    text = gained(before, after)  # type: ignore[arg-type]
    assert [text.count(ms) for ms in ("12.0 ms", "11.0 ms", "45.0 to 34.0 ms")] == [1, 1, 1]
    after.step = Span(30e6, 44e6, 60e6)
    unknown = gained(before, after)  # type: ignore[arg-type]
    assert "gain unknown" in unknown
    assert not {"gained", "lost"} & {*unknown.replace(":", "").split()}
