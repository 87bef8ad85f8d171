"""``import lstmprof as lp``: what a notebook calls, on a profile that lies with the tests."""

from __future__ import annotations

import importlib
import inspect
import json
import subprocess
import sys
from pathlib import Path

import pandas
import polars
import pytest
from in_process import lstmprof

import lstmprof as lp
from lstmprof.errors import LstmprofError, UsageError
from lstmprof.names import TABLES

PROFILES = Path(__file__).parent / "profiles"
PROFILE = PROFILES / "kineto-today.pt.trace.json"
NOTEBOOK = Path(__file__).parents[1] / "docs" / "first_look.ipynb"


@pytest.fixture(scope="module", autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory) -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LSTMPROF_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def run() -> lp.Run:
    return lp.read(PROFILE)


def by_command(*arguments: object) -> list[dict[str, object]]:
    said = lstmprof(*arguments, "--format", "json")
    assert said.returncode == 0, said.stderr
    rows: list[dict[str, object]] = json.loads(said.stdout)
    return rows


def test_a_table_is_that_of_the_command_in_every_form(run: lp.Run) -> None:
    rows = by_command("breakdown", PROFILE, "--table", "kernels")
    table = run.table("kernels")
    assert [{"run": run.name, **row} for row in table] == rows
    assert table.to_arrow().to_pylist() == table.rows()
    frame = table.to_pandas()
    assert frame["total_ns"].sum() == sum(row["total_ns"] for row in table)
    assert list(frame.nlargest(1, "total_ns")["name"]) == [table.rows()[0]["name"]]
    assert isinstance(table.to_polars(), polars.DataFrame)
    assert table.to_polars().shape == (len(table), len(table.columns))


@pytest.mark.parametrize("name", TABLES)
def test_each_table_by_itself_is_that_of_the_command(run: lp.Run, name: str) -> None:
    rows = by_command("breakdown", PROFILE, "--table", name)
    assert [{"run": run.name, **row} for row in lp.Run(run.stored).table(name)] == rows


def test_integers_stay_integers_where_some_are_unknown(run: lp.Run) -> None:
    frame = run.table("copies").to_pandas()
    assert frame["total_ns"].dtype == pandas.Int64Dtype()
    assert frame["device"].dtype == pandas.Int64Dtype()


def test_every_column_says_what_it_holds(run: lp.Run) -> None:
    for name in ("ledger", "kernels", "ops", "launches", "casts", "copies", "streams", "ranges"):
        table = run.table(name)
        assert list(table.columns_doc) == table.columns
        assert all(table.columns_doc.values())


def test_a_notebook_shows_runs_tables_and_diagnoses(run: lp.Run) -> None:
    shown = run.table("kernels")._repr_html_()
    assert shown.count("<tr>") == 1 + min(len(run.table("kernels")), 20)
    assert 'title="ns: sum of durations' in shown
    assert "<script" not in lp.Table("<script>", run.ledger().arrow)._repr_html_()
    assert "device 0" in run._repr_html_()
    (diagnosis,) = lp.diagnose(run)
    assert diagnosis.sentence in diagnosis._repr_markdown_()


def test_a_diagnosis_has_its_parts(run: lp.Run) -> None:
    (diagnosis,) = lp.diagnose(run)
    assert diagnosis.sentence.startswith(run.name)
    assert {cause for finding in diagnosis.findings for cause in [finding.sentence]}
    assert diagnosis.remedies == tuple(a for f in diagnosis.findings for a in f.remedies)
    same = lp.compare(run, run)
    assert same.to_dict()["state"] == "none"
    assert "take equally long" in same.sentence
    waterfall = same.waterfall()
    assert waterfall.columns[0] == "kind"
    assert sum(row["delta_ns"] for row in waterfall) == 0


def test_a_step_without_a_cause(run: lp.Run) -> None:
    assert run.what_if(without="launch").saved_ns >= 0
    with pytest.raises(UsageError, match=r"did you mean 'launch'"):
        run.what_if(without="lunch")
    assert run.what_if(form="compiled").saved_ns >= 0
    with pytest.raises(UsageError, match="takes one change"):
        run.what_if()
    with pytest.raises(UsageError, match="takes one change"):
        run.what_if("launch", form="compiled")
    with pytest.raises(UsageError, match="unknown form"):
        run.what_if(form="fast")


