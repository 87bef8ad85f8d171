"""Kill a command, or fill its disk, at every change of files that it makes: each is a fault point.

::

    a folder with finished runs ─ copied ─▶ the command, killed at its n-th change of files there
                                            ─▶ what is there now ─ the next command ─▶ and now

``fault_points.c`` counts the changes and kills (or returns ENOSPC); it is loaded before the C
library, so that what Arrow's and SQLite's own code writes counts too. The commands run in forks of
one process that has imported everything: ``python -m attack.faults`` starts it.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import dataclasses
import errno
import io
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from attack.seeds import kineto, onnxruntime
from capture.processes import processes_of, wait_until

SOURCE = Path(__file__).with_name("fault_points.c")
_ENDED_WELL, _KILLED = 0, -signal.SIGKILL
#: A child that takes longer hangs.
_HANG_S = 600
ENOSPC = "full disk"
KILL = "kill"


@dataclass(frozen=True)
class Scenario:
    """A command on a folder with runs in it: ``before`` makes the folder, ``after`` comes next.

    ``captured`` is the run that it captures, whose events no two captures share; ``in_worker``
    means the faults of the worker, not of the command itself.
    """

    before: Sequence[Sequence[str]]
    command: Sequence[str]
    after: Sequence[str]
    captured: str | None = None
    in_worker: bool = False


_INGEST = ("ingest", "{0}/b.json", "--out", "{0}/out")
_NEXT = ("ingest", "{0}/c.json", "--out", "{0}/out", "--force")
_OLD = ("ingest", "{0}/old.json", "--out", "{0}/out")
_BREAKDOWN = ("breakdown", "{0}/b.json")
_PAGE = ("report", "{0}/out/old", "-o", "{0}/page.html", "--force")
#: In two rounds, so that there is one to go on from.
CAPTURE = ("capture", "--impl", "onnxruntime-lstm", "--hidden=4", "--batch=2", "--time-steps=5")
CAPTURE += ("--iterations=2", "--rounds=2", "--warmup=1", "--profile-steps=1", "--no-peaks")
CAPTURE += ("--device=cpu", "--mode=forward", "--name=k", "--out={0}/out")

SCENARIOS = {
    "a new run": Scenario((_OLD,), _INGEST, _NEXT),
    "a run replaced": Scenario((_OLD, _INGEST), (*_INGEST, "--force"), _NEXT),
    "a profile in the cache": Scenario(
        (_OLD, ("breakdown", "{0}/old.json")), _BREAKDOWN, _BREAKDOWN
    ),
    "several runs": Scenario(
        (_OLD,), ("ingest", "{0}/b.json", "{0}/d.json.gz", "--out", "{0}/out", "--jobs", "1"), _NEXT
    ),
    "a page replaced": Scenario((_OLD, _PAGE), _PAGE, _PAGE),
    "a capture": Scenario((_OLD,), CAPTURE, CAPTURE, "k"),
    "a capture's worker": Scenario((_OLD,), CAPTURE, CAPTURE, "k", in_worker=True),
}
#: Of a scenario that captures no more points are tried than so many: each takes seconds.
MOST_CAPTURES = 40


@dataclass(frozen=True)
class Outcome:
    """What one fault did; ``problems`` are the promises that it broke."""

    scenario: str
    fault: str
    point: int
    code: int
    problems: tuple[str, ...]


def library(folder: Path) -> Path:
    """The library of fault points, compiled into ``folder``.

    Raises:
        FileNotFoundError: there is no gcc.
    """
    built = folder / "fault_points.so"
    options = ["-O1", "-shared", "-fPIC", "-o", os.fspath(built), os.fspath(SOURCE), "-ldl"]
    subprocess.run(["gcc", *options], check=True)
    return built


def outcomes(scenario: str, fault: str, most: int | None = None) -> list[Outcome]:
    """What ``fault`` does at every point of ``scenario``, or at ``most`` evenly spread over all."""
    with tempfile.TemporaryDirectory() as folder:
        built = library(Path(folder))
        asked = json.dumps([scenario, fault, most, os.fspath(built)])
        environment = {**os.environ, "LD_PRELOAD": os.fspath(built)}
        environment["PYTHONPATH"] = os.pathsep.join(sys.path)
        server = subprocess.run(
            [sys.executable, "-m", "attack.faults", "--serve", asked],
            env=environment,
            stdout=subprocess.PIPE,
            check=True,
        )
    lines = server.stdout.decode().splitlines()
    return [
        Outcome(**{**row, "problems": tuple(row["problems"])}) for row in map(json.loads, lines)
    ]


class _Server:
    """Forks that run commands in a folder of their own."""

    def __init__(self, scenario: str, fault: str, built: str) -> None:
        self._name, self._fault = scenario, fault
        self._scenario = SCENARIOS[scenario]
        self._points = ctypes.CDLL(built)
        self._work = Path(tempfile.mkdtemp(prefix="attack-"))
        self._base, self._root = self._work / "base", self._work / "root"
        self._count = self._work / "count"

    def close(self) -> None:
        shutil.rmtree(self._work)

    def prepare(self) -> None:
        """Make the folder that every fault begins with; it lies at the same path as the copies."""
        self._root.mkdir()
        for name, content in _profiles().items():
            (self._root / name).write_bytes(content)
        (self._root / "tmp").mkdir()
        for command in self._scenario.before:
            code, _ = self._run(command)
            assert code == _ENDED_WELL, command
        shutil.copytree(self._root, self._base)
        self._old = _contents(self._root / "out" / "old")
        self._runs_before = _runs(self._root)
        self._run(self._scenario.command)
        self._runs_after = _runs(self._root)

    def warm(self) -> None:
        """Run the command in this process once: what it imports, no fork imports again."""
        self._restore()
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            self.run_here(self._scenario.command)

    def run_here(self, command: Sequence[str]) -> int:
        """Exit code of ``command``, run in this process."""
        os.environ["LSTMPROF_CACHE"] = os.fspath(self._root / "cache")
        os.environ["TMPDIR"] = tempfile.tempdir = os.fspath(self._root / "tmp")
        words = [word.format(self._root) for word in command]
        sys.argv = ["lstmprof", *words]
        from lstmprof.cli import run

        return run(words)

    def changes(self) -> int:
        """How many fault points the command has."""
        self._restore()
        reader, writer = os.pipe()
        self._run(self._scenario.command, at=-1, count_to=writer)
        os.close(writer)
        with os.fdopen(reader) as answer:
            own = int(answer.read())
        return int(self._count.read_text("ascii")) if self._scenario.in_worker else own

    def outcome(self, point: int) -> Outcome:
        """What the fault does at ``point``."""
        self._restore()
        code, said = self._run(self._scenario.command, at=point)
        problems = [*self._after_fault(code, said), *self._half_runs()]
        next_code, next_said = self._run(self._scenario.after)
        if next_code != _ENDED_WELL and self._was_whole(next_said):  # it wrote nothing
            next_code, next_said = self._run(_NEXT)
        if next_code != _ENDED_WELL:
            problems.append(f"the next command exits {next_code}: {next_said[:300]}")
        problems += [*self._half_runs(), *self._lost(), *self._orphans()]
        return Outcome(self._name, self._fault, point, code, tuple(problems))

    def _was_whole(self, next_said: str) -> bool:
        """Whether the fault came when the capture had its run in place."""
        return self._scenario.captured is not None and "already exists" in next_said

    def _restore(self) -> None:
        shutil.rmtree(self._root)
        shutil.copytree(self._base, self._root)

    def _run(self, command: Sequence[str], at: int = 0, count_to: int = -1) -> tuple[int, str]:
        """Exit code and standard error of ``command``, run in a fork with a fault at ``at``."""
        said = self._work / "said"
        child = os.fork()
        if child == 0:
            _child(self, command, at, count_to, said)
        _, status = os.waitpid(child, 0)
        assert wait_until(lambda: not processes_of(self._root)), "a worker outlives its parent"
        return os.waitstatus_to_exitcode(status), said.read_text("utf-8", "replace")

    def arm(self, at: int) -> None:
        """Have a fault at the change ``at`` of this process, or of the worker that it starts."""
        error = errno.ENOSPC if self._fault == ENOSPC else 0
        under = os.fsencode(self._root)
        if self._scenario.in_worker:
            os.environ["FAULT_POINTS_UNDER"] = os.fsdecode(under)
            os.environ["FAULT_POINTS_AT"] = str(max(at, 0))
            os.environ["FAULT_POINTS_ERROR"] = str(error)
            os.environ["FAULT_POINTS_COUNT_TO"] = os.fspath(self._count)
            return
        self._points.fault_points_arm(under, ctypes.c_long(max(at, 0)), ctypes.c_int(error))

    def count(self) -> int:
        return int(self._points.fault_points_count())

    def _after_fault(self, code: int, said: str) -> Iterator[str]:
        """How the command ended: killed, or with one line and exit code 1, or well."""
        dies = self._fault == KILL and not self._scenario.in_worker
        if dies and code != _KILLED:
            yield f"it was not killed but exits {code}"
        if not dies and code not in (0, 1):
            yield f"it exits {code}: {said[-300:]}"
        if code == 1 and "lstmprof: error: " not in (said.splitlines() or [""])[-1]:
            yield f"it does not end with its error: {said[-300:]}"
        if "Traceback" in said:
            yield f"a traceback: {said[-600:]}"
        if "a bug in lstmprof" in said:
            yield f"an exception that nobody expected: {said[-600:]}"

    def _half_runs(self) -> Iterator[str]:
        """Runs that are seen and are not whole, or neither the old nor the new one."""
        for name, content in _runs(self._root).items():
            whole = (self._runs_before.get(name), self._runs_after.get(name))
            is_captured = name == self._scenario.captured and isinstance(content, list) and content
            if name != "c" and content not in whole and not is_captured:
                yield f"run {name} is neither as before nor as after: {content}"
        page = self._root / "page.html"
        if page.exists() and not page.read_bytes().rstrip().endswith(b"</html>"):
            yield "half a page"

    def _lost(self) -> Iterator[str]:
        if _contents(self._root / "out" / "old") != self._old:
            yield "the finished run 'old' is lost or changed"
        for name in self._runs_before:
            if name not in _runs(self._root):
                yield f"the finished run '{name}' is lost"

    def _orphans(self) -> Iterator[str]:
        """What is hidden in the folders of runs, of the cache and of temporary files."""
        for path in sorted(self._root.rglob("*")):
            hidden = path.name.startswith(".") or path.parent.name == "tmp"
            if hidden and path.parent.name != ".git":
                yield f"an orphan: {path.relative_to(self._root)}"


def _child(server: _Server, command: Sequence[str], at: int, count_to: int, said: Path) -> None:
    """Run ``command`` and end: in a fork."""
    code = 70
    try:
        os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        signal.alarm(_HANG_S)
        if at:
            server.arm(at)
        code = server.run_here(command)
        if count_to >= 0:
            os.write(count_to, str(server.count()).encode())
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _profiles() -> dict[str, bytes]:
    import gzip

    trace = kineto()[0]
    renamed = {name: trace.replace(b"aten::mm", name.encode()) for name in ("old", "b", "c")}
    files = {f"{name}.json": content for name, content in renamed.items()}
    return {**files, "d.json.gz": gzip.compress(onnxruntime()[0], mtime=0)}


def _contents(folder: Path) -> dict[str, bytes]:
    if not folder.is_dir():
        return {}
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def _runs(root: Path) -> dict[str, object]:
    """What the runs that a user sees hold: names of events, or why they cannot be read."""
    from lstmprof.base.errors import LstmprofError
    from lstmprof.runs.run import is_run, open_run

    seen: dict[str, object] = {}
    places = [root / "out", *sorted((root / "cache").glob("*"))]
    for place in (p for p in places if p.is_dir()):
        for path in sorted(place.iterdir()):
            if path.name.startswith("."):
                continue
            try:
                seen[path.name] = open_run(path).events().column("name").to_pylist()
            except LstmprofError as error:
                seen[path.name] = str(error) if is_run(path) else f"no run: {error}"
    return seen


def serve(scenario: str, fault: str, most: int | None, built: str) -> None:
    """Print what the fault does at every point, or at ``most`` of them, a line of JSON each."""
    server = _Server(scenario, fault, built)
    try:
        server.prepare()
        server.warm()
        last = server.changes()
        step = max(1, math.ceil(last / most)) if most else 1
        for point in range((1 + step) // 2, last + 1, step):
            print(json.dumps(dataclasses.asdict(server.outcome(point))), flush=True)
    finally:
        server.close()


def main() -> int:
    """Every fault at every point of every scenario; 1 where a promise was broken."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--serve")
    parser.add_argument("--scenario", action="append", choices=[*SCENARIOS])
    parser.add_argument("--fault", action="append", choices=[KILL, ENOSPC])
    options = parser.parse_args()
    if options.serve:
        serve(*json.loads(options.serve))
        return 0
    broken = 0
    for fault in options.fault or [KILL, ENOSPC]:
        for name in options.scenario or SCENARIOS:
            results = outcomes(name, fault, MOST_CAPTURES if SCENARIOS[name].captured else None)
            failed = [outcome for outcome in results if outcome.problems]
            broken += len(failed)
            told = f"{fault}, {name}: {len(results)} points, {len(failed)} broke a promise"
            print(told, flush=True)
            for outcome in failed[:10]:
                print(f"  at {outcome.point}: {'; '.join(outcome.problems)}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
