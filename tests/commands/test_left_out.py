"""One bad input never costs the others: what is good is shown, the rest is told at the end."""

from __future__ import annotations

import gzip
import io
import json
import re
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import fsspec
import pytest
from kineto_documents import document, op

from lstmprof import api, breakdown, formats
from lstmprof.base.errors import LeftOutWarning, ProfileError
from lstmprof.cli import run as lstmprof
from lstmprof.events import Profile
from lstmprof.runs.ingest import ingest_profiles

PROFILES = Path(__file__).parents[1] / "profiles"
GOOD = document(*(op(number) for number in range(6)))
Said = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LSTMPROF_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def packed(*contents: bytes) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for number, content in enumerate(contents):
            facts = tarfile.TarInfo(f"member-{'ab'[number]}.json")
            facts.size = len(content)
            tar.addfile(facts, io.BytesIO(content))
    return file.getvalue()


def half(file: str) -> bytes:
    content = (PROFILES / file).read_bytes()
    return content[: len(content) // 2]


#: A bad input of every kind of file, and a word of what is said of it.
BAD: dict[str, tuple[bytes, str]] = {
    "cut.json": (half("kineto-today.pt.trace.json"), "is truncated"),
    "deep.json": (b'{"traceEvents": ' + b"[" * 100_000, "is nested too deeply|JSON"),
    "cut.json.gz": (gzip.compress(GOOD)[:-20], "gzip stream is truncated"),
    "cut.sqlite": (half("nsys-2025.sqlite"), "SQLite database is truncated"),
    "noise.sqlite": (b"SQLite format 3\0" + bytes(range(256)) * 40, "SQLite database"),
    "cut.xplane.pb": (half("tensorflow.xplane.pb"), "xplane.pb"),
    "empty.json": (b"", "is empty"),
    "cut.tar": (packed(GOOD)[:300], "tar archive is damaged"),
    "half.tar": (packed(GOOD, GOOD)[: len(GOOD) // 512 * 512 + 2048], "is truncated"),
    "zip.json": (b"PK\x03\x04", "is a zip archive"),
}


@pytest.fixture
def profiles(tmp_path: Path) -> Path:
    """A folder of good profiles and of bad ones; ``half.tar`` has a good member, too."""
    (folder := tmp_path / "profiles").mkdir()
    for name in "abc":
        (folder / f"good-{name}.json").write_bytes(GOOD)
    for name, (content, _) in BAD.items():
        (folder / name).write_bytes(content)
    (folder / "config.json").write_text('{"lr": 1}')
    return folder


NAMES = ["good-a", "good-b", "good-c", "member-a"]


def check_told(said: str) -> None:
    """Each bad input is one line at the end, with its reason, and they are counted."""
    lines = said.splitlines()
    told = [line.removeprefix("left out: ") for line in lines if line.startswith("left out: ")]
    assert len(told) == len(BAD) + 1
    assert f"{len(told)} inputs were left out" in lines
    for name, (_, reason) in BAD.items():
        assert any(name in line and re.search(reason, line) for line in told), name
    assert not any("good-" in line for line in told)
    assert "Traceback" not in said


def test_ingest_writes_a_run_of_each_good_profile(
    profiles: Path, tmp_path: Path, capfd: Said
) -> None:
    assert lstmprof(["ingest", str(profiles), "--out", str(tmp_path / "out")]) == 1
    said = capfd.readouterr()
    assert sorted(Path(line.split()[1]).name for line in said.out.splitlines()) == NAMES
    check_told(said.err)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == NAMES


def test_ingest_of_many_words_goes_on_too(profiles: Path, tmp_path: Path, capfd: Said) -> None:
    words = [str(path) for path in sorted(profiles.iterdir())]
    words.insert(0, str(tmp_path / "missing.json"))
    assert lstmprof(["ingest", *words, "--out", str(tmp_path / "out")]) == 1
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == NAMES
    assert "left out: " + str(words[0]) in capfd.readouterr().err


@pytest.mark.parametrize("each", [False, True])
def test_breakdown_shows_what_is_good(profiles: Path, each: bool, capfd: Said) -> None:
    words = [str(path) for path in sorted(profiles.iterdir())] if each else [str(profiles)]
    assert lstmprof(["breakdown", *words, "--table", "ops", "--format", "json"]) == 1
    said = capfd.readouterr()
    assert sorted({row["run"] for row in json.loads(said.out)}) == NAMES
    check_told(said.err)


def test_diagnose_query_and_report_show_what_is_good(
    profiles: Path, tmp_path: Path, capfd: Said
) -> None:
    assert lstmprof(["diagnose", str(profiles), "--format", "json"]) == 1
    said = capfd.readouterr()
    runs = {run for d in json.loads(said.out) for run in (d["fast"], d["slow"]) if run}
    assert sorted(runs) == NAMES
    check_told(said.err)
    assert lstmprof(["query", "SELECT run FROM runs", str(profiles), "--format", "json"]) == 1
    said = capfd.readouterr()
    assert sorted(row["run"] for row in json.loads(said.out)) == NAMES
    check_told(said.err)
    page = tmp_path / "page.html"
    assert lstmprof(["report", str(profiles), "-o", str(page)]) == 1
    said = capfd.readouterr()
    assert "(4 runs" in said.out
    check_told(said.err)


def test_files_of_other_kinds_are_no_loss(tmp_path: Path, capfd: Said) -> None:
    (tmp_path / "a.json").write_bytes(GOOD)
    (tmp_path / "config.json").write_text('{"lr": 1}')
    assert lstmprof(["ingest", str(tmp_path), "--out", str(tmp_path / "out")]) == 0
    assert lstmprof(["breakdown", str(tmp_path / "a.json"), str(tmp_path / "config.json")]) == 0
    assert "left out: " in capfd.readouterr().err


def test_where_nothing_is_good_each_is_told_and_it_fails(
    profiles: Path, tmp_path: Path, capfd: Said
) -> None:
    for good in profiles.glob("good-*"):
        good.unlink()
    (profiles / "half.tar").unlink()
    assert lstmprof(["breakdown", str(profiles)]) == 1
    said = capfd.readouterr()
    assert (said.out, said.err.count("\nlstmprof: error: ")) == ("", 1)
    assert "no readable run or profile" in said.err
    assert all(name in said.err for name in BAD if name != "half.tar")
    assert lstmprof(["ingest", str(profiles), "--out", str(tmp_path / "out")]) == 1
    assert capfd.readouterr().err.count("lstmprof: error: ") == len(BAD)


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A folder of two good runs, and of runs whose files are damaged each in its way."""
    folder = tmp_path / "runs"
    for name in ("good-a", "good-b"):
        (tmp_path / f"{name}.json").write_bytes(GOOD)
        ingest_profiles(tmp_path / f"{name}.json", folder)
    for name in ("bad-json", "bad-events", "no-events"):
        shutil.copytree(folder / "good-a", folder / name)
    (folder / "bad-json" / "run.json").write_text('{"name": ')
    events = folder / "bad-events" / "events.parquet"
    events.write_bytes(events.read_bytes()[:-200])
    (folder / "no-events" / "events.parquet").unlink()
    return folder


def named(json_text: str) -> set[str]:
    return set(re.findall(r"good-[ab]", json_text))


@pytest.mark.parametrize(
    "command",
    [
        ["breakdown", "--format", "json"],
        ["breakdown"],
        ["diagnose", "--format", "json"],
        ["query", "SELECT DISTINCT run FROM events"],
        ["query", "SELECT DISTINCT run FROM ops"],
        ["report", "-o", "page.html"],
    ],
)
def test_a_damaged_run_costs_no_other(
    command: list[str], runs: Path, monkeypatch: pytest.MonkeyPatch, capfd: Said
) -> None:
    monkeypatch.chdir(runs.parent)
    bad = ["bad-json", "bad-events", "no-events"]
    if command[-1].endswith("events"):
        shutil.rmtree(runs / bad.pop())
    assert lstmprof([*command, str(runs)]) == 1
    said = capfd.readouterr()
    if command[0] == "report":
        assert "(2 runs" in said.out
    else:
        assert named(said.out) == {"good-a", "good-b"}
    assert said.err.splitlines()[-1] == f"{len(bad)} inputs were left out"
    for name in bad:
        (line,) = (line for line in said.err.splitlines() if f"/{name}" in line)
        assert line.startswith("left out: ")


def test_a_damaged_run_at_a_url_costs_no_other(runs: Path, tmp_path: Path, capfd: Said) -> None:
    memory, place = fsspec.filesystem("memory"), f"/{tmp_path.name}"
    memory.put(str(runs), place, recursive=True)
    memory.rm(f"{place}/bad-events", recursive=True)
    memory.rm(f"{place}/no-events", recursive=True)
    assert lstmprof(["breakdown", f"memory:/{place}", "--table", "ops", "--format", "json"]) == 1
    said = capfd.readouterr()
    assert named(said.out) == {"good-a", "good-b"}
    assert "left out: memory:/" in said.err
    assert "bad-json/run.json: is damaged" in said.err


def test_a_damaged_entry_of_the_cache_is_made_again(
    tmp_path: Path, cache: Path, capfd: Said
) -> None:
    (tmp_path / "a.json").write_bytes(GOOD)
    assert lstmprof(["breakdown", str(tmp_path / "a.json")]) == 0
    shown = capfd.readouterr().out
    (entry,) = cache.glob("*/a/run.json")
    entry.write_text("{")
    assert lstmprof(["breakdown", str(tmp_path / "a.json")]) == 0
    assert capfd.readouterr().out == shown


def failing(error: Exception) -> Callable[..., Profile]:
    """A reader that raises ``error`` for files called ``odd``."""
    read = formats.read_raw

    def read_raw(label: Path | str, load: Callable[..., object]) -> Profile:
        if Path(label).name == "odd.json":
            raise error
        return read(label, load)  # type: ignore[arg-type]

    return read_raw


def test_runs_deeper_in_a_folder_are_read_and_not_their_raw_profiles(
    runs: Path, tmp_path: Path, capfd: Said
) -> None:
    deep = tmp_path / "of-a-month" / "monday"
    shutil.copytree(runs / "good-a", deep / "good-a")
    shutil.copytree(runs / "good-b", deep.parent / "tuesday" / "good-b")
    (deep / "good-a" / "profile").mkdir()
    (deep / "good-a" / "profile" / "raw.json").write_bytes(GOOD)
    (deep / "alone.json").write_bytes(GOOD)
    for number in range(5):
        (deep / f"{number}.json").write_text('{"lr": 1}')
    assert lstmprof(["breakdown", str(deep.parent), "--table", "ops", "--format", "json"]) == 0
    said = capfd.readouterr()
    assert {row["run"] for row in json.loads(said.out)} == {"good-a", "good-b", "alone"}
    (line,) = (line for line in said.err.splitlines() if line.startswith("left out: "))
    assert "5 files" in line
    (deep / "alone.json").unlink()
    assert lstmprof(["breakdown", str(deep.parent), "--table", "ops", "--format", "json"]) == 0
    assert {row["run"] for row in json.loads(capfd.readouterr().out)} == {"good-a", "good-b"}


@pytest.mark.parametrize("error", [KeyError("x"), RecursionError("deep"), OverflowError("big")])
def test_a_defect_of_a_reader_is_told_with_its_log_and_counted(
    error: Exception, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, capfd: Said
) -> None:
    monkeypatch.setattr(formats, "read_raw", failing(error))
    (folder := tmp_path / "profiles").mkdir()
    for name in ("a", "odd", "z"):
        (folder / f"{name}.json").write_bytes(GOOD)
    (folder / "cut.json").write_bytes(GOOD[:-30])
    for command in (["ingest", "--out", str(tmp_path / "out")], ["breakdown"]):
        assert lstmprof([*command, str(folder)]) == 1
        said = capfd.readouterr().err
        assert "2 inputs were left out, 1 of them because of bugs" in said
        (line,) = (line for line in said.splitlines() if "odd.json" in line)
        told = re.fullmatch(
            rf"left out: {folder}/odd.json: a bug in lstmprof "
            rf"\({type(error).__name__}: .*\); please report it with (.*)",
            line,
        )
        assert told, line
        log = Path(told.group(1))
        assert log.parent == cache / "defects"
        assert "Traceback" in log.read_text()
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["a", "z"]


def test_a_defect_of_a_breakdown_costs_no_other_run(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capfd: Said
) -> None:
    break_down = breakdown.break_down

    def broken(run: breakdown.Run, *asked: object) -> breakdown.Breakdown:
        if run.name == "good-a" and run.path.name == "good-a":
            raise IndexError("of no row")
        return break_down(run, *asked)  # type: ignore[arg-type]

    monkeypatch.setattr(breakdown, "break_down", broken)
    assert lstmprof(["breakdown", str(runs), "--table", "ops", "--format", "json"]) == 1
    said = capfd.readouterr()
    assert {row["run"] for row in json.loads(said.out)} == {"good-b"}
    assert f"left out: {runs}/good-a: a bug in lstmprof (IndexError: of no row)" in said.err
    assert "4 inputs were left out, 1 of them because of bugs" in said.err


def test_a_script_is_warned_of_what_was_left_out(runs: Path, tmp_path: Path) -> None:
    with pytest.warns(LeftOutWarning, match="bad-json/run.json: is damaged") as warned:
        found = api.read_all(runs)
    assert warned[0].filename == __file__
    assert {"good-a", "good-b"} <= {run.path.name for run in found}
    (tmp_path / "cut.json").write_bytes(GOOD[:-30])
    with pytest.raises(ProfileError, match="is truncated"):
        api.read(tmp_path / "cut.json")
