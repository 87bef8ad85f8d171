"""Many profiles on a dask.distributed cluster: real ones, in processes of their own."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from runs import cluster_tasks

import lstmprof
from lstmprof import __version__
from lstmprof.base.errors import LstmprofError, RunError, UsageError
from lstmprof.cli import run as command_line
from lstmprof.runs import cluster, jobs
from lstmprof.runs.ingest import Ingested, tasks
from lstmprof.runs.jobs import ingest_all
from lstmprof.runs.run import open_run, runs_in

distributed = pytest.importorskip("distributed", reason="the extra cluster is not installed")

#: Against a hang: beside ten busy processes a worker of dask takes minutes to start.
PATIENCE_S = 1200
PACKAGES = [str(Path(lstmprof.__file__).parents[1]), str(Path(cluster_tasks.__file__).parents[1])]


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine's cluster answers late."""
    for name in ("_ANSWER_S", "_WORKERS_S"):
        monkeypatch.setattr(cluster, name, PATIENCE_S)


@contextmanager
def started(
    module: str, *arguments: object, **environment: str
) -> Iterator[subprocess.Popen[bytes]]:
    """A command of dask in a process of its own, ended with the block."""
    process = subprocess.Popen(
        [sys.executable, "-m", f"distributed.cli.{module}", *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(PACKAGES), **environment},
        cwd="/",  # else the package beside the tests comes first
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


@contextmanager
def scheduler(folder: Path) -> Iterator[str]:
    """The address of a scheduler for which three workers killed by a task are enough."""
    file = folder / "scheduler.json"
    where = ("--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", file)
    with started("dask_scheduler", *where, DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES="2"):
        until(lambda: file.exists() and file.read_text().endswith("}"))
        yield json.loads(file.read_text())["address"]


def until(happened: Any) -> None:
    end = time.monotonic() + PATIENCE_S
    while not happened():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    workers = ("--nworkers", 2, "--nthreads", 1, "--no-dashboard", "--memory-limit", "1GB")
    folder = tmp_path_factory.mktemp("cluster")
    with (
        scheduler(folder) as found,
        started("dask_worker", found, *workers, "--local-directory", folder),
    ):
        yield found


def written(folder: Path, *names: str) -> list[Path]:
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1}
    for number, name in enumerate(names):
        events = [{**event, "dur": 5 + number}]
        text = json.dumps({"schemaVersion": 1, "traceEvents": events})
        (folder / f"{name}.json").write_text(text)
    return [folder / f"{name}.json" for name in names]


def names(results: list[Ingested]) -> list[list[str]]:
    return [[run.name for run in one.runs] for one in results]


def test_workers_write_the_runs_that_one_machine_writes(tmp_path: Path, address: str) -> None:
    words = written(tmp_path, "a", "bad", "c")
    words[1].write_text('{"traceEvents": [')
    done = list(ingest_all(words, tmp_path / "out", scheduler=address))
    here = list(ingest_all(words, tmp_path / "here"))
    assert names(done) == names(here) == [["a"], [], ["c"]]
    assert str(done[1].errors[0]) == str(here[1].errors[0])
    for name in ("a", "c"):
        runs = [open_run(tmp_path / place / name) for place in ("out", "here")]
        assert runs[0].events().arrow == runs[1].events().arrow
        assert [run.info.command for run in runs] == [shlex.join(sys.argv)] * 2
    again = list(ingest_all(words, tmp_path / "out", scheduler=address))
    assert [len(one.made_before) for one in again] == [1, 0, 1]


def test_workers_read_the_ranks_of_one_job_and_what_they_read_is_cleared_away(
    tmp_path: Path, address: str
) -> None:
    (tmp_path / "job").mkdir()
    written(tmp_path / "job", "rank0", "rank1", "rank2")
    (tmp_path / "job" / "rank3.json").write_text('{"traceEvents": [')
    said: list[str] = []
    words = [tmp_path / "job"]
    there = list(ingest_all(words, tmp_path / "out", scheduler=address, progress=said.append))
    here = list(ingest_all(words, tmp_path / "here"))
    assert "read 3 of 4 profiles" in " ".join(said)
    assert names(there) == names(here) == [["job"]]
    assert list(map(str, there[0].errors)) == list(map(str, here[0].errors))
    runs = [open_run(tmp_path / place / "job") for place in ("out", "here")]
    assert runs[0].events().arrow == runs[1].events().arrow
    assert runs[0].info.notes == runs[1].info.notes
    assert not list((tmp_path / "out").glob(".*"))


