"""The command line as a user meets it; where its process is what is tested, in one of its own."""

from __future__ import annotations

import csv
import dataclasses
import gzip
import importlib
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from in_process import lstmprof

from lstmprof import cli, implementations
from lstmprof.commands import VERBS
from lstmprof.commands.recording import list as list_
from lstmprof.workloads.studies import NAMED

TINY = ["--hidden=4", "--batch=2", "--time-steps=5", "--iterations=3", "--profile-steps=2"]
TINY += ["--no-peaks", "--rounds=1"]
KINETO = {
    "schemaVersion": 1,
    "traceEvents": [
        {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#3", "pid": 1, "tid": 1,
         "ts": 100.0, "dur": 50.0},
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1,
         "ts": 110.0, "dur": 9.0},
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1,
         "ts": 112.0, "dur": 4.5, "args": {"correlation": 7}},
        {"ph": "X", "cat": "kernel", "name": "<script>alert(1)</script>", "pid": 0, "tid": 7,
         "ts": 120.25, "dur": 10.0, "args": {"correlation": 7, "device": 0, "stream": 7}},
    ],
}  # fmt: skip


def process(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "lstmprof", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LSTMPROF_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "mine" / "worker0.pt.trace.json.gz"
    path.parent.mkdir()
    path.write_bytes(gzip.compress(json.dumps(KINETO).encode()))
    return path


HEAVY = ["numpy", "pyarrow", "pandas", "torch", "tensorflow", "keras", "jax", "pytensor", "rich"]
HEAVY += ["altair", "vl_convert", "dask", "distributed", "duckdb", "fsspec"]


@pytest.mark.parametrize("verb", [None, *VERBS])
def test_help_is_quick_and_imports_no_framework_or_dataframe_library(verb: str | None) -> None:
    arguments = [verb, "--help"] if verb else ["--help"]
    code = (
        f"import sys\nfrom lstmprof import cli\ntry: cli.cli({arguments})\n"
        "except SystemExit: pass\n"
        f"print([m for m in {HEAVY} if m in sys.modules], file=sys.stderr)\n"
        "print(len(sys.modules), file=sys.stderr)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy, modules = ran.stderr.splitlines()
    assert heavy == "[]"
    assert int(modules) < 300, "of Python alone 40, of click and of the help 200"


def test_the_process_ends_without_clearing_its_modules_away() -> None:
    code = (
        "import atexit\nfrom lstmprof import __main__, cli\n"
        "class Kept:\n    def __del__(self): print('cleared')\n"
        "kept = Kept()\n"
        "def run(arguments): atexit.register(print, 'tidied'); return 7\n"
        "cli.run = run\n__main__.main()"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (7, "tidied\n", "")


def test_a_python_without_what_is_needed_is_told_in_one_line() -> None:
    root = Path(cli.__file__).resolve().parents[1]
    without_packages = [sys.executable, "-S", "-m", "lstmprof", "list"]
    ran = subprocess.run(
        without_packages, env={"PYTHONPATH": str(root)}, capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr == (
        f"lstmprof: error: {sys.executable} has no package click; "
        "run 'pip install .' in your clone of lstmprof\n"
    )


@pytest.mark.parametrize(
    ("libc", "told"), [("mallopt = print", "-1 67108864\n-3 33554432\n"), ("pass", "")]
)
def test_freed_memory_is_kept_where_the_allocator_can_be_told(libc: str, told: str) -> None:
    code = (
        "import ctypes\nfrom lstmprof import __main__, cli\n"
        f"class Libc: {libc}\n"
        "ctypes.CDLL = lambda name: Libc\n"
        "cli.run = lambda arguments: 0\n__main__.main()"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, told, "")


def test_a_thread_that_waits_for_another_to_compute_has_its_turn_soon() -> None:
    code = (
        "import sys\nfrom lstmprof import __main__, cli\n"
        "cli.run = lambda arguments: print(sys.getswitchinterval()) or 0\n__main__.main()"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr) == ("0.0005\n", "")


def numpys_threads(tmp_path: Path, environment: dict[str, str]) -> list[str]:
    """How many threads NumPy was loaded with, and what a process is told that is started then."""
    (tmp_path / "numpy").mkdir()
    said = "import os\nprint(os.environ.get('OPENBLAS_NUM_THREADS'))"
    (tmp_path / "numpy" / "__init__.py").write_text(said)
    code = (
        "import os, sys\nfrom lstmprof import __main__, cli\n"
        f"sys.path.insert(0, {str(tmp_path)!r})\n"
        "def run(arguments):\n"
        "    import numpy\n"
        "    print(os.environ.get('OPENBLAS_NUM_THREADS'))\n"
        "    return 0\n"
        "cli.run = run\n__main__.main()"
    )
    own = {**os.environ, **environment}
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=own)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.split()


def test_numpy_starts_no_threads_for_a_command(tmp_path: Path) -> None:
    """It would start one a core, each of which spins for 25 ms."""
    assert numpys_threads(tmp_path, {}) == ["1", "None"]


def test_numpy_starts_the_threads_that_a_user_asked_for(tmp_path: Path) -> None:
    assert numpys_threads(tmp_path, {"OPENBLAS_NUM_THREADS": "3"}) == ["3", "3"]


#: What the breakdown of a stored run does without: a third of a second of imports.
NOT_NEEDED = {
    "pandas.core",
    "duckdb",
    "altair",
    "fsspec",
    "lstmprof.formats",
    "lstmprof.runs.ingest",
}
NOT_NEEDED |= {"lstmprof.events.annotate.categories", "lstmprof.breakdown.recurrent.profiles"}
NOT_NEEDED |= {"lstmprof.events.annotate.rules", "pyarrow.acero", "pyarrow.dataset"}


def test_the_breakdown_of_a_run_imports_only_what_it_needs(profile: Path, tmp_path: Path) -> None:
    assert lstmprof("ingest", profile, "--out", tmp_path / "traces").returncode == 0
    command = [sys.executable, "-X", "importtime", "-m", "lstmprof", "breakdown"]
    ran = subprocess.run([*command, tmp_path / "traces"], capture_output=True, text=True)
    assert ran.returncode == 0
    modules = {line.rpartition("|")[2].strip() for line in ran.stderr.splitlines()}
    assert {"pyarrow.parquet", "lstmprof.breakdown"} <= modules
    assert not NOT_NEEDED & modules


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_with_an_example(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([verb, "--help"]) == 0
    assert f"lstmprof {verb}" in capsys.readouterr().out.split("Example:")[1]


def test_recommend_says_which_network_it_takes_the_rest_from(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.run(["recommend", "--help"]) == 0
    assert NAMED[0].name in capsys.readouterr().out.partition("Options:")[0]


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_of_all_verbs_tells_of_each_as_its_own_does(verb: str) -> None:
    room, first_sentence = VERBS[verb]
    command = importlib.import_module(f"lstmprof.commands.{room}.{verb}").command
    assert first_sentence == command.get_short_help_str(limit=1000)


def test_the_help_of_all_verbs_imports_none() -> None:
    code = (
        "import sys\nfrom lstmprof import cli\ntry: cli.cli(['--help'])\nexcept SystemExit: pass\n"
        "print(*(name for name in sys.modules if name.startswith('lstmprof')), file=sys.stderr)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {"lstmprof.cli", "lstmprof.commands"} <= set(ran.stderr.split())
    assert not [name for name in ran.stderr.split() if name.startswith("lstmprof.commands.")]
    assert all(f"  {verb} " in ran.stdout for verb in VERBS)


def test_a_breakdown_imports_nothing_that_explains_one() -> None:
    run = Path(__file__).parents[1] / "traces/torch-nn-lstm"
    code = (
        f"import sys\nfrom lstmprof import cli\ncli.run(['breakdown', {str(run)!r}])\n"
        "print('imported', *(m for m in sys.modules if m.startswith('lstmprof.diagnose.')))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == "imported lstmprof.diagnose.comparable"


def test_the_bare_command_shows_its_help_as_a_page() -> None:
    bare, asked = process(), process("--help")
    assert (bare.returncode, bare.stdout) == (2, "")
    assert bare.stderr == asked.stdout
    assert len(bare.stderr.splitlines()) > 15


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["capture", "--impl", "no-such"], 2, "unknown implementation 'no-such'"),
        (["capture", "--impl", "torch-nn-lst"], 2, "did you mean 'torch-nn-lstm'?"),
        (["capture", "--impl", "pytorch-cudnn"], 2, "did you mean 'torch-nn-lstm'?"),
        (["capture", "--impl", "pytorch-*"], 2, "did you mean 'torch-*'?"),
        (["capture", "--impl", "TensorFlow-lstmcell"], 2, "did you mean 'tf-lstmcell'?"),
        (["capture", "--impl", "tensorflow"], 2, "did you mean 'tf-*'?"),
        (["list", "kers"], 2, "families: torch, tensorflow"),
        (["capture", "--impl", "torch-nn-lstm", "--workload", "1x320-short"], 2, "1x320-ce-short"),
        (["capture", "--impl", "torch-nn-lstm", "--iteration", "3"], 2, "--iterations"),
        (["capture", "--impl", "torch-nn-lstm", "--hidden", "0"], 2, "at least 1"),
        (["capture"], 2, "--impl"),
        (["capture", "--impl", "torch-nn-lstm", "--python", "no-such"], 2, "no such interpreter"),
        (["capture", "--impl", "cntk-*"], 2, "cntk-*"),
        (["capture", "--impl", "torch-nn-lstm", "--xla"], 2, "does not support xla"),
        (["brakdown", "x"], 2, "did you mean 'breakdown'?"),
        (["breakdown", "no-such-place"], 1, "no-such-place"),
        (["breakdown", "."], 1, "has no run and no profile in it"),
        (["breakdown", ".", "--format", "csv"], 2, "--table"),
        (["ingest", "no-such.json"], 1, "no-such.json"),
        (["list", "--format", "csv"], 2, "implementations"),
    ],
)
def test_a_mistake_is_one_line_with_the_next_step(
    arguments: list[str],
    code: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.run(arguments) == code
    printed = capsys.readouterr()
    assert printed.out == ""
    assert len(printed.err.splitlines()) == 1
    assert said in printed.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "content",
    [b"", b"no json", b'{"a": 1}', gzip.compress(b'{"traceEvents": [', mtime=0)[:-9]],
    ids=["empty", "no-json", "another-json", "cut-short"],
)
def test_a_file_that_is_no_profile_is_one_line(content: bytes, profile: Path) -> None:
    profile.write_bytes(content)
    for verb in ("breakdown", "ingest"):
        found = lstmprof(verb, profile, cwd=profile.parent)
        assert (found.returncode, found.stdout) == (1, "")
        assert len(found.stderr.splitlines()) == 1
        assert str(profile) in found.stderr
        assert "Traceback" not in found.stderr


def test_the_ledger_of_a_raw_profile_is_json_rows_that_sum_to_the_step(profile: Path) -> None:
    found = process("breakdown", profile, "--table", "ledger", "--format", "json")
    rows = json.loads(found.stdout)
    assert {tuple(row) for row in rows} == {
        ("run", "rank", "step", "device", "state", "part", "ns")
    }
    assert {(r["run"], r["rank"], r["step"], r["device"]) for r in rows} == {
        ("worker0", None, 3, 0)
    }
    assert {f"{r['state']}:{r['part']}": r["ns"] for r in rows} == {
        "busy:gemm": 10_000,
        "idle:python": 10_000,
        "idle:dispatch": 2_000,
        "idle:launch call": 4_500,
        "idle:launch latency": 3_750,
        "idle:tail:python": 19_750,
    }
    assert [p.name for p in profile.parent.iterdir()] == [profile.name]


def test_a_raw_profile_is_read_again_only_when_it_changed(profile: Path) -> None:
    assert lstmprof("breakdown", profile).returncode == 0
    cached = {p: p.stat().st_mtime_ns for p in (profile.parent.parent / "cache").rglob("run.json")}
    assert lstmprof("breakdown", profile).returncode == 0
    assert {p: p.stat().st_mtime_ns for p in cached} == cached
    changed = json.loads(json.dumps(KINETO).replace("50.0", "60.0"))
    profile.write_bytes(gzip.compress(json.dumps(changed).encode()))
    found = lstmprof("breakdown", profile, "--table", "ledger", "--format", "json")
    assert sum(r["ns"] for r in json.loads(found.stdout)) == 60_000


def test_text_csv_and_json_say_the_same(profile: Path) -> None:
    text = lstmprof("breakdown", profile)
    assert "<script>alert(1)</script>" in text.stdout
    assert "1 profiled step" in text.stdout
    table = lstmprof("breakdown", profile, "--table", "kernels", "--format", "csv").stdout
    (row,) = csv.DictReader(io.StringIO(table))
    everything = json.loads(lstmprof("breakdown", profile, "--format", "json").stdout)
    assert set(everything) == {"lacks", "timings", "ledger", "account", "kernels"}
    assert row["total_ns"] == str(everything["kernels"][0]["total_ns"]) == "10000"
    assert row["rank"] == ""


def test_ingest_writes_a_run_and_one_bad_file_does_not_stop_the_others(profile: Path) -> None:
    bad = profile.with_name("bad.json")
    bad.write_text("{")
    found = process("ingest", bad, profile, "--out", profile.parent / "runs")
    assert found.returncode == 1
    assert "wrote" in found.stdout
    again = lstmprof("ingest", profile, "--out", profile.parent / "runs")
    assert (again.returncode, "--force" in again.stderr) == (1, True)
    shown = lstmprof("breakdown", profile.parent / "runs", "--table", "ledger", "--format", "json")
    assert {row["run"] for row in json.loads(shown.stdout)} == {"worker0"}


def test_list_shows_what_capture_takes() -> None:
    everything = json.loads(lstmprof("list", "--format", "json").stdout)
    assert [i["name"] for i in everything["implementations"]][:1] == ["torch-lstmcell-basic"]
    assert [w["name"] for w in everything["workloads"]][:4] == [
        "1x320-ce-short",
        "1x320-ce-long",
        "4x320-ce-long",
        "4x320-ctc-long",
    ]
    shown = lstmprof("list", "--all").stdout
    assert "1x320-ce-short" in shown
    assert "TensorFlow does not capture CUDA graphs" in shown
    assert all(i["here"] for i in everything["implementations"])
    known = {era["name"]: era for era in everything["eras"]}
    assert known["torch-1.0.0"]["packages"] == ["torch==1.0.0", "numpy==1.21.6"]
    assert all(era["here"] for era in known.values())
    assert "torch-1.0.0" in shown


@pytest.mark.parametrize("installed", [True, False])
def test_list_is_one_screen_with_a_row_a_family(
    installed: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if not installed:
        monkeypatch.setattr(list_, "here", lambda row: f"{row.framework} is not installed")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert cli.run(["list"]) == 0
    lines = re.sub("\x1b\\[[0-9;]*m", "", capsys.readouterr().out).splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    families = [line.split()[0] for line in lines[2 : 2 + len(implementations.FAMILIES)]]
    assert families == list(implementations.FAMILIES)
    rows = [int(line.split()[1]) for line in lines[2 : 2 + len(families)]]
    assert sum(rows) == len(implementations.TABLE)


@pytest.mark.parametrize(
    ("what", "names"),
    [
        ("keras", [row.name for row in implementations.TABLE if row.family == "keras"]),
        ("keras-lstm", ["keras-lstm"]),
    ],
)
def test_list_shows_a_family_or_one_of_it(
    what: str, names: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["list", what, "--format", "json"]) == 0
    assert [row["name"] for row in json.loads(capsys.readouterr().out)] == names
    assert cli.run(["list", what]) == 0
    shown = capsys.readouterr().out
    assert "TensorFlow does not capture CUDA graphs" in shown
    assert "Theano" not in shown


def test_list_says_of_systems_that_do_not_run_why_and_what_they_need() -> None:
    systems = json.loads(lstmprof("list", "systems", "--format", "json").stdout)
    names = " ".join(system["name"] for system in systems)
    for name in (
        "CNTK",
        "PyTorch 0.",
        "TensorFlow 1.",
        "Lasagne",
        "in R",
        "MXNet in R",
        "Knet",
        "Torch7",
    ):
        assert name in names
    assert all(system["why"] and system["needs"] for system in systems)
    assert "OpenMPI" in lstmprof("list", "--all").stdout
    assert "1x320" not in lstmprof("list", "systems").stdout


def test_a_label_and_an_interpreter_are_part_of_a_capture(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    given = ["--python", sys.executable, "--label", "again"]
    made = process("capture", "--impl", "torch-nn-lstm", *TINY, *given, "--out", tmp_path)
    assert made.returncode == 0, made.stderr
    assert new_run(made)[0].endswith("--fp32--again")
    refused = lstmprof("capture", "--impl", "torch-nn-lstm", "--label", "../x", "--out", tmp_path)
    assert (refused.returncode, len(refused.stderr.splitlines())) == (2, 1)
    assert [p.name for p in tmp_path.iterdir()] == new_run(made)


def test_captures_of_two_frameworks_are_compared(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    for impl in ("torch-nn-lstm", "jax-scan"):
        made = lstmprof("capture", "--impl", impl, *TINY, "--out", tmp_path)
        assert made.returncode == 0, made.stderr
        assert made.stdout.splitlines() == [f"wrote {tmp_path / name}" for name in new_run(made)]
    found = json.loads(lstmprof("breakdown", tmp_path, "--format", "json").stdout)
    assert {t["implementation"] for t in found["timings"]} == {"torch-nn-lstm", "jax-scan"}
    assert min(t["slowdown"] for t in found["timings"]) == 1.0
    assert {(row["step"], row["device"]) for row in found["ledger"]} == {(0, None), (1, None)}
    assert all(row["ns"] > 0 for row in found["ledger"])
    parts = {(row["run"], row["part"]) for row in found["ledger"] if row["state"] == "busy"}
    assert {run.split("--")[0] for run, part in parts if part in ("gemm", "rnn")} == {
        "torch-nn-lstm",
        "jax-scan",
    }
    assert "1.00×" in lstmprof("breakdown", tmp_path).stdout
    assert "100.0 %" in lstmprof("breakdown", next(tmp_path.iterdir())).stdout


def new_run(made: subprocess.CompletedProcess[str]) -> list[str]:
    return [line.rsplit("/", 1)[1] for line in made.stdout.splitlines()]


@pytest.mark.parametrize(("kind", "code"), [(KeyboardInterrupt, 130), (cli.TerminatedError, 143)])
def test_what_was_under_way_notes_what_it_kept_when_it_is_told_to_end(
    kind: type[BaseException],
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        stop = kind()
        stop.add_note("2 rounds are kept")
        raise stop

    verb = importlib.import_module("lstmprof.commands.recording.list")
    monkeypatch.setattr(verb.command, "callback", interrupted)
    assert cli.run(["list"]) == code
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.endswith("interrupted; no partial output was left; 2 rounds are kept")


def test_a_row_whose_library_is_absent_says_so() -> None:
    pytest.importorskip("jax")
    row = dataclasses.replace(implementations.find("flax-lstm"), library="no_such_library")
    here = importlib.import_module("lstmprof.commands.recording.list").here
    assert here(row) == "no_such_library is not installed"
