"""``import lstmprof as lp``: what a notebook calls, on a profile that lies with the tests."""

from __future__ import annotations

import importlib
import inspect
import json
import pydoc
import subprocess
import sys
from pathlib import Path

import pandas
import polars
import pytest
from in_process import lstmprof

import lstmprof as lp
from lstmprof.api.runs import FILES
from lstmprof.api.wording import with_arguments
from lstmprof.base.errors import LstmprofError, RunError, UsageError
from lstmprof.base.names import TABLES

SAMPLES = Path(__file__).parents[1] / "traces"
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


@pytest.fixture(scope="module")
def fast() -> lp.Run:
    return lp.read(SAMPLES / "torch-nn-lstm")


@pytest.fixture(scope="module")
def slow() -> lp.Run:
    return lp.read(SAMPLES / "torch-lstmcell-basic")


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


@pytest.mark.parametrize("name", ["timings", *TABLES])
def test_each_table_by_itself_is_that_of_the_command(run: lp.Run, name: str) -> None:
    rows = by_command("breakdown", PROFILE, "--table", name)
    assert [{"run": run.name, **row} for row in lp.Run(run.stored).table(name)] == rows


def test_the_timings_of_a_capture_are_those_of_the_command(fast: lp.Run) -> None:
    (row,) = fast.table("timings").rows()
    assert by_command("breakdown", fast.path, "--table", "timings") == [{"run": fast.name, **row}]
    assert fast.step_ms == pytest.approx(row["step_ns"] / 1e6)


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_a_run_is_a_table(fast: lp.Run, name: str) -> None:
    table = fast.table(name)
    assert list(table.columns_doc) == table.columns
    rows = {"events": fast.stored.event_count, "iterations": fast.stored.timings().num_rows}
    assert len(table.to_pandas()) == len(table) == rows.get(name, 0)


def test_the_events_have_the_steps_that_were_asked_for() -> None:
    run = lp.read(PROFILE, step_range="^backward")
    kinds = run.table("events").to_pandas().groupby("kind", observed=True)["name"].unique()
    assert list(kinds["step"]) == ["backward"]


def test_integers_stay_integers_where_some_are_unknown(run: lp.Run) -> None:
    frame = run.table("copies").to_pandas()
    assert frame["total_ns"].dtype == pandas.Int64Dtype()
    assert frame["device"].dtype == pandas.Int64Dtype()


def test_every_column_says_what_it_holds(run: lp.Run) -> None:
    for name in ("timings", *TABLES):
        table = run.table(name)
        assert list(table.columns_doc) == table.columns
        assert all(table.columns_doc.values())


def test_a_notebook_shows_runs_tables_and_diagnoses(run: lp.Run) -> None:
    shown = run.table("kernels")._repr_html_()
    assert shown.count("<tr>") == 1 + min(len(run.table("kernels")), 20)
    assert 'title="ns: sum of the durations' in shown
    assert "<script" not in lp.Table("<script>", run.ledger().arrow)._repr_html_()
    assert "device 0" in run._repr_html_()
    diagnosis = lp.diagnose(run)
    assert f"**{repr(diagnosis).splitlines()[0]}**" in diagnosis._repr_markdown_().splitlines()


def test_a_run_alone_is_one_diagnosis_and_several_are_a_tuple(run: lp.Run) -> None:
    for alone in (lp.diagnose(run), lp.diagnose(run.path), lp.diagnose(str(PROFILE))):
        assert isinstance(alone, lp.Diagnosis)
        assert (alone.fast, alone.ratio) == (None, None)
    listed = lp.diagnose([run])
    assert isinstance(listed, lp.Diagnoses)
    assert [d.sentence for d in listed] == [lp.diagnose(run).sentence]
    with pytest.raises(UsageError, match="no run is given"):
        lp.diagnose()


def test_two_runs_given_one_by_one_are_compared(fast: lp.Run, slow: lp.Run) -> None:
    for diagnosis in (lp.diagnose(slow, fast), lp.diagnose(fast.path, slow.path)):
        assert isinstance(diagnosis, lp.Diagnosis)
        assert diagnosis.fast is not None
        assert diagnosis.verdict == lp.compare(fast, slow).verdict
    other = lp.read(SAMPLES / "torch-lstmcell-basic-amp-bf16")
    with pytest.raises(UsageError, match=r"differ in precision .* across=\[\"precision\"\]"):
        lp.diagnose(fast, other)
    assert lp.diagnose(fast, other, across="precision").verdict.ratio
    assert len(lp.diagnose([fast, other])) == 2