def test_workers_write_to_a_url_that_all_of_them_reach(tmp_path: Path, address: str) -> None:
    words = written(tmp_path, "a", "b")
    out = f"local://{tmp_path}/out"
    done = list(ingest_all([f"file://{w}" for w in words], out, scheduler=address))
    assert [one.runs[0].url for one in done] == [f"{out}/a", f"{out}/b"]  # type: ignore[union-attr]
    assert open_run(tmp_path / "out" / "b").events().column("dur_ns").to_pylist() == [6000]


@pytest.mark.measured  # which worker does what is the cluster's choice
def test_a_worker_killed_half_way_loses_nothing_and_only_what_it_was_at_is_done_again(
    tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "_done", cluster_tasks.killed_half_way)
    given = [f"{letter}x" for letter in "abcdefghijkl"]
    words = written(tmp_path, *given)
    done = []
    for one in ingest_all(words, tmp_path / "out", scheduler=address, force=True):
        done.append(one)
        (tmp_path / f"{one.runs[0].name}.told").touch()
    assert names(done) == [[name] for name in given]
    assert [run.name for run in runs_in(tmp_path / "out")] == given
    assert not list((tmp_path / "out").glob(".*"))
    begun = [len(Path(f"{word}.begun").read_text()) for word in words]
    assert begun == [1] * 6 + [2] + [1] * 5


@pytest.mark.measured
def test_a_profile_that_kills_its_workers_is_told_and_the_others_are_read(
    tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "_done", cluster_tasks.deadly)
    words = written(tmp_path, "a", "b", "c", "d")
    done = list(ingest_all(words, tmp_path / "out", scheduler=address))
    assert names(done) == [["a"], [], ["c"], ["d"]]
    assert "b.json: the system killed each worker that read it" in str(done[1].errors[0])
    assert len(set((tmp_path / "b.json.killed").read_text().split())) >= 3


def test_the_command_reads_on_a_cluster(
    tmp_path: Path, address: str, capfd: pytest.CaptureFixture[str]
) -> None:
    written(tmp_path, "a", "b")
    arguments = ["ingest", str(tmp_path), "--out", str(tmp_path / "out"), "--scheduler", address]
    assert command_line(arguments) == 0
    said = capfd.readouterr()
    assert said.out == f"wrote {tmp_path}/out/a (1 events)\nwrote {tmp_path}/out/b (1 events)\n"
    assert said.err.endswith(f"next: lstmprof diagnose {tmp_path}/out\n")


def test_a_cluster_without_workers_or_with_another_lstmprof_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "_WORKERS_S", 1)
    (word,) = written(tmp_path, "a")
    other = tmp_path / "other"
    (other / "lstmprof").mkdir(parents=True)
    (other / "lstmprof" / "__init__.py").write_text('__version__ = "0.0.7"\n')
    with scheduler(tmp_path) as lonely:
        with pytest.raises(
            LstmprofError, match="has no workers; start workers: dask worker tcp://"
        ):
            list(ingest_all([word], tmp_path / "out", scheduler=lonely))
        monkeypatch.setattr(cluster, "_WORKERS_S", PATIENCE_S)
        with started("dask_worker", lonely, "--no-nanny", "--no-dashboard", PYTHONPATH=str(other)):
            wrong = (
                rf"worker tcp://\S+ has lstmprof 0\.0\.7, but this machine has {__version__}; run"
            )
            with pytest.raises(LstmprofError, match=wrong):
                list(ingest_all([word], tmp_path / "out", scheduler=lonely))
    assert not list((tmp_path / "out").glob("*"))


