"""The analyses: files as listed, each answers on the committed samples, README.md is today's."""

from __future__ import annotations

import inspect
import math
import re
import shutil
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import altair as alt
import pandas as pd
import pytest
import torch

import analyses
import lstmprof as lp
from analyses import PARTS, QUESTIONS, published, question, steps, sweep, title
from analyses.__main__ import page, write_charts
from analyses.claims import Claim, Measured
from analyses.printing import answer, main, runs_of
from benchmarks.samples import samples
from lstmprof import implementations
from lstmprof.base.names import TABLES
from lstmprof.breakdown import TIMINGS
from lstmprof.implementations import ROWS
from lstmprof.workloads.studies import named

FOLDER = Path(analyses.__file__).parent
TRACES = FOLDER.parent / "traces"
#: What the questions share.
SHARED = {"__init__", "__main__", "claims", "drawing", "printing", "steps", "sweep"}


@pytest.fixture(scope="module")
def runs() -> list[lp.Run]:
    return lp.read_all(samples())


@pytest.fixture(scope="module")
def claims(answers: dict[str, pd.DataFrame]) -> dict[str, list[Claim]]:
    return {name: question(name).claims(rows) for name, rows in answers.items()}


@pytest.fixture(scope="module")
def answers(runs: list[lp.Run]) -> dict[str, pd.DataFrame]:
    return {name: question(name).table(runs) for name in QUESTIONS}


def test_every_file_is_a_question() -> None:
    assert {path.stem for path in FOLDER.glob("*.py")} - SHARED == set(QUESTIONS)


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_question_says_what_was_claimed_and_what_to_capture(
    name: str, claims: dict[str, list[Claim]]
) -> None:
    analysis = question(name)
    assert title(analysis).endswith("?")
    assert "\nClaim of " in (analysis.__doc__ or "")
    known = list(ROWS)
    commands = [analysis.COMMAND, *(claim.command for claim in claims[name])]
    for command in commands:
        asked = re.findall(r"--impl '?([\w-]+)(\*?)", command)
        assert asked or "lstmprof capture" not in command, command
        for stem, star in asked:
            assert any(name.startswith(stem) if star else name == stem for name in known), stem
        for workload in re.findall(r"--workload ([\w-]+)(?= |$)", command):
            assert named(workload)
        for shown in re.findall(r"--table (\w+)", command):
            assert shown in {TIMINGS, *TABLES}


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_question_is_answered_by_the_samples_or_says_what_it_needs(
    name: str, answers: dict[str, pd.DataFrame]
) -> None:
    analysis, rows = question(name), answers[name]
    text = answer(analysis, rows)
    assert text.startswith(title(analysis))
    assert text.endswith(f"{analysis.conclusion(rows)}.\n")
    if len(rows):
        assert isinstance(analysis.chart(rows), alt.LayerChart | alt.HConcatChart)
        assert {"layer", "hconcat"} & {*analysis.chart(rows).to_dict()}
    else:
        assert analysis.COMMAND in text


def test_the_committed_page_and_charts_are_todays(runs: list[lp.Run], tmp_path: Path) -> None:
    committed = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert page(runs) == committed, "run make analyses"
    write_charts(runs, tmp_path)
    for part in PARTS:
        name = f"{part.drawn}.svg"
        drawn, stored = (
            (folder / name).read_text(encoding="utf-8") for folder in (tmp_path, FOLDER / "charts")
        )
        marks = [re.findall(r'aria-label="([^"]*)"', svg) for svg in (drawn, stored)]
        assert marks[0], name
        assert marks[0] == marks[1], f"{name}: run make analyses"


