"""Which implementation is recommended, and how sure that is."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from commands.written_runs import step, write_run

from lstmprof.base.errors import UsageError
from lstmprof.breakdown import Breakdown, break_down
from lstmprof.breakdown.clean.slot_times import Span
from lstmprof.capture.request import CaptureRequest
from lstmprof.diagnose.recommend import LeftOut, Recommendation, ranked, sweep
from lstmprof.diagnose.recommend.shapes import request_of
from lstmprof.diagnose.recommend.sweep import Limits, candidates, recommended
from lstmprof.runs.run import open_run
from lstmprof.workloads import Workload

TINY = Workload("tiny", 1, 4, False, 2, 5, 3, 3, "ce")


def measured(folder: Path, name: str, ms: float, **facts: Any) -> Breakdown:
    """A run of so many ms: 9 of matmuls, 1 of Python, the rest elementwise."""
    usual = {"workload": vars(TINY), "device": "cpu", "seed": 0, **facts}
    more = [("aten::tanh", round(ms) - 10)] if ms > 10.5 else []
    ops = step(("aten::mm", 9), *more)
    return break_down(open_run(write_run(folder, name, ops, ms, **usual)))


@pytest.fixture
def ranking(tmp_path: Path) -> Recommendation:
    slow = measured(tmp_path, "torch-lstmcell-basic", 22)
    fast = measured(tmp_path, "keras-lstm", 10, framework="tensorflow")
    alike = measured(tmp_path, "tf-lstmblockfusedcell", 10.1, framework="tensorflow")
    once = measured(tmp_path, "torch-script", 31)
    rows = ranked([slow, fast, alike], [once])
    return Recommendation(TINY, rows, (LeftOut("tf-cudnnlstm", "needs a GPU"),), "torch")


def test_the_fastest_is_first_and_what_cannot_be_told_apart_shares_a_rank(
    ranking: Recommendation,
) -> None:
    rows = [(r.rank, r.implementation, r.certainty, r.first_look) for r in ranking.ranking]
    assert rows == [
        (1, "keras-lstm", "first", False),
        (1, "tf-lstmblockfusedcell", "tie", False),
        (3, "torch-lstmcell-basic", "measured", False),
        (4, "torch-script", "measured", True),
    ]
    assert [tie.implementation for tie in ranking.ties] == ["tf-lstmblockfusedcell"]


def test_a_row_has_its_interval(ranking: Recommendation) -> None:
    row = ranking.winner
    row = replace(row, profile=replace(row.profile, span=Span(9.0, 10.0, 12.0)))
    assert (row.to_dict()["step_low_ns"], row.to_dict()["step_high_ns"]) == (9.0, 12.0)


def test_each_gap_has_its_reason_and_a_tie_says_why_it_is_one(ranking: Recommendation) -> None:
    _, tie, slow, _ = ranking.ranking
    assert "equally long" in tie.reason
    assert "+12.0 ms" in slow.reason
    assert slow.slowdown == pytest.approx(2.2, rel=1e-3)


def test_the_sentence_names_the_next_and_the_best_of_the_users_framework(
    ranking: Recommendation,
) -> None:
    first, _, within = ranking.sentence.partition(". ")
    for part in ("keras-lstm, 10.0 ms", "tf-lstmblockfusedcell", "torch-lstmcell-basic", "2.20×"):
        assert part in first
    assert "torch-script" not in first
    assert "torch-lstmcell-basic, 2.20×" in within
    document = ranking.to_dict()
    assert document["left_out"] == [{"implementation": "tf-cudnnlstm", "reason": "needs a GPU"}]
    assert [row["rank"] for row in document["ranking"]] == [1, 1, 3, 4]
    assert "keras.layers.LSTM(4" in document["code"]


def test_other_code_that_may_take_as_long_is_a_tie_with_its_cause(tmp_path: Path) -> None:
    fast = measured(tmp_path, "torch-lstmcell-fused", 10)
    near = measured(tmp_path, "torch-nn-lstm", 11)  # processes of one code differ by 9 %
    first, tie = ranked([fast, near])
    assert (first.rank, tie.rank, tie.certainty) == (1, 1, "tie")
    assert "+1.000 ms" in tie.reason


def test_what_cannot_be_told_is_no_tie_and_nobody_is_sent_to_capture_two_runs(
    tmp_path: Path,
) -> None:
    fast = measured(tmp_path, "keras-lstm", 10, framework="tensorflow")
    alike = measured(tmp_path, "torch-nn-lstm", 10.1)
    slow = measured(tmp_path, "torch-script", 30)
    first, tie, last = ranked([fast, alike, slow])
    assert "capture" not in tie.reason
    assert "--profile-steps" not in tie.reason
    rows = (first, tie, replace(last, certainty="unknown"))
    found = Recommendation(TINY, rows, (), "torch")
    assert [tie.implementation for tie in found.ties] == ["torch-nn-lstm"]
    assert "tied with torch-nn-lstm" in found.sentence
    assert "perhaps as fast: torch-script" in found.sentence


def test_candidates_are_what_runs_here_layer_ops_first(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    names = dict.fromkeys(["torch-lstmcell-basic", "torch-nn-lstm", "tf-cudnnlstm"])
    common = CaptureRequest("torch-nn-lstm", TINY, device="cpu")
    found = candidates(names, common, tmp_path)
    asked = [request.implementation for request in found.requests.values()]
    assert asked == ["torch-nn-lstm", "torch-lstmcell-basic"]
    assert [left.implementation for left in found.left_out] == ["tf-cudnnlstm"]
    assert (
        "timing 2 implementations in one round, then the fastest ones in 3 rounds"
        in found.words(quick=False)
    )
    assert "then" not in found.words(quick=True)
    with pytest.raises(UsageError, match="no implementation can run tiny here; tf-cudnnlstm: "):
        candidates({"tf-cudnnlstm": None}, common, tmp_path)


def test_what_runs_in_an_environment_of_its_own_is_left_out_in_words(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    if find_spec("theano"):
        pytest.skip("this interpreter is Theano's")
    common = CaptureRequest("torch-nn-lstm", TINY, device="cpu")
    found = candidates(dict.fromkeys(["torch-nn-lstm", "theano-scan"]), common, tmp_path)
    (left,) = found.left_out
    assert left.implementation == "theano-scan"
    assert "lstmprof capture" in left.reason


def test_only_those_near_the_fastest_are_timed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = {
        name: measured(tmp_path, name, ms)
        for name, ms in (("torch-nn-lstm", 10), ("torch-script", 19), ("torch-lstmcell-basic", 21))
    }
    assert sweep._fastest(looks) == ["torch-nn-lstm", "torch-script"]
    monkeypatch.setattr(sweep, "MOST_IN_TURNS", 1)
    assert sweep._fastest(looks) == ["torch-nn-lstm"]


def test_a_quick_look_is_captured_ranked_and_kept(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    names = dict.fromkeys(["torch-lstmcell-fused", "torch-nn-lstm"])
    common = CaptureRequest("torch-nn-lstm", TINY, device="cpu", peaks=False)
    found = candidates(names, common, tmp_path)
    first, again = list[str](), list[str]()
    for said in (first, again):
        asked = recommended(found, TINY, tmp_path, Limits(quick=True), progress=said.append)
        assert {r.implementation for r in asked.ranking} == set(names)
        assert all(r.first_look for r in asked.ranking)
    assert any("timing" in line for line in first)
    assert again == []


def test_one_alone_is_not_timed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []
    looks = {"torch-nn-lstm": 10, "torch-script": 50}  # far behind: nothing to take turns with

    def captured(groups: Any, out: Path, *others: Any) -> Any:
        for name in groups[0]:
            begun.append(out.name)
            yield name, measured(out / str(len(begun)), name, looks[name])

    monkeypatch.setattr(sweep, "_captured", captured)
    requests = {name: CaptureRequest(name, TINY, device="cpu") for name in looks}
    found = sweep.Candidates(requests, ())
    asked = recommended(found, TINY, tmp_path, Limits())
    assert begun == ["first-look"] * 2
    assert all(row.first_look for row in asked.ranking)


def test_nothing_more_is_begun_when_the_time_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    names = dict.fromkeys(["torch-lstmcell-fused", "torch-nn-lstm"])
    common = CaptureRequest("torch-nn-lstm", TINY, device="cpu", peaks=False)
    one = measured(tmp_path, "torch-nn-lstm", 10)

    def captured(groups: Any, *others: Any) -> Any:
        yield next(iter(groups[0])), one

    monkeypatch.setattr(sweep, "_captured", captured)
    found = candidates(names, common, tmp_path)
    asked = recommended(found, TINY, tmp_path, Limits(most_s=0.0))
    assert [r.implementation for r in asked.ranking] == ["torch-nn-lstm"]
    assert [left.reason for left in asked.left_out] == ["the time limit (--minutes) was reached"]


def test_an_unknown_device_is_refused_once_and_not_for_every_row() -> None:
    with pytest.raises(UsageError, match="unknown device 'gpu'; give auto, cpu, cuda"):
        request_of(None, {"hidden": 8}, {"device": "gpu"}, pytest.fail)
