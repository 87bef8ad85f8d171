"""From a word to runs: ranks joined, steps by a range, what is not read told."""

from __future__ import annotations

import gzip
import json
import uuid
from pathlib import Path
from typing import Any

import fsspec
import pytest
from ingested import ingest_profile

from lstmprof import breakdown
from lstmprof.base.errors import LstmprofError, UsageError
from lstmprof.cli import run as lstmprof
from lstmprof.events import annotate
from lstmprof.formats import sources
from lstmprof.formats.sources import profile_name
from lstmprof.runs import ingest
from lstmprof.runs.cache import open_runs
from lstmprof.runs.ingest import ingest_profiles, tasks
from lstmprof.runs.run import Run


def trace(rank: int | None, name: str = "aten::mm") -> str:
    def event(cat: str, name: str, ts: int, dur: int, **args: Any) -> dict[str, Any]:
        return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur,
                "args": args}  # fmt: skip

    return json.dumps(
        {
            "schemaVersion": 1,
            "baseTimeNanoseconds": 1_700_000_000_000_000_000,
            **({} if rank is None else {"distributedInfo": {"rank": rank}}),
            "traceEvents": [
                event("user_annotation", "batch 7", 0, 10),
                event("cpu_op", name, 1, 5),
                event("user_annotation", "batch 8", 12, 10),
                event("cpu_op", name, 13, 5),
            ],
        }
    )


