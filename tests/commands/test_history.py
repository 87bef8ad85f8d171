"""``lstmprof history``: tables, rows for programs, and a page that needs nothing outside."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import vl_convert
from commands.written_runs import step, write_run

import lstmprof as lp
from lstmprof.cli import run as lstmprof
from lstmprof.report import history as page

Said = pytest.CaptureFixture[str]
HOSTILE = "</script><script>alert(1)</script>"


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for day, (label, ms) in enumerate([("v1", 10), ("v2", 10), (HOSTILE, 30)], 1):
        when = f"2026-11-0{day}T10:00:00Z"
        facts = {"implementation": "lstm", "label": label, "started_at": when}
        write_run(tmp_path / "traces", f"lstm-{day}", step(("aten::mm", ms - 1)), ms, **facts)
    return tmp_path


def test_a_series_is_a_table_with_its_steps_in_the_title(capsys: Said) -> None:
    assert lstmprof(["history", "traces", "--by", "label"]) == 0
    text = capsys.readouterr().out
    title, _, table = text.partition("label  ")
    heads, *rows = f"label  {table}".splitlines()
    assert title.startswith("lstm: 3 runs")
    assert f"3.00× as long at {HOSTILE}" in " ".join(title.split())
    assert heads.split()[:3] == ["label", "run", "ms"]
    assert [row.split()[0] for row in rows[:2]] == ["v1", "v2"]
    assert rows[2].endswith("slower")
    assert lstmprof(["history", "traces"]) == 0
    assert "2026-11-03 10:00:00" in capsys.readouterr().out


def test_json_csv_and_the_api_have_the_same_rows(capsys: Said) -> None:
    assert lstmprof(["history", "traces", "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert rows == lp.history("traces").rows()
    assert [row["change"] for row in rows] == [None, None, "slower"]
    assert lstmprof(["history", "traces", "--format", "csv"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 4


def test_the_page_holds_its_data_and_no_label_leaves_its_place(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: Said
) -> None:
    monkeypatch.setattr(page, "vega", lambda: "/* vega */")
    assert lstmprof(["history", "traces", "-o", "h.html"]) == 0
    text = (runs / "h.html").read_text(encoding="utf-8")
    assert "<script>alert" not in text
    assert "&lt;/script&gt;" in text
    write_run(runs / "traces", "other", step(("aten::mm", 9)), 10, implementation="gru")
    assert lstmprof(["history", "traces", "-o", "h.html", "--force"]) == 0
    text = (runs / "h.html").read_text(encoding="utf-8")
    spec = re.search(r'vegaEmbed\("#chart", (.*), \{actions', text)
    assert spec
    assert json.loads(spec[1])["vconcat"][0]["title"] == "lstm"
    assert vl_convert.vegalite_to_svg(spec[1]).count("lstm-3") > 0
    assert lstmprof(["history", "traces", "-o", "h.html"]) == 1
    assert "add --force" in capsys.readouterr().err
    assert lstmprof(["history", "traces", "-o", "h.html", "--force"]) == 0
