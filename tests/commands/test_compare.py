"""``lstmprof compare`` as CI meets it: the statuses, one line a pair, baselines, JSON."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import msgspec
import pytest
from commands.written_runs import step, write_run
from compare_document import Document

import lstmprof as lp
from lstmprof.base.errors import UsageError
from lstmprof.cli import run as lstmprof
from lstmprof.runs import cache

Said = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two folders of two runs; one of the new ones takes twice as long."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LSTMPROF_CACHE", str(tmp_path / "cache"))
    for side, ms in (("before", 10), ("after", 20)):
        write_run(tmp_path / side, "lstm", step(("aten::mm", ms - 1)), ms)
        write_run(tmp_path / side, "gru", step(("aten::mm", 9)), 10)
    return tmp_path


@pytest.mark.parametrize(
    ("condition", "status", "state"),
    [
        ("slower > 3 %", 3, "fail"),
        ("slower > 90 %", 4, "inconclusive"),
        ("step > 90 ms", 0, "pass"),
    ],
)
def test_each_state_has_a_status_of_its_own(
    condition: str, status: int, state: str, capsys: Said
) -> None:
    assert lstmprof(["compare", "before/lstm", "after/lstm", "--fail-if", condition]) == status
    first, *rest = capsys.readouterr().out.splitlines()
    assert first.startswith(
        f"{state}: lstm: 2.000× as long (20.00 ms per step, baseline 10.00 ms; "
    )
    assert len(rest) == (state != "pass")


def test_the_worst_pair_of_two_folders_decides_each_pair_in_a_line(capsys: Said) -> None:
    assert lstmprof(["compare", "before", "after", "--fail-if", "slower > 30 %"]) == 3
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines if line[0] != "→"] == [
        ["pass:", "gru:"],
        ["fail:", "lstm:"],
        ["fail:", "1"],
    ]
    assert "lstm (new) takes 2.00× as long as lstm (base)" in lines[2]
    assert lines[-1] == "fail: 1 of 2 pairs"


def test_json_obeys_its_schema_and_says_the_status(capsys: Said) -> None:
    assert lstmprof(["compare", "before", "after", "--format", "json"]) == 3
    document = msgspec.json.decode(capsys.readouterr().out, type=Document)
    assert (document.state, document.exit_status) == ("fail", 3)
    ratios = {pair.implementation: pair.ratio for pair in document.pairs}
    assert ratios == pytest.approx({"gru": 1, "lstm": 2}, rel=1e-4)


def test_markdown_is_a_table_for_a_summary(capsys: Said) -> None:
    assert lstmprof(["compare", "before", "after", "--format", "markdown"]) == 3
    head, rule, *rows = capsys.readouterr().out.splitlines()
    assert (head.count("|"), rule) == (4, "|---|---|---|")
    assert [row.split(" | ")[0] for row in rows[:2]] == ["| **inconclusive**", "| **fail**"]


def test_an_input_that_is_lost_is_a_failure_unless_another_pair_fails(
    runs: Path, capsys: Said
) -> None:
    (runs / "after" / "gru" / "run.json").write_text("{")
    assert lstmprof(["compare", "before", "after"]) == 3
    assert "left out: after/gru/run.json: is damaged" in capsys.readouterr().err
    assert lstmprof(["compare", "before", "after", "--fail-if", "step > 90 ms"]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "inconclusive: 0 of 1 pairs"


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["before"], 2, "got 1; give BASE and NEW"),
        (["before", "after", "--fail-if", "slow"], 2, "--fail-if 'slow' cannot be parsed"),
        (["before", "nowhere"], 1, "nowhere"),
        (["baseline:main", "after"], 2, "create one with --save-baseline"),
        (["baseline:../x", "after"], 2, "cannot name a baseline"),
        (["before", "after", "--save-baseline", "x"], 2, "takes one PATH"),
        (["before", "--save-baseline", "a/b"], 2, "cannot name a baseline"),
    ],
)
def test_a_mistake_is_one_line(arguments: list[str], status: int, said: str, capsys: Said) -> None:
    assert lstmprof(["compare", *arguments]) == status
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


def test_a_baseline_is_kept_whole_in_the_project_and_replaced_with_force(
    runs: Path, capsys: Said
) -> None:
    assert lstmprof(["compare", "before", "--save-baseline", "main"]) == 0
    assert "wrote .lstmprof/baselines/main (2 runs)" in capsys.readouterr().out
    shutil.rmtree(runs / "before")
    assert lstmprof(["compare", "baseline:main", "after", "--fail-if", "slower > 30 %"]) == 3
    assert lstmprof(["compare", "after", "--save-baseline", "main"]) == 1
    assert "add --force to overwrite it" in capsys.readouterr().err
    assert lstmprof(["compare", "after/lstm", "--save-baseline", "main", "--force"]) == 0
    assert sorted(p.name for p in (runs / cache.FOLDER).iterdir()) == ["main"]
    assert lstmprof(["compare", "baseline:main", "after/lstm", "--fail-if", "slower > 30 %"]) == 0
    with pytest.raises(UsageError, match="existing baselines: main"):
        cache.resolve_baseline("baseline:man")


def test_a_run_whose_name_leads_elsewhere_is_kept_under_its_folder(runs: Path) -> None:
    file = runs / "before" / "gru" / "run.json"
    facts = json.loads(file.read_text()) | {"name": "../../outside"}
    file.write_text(json.dumps(facts))
    assert lstmprof(["compare", "before", "--save-baseline", "main"]) == 0
    assert sorted(p.name for p in (runs / cache.FOLDER / "main").iterdir()) == ["gru", "lstm"]


def test_the_api_gives_what_the_command_prints() -> None:
    gate = lp.gate("before", lp.read_all("after"), "slower > 30 %")
    assert gate.state == "fail"
    assert [verdict.state for verdict in gate.verdicts] == ["pass", "fail"]
    cache.save("main", [run.stored for run in lp.read_all("before")])
    assert lp.gate("baseline:main", "after", "slower > 30 %").state == "fail"