def test_a_diagnosis_prints_as_the_terminal_does(fast: lp.Run, slow: lp.Run) -> None:
    diagnosis = lp.compare(slow, fast)
    printed = lstmprof("diagnose", fast.path, slow.path).stdout.splitlines()
    lines = repr(diagnosis).splitlines()
    assert len(lines) < 15
    assert max(map(len, lines)) <= 100
    assert [line for line in lines if line in printed] == lines
    assert diagnosis.sentence in repr(diagnosis.verdict)
    assert len(diagnosis._repr_markdown_()) < 2000


def test_several_diagnoses_print_as_a_page(fast: lp.Run, slow: lp.Run) -> None:
    assert repr(lp.diagnose([fast, slow])) == repr(lp.compare(fast, slow))
    many = lp.Diagnoses(lp.diagnose([fast, slow]) * 40)
    lines = repr(many).splitlines()
    assert len(lines) == 31
    assert max(map(len, lines)) <= 100
    assert "10 more" in lines[-1]
    assert many._repr_html_().count("<tr>") == 21
    frame = many.to_pandas()
    verdict = many[0].verdict
    assert len(frame) == 40
    assert set(frame["ratio"]) == {verdict.ratio.value}  # type: ignore[union-attr]
    assert set(frame["fix"]) == {verdict.fixes[0].fix}


def test_findings_are_a_data_frame(fast: lp.Run, slow: lp.Run) -> None:
    diagnosis = lp.compare(fast, slow)
    frame = diagnosis.to_pandas()
    assert list(frame["kind"]) == [e.finding.kind for e in diagnosis.findings]
    assert frame["delta_ns"].sum() == diagnosis.verdict.whole_ns
    assert set(frame["certainty"]) <= {"measured", "likely", "unknown"}
    alone = lp.diagnose(fast).to_pandas()
    assert alone["fast_ns"].isna().all()
    table = diagnosis.table()
    assert list(table.columns_doc) == table.columns


def test_nothing_prints_a_whole_profile(fast: lp.Run, slow: lp.Run) -> None:
    diagnosis, gate = lp.compare(fast, slow), lp.gate(fast, slow)
    finding = diagnosis.findings[0].finding
    things = (diagnosis, diagnosis.outcome, diagnosis.findings[0], finding, diagnosis.slow, gate)
    for thing in (*things, diagnosis.roofline, slow.breakdown, slow.stored, slow, *diagnosis.fixes):
        assert 10 < len(repr(thing)) < 1500, type(thing)
    assert repr(gate).startswith(f"{gate.state}: ")


def test_a_diagnosis_has_its_parts(run: lp.Run) -> None:
    diagnosis = lp.diagnose(run)
    assert diagnosis.sentence.startswith(run.name)
    assert diagnosis.fixes == diagnosis.verdict.fixes
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
    with pytest.raises(RunError, match="no data for the chart arrivals"):
        lp.charts.arrivals(run)
    page = lp.report(run, tmp_path / "page.html")
    assert page.read_text("utf-8").startswith("<!doctype html>")
    with pytest.raises(LstmprofError, match="force"):
        lp.report(run, page)


@pytest.mark.parametrize("name", ["times", "ledger"])
def test_charts_of_several_groups_are_below_each_other(name: str) -> None:
    altair = pytest.importorskip("altair")
    vl_convert = pytest.importorskip("vl_convert")
    names = (
        f"torch-{form}{size}" for form in ("nn-lstm", "lstmcell-basic") for size in ("", "-t5")
    )
    chart = getattr(lp.charts, name)([SAMPLES / sample for sample in names])
    assert isinstance(chart, altair.VConcatChart)
    assert vl_convert.vegalite_to_svg(chart.to_json()).startswith("<svg")


def test_a_table_for_a_paper(fast: lp.Run, slow: lp.Run) -> None:
    made = lp.table([fast, slow], rows=["implementation", "hidden"], columns="batch")
    command = ("table", fast.path, slow.path, "--rows", "implementation,hidden")
    assert f"{made}\n" == lstmprof(*command, "--columns", "batch").stdout
    frame = made.to_pandas()
    assert list(frame["step ms"]) == pytest.approx([fast.step_ms, slow.step_ms])
    assert made.to_latex().startswith(r"\begin{table}")
    assert made._repr_html_() == made.to_html()
    assert made._repr_html_().startswith("<table>")
    with pytest.raises(UsageError, match="unknown field of rows=\"bach\"; did you mean 'batch'"):
        lp.table(fast, "bach")