#: Numbers and claims of each study by place, counted by hand in the studies' texts. A ratio stands
#: for its two numbers, so a table of n numbers with b bases has n − b ratios.
PLACES = {
    "ASR study": {
        "table": 31 - 4,  # eleven, eleven, five and four systems; PyTorch's cuDNN layer is the base
        "versions": 31 - 8,  # 12, 12, 4 and 3 numbers; 0.4.0 is the base of eight rows
        "table, growth": 2,  # of both loops of PyTorch's cells, from CE-short to CE-long
        # 5.1×, 7.2×, 7.0× and 6.5× between the ends; 1.3×, 3.4×, 1.6×, 1.8×, 7.0×, 4.7×, 1.1×, 1.2×
        "text": 4 + 8,
        **dict.fromkeys(("text: fastest", "text: wrappers"), 1),
        **dict.fromkeys(("text: versions", "text: packed"), 1),
    },
    # six sizes, three numbers of three libraries each; Torch is the base
    "glample": {"table lstm": 54 - 18, "table rnn": 54 - 18},
    "PTB study": {
        "table": 4 - 1,  # 15k, 17k, 32k, and 25k on two GPUs
        **dict.fromkeys(("text: two GPUs", "text: busy", "text: LM busy", "text: LM"), 1),
        **dict.fromkeys(("text: quoted fused", "text: quoted basic"), 1),
        **dict.fromkeys(("text: norm", "text: lengths"), 1),
    },
    "kernel study": {
        "Table 2": 8,
        **dict.fromkeys(("claim (a)", "claim (b)"), 1),
        **dict.fromkeys(("claim (c), mode 1", "claim (c), mode 2", "claim (c), result"), 1),
        **dict.fromkeys(("claim (d), average", "claim (d), batch", "claim (d), time steps"), 1),
        **dict.fromkeys(("claim (e), time", "claim (e), ops"), 1),
        **dict.fromkeys(("claim (f), casts", "claim (f), average", "claim (f), DeepBench"), 1),
        **dict.fromkeys(("claim (f), time steps", "claim (f), TensorFlow", "claim (f), small"), 1),
        **dict.fromkeys(("claim (g), casts", "claim (g), products", "claim (g), result"), 1),
        **dict.fromkeys((f"Figure {number}" for number in range(1, 7)), 1),
        "future work": 1,
    },
    # eight numbers on a K80 and seven on a P100; PyTorch is the base of both
    "IMDB GRU": {"table": 15 - 2, **dict.fromkeys((f"lesson {n}" for n in range(1, 10)), 1)},
}


@pytest.mark.parametrize("study", PLACES)
def test_every_number_and_claim_of_a_study_is_a_row(
    study: str, claims: dict[str, list[Claim]]
) -> None:
    own = [claim for each in claims.values() for claim in each if claim.study.name == study]
    assert Counter(claim.place for claim in own) == PLACES[study]


@pytest.mark.parametrize(
    ("table", "columns", "count"),
    [
        ("asr", ["step_ms"], 31),
        ("asr_versions", ["step_ms"], 31),
        ("glample", ["compile_s", "train_us", "forward_us"], 108),
        ("ptb", ["words_per_s"], 4),
        ("kernel_study", ["mpe"], 8),
        ("imdb", ["k80_s", "p100_s"], 15),
    ],
)
def test_every_number_of_a_studys_table_stands_in_a_claim(
    table: str, columns: list[str], count: int, claims: dict[str, list[Claim]]
) -> None:
    numbers = [abs(value) for value in published.rows(table)[columns].stack().dropna()]
    assert len(numbers) == count
    figures = " ".join(claim.raw for each in claims.values() for claim in each)
    shown = {float(text.replace(",", "")) for text in re.findall(r"\d[\d,.]*\d|\d", figures)}
    assert {*numbers} <= shown


def test_a_verdict_has_its_reason_or_its_command(claims: dict[str, list[Claim]]) -> None:
    for claim in (claim for each in claims.values() for claim in each):
        assert claim.kind in ("reproduced", "differs here", "needs a GPU")
        if claim.kind == "needs a GPU":
            assert claim.command, claim.says
        elif claim.kind == "differs here":
            assert claim.why or claim.seen, claim.says
            assert claim.conditions, claim.says
    assert "contradict" not in (FOLDER / "README.md").read_text(encoding="utf-8")