def test_a_cluster_that_loses_its_last_worker_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "_LOOK_S", 0.2)
    monkeypatch.setattr(jobs, "_done", cluster_tasks.only_the_first)
    words = written(tmp_path, *"abcdefghijkl")
    with scheduler(tmp_path) as lonely:
        alone = ("--no-nanny", "--nthreads", 1, "--no-dashboard")
        with started("dask_worker", lonely, *alone) as worker:
            results = ingest_all(words, tmp_path / "out", scheduler=lonely)
            done = [next(results)]
            worker.kill()
        monkeypatch.setattr(cluster, "_WORKERS_S", 1)
        with pytest.raises(LstmprofError, match="has had no workers for 1 s; start workers"):
            done += results
    assert not list((tmp_path / "out").glob(".*"))


@pytest.mark.parametrize(
    ("wrong", "kind", "words"),
    [
        ("tcp://127.0.0.1:9", LstmprofError, "no dask scheduler answers; run 'dask scheduler'"),
        ("127.0.0.1", UsageError, "not a scheduler address"),
        ("smoke://127.0.0.1:8786", UsageError, "not a scheduler address"),
        ("", UsageError, "not a scheduler address"),
    ],
)
def test_an_address_without_a_scheduler_is_refused_in_one_line(
    tmp_path: Path, wrong: str, kind: type[Exception], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "_ANSWER_S", 0.3)
    with pytest.raises(kind, match=words) as refused:
        list(ingest_all(written(tmp_path, "a"), tmp_path / "out", scheduler=wrong))
    assert "\n" not in str(refused.value)


@pytest.mark.filterwarnings("default")
def test_what_dask_warns_of_is_told_with_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    class Client:
        """One that finds other versions of what the scheduler uses, and a worker."""

        def __init__(self, *_: object, **__: object) -> None:
            warnings.warn("Mismatched versions found\nmsgpack", stacklevel=2)

        def nthreads(self) -> dict[str, int]:
            return {"tcp://127.0.0.1:9": 1}

        def run(self, *_: object, **__: object) -> dict[str, str]:
            return {"tcp://127.0.0.1:9": __version__}

        def close(self, **_: object) -> None:
            pass

    monkeypatch.setattr(distributed, "Client", Client)
    said: list[str] = []
    with cluster.cluster("tcp://127.0.0.1:8786", said.append) as found:
        found.check()
    assert said == ["tcp://127.0.0.1:8786: Mismatched versions found msgpack"]


def test_without_distributed_the_command_to_install_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(LstmprofError, match=r"pip install 'lstmprof\[cluster\]'"):
        list(ingest_all(written(tmp_path, "a"), tmp_path / "out", scheduler="tcp://127.0.0.1:9"))


def test_what_a_worker_does_not_see_is_told_with_the_remedy(tmp_path: Path) -> None:
    (word,) = written(tmp_path, "a")
    (task,) = tasks(word, tmp_path / "out", name=None, force=False, step_range=None)

    def there(mark: Path, version: str = __version__) -> Ingested:
        return jobs._done_there(jobs._done, version, mark, task)

    with pytest.raises(RunError, match=r"out: the worker on \S+ cannot see it; .*shared folder"):
        there(tmp_path / "out" / ".partial-x")
    with pytest.raises(LstmprofError, match=r"has lstmprof \S+, but this machine has 0\.0\.7"):
        there(tmp_path, "0.0.7")
    assert [run.name for run in there(tmp_path).runs] == ["a"]
    word.unlink()
    assert "a.json: the worker on" in str(there(tmp_path).errors[0])


def test_what_is_not_done_when_the_executor_of_a_cluster_closes_is_not_waited_for() -> None:
    waits: list[bool] = []
    executor = SimpleNamespace(shutdown=lambda wait: waits.append(wait))
    client: Any = SimpleNamespace(get_executor=lambda pure: executor)
    with cluster.Cluster("tcp://a", client, 0.0).executor():
        pass
    cluster._Releasing(client).shutdown()
    cluster._Releasing(client).shutdown(cancel_futures=True)
    assert waits == [False, True, False]
