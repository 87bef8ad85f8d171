"""The analyses: files as listed, each answers on the committed samples, README.md is today's."""

from __future__ import annotations

import math
import re
import shutil
from pathlib import Path

import altair as alt
import pandas as pd
import pytest

import analyses
import lstmprof as lp
from analyses import QUESTIONS, published, question, title
from analyses.__main__ import page
from analyses.claims import Claim, Measured, quoted
from analyses.printing import answer, main, runs_of
from benchmarks.samples import samples
from lstmprof.implementations import ROWS

FOLDER = Path(analyses.__file__).parent
TRACES = FOLDER.parent / "traces"
#: What the questions share.
SHARED = {"__init__", "__main__", "claims", "drawing", "printing", "steps"}


@pytest.fixture(scope="module")
def runs() -> list[lp.Run]:
    return lp.read_all(samples())


@pytest.fixture(scope="module")
def answers(runs: list[lp.Run]) -> dict[str, pd.DataFrame]:
    return {name: question(name).table(runs) for name in QUESTIONS}


def test_every_file_is_a_question() -> None:
    assert {path.stem for path in FOLDER.glob("*.py")} - SHARED == set(QUESTIONS)


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_question_says_what_was_claimed_and_what_to_capture(name: str) -> None:
    analysis = question(name)
    assert title(analysis).endswith("?")
    assert "\nClaim: " in (analysis.__doc__ or "")
    known = list(ROWS)
    commands = [analysis.COMMAND, *(c.command for c in quoted(name))]
    for command in commands:
        asked = re.findall(r"--impl '?([\w-]+)(\*?)", command)
        assert asked, command
        for stem, star in asked:
            assert any(name.startswith(stem) if star else name == stem for name in known), stem


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_question_is_answered_by_the_samples_or_says_what_it_needs(
    name: str, answers: dict[str, pd.DataFrame]
) -> None:
    analysis, rows = question(name), answers[name]
    text = answer(analysis, rows)
    assert text.startswith(title(analysis))
    if len(rows):
        assert isinstance(analysis.chart(rows), alt.LayerChart)
        assert analysis.chart(rows).to_dict()["layer"]
    else:
        assert analysis.COMMAND in text


def test_the_committed_page_is_todays(runs: list[lp.Run]) -> None:
    committed = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert page(runs) == committed, "run make analyses"


def test_every_number_of_a_study_is_on_the_page(answers: dict[str, pd.DataFrame]) -> None:
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    for name, rows in answers.items():
        for claim in question(name).claims(rows):
            assert claim.says in text, claim.says
            assert claim.their_number in text


def test_the_command_prints_the_answer_and_writes_the_chart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chart = tmp_path / "spread.svg"
    named = [str(TRACES / name) for name in ("torch-nn-lstm", "tf-lstmcell", "keras-lstm")]
    main(question("asr_spread"), [*named, "--chart", str(chart)])
    printed = capsys.readouterr()
    assert "verdict" in printed.out
    assert chart.read_text(encoding="utf-8").startswith("<svg")
    assert str(chart) in printed.err


def test_folders_of_runs_within_a_folder_are_read(tmp_path: Path) -> None:
    shutil.copytree(TRACES / "torch-nn-lstm", tmp_path / "first")
    shutil.copytree(TRACES / "torch-nn-lstm", tmp_path / "studies" / "second")
    (tmp_path / "empty").mkdir()
    assert [run.path.name for run in runs_of([str(tmp_path)])] == ["first", "second"]
    assert [run.path.name for run in runs_of([str(tmp_path / "first")])] == ["first"]


def test_a_layer_too_large_for_a_cpu_needs_a_gpu() -> None:
    claims = question("deepbench_roofline").claims(question("deepbench_roofline").table([]))
    needs = {claim.says: claim.verdict for claim in claims}
    assert (
        needs["gru of 2816, batch 32: time steps 1500 over 187"] == "needs a GPU: 14 TFLOP a step"
    )
    assert needs["lstm of 512, time steps 25: batch 128 over 16"] == "not captured"


def test_a_folder_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"^analyses: error: .*nowhere") as told:
        main(question("asr_spread"), [str(tmp_path / "nowhere")])
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("theirs", "ours", "verdict"),
    [
        (2.0, Measured(2.1, 1.9, 2.3), "reproduced"),
        (2.0, Measured(2.5), "reproduced"),
        (2.0, Measured(2.6), "differs here"),
        (2.0, Measured(1.2, 1.1, 1.3), "differs here"),
        (2.0, Measured(2.4, 1.9, 3.0), "open"),
        (2.0, Measured(2.0, 1.0, 4.0), "open"),
        (2.0, None, "not captured"),
    ],
)
def test_a_verdict_is_of_the_whole_interval(
    theirs: float, ours: Measured | None, verdict: str
) -> None:
    assert Claim(published.ASR, "a claim", theirs, ours).verdict == verdict


def test_what_no_machine_here_can_answer_says_what_it_needs() -> None:
    assert Claim(published.ASR, "a claim", 2.0, needs="a GPU").verdict == "needs a GPU"
    assert (
        Claim(published.ASR, "a claim", 2.0, Measured(2.0), needs="a GPU").verdict == "reproduced"
    )


def test_the_interval_of_a_quotient_combines_both_errors() -> None:
    # 1.25 and 1.5 of the quotient below, 1.2 and 1.1 above: logarithms add as squares
    quotient = Measured(30, 24, 36).over(Measured(10, 10 / 1.1, 15))
    below, above = (
        math.hypot(math.log(1.25), math.log(1.5)),
        math.hypot(math.log(1.2), math.log(1.1)),
    )
    assert quotient.value == 3.0
    assert (quotient.low, quotient.high) == (
        pytest.approx(3 * math.exp(-below)),
        pytest.approx(3 * math.exp(above)),
    )
    assert Measured(30, 27, 36).over(Measured(10)) == Measured(3.0)
    assert Measured(30, 27, 36).times(2) == Measured(60, 54, 72)
