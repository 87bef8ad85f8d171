"""The page is one file: its numbers are the report's, and no name in it is more than text."""

from __future__ import annotations

import dataclasses
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from events.rows import row
from report import runs

from lstmprof.base.errors import RunError
from lstmprof.base.numbers import shown_name
from lstmprof.breakdown import Breakdown, break_down
from lstmprof.events.annotate import annotated
from lstmprof.events.schema import SCHEMA
from lstmprof.events.table import events_table
from lstmprof.report import TABLES, page, report_of
from lstmprof.report.charts import casts, figures
from lstmprof.report.model import Report, RunFacts
from lstmprof.report.page import cards, script_json
from lstmprof.runs.directory import new_run
from lstmprof.runs.metadata import run_info
from lstmprof.runs.run import open_run, write_tables


class Tags(HTMLParser):
    """The elements of a page: (name, attributes), and the text of each script."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self.found and self.found[-1][0] == "script":
            self.scripts[-1] += data


@pytest.fixture(scope="module")
def breakdowns(tmp_path_factory: pytest.TempPathFactory) -> list[Breakdown]:
    folder = tmp_path_factory.mktemp("runs")
    return [break_down(run, None, TABLES) for run in runs.three(folder)]


@pytest.fixture(scope="module")
def html(breakdowns: list[Breakdown]) -> str:
    return page.page(report_of(breakdowns))


def tags(html: str) -> Tags:
    parser = Tags()
    parser.feed(html)
    return parser


def data(html: str) -> dict[str, Any]:
    parser = tags(html)
    scripts = [attributes for tag, attributes in parser.found if tag == "script"]
    place = [one.get("id") for one in scripts].index("data")
    found: dict[str, Any] = json.loads(parser.scripts[place])
    return found


def test_the_numbers_in_the_page_are_those_of_the_runs(
    html: str, breakdowns: list[Breakdown]
) -> None:
    rows = data(html)["figures"]["times-0"]["data"]["values"]
    assert {row["run"]: row["step_ns"] for row in rows} == {
        breakdown.run.name: round(breakdown.timings.step_ns)
        for breakdown in breakdowns
        if breakdown.timings
    }
    ledger = data(html)["figures"]["ledger-0"]["data"]["values"]
    for breakdown in breakdowns:
        drawn = sum(row["total_ns"] for row in ledger if row["run"] == breakdown.run.name)
        assert drawn == sum(step.total_ns for step in breakdown.steps())


def test_hostile_names_are_text(html: str) -> None:
    parser = tags(html)
    assert [tag for tag, _ in parser.found if tag in ("img", "link", "iframe", "object")] == []
    own = {"data", None}
    assert {attributes.get("id") for tag, attributes in parser.found if tag == "script"} == own
    assert not any(name.startswith("on") for _, a in parser.found for name in a)
    assert "\x00" not in html
    assert "\u202e" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    kernels = data(html)["kernels"]
    names = {row[kernels["columns"].index("name")] for row in kernels["rows"]}
    assert "<script>alert(1)</script>" in names
    assert all(len(name) <= 400 for name in names)


def test_nothing_is_loaded_from_elsewhere(html: str) -> None:
    for tag, attributes in tags(html).found:
        for name in ("src", "href", "action", "srcset", "data"):
            value = attributes.get(name) or "#"
            assert value.startswith("#"), (tag, name, value)
    outside_vega = re.sub(r"<script>.*?</script>", "", html, flags=re.DOTALL)
    assert "@import" not in outside_vega  # an address as text, of a remedy's source, loads nothing
    assert "url(" not in outside_vega
    assert "default-src 'none'" in html


def test_every_figure_has_a_unit_and_the_page_says_once_what_ran(html: str) -> None:
    captions = re.findall(r"<figcaption[^>]*><bdi>(.*?)</bdi>", html)
    assert len(captions) >= 6
    assert not any("2026-11-21" in caption or "Test GPU" in caption for caption in captions)
    (head,) = re.findall(r'<p class="meta">.*?</p>', html)
    assert "Test GPU" in head
    assert "2026-11-21" in head
    (table,) = re.findall(r'<table id="runs-table".*?</table>', html, re.DOTALL)
    assert "torch 2.13.0" in table
    labels = [a["aria-label"] for tag, a in tags(html).found if a.get("data-figure")]
    assert all(re.search(r"\d", label or "") for label in labels)


def test_a_way_between_two_runs_says_how_many_steps_it_is_of(tmp_path: Path) -> None:
    made = [
        runs.run(tmp_path, name, implementation=name, steps=steps, walls_ns=runs.walls(40_000))
        for name, steps in (("few", 4), ("many", 5))
    ]
    html = page.page(report_of([break_down(run, None, TABLES) for run in made]))
    (pair,) = data(html)["pairs"]
    assert re.search("clean steps from (4 and 5|5 and 4) profiled steps", pair["caption"])
    captions = re.findall(r"<figcaption[^>]*><bdi>(.*?)</bdi>", html)
    assert pair["caption"] in captions
    assert any("clean step from 4–5 profiled steps" in caption for caption in captions)


def test_the_first_screen_has_each_verdict_with_its_certainty_and_the_times(
    breakdowns: list[Breakdown],
) -> None:
    report = report_of(breakdowns)
    html = page.page(report)
    first = html[html.index('<section id="verdict"') : html.index('<section id="ledger"')]
    (block,) = cards.blocks(report, figures(report))
    worst_first = sorted(report.diagnoses, key=lambda d: d.ratio.value if d.ratio else 0)[::-1]
    assert [card.subject for card in block.cards] == [d.verdict.subject for d in worst_first]
    times = {row["label"]: row["times"] for row in report.times}
    for card, diagnosis in zip(block.cards, worst_first, strict=True):
        verdict = diagnosis.verdict
        assert (card.level, card.step) == (verdict.certainty, verdict.step_ms)
        assert card.times == f"{verdict.times} as long as {verdict.baseline}"
        assert verdict.times == times[card.subject]  # as beside the bar
        assert [label for label, _, _ in card.lines][:1] == ["Why"]
        best = [gain for label, _, gain in card.lines if label in ("Fix", "Try")]
        assert len(best) == min(len(verdict.fixes), 1)
    badges = re.findall(r'<span class="certainty">(.*?)</span>', first)
    assert badges == [card.badge for card in block.cards]
    assert 'data-figure="times-0"' in first
    assert '<details class="rest" open' not in first


def test_runs_that_take_equally_long_are_no_difference(tmp_path: Path) -> None:
    made = [
        runs.run(tmp_path, name, implementation=name, walls_ns=runs.walls(40_000))
        for name in ("a", "b")
    ]
    report = report_of([break_down(run, None, TABLES) for run in made])
    ((card,),) = (block.cards for block in cards.blocks(report, []))
    assert (card.level, card.badge, card.where) == ("none", "no difference", ())


def test_what_makes_times_doubtful_is_said_once_however_many_diagnoses_it_touches(
    tmp_path: Path,
) -> None:
    hot = {"gpu_throttle_reasons": ["it is hot"]}
    made = [
        runs.run(tmp_path, "fast", implementation="a", walls_ns=runs.walls(40_000), facts=hot),
        *(
            runs.run(tmp_path, name, implementation=name, walls_ns=runs.walls(90_000))
            for name in ("b", "c")
        ),
    ]
    html = page.page(report_of([break_down(run, None, TABLES) for run in made]))
    assert html.count("Reasons to doubt these times (") == 1
    doubts = re.findall(r'<p class="warning"><b>Doubt</b>: <bdi>(.*?)</bdi>', html)
    assert len(doubts) == len(set(doubts)) >= 1


def test_casts_of_less_than_a_hundredth_of_every_step_are_left_out() -> None:
    rows = [
        {"run": "a", "label": "a", "group": 0, "op": "aten::to", "within": None, "share": share}
        | {"total_ns": 1, "per_step": 1.0, "from_dtype": None, "to_dtype": None}
        for share in (0.004, 0.005)
    ]
    facts = {field.name: None for field in dataclasses.fields(RunFacts)}
    report = Report("", "", "", (RunFacts(**{**facts, "run": "a", "label": "a"}),), (), casts=rows)
    assert casts.figures(report) == []
    more = dataclasses.replace(report, casts=[*rows, {**rows[0], "share": 0.002}])
    assert len(casts.figures(more)) == 1


def test_every_part_has_its_definition(html: str) -> None:
    for name in (
        "launch latency",
        "dispatch",
        "unknown",
        "matmul",
        "cast",
        "waits for the host",
    ):
        assert f"{name}</dt><dd>" in html


@pytest.mark.parametrize("text", ["</script>", "<!--", "a & b", "\u2028", "\x00", "é \u05d0"])
def test_json_in_a_script_reads_back_and_cannot_end_it(text: str) -> None:
    written = script_json({"name": text})
    assert json.loads(written) == {"name": text}
    assert "<" not in written
    assert "\x00" not in written


def test_a_name_keeps_its_two_ends() -> None:
    name = shown_name("begin" + "x" * 5000 + "end", 50)
    assert len(name) <= 50
    assert name.startswith("beginx")
    assert name.endswith("xend")


def test_a_page_is_not_written_over_another(tmp_path: Path) -> None:
    run = runs.run(tmp_path, "one", implementation="torch-nn-lstm")
    report = report_of([break_down(run)])
    path = tmp_path / "deep" / "report.html"
    page.write(report, path)
    with pytest.raises(RunError, match="--force"):
        page.write(report, path)
    assert page.write(report, path, force=True) == path.stat().st_size
    assert [p.name for p in path.parent.iterdir()] == ["report.html"]


def test_vega_is_bundled_once_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundled: list[str] = []

    def bundle() -> str:
        bundled.append("vega</script>")
        return bundled[-1]

    monkeypatch.setattr(page, "_bundled_vega", bundle)
    monkeypatch.setenv("LSTMPROF_CACHE", str(tmp_path / "cache"))
    assert page.vega() == page.vega() == "vega<\\/script>"
    assert len(bundled) == 1
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LSTMPROF_CACHE", str(tmp_path / "file"))  # nothing can be written there
    assert page.vega() == "vega<\\/script>"


# host    |==== step ==============================| 100 ns
#            [L 10 .. 20)                [sync 30 ..... 90)
# stream                 [sgemm 25 ....... 85)
def test_the_critical_path_is_a_table(tmp_path: Path) -> None:
    host = {"pid": 1, "tid": 1}
    rows = [
        row("step", "step#0", 0, 100, **host),
        row("runtime", "cudaLaunchKernel", 10, 20, **host, correlation_id=1),
        row("kernel", "ampere_sgemm<b>", 25, 85, device=0, stream=7, correlation_id=1),
        row("runtime", "cudaStreamSynchronize", 30, 90, **host),
    ]
    columns = [name for name in SCHEMA.names if name != "event_id"]
    events = events_table({name: [r[name] for r in rows] for name in columns})
    with new_run(tmp_path, "one") as folder:
        write_tables(folder, run_info({"name": "one"}), annotated(events, captured=False))
    report = report_of([break_down(open_run(tmp_path / "one"), None, TABLES)])
    assert {(r["part"], r["path_ns"]) for r in report.critical_path} >= {
        ("gemm", 60),
        ("launch call", 10),
        ("launch latency", 5),
    }
    assert sum(row["path_ns"] for row in report.critical_path) == 100
    (table,) = re.findall(r'<table id="path-table"[^>]*>.*?</table>', page.page(report), re.DOTALL)
    (first,) = re.findall(r"<tbody>\s*<tr>(.*?)</tr>", table, re.DOTALL)
    assert "matmul" in first
    assert "60.0 %" in first
    assert "ampere_sgemm&lt;b&gt;" in first


def test_recurrent_layers_are_a_table(tmp_path: Path) -> None:
    state = {"pid": 1, "tid": 1, "dtypes": '["float"]'}
    state["shapes"] = "[[9,6,10],[[1,6,16],[1,6,16]],[[64,10],[64,16],[64],[64]]]"
    rows = [row("step", "step#0", 0, 100, pid=1, tid=1), row("op", "aten::lstm", 5, 95, **state)]
    columns = [name for name in SCHEMA.names if name != "event_id"]
    events = events_table({name: [r[name] for r in rows] for name in columns})
    with new_run(tmp_path, "<b>lstm") as folder:
        write_tables(folder, run_info({"name": "lstm"}), annotated(events, captured=False))
    breakdowns = [break_down(open_run(tmp_path / "<b>lstm"), None, TABLES)]
    html = page.page(report_of(breakdowns))
    (table,) = re.findall(r'<table id="layers-table"[^>]*>.*?</table>', html, re.DOTALL)
    cells = re.findall(r"<td[^>]*>(.*?)</td>", table)
    assert cells[:3] == ["layer op: <bdi>aten::lstm</bdi> (ATen)", "9 × 6 × 10 → 16", "float32"]
    assert cells[5] == "0.000"
    assert "<b>lstm" not in table
