"""Interrupt every command at random instants: ``python -m attack.signals --times 100``.

::

    a folder with finished runs ─▶ the command, which sends itself SIGINT at its n-th call
                                   ─▶ one line, exit status 130, nothing hidden left, whole runs

Instants are counted in calls of functions from the command's first line on, so that the load of a
machine decides nothing; they are drawn uniformly over all calls of the command, its imports among
them. Before that line the interpreter itself starts, and dies of the signal.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from attack.faults import CAPTURE
from attack.seeds import kineto
from capture.processes import processes_of, wait_until
from ingested import ingest_profile

from lstmprof.capture.harness.kept_rounds import ROUNDS

#: Runs the command, and sends itself a signal at a call of some number.
AT_A_CALL = """
import itertools, os, signal, sys
number, how, within = int(sys.argv.pop(1)), int(sys.argv.pop(1)), os.environ.get("CALLS_OF", "")
if "ignored" not in os.environ.get("SIGNALS", ""):  # as a shell ignores them in its background
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
count = itertools.count()
def look(frame, event, argument):
    if event == "call" and within in frame.f_code.co_filename and next(count) == number:
        sys.setprofile(None)
        signal.raise_signal(how)
from lstmprof.__main__ import main
sys.setprofile(look)
try:
    main()
finally:
    if number < 0:
        os.write(2, b"calls: %d" % next(count))