def test_sql_over_runs(run: lp.Run) -> None:
    answer = lp.sql("SELECT run, sum(total_ns) AS ns FROM kernels GROUP BY run", run)
    total = sum(row["total_ns"] for row in run.table("kernels"))
    assert answer.rows() == [{"run": run.name, "ns": total}]


def test_a_chart_to_restyle_and_a_page(run: lp.Run, tmp_path: Path) -> None:
    altair = pytest.importorskip("altair")
    chart = lp.charts.ledger(run)
    assert isinstance(chart, altair.TopLevelMixin)
    assert "gemm" in json.dumps(chart.properties(width=300).to_dict())
    assert "ledger" in dir(lp.charts)
    with pytest.raises(AttributeError, match="no chart is called pie"):
        _ = lp.charts.pie
    page = lp.report(run, tmp_path / "page.html")
    assert page.read_text("utf-8").startswith("<!doctype html>")
    with pytest.raises(LstmprofError, match="force"):
        lp.report(run, page)


def test_wrong_arguments_get_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(LstmprofError, match=r"demo: there is no such file"):
        lp.read_all("demo")
    with pytest.raises(UsageError, match=r"3 is no path and no URL; give text"):
        lp.read_all(3)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="no run is named"):
        lp.read_all()
    for name in ("kineto-today.pt.trace.json", "kineto-2021.pt.trace.json"):
        lp.ingest(PROFILES / name, tmp_path)
    with pytest.raises(UsageError, match=r"holds 2 runs; lp.read_all"):
        lp.read(tmp_path)
    with pytest.raises(UsageError, match=r"unknown option 'iteration'; did you mean 'iterations'"):
        lp.capture("torch-nn-lstm", "1x320-ce-short", iteration=3)
    with pytest.raises(UsageError, match="these are 3 runs"):
        lp.compare(PROFILE, [PROFILE, PROFILE])  # type: ignore[arg-type]


def test_runs_are_read_from_words_lists_and_folders(tmp_path: Path) -> None:
    (ingested,) = lp.ingest(PROFILE, tmp_path)
    assert ingested.path == tmp_path / ingested.name
    assert [run.name for run in lp.read_all(tmp_path)] == [ingested.name]
    assert [run.name for run in lp.read_all([str(PROFILE)], PROFILE)] == [ingested.name] * 2
    assert ingested.timings() is None
    assert ingested.info.profile_format == "kineto"
    assert ingested.info.workload.time_steps is None


def test_a_capture_is_a_run(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    sizes = {"hidden": 4, "batch": 2, "time_steps": 3, "features": 3}
    asked = {"device": "cpu", "iterations": 6, "warmup": 1, "peaks": False}
    run = lp.capture("torch-nn-lstm", "1x320-ce-short", out=tmp_path, rounds=1, **sizes, **asked)
    timings = run.timings()
    assert timings is not None
    assert timings.iterations == 6
    assert run.info.workload.time_steps == 3
    assert run.info.workload.hidden == 4


@pytest.mark.parametrize("name", ["capture", "diagnose", "report"])
def test_a_stage_is_called_by_the_name_of_its_function(name: str) -> None:
    importlib.import_module(f"lstmprof.{name}")
    called = getattr(lp, name)
    assert callable(called)
    assert inspect.signature(called) == inspect.signature(
        getattr(importlib.import_module("lstmprof.api"), name)
    )


def test_importing_it_loads_nothing() -> None:
    program = "import sys, lstmprof; assert not {'numpy', 'pyarrow', 'pandas'} & {*sys.modules}"
    subprocess.run([sys.executable, "-c", program], check=True)
    assert {"read", "capture", "Run"} <= {*dir(lp)}
    assert (Path(lp.__file__).parent / "py.typed").exists()


def test_the_notebook_goes_from_a_profile_to_a_chart(tmp_path: Path) -> None:
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    code = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    assert sum(len(source.splitlines()) for source in code) <= 12
    resources = {"metadata": {"path": str(NOTEBOOK.parent)}}
    done = nbclient.NotebookClient(
        notebook, timeout=600, startup_timeout=600, resources=resources
    ).execute()
    outputs = [cell.outputs[-1] for cell in done.cells if cell.cell_type == "code"]
    shown = [set(output.data) for output in outputs]
    assert "text/html" in shown[0]
    assert "total_ns" in outputs[1].data["text/plain"]
    assert "kineto-today" in outputs[3].data["text/plain"]
    assert "vega" in json.dumps(outputs[4].data)