def test_conditions_that_separate_the_samples_are_added_to_the_rows() -> None:
    made = lp.table(SAMPLES, rows=["implementation", "hidden"], columns="batch")
    assert made.grid.added == ("label", "precision", "time-steps")
    assert len(made.grid.cells) == len(lp.read_all(SAMPLES))


def test_a_check_of_a_profile(run: lp.Run) -> None:
    checked = lp.check(run)
    said = lstmprof("check", PROFILE, "--format", "json")
    assert checked.exit_status == said.returncode
    assert checked.state == checked.runs[0].state == json.loads(said.stdout)["runs"][0]["state"]
    printed = [" ".join(line.split()) for line in lstmprof("check", PROFILE).stdout.splitlines()]
    assert {" ".join(line.split()) for line in repr(checked).splitlines()} <= set(printed)
    frame = checked.to_pandas()
    assert list(frame["question"]) == [row.question for row in checked.runs[0].rows]


def test_a_recommendation_needs_a_network(fast: lp.Run) -> None:
    with pytest.raises(UsageError, match="give like, or hidden, batch and time_steps"):
        lp.recommend()
    with pytest.raises(UsageError, match="like already sets the sizes"):
        lp.recommend(fast, hidden=8)
    with pytest.raises(UsageError, match="unknown size 'hiden'; did you mean 'hidden'"):
        lp.recommend(hiden=8)
    with pytest.raises(UsageError, match="unknown implementation"):
        lp.recommend(hidden=8, implementations="torch-lstn")


@pytest.mark.parametrize(
    ("said", "by_argument"),
    [
        ("give --force, or another -o", "give force=True, or another out"),
        ("with --across threads --across seed", 'with across=["threads", "seed"]'),
        ("or --across what they differ in", "or across what they differ in"),
        ("give fewer --labels or more --time-steps", "give fewer labels or more time_steps"),
        ("give --mode forward", 'give mode="forward"'),
        ("give --classes 2 or more", "give classes=2 or more"),
        ("unknown field of --rows 'bach'", 'unknown field of rows="bach"'),
        ("leave --deterministic out", "leave deterministic=True out"),
        ("given to --with", "given to packages"),
        ("a longer --timeout", "a longer timeout_s"),
        ("see lstmprof list --all; give --precision amp-bf16",
         'see lstmprof list --all; give precision="amp-bf16"'),
        ("nsys profile --trace=cuda,nvtx", "nsys profile --trace=cuda,nvtx"),
        ("nsys export --type sqlite", "nsys export --type sqlite"),
    ],
)  # fmt: skip
def test_options_in_messages_become_arguments(said: str, by_argument: str) -> None:
    assert with_arguments(said) == by_argument


def test_errors_name_arguments(run: lp.Run, tmp_path: Path) -> None:
    lp.ingest(PROFILE, tmp_path)
    with pytest.raises(RunError, match="force=True"):
        lp.ingest(PROFILE, tmp_path)
    with pytest.raises(UsageError, match=r'^step_range="\^no" matches no host range'):
        lp.read(PROFILE, step_range="^no").ledger()
    (tmp_path / "trace.json").touch()
    with pytest.raises(RunError, match="force=True"):
        run.to_perfetto(tmp_path / "trace.json")
    with pytest.raises(UsageError, match="raise time_steps"):
        lp.capture("torch-nn-lstm", "1x320-ce-short", loss="ctc", labels=999)
    with pytest.raises(UsageError, match=r"unknown table 'kernel'; did you mean 'kernels'"):
        run.table("kernel")


def test_wrong_arguments_get_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(LstmprofError, match=r"demo: no such file"):
        lp.read_all("demo")
    with pytest.raises(UsageError, match=r"3 is neither a path nor a URL; give text"):
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
def test_a_function_keeps_its_name_when_the_stage_of_that_name_is_imported(name: str) -> None:
    stage = importlib.import_module(f"lstmprof.{name}")
    assert inspect.ismodule(stage)
    function = getattr(lp, name)
    assert inspect.isfunction(function)
    assert "across" in inspect.signature(function).parameters or name == "capture"
    assert pydoc.render_doc(function).startswith("Python Library Documentation: function")
    program = f"import lstmprof, lstmprof.{name}; assert lstmprof.{name}.__name__ == '{name}'"
    subprocess.run([sys.executable, "-c", program], check=True)


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