"""
COMMANDS: dict[str, Sequence[str]] = {
    "list": ("list", "workloads"),
    "ingest": ("ingest", "{0}/a.json", "--out", "{0}/runs", "--force"),
    "breakdown": ("breakdown", "{0}/a.json"),
    "diagnose": ("diagnose", "{0}/runs"),
    "report": ("report", "{0}/runs", "-o", "{0}/page.html", "--force"),
    "query": ("query", "SELECT name, count(*) FROM events GROUP BY ALL", "{0}/runs"),
    "capture": (*CAPTURE[:-2], "--name=c", "--out={0}/captured"),
}
#: Commands of which only the calls of functions in this folder count: the imports would be most.
WITHIN = {"capture": "/lstmprof/capture/"}
#: How many events a run of the profile has.
_EVENTS = 9
#: A command that is interrupted behind so much of its calls may have done all it was told to.
_NEARLY_ALL = 0.9


@dataclass(frozen=True)
class Ending:
    """How a command ended that got signal ``how`` at ``call``; ``problem`` is empty if well."""

    command: str
    how: signal.Signals
    call: int
    code: int
    problem: str


def prepared(folder: Path) -> None:
    """Put a profile, and two runs of it, into ``folder``."""
    (folder / "tmp").mkdir()
    (folder / "a.json").write_bytes(kineto()[0])
    for name in ("a", "old"):
        ingest_profile(folder / "a.json", folder / "runs", name=name)


def at_a_call(
    number: int, how: int, command: Sequence[str], folder: Path
) -> subprocess.CompletedProcess[str]:
    """The command, ended; its process sent itself the signal ``how`` at its call ``number``."""
    words = [word.format(folder) for word in command]
    line = [sys.executable, "-c", AT_A_CALL, str(number), str(int(how)), *words]
    own = {**os.environ, "LSTMPROF_CACHE": str(folder / "cache"), "TMPDIR": str(folder / "tmp")}
    own["CALLS_OF"] = WITHIN.get(command[0], "")
    own["PYTHONHASHSEED"] = "0"  # the calls of one run are those of the next
    own["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    return subprocess.run(line, capture_output=True, text=True, env=own, check=False)


def endings(
    name: str, times: int, seed: object, folder: Path, signals: Sequence[signal.Signals]
) -> Iterator[Ending]:
    """How the command ``name`` ends, interrupted at ``times`` calls that ``seed`` draws."""
    calls = int(at_a_call(-1, 0, COMMANDS[name], folder).stderr.rpartition("calls: ")[2])
    draw = random.Random(f"{name} {seed}")
    for _ in range(times):
        number, how = draw.randrange(calls), draw.choice(signals)
        shutil.rmtree(folder / "cache", ignore_errors=True)  # a profile is read anew
        shutil.rmtree(folder / "captured" / "c", ignore_errors=True)  # goes on from its rounds
        ran = at_a_call(number, how, COMMANDS[name], folder)
        problem = "; ".join([*_said(ran, how, number / calls), *_left(folder)])
        where = f"{problem} at call {number} of {calls}: {ran.stderr[-600:]}" if problem else ""
        yield Ending(name, how, number, ran.returncode, where)


def _said(ran: subprocess.CompletedProcess[str], how: signal.Signals, part: float) -> Iterator[str]:
    """What is wrong with the end of a command that was interrupted when ``part`` was done."""
    if "Traceback" in ran.stderr or "ignored in" in ran.stderr:
        yield "a traceback"
    if ran.returncode == 0:
        if part < _NEARLY_ALL and "resumes: " not in ran.stderr:  # with less to do
            yield "it goes on"
        return
    if ran.returncode != 128 + how:
        yield f"it exits {ran.returncode}"
    if sum("interrupted" in line for line in ran.stderr.splitlines()) != 1:
        yield "it does not say that it was interrupted"


def _left(folder: Path) -> Iterator[str]:
    """What is left half, or hidden."""
    from lstmprof.runs.run import runs_in

    if not wait_until(lambda: not processes_of(folder)):
        yield "a worker outlives it"
    hidden = [p for p in folder.glob("captured/.*") if p.name != ROUNDS]
    hidden += [*folder.glob("runs/.*"), *folder.glob("cache/*/.*"), *folder.glob(".*")]
    left = [*hidden, *(p for p in (folder / "tmp").iterdir() if not _is_pythons_trial(p))]
    if left:
        yield f"it leaves {[path.name for path in left]}"
    for path in left:  # told once: the next command may be interrupted before it sweeps
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    if [run.name for run in runs_in(folder / "runs")] != ["a", "old"]:
        yield "a finished run is lost"
    for place in (folder / "runs", *folder.glob("cache/*/")):
        if place.is_dir():
            lengths = {len(run.events()) for run in runs_in(place)}
            if not lengths <= {_EVENTS}:
                yield f"half a run of {sorted(lengths)} events"
    captured = folder / "captured"
    if captured.is_dir() and not all(len(run.events()) for run in runs_in(captured)):
        yield "half a capture"
    page = folder / "page.html"
    if page.exists() and not page.read_bytes().rstrip().endswith(b"</html>"):
        yield "half a page"


def _is_pythons_trial(path: Path) -> bool:
    """Whether Python made it to try the folder for temporary files: it may be interrupted there.

    Between its opening and the ``try`` that removes it again (tempfile._get_default_tempdir).
    """
    is_named_so = re.fullmatch("[a-z0-9_]{8}", path.name) is not None
    return is_named_so and path.is_file() and path.read_bytes() in (b"", b"blat")


def main() -> int:
    """Every command, interrupted so many times; 1 where a promise was broken."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--times", type=int, default=100, help="of each command")
    parser.add_argument("--minutes", type=float, default=math.inf, help="none is begun after")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--command", action="append", choices=[*COMMANDS])
    options = parser.parse_args()
    broken, until = 0, time.monotonic() + 60 * options.minutes
    for name in options.command or COMMANDS:
        codes: Counter[int] = Counter()
        with tempfile.TemporaryDirectory() as folder:
            prepared(Path(folder))
            for end in endings(name, options.times, options.seed, Path(folder), [signal.SIGINT]):
                codes[end.code] += 1
                broken += bool(end.problem)
                if end.problem:
                    print(f"FAILED {name}: {end.problem}", flush=True)
                if time.monotonic() > until:
                    break
        told = ", ".join(f"{count} with {code}" for code, count in sorted(codes.items()))
        print(f"{name}: interrupted {codes.total()} times; ended {told}", flush=True)
    print(f"{broken} broke a promise")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