def test_what_is_quoted_of_an_interface_is_true_of_the_installed_versions() -> None:
    package = Path(str(find_spec("tensorflow").origin)).parent  # type: ignore[union-attr]
    text = (package / "python" / "ops" / "gen_cudnn_rnn_ops.py").read_text(encoding="utf-8")
    (arguments,) = re.findall(r"^def cudnn_rnnv3\(([^)]*)\)", text, re.M)
    assert "sequence_lengths" in arguments
    assert "norm" not in arguments
    assert "norm" not in str(inspect.signature(torch.nn.modules.rnn.RNNBase))
    assert implementations.find("tf-cudnnlstm").refusals()["cpu"] == "CudnnRNNV3 has no CPU kernel"


def test_the_cost_of_a_launch_is_that_of_the_h200() -> None:
    loop, layer = (lp.read(Path(__file__).with_name("h200") / name) for name in ("loop", "layer"))
    events = loop.table("events").to_pandas()
    launches = events[(events.kind == "runtime") & (events.name == "cudaLaunchKernel")]
    assert launches.dur_ns.median() / 1e3 == pytest.approx(steps.LAUNCH_US, abs=0.05)
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    busy = []
    for run in (loop, layer):
        ledger = run.ledger().to_pandas()
        busy.append(ledger[ledger.state == "busy"].ns.sum() / ledger["step"].nunique() / 1e6)
    assert [f"{ms:.1f}" for ms in busy] == ["1.5", "0.2"]
    assert "kernels ran for 1.5 and 0.2 ms" in text
    assert [f"{run.timings().step_ns / 1e6:.1f}" for run in (loop, layer)] == ["26.1", "2.8"]


def test_a_crossover_lies_on_the_line_between_logarithms() -> None:
    assert sweep.crossovers(pd.Series([2.0, 0.5], index=[1, 100])) == [pytest.approx(10)]
    assert sweep.crossovers(pd.Series([2.0, 1.5, 3.0], index=[1, 10, 100])) == []


def test_every_claim_is_on_the_page(claims: dict[str, list[Claim]]) -> None:
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    for claim in (claim for each in claims.values() for claim in each):
        assert (f"| {claim.row} |" if claim.row else claim.says) in text, claim.says
        assert claim.their_number in text
        assert claim.raw in text
        assert claim.kind != "needs a GPU" or f"`{claim.command}`" in text


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
        needs["gru of 2816, batch 32: time steps 1500 over 187"] == "needs a GPU: 14 TFLOP per step"
    )
    assert needs["lstm of 512, time steps 25: batch 128 over 16"] == "needs a GPU"


def test_a_folder_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"^analyses: error: .*nowhere") as told:
        main(question("asr_spread"), [str(tmp_path / "nowhere")])
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("theirs", "ours", "verdict"),
    [
        (2.0, Measured(2.1, 1.9, 2.3), "reproduced"),
        (2.0, Measured(2.5), "reproduced"),
        (2.0, Measured(2.6), "differs here (CPU)"),
        (2.0, Measured(1.2, 1.1, 1.3), "differs here (CPU)"),
        (2.0, Measured(2.4, 1.9, 3.0), "likely reproduced"),
        (2.0, Measured(2.0, 1.0, 4.0), "likely reproduced"),
        (2.0, Measured(1.3, 1.0, 1.8), "likely differs here (CPU)"),
        (2.0, Measured(3.0, 1.0, 9.0), "likely differs here (CPU)"),
        (2.0, None, "needs a GPU"),
    ],
)
def test_a_verdict_is_likely_if_the_interval_holds_both(
    theirs: float, ours: Measured | None, verdict: str
) -> None:
    assert Claim(published.ASR, "a claim", theirs, ours).verdict == verdict


def test_a_claim_in_words_is_true_of_our_runs_or_not() -> None:
    verdicts = [
        Claim(published.ASR, "a claim", None, holds=holds, needs="two GPUs").verdict
        for holds in (True, False, None)
    ]
    assert verdicts == ["reproduced", "differs here (CPU)", "needs two GPUs"]


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