def test_a_folder_of_ranks_is_one_run_and_other_files_are_noted(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    job = tmp_path / "job"
    job.mkdir()
    for rank in (0, 1):
        (job / f"rank{rank}.json").write_text(trace(rank))
    (job / "config.json").write_text('{"lr": 1}')
    (job / "rank2.json").write_text(trace(2)[:-20])
    assert lstmprof(["ingest", str(job), "--out", str(tmp_path / "out")]) == 1
    said = capfd.readouterr()
    assert "rank2.json: is truncated" in said.err
    assert f"left out: {job}/config.json: is JSON but not a profile" in said.err
    (run,) = open_runs([tmp_path / "out"])
    assert run.name == "job"
    assert run.events().column("rank").to_pylist() == [0, 1] * 4
    assert len(run.info.source_paths) == 2


def of_rank(folder: Path, rank: int, size: int = 2, hours: int = 0, **distributed: Any) -> None:
    content = json.loads(trace(rank))
    content["distributedInfo"] |= {"world_size": size, **distributed}
    content["baseTimeNanoseconds"] += hours * 3600 * 10**9
    folder.mkdir(parents=True)
    (folder / "trace.json").write_text(json.dumps(content))


@pytest.mark.parametrize("folders", [("rank0", "rank1"), ("node0/rank0", "node1/rank1")])
def test_folders_of_ranks_are_one_run(tmp_path: Path, folders: tuple[str, str]) -> None:
    job = tmp_path / "job"
    for rank, folder in enumerate(folders):
        of_rank(job / folder, rank)
    (run,) = open_runs([job], tmp_path / "cache")
    assert run.name == "job"
    assert run.events().column("rank").to_pylist() == [0, 1] * 4
    for rank, folder in enumerate(folders):
        of_rank(tmp_path / "more" / "second" / folder, rank)
        of_rank(tmp_path / "more" / "third" / folder, rank)
    runs = ingest_profiles(tmp_path / "more", tmp_path / "out").runs
    assert [run.name for run in runs] == ["second", "third"]


@pytest.mark.parametrize(
    "second",
    [
        {"rank": 0},
        {"rank": 1, "size": 4},
        {"rank": 1, "hours": 1},
        {"rank": 1, "pg_config": [{"pg_name": "1", "pg_size": 1, "ranks": [1]}]},
    ],
    ids=["same rank", "other size", "other time", "other process groups"],
)
@pytest.mark.parametrize("pair", [("rank0", "rank1"), ("before", "after")])
def test_two_runs_in_folders_stay_two_runs(
    tmp_path: Path, pair: tuple[str, str], second: dict[str, Any]
) -> None:
    groups = [{"pg_name": "1", "pg_size": 2, "ranks": [0, 1]}]
    size = 3 if "pg_config" in second else 2
    of_rank(tmp_path / "in" / pair[0], 0, size, pg_config=groups)
    of_rank(tmp_path / "in" / pair[1], **{"size": size, **second})
    runs = ingest_profiles(tmp_path / "in", tmp_path / "out").runs
    assert sorted(run.name for run in runs) == sorted(f"{folder}--trace" for folder in pair)


def test_files_of_ranks_in_two_folders_are_two_jobs_if_ranks_repeat(tmp_path: Path) -> None:
    for node in (0, 1):
        for rank in (0, 1):
            (tmp_path / "in" / f"node{node}").mkdir(parents=True, exist_ok=True)
            (tmp_path / "in" / f"node{node}" / f"rank{rank}.json").write_text(trace(rank))
    runs = ingest_profiles(tmp_path / "in", tmp_path / "out").runs
    assert [run.name for run in runs] == ["node0", "node1"]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (
            ["--name", "a/b"],
            "'a/b' cannot name a run; choose a name without a '/' or a leading dot",
        ),
        (
            ["--step-range", "nothing"],
            "matches no host range; the most frequent host ranges are 'batch 7'",
        ),
        (["--step-range", "("], "is not a regular expression (missing ), unterminated subpattern"),
    ],
)
def test_an_option_that_cannot_be_meant_is_a_usage_error(
    asked: list[str], said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "one.json").write_text(trace(None))
    words = [str(tmp_path / "one.json"), "--out", str(tmp_path / "out")]
    assert lstmprof(["ingest", *words, *asked]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert said in line


def test_a_damaged_run_in_the_way_does_not_stop_the_others(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.json").write_text(trace(None))
    words = ["ingest", str(tmp_path / "a.json"), str(tmp_path / "b.json")]
    out = tmp_path / "out"
    (out / "a").mkdir(parents=True)
    (out / "a" / "run.json").write_text("{")
    assert lstmprof([*words, "--out", str(out)]) == 1
    assert f"{out}/a: already exists; add --force to overwrite it" in capfd.readouterr().err
    assert lstmprof([*words, "--out", str(out), "--force"]) == 0
    assert [run.name for run in open_runs([out])] == ["a", "b"]


def test_a_damaged_run_in_the_way_at_a_url_does_not_stop_the_others(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    url = f"memory://{uuid.uuid4()}"
    fsspec.filesystem("memory").pipe(f"{url}/a/run.json", b"{")
    for name in ("a", "b"):
        (tmp_path / f"{name}.json").write_text(trace(None))
    words = ["ingest", str(tmp_path / "a.json"), str(tmp_path / "b.json"), "--out", url]
    assert lstmprof(words) == 1
    said = capfd.readouterr()
    assert f"{url}/a: already exists; add --force" in said.err
    assert f"wrote {url}/b (4 events)" in said.out
    assert lstmprof([*words, "--force"]) == 0


@pytest.mark.parametrize("name", [b"/tmp/\xff\xfe.json", b"/tmp/\\ud800.json"])
def test_a_header_in_no_encoding_is_written_and_read_again(name: bytes, tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_bytes(trace(0).encode()[:-1] + b', "traceName": "' + name + b'"}')
    ((run,),) = (ingest_profiles(file, tmp_path / "out").runs,)
    (found,) = open_runs([tmp_path / "out"])
    assert found.info == run.info
    json.dumps(dict(found.info.profile_metadata), ensure_ascii=False).encode()  # as others read it


@pytest.mark.parametrize("command", ["ingest", "breakdown"])
def test_an_empty_word_is_not_the_working_directory(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one.json").write_text(trace(None))
    assert lstmprof([command, ""]) == 1
    assert "'': empty path" in capfd.readouterr().err


def test_a_wrong_pattern_is_told_before_anything_is_read(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert lstmprof(["ingest", str(tmp_path / "missing"), "--step-range", "*"]) == 2
    assert "--step-range '*' is not a regular expression" in capfd.readouterr().err


@pytest.mark.parametrize(
    "file",
    ["mine.pt.trace.json.gz", "mine.xplane.pb", "mine.sqlite", "mine.sql", "mine.db.gz"],
)
def test_a_run_is_called_as_its_file_without_the_endings_of_profilers(file: str) -> None:
    assert profile_name(Path("folder") / file) == "mine"


def test_two_sessions_of_one_rank_are_two_runs(tmp_path: Path) -> None:
    (tmp_path / "worker0.11.json").write_text(trace(0))
    (tmp_path / "worker0.12.json").write_text(trace(0))
    done = ingest_profiles(tmp_path, tmp_path / "out")
    assert [run.name for run in done.runs] == ["worker0.11", "worker0.12"]


def test_files_that_differ_in_digits_and_name_no_rank_are_runs_of_their_own(tmp_path: Path) -> None:
    for number in (1, 2, 10):
        (tmp_path / f"batch{number}.json").write_text(trace(None))
    (tmp_path / "batch0.json").write_text("{")
    made = tasks(tmp_path, tmp_path / "out", name=None, force=False, step_range=None)
    assert [task.name for task in made] == ["batch0", "batch1", "batch10", "batch2"]


def test_files_that_say_their_rank_inside_are_one_job_whatever_their_names(tmp_path: Path) -> None:
    for rank in (0, 1):
        (tmp_path / f"{rank}.json").write_text(trace(rank))
    (task,) = tasks(tmp_path, tmp_path / "out", name=None, force=False, step_range=None)
    assert len(task.group) == 2


def test_a_folder_of_runs_at_a_url_is_opened_and_fetched_once(tmp_path: Path) -> None:
    url = f"memory://{uuid.uuid4()}"
    for name in ("a", "b"):
        (tmp_path / f"{name}.json").write_text(trace(None))
        ingest_profiles(tmp_path / f"{name}.json", url)
    runs = open_runs([url], tmp_path / "cache")
    assert [run.name for run in runs] == ["a", "b"]
    assert runs[0].events().column("kind").to_pylist() == ["range", "op", "range", "op"]
    (one,) = open_runs([f"{url}/b"], tmp_path / "cache")
    assert one.path == runs[1].path
    ingest_profiles(tmp_path / "a.json", f"{url}/", name="b", force=True)
    (replaced,) = open_runs([f"{url}/b"], tmp_path / "cache")
    assert replaced.path != one.path
    assert replaced.info.source_paths == (str(tmp_path / "a.json"),)


def test_files_of_one_name_in_two_folders_get_two_names(tmp_path: Path) -> None:
    for session in ("monday", "tuesday"):
        (tmp_path / "logs" / session).mkdir(parents=True)
        (tmp_path / "logs" / session / "host.json").write_text(trace(None))
    done = ingest_profiles(tmp_path / "logs", tmp_path / "out")
    assert [run.name for run in done.runs] == ["monday--host", "tuesday--host"]
    with pytest.raises(UsageError, match="has 2 profiles, but --name needs one"):
        ingest_profiles(tmp_path / "logs", tmp_path / "other", name="mine")


def test_a_step_of_a_profile_that_is_not_our_own_lasts_until_the_next(tmp_path: Path) -> None:
    document = json.loads(trace(None).replace("batch ", "ProfilerStep#"))
    late = {**document["traceEvents"][1], "name": "aten::late", "ts": 10.5, "dur": 1}
    document["traceEvents"].append(late)
    (tmp_path / "a.json").write_text(json.dumps(document))
    events = ingest_profile(tmp_path / "a.json", tmp_path / "out").events()
    steps = zip(*(events.column(name).to_pylist() for name in ("name", "step")), strict=True)
    assert dict(steps)["aten::late"] == 7


def test_a_range_that_the_user_names_is_the_step(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(trace(None))
    done = ingest_profiles(tmp_path / "a.json", tmp_path / "out", step_range=r"^batch \d+$")
    events = done.runs[0].events()
    assert events.column("kind").to_pylist() == ["step", "op", "step", "op"]
    assert events.column("step").to_pylist() == [0, 0, 1, 1]
    found = breakdown.break_down(done.runs[0]).windows
    assert [(w.start_ns, w.end_ns) for w in found] == [(0, 12_000), (12_000, 22_000)]


def test_steps_are_named_after_ingest_too(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(trace(None))
    run = ingest_profile(tmp_path / "a.json", tmp_path / "out")
    assert [w.step for w in breakdown.break_down(run).windows] == [None]
    assert [w.step for w in breakdown.break_down(run, "batch").windows] == [0, 1]


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("epoch", "matches no host range; the most frequent host ranges are 'batch 7', 'batch 8'"),
        ("(", "not a reg"),
    ],
)
def test_a_step_range_that_finds_nothing_says_what_there_is(
    tmp_path: Path, pattern: str, words: str
) -> None:
    (tmp_path / "a.json").write_text(trace(None))
    done = ingest_profiles(tmp_path / "a.json", tmp_path / "out", step_range=pattern)
    assert words in str(done.errors[0])
    assert not list((tmp_path / "out").glob("*"))


def test_a_folder_of_profiles_is_read_into_the_cache_once(tmp_path: Path) -> None:
    job, cache = tmp_path / "job", tmp_path / "cache"
    job.mkdir()
    (job / "rank0.json").write_text(trace(0))
    (job / "rank1.json").write_text(trace(1))
    (first,) = open_runs([job], cache)
    (again,) = open_runs([job], cache)
    assert first.path == again.path
    (job / "rank1.json").write_text(trace(1, "aten::addmm"))
    (changed,) = open_runs([job], cache)
    assert changed.path != first.path
    assert not [path for path in job.iterdir() if path.is_dir()]


def test_a_profile_is_read_again_when_the_rules_have_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.json").write_text(trace(None))
    (first,) = open_runs([tmp_path / "a.json"], tmp_path / "cache")
    (tmp_path / "annotate").mkdir()
    (tmp_path / "annotate" / "rules.py").write_text("OTHER_RULES = ()\n")
    monkeypatch.setattr(annotate, "__file__", str(tmp_path / "annotate" / "__init__.py"))
    (second,) = open_runs([tmp_path / "a.json"], tmp_path / "cache")
    (third,) = open_runs([tmp_path / "a.json"], tmp_path / "cache")
    assert first.path != second.path == third.path


def test_what_cannot_be_read_beside_what_can_is_told(tmp_path: Path) -> None:
    (tmp_path / "good.json").write_text(trace(None))
    (tmp_path / "cut.json").write_text(trace(None)[:-9])
    told: list[LstmprofError] = []
    (run,) = open_runs([tmp_path], tmp_path / ".cache", told.append)
    assert run.name == "good"
    assert "cut.json" in str(told[0])


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three ranks of one job, and a profile that is none of them."""
    monkeypatch.setenv("LSTMPROF_CACHE", str(tmp_path / "cache"))
    (tmp_path / "in" / "job").mkdir(parents=True)
    for rank in range(3):
        (tmp_path / "in" / "job" / f"rank{rank}.json").write_text(trace(rank, f"aten::of_{rank}"))
    (tmp_path / "in" / "good.json").write_text(trace(None))
    return tmp_path / "in"


def test_ranks_that_cannot_be_joined_are_runs_of_their_own(
    job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def join_ranks(*_: object) -> None:
        raise KeyError("rank")

    monkeypatch.setattr(sources, "join_ranks", join_ranks)
    done = ingest_profiles(job, tmp_path / "out")
    assert sorted(run.name for run in done.runs) == ["good", "rank0", "rank1", "rank2"]
    assert [f"{job}/job/rank0.json: a bug" in str(e) for e in done.errors] == [True]


def test_a_rank_that_spoils_its_job_is_left_out_of_it(
    job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    annotated = ingest.annotated

    def spoilt(events: Any, **how: Any) -> Any:
        if "aten::of_1" in events.column("name").to_pylist():
            raise IndexError("of_1")
        return annotated(events, **how)

    monkeypatch.setattr(ingest, "annotated", spoilt)
    done = ingest_profiles(job, tmp_path / "out")
    (error,) = done.errors
    assert f"{job}/job/rank1.json: a bug" in str(error)
    (run,) = (run for run in done.runs if run.name == "job")
    assert isinstance(run, Run)
    assert run.info.source_paths == tuple(f"{job}/job/rank{rank}.json" for rank in (0, 2))
    assert run.events().column("rank").to_pylist() == [0, 2] * 4
    assert len(done.runs) == 2


def test_of_ranks_that_are_all_spoilt_each_is_told_once(
    job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spoilt(*_: object, **__: object) -> None:
        raise IndexError

    monkeypatch.setattr(ingest, "annotated", spoilt)
    done = ingest_profiles(job / "job", tmp_path / "out")
    assert done.runs == []
    of_rank = [f"{job}/job/rank{rank}.json" for rank in range(3)]
    assert [place in str(e) for e, place in zip(done.errors, of_rank, strict=True)] == [True] * 3


def test_what_was_refused_is_not_held_in_memory(tmp_path: Path) -> None:
    """Twenty members of a small archive, each refused, took 60 MB each until the end."""
    for number in range(3):
        (tmp_path / f"a{number}.json.gz").write_bytes(gzip.compress(bytes(2**20)))
    done = ingest_profiles(tmp_path, tmp_path / "out")
    refused = [*done.errors, *done.foreign]
    assert len(refused) == 3
    assert all(error.__traceback__ is None for error in refused)
    assert all(error.__cause__ is None for error in refused)


def test_of_a_run_that_cannot_be_described_no_table_is_left(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fails(*_: object) -> dict[str, Any]:
        raise UsageError("cannot be described", "look")

    monkeypatch.setattr(ingest, "described", fails)
    (tmp_path / "one.json").write_text(trace(None))
    done = ingest_profiles(tmp_path / "one.json", tmp_path / "runs")
    assert [str(error) for error in done.errors] == [str(UsageError("cannot be described", "look"))]
    assert [path for path in (tmp_path / "runs").rglob("*") if path.is_file()] == []
