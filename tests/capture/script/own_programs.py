"""Run the programs of ``test_own_code`` with default threads, and print a table of the verdicts.

A row has the program, the numbers of timed and profiled steps, whether the sizes of all layers are
known and right, whether the planted mistake comes first, and the first sentence.

With ``--fixes``, the programs of ``FIXES`` run twice, with the mistake and with its fix. A row has
the program, the first fix that is advised, the steps before and after it, what it was forecast to
save and what it saved (ms), and the forecast divided by what it saved.

Example: ``PYTHONPATH=.:tests python -m capture.script.own_programs --spinning 1``
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from capture.script.test_own_code import CASES, FIXES, NETWORK, PROGRAMS, Case
from capture.trainers import python_of_trainers


@contextlib.contextmanager
def spinning(count: int) -> Iterator[None]:
    """Let ``count`` processes spin meanwhile."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def said(folder: Path, *command: object) -> Any:
    """Return the JSON that a command of lstmprof prints; None if it fails."""
    words = [sys.executable, "-m", "lstmprof", *map(str, command), "--format", "json"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True)
    return json.loads(done.stdout) if done.returncode == 0 else None


def row(case: Case, folder: Path) -> list[str]:
    """Return the cells of the table for one program."""
    python = ("--python", python_of_trainers()) if case.trainers else ()
    plan = ("--timed", 10, "--warmup", 2, "--then", "stop", "--quiet")
    script = PROGRAMS / f"{case.name}.py"
    words = ("-m", "lstmprof", "run", script, *python, *plan, "--", case.argument)
    began = time.monotonic()
    ended = subprocess.run([sys.executable, *map(str, words)], cwd=folder, capture_output=True)
    took = f"{time.monotonic() - began:.0f} s"
    place = f"traces/{case.name}"
    verdicts = said(folder, "diagnose", place)
    if ended.returncode or not verdicts:
        return [case.name, "0", "", "", ended.stderr.decode()[-200:], took]
    facts = json.loads((folder / place / "run.json").read_text("utf-8"))
    layers = said(folder, "breakdown", place, "--table", "layers") or []
    networks = [tuple(layer[name] for name in NETWORK) for layer in layers]
    complete = bool(networks) and all(case.fits(network) for network in networks)
    verdict = verdicts[0]["verdict"] or {}
    findings = [f for f in verdicts[0]["findings"] if f["kind"] == verdict.get("kind")]
    names = [remedy["name"] for f in findings for remedy in f["remedies"]]
    first = verdict.get("cause") == case.cause if case.cause else names[:1] == [case.remedy]
    timed, profiled = facts["iterations"], len(facts["profiled_wall_ns"])
    cells = [f"{timed}, {profiled}", "yes" if complete else f"no: {networks}"]
    cells += ["yes" if first else f"no: {names[:1]}", verdict.get("sentence") or ""]
    return [case.name, *cells, took]


def gain(program: tuple[str, ...], folder: Path) -> list[str]:
    """Return the cells of the table of fixes for one program."""
    name, *more = program
    found = {}
    for form in ("mistake", "fixed"):
        words = ("run", PROGRAMS / f"{name}.py", "--then", "stop", "--quiet", "--name", form)
        command = [sys.executable, "-m", "lstmprof", *map(str, words), "--", "200", *more, form]
        subprocess.run(command, cwd=folder, capture_output=True, check=True)
        found[form] = said(folder, "diagnose", f"traces/{form}")[0]
    first = found["mistake"]["verdict"]["fixes"][0]
    before, after = (document["slow_ns"] / 1e6 for document in found.values())
    forecast, gained = (first["saves_ns"] or 0) / 1e6, before - after
    numbers = (before, after, forecast, gained, forecast / gained)
    right = first["name"] == FIXES[program]
    cells = [" ".join(program), first["name"] if right else f"{first['name']} (wrong)"]
    return [*cells, *(f"{number:.2f}" for number in numbers)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spinning", type=int, default=0, help="number of spinning processes")
    parser.add_argument("--fixes", action="store_true", help="what fixes save")
    parser.add_argument("names", nargs="*", help="programs; all by default")
    given = parser.parse_args()
    with spinning(given.spinning):
        table: dict[str, Any] = {each.name: functools.partial(row, each) for each in CASES}
        if given.fixes:
            table = {" ".join(each): functools.partial(gain, each) for each in FIXES}
        for name, cells in table.items():
            if not given.names or name in given.names:
                with tempfile.TemporaryDirectory() as scratch:
                    print("| " + " | ".join(cells(Path(scratch))) + " |", flush=True)
