"""Damage a run, and give it to every command that reads runs: ``python -m attack.damages``.

::

    a good run ─ runs.damages, by a seed ─▶ a folder with the damaged and the good one
                                            ─▶ breakdown, diagnose, report, query, ingest there

The damages take turns, and so do a run of seven events and the sample of a capture. Whatever stands
in the damaged one, a command ends with 0 or 1 and no traceback, and goes on with the good one.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import math
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from attack.fuzz import HANG_S, hung
from attack.oracle import BusyError
from attack.seeds import kineto, run_files
from runs.damages import DAMAGES, damaged

SAMPLE = Path(__file__).parents[2] / "traces" / "torch-nn-lstm-t5"
EVERYTHING = """
SELECT (SELECT count(*) FROM events WHERE name <> '' AND dur_ns > 1),
       (SELECT sum(wall_ns) FROM timings), (SELECT count(*) FROM kernels), * FROM runs
"""
COMMANDS: dict[str, Sequence[str]] = {
    "breakdown": ("breakdown", "{0}/runs", "--format", "json"),
    "diagnose": ("diagnose", "{0}/runs"),
    "report": ("report", "{0}/runs", "-o", "{0}/page.html", "--force"),
    "query": ("query", EVERYTHING, "{0}/runs", "--format", "csv"),
    "ingest": ("ingest", "{0}/damaged.json", "--out", "{0}/runs", "--force"),
}


@dataclass(frozen=True)
class Outcome:
    """What a command made of a damaged run; ``problem`` is the promise it broke, or empty."""

    command: str
    damage: str
    code: int
    is_left_out: bool
    problem: str


def outcomes(seeds: Iterable[int], scratch: Path) -> Iterator[Outcome]:
    """What every command makes of the run that each seed damages."""
    good = scratch / "good"
    good.mkdir()
    for name, content in run_files().items():
        (good / name).write_bytes(content)
    for seed in seeds:
        place = scratch / f"damage-{seed}"
        (place / "runs").mkdir(parents=True)
        (place / "damaged.json").write_bytes(kineto()[0])
        shutil.copytree(good, place / "runs" / "good")
        source = SAMPLE if seed // len(DAMAGES) % 2 else good
        damage = f"seed {seed}, {damaged(source, place / 'runs' / 'damaged', seed)}"
        for command in COMMANDS:
            yield _outcome(command, damage, place)
        shutil.rmtree(place)


def _outcome(command: str, damage: str, place: Path) -> Outcome:
    words = [word.format(place) for word in COMMANDS[command]]
    signal.alarm(HANG_S)
    try:
        code, said, answer = ended(words)
    except BusyError:  # or the process was stopped meanwhile
        code, said, answer = ended(words)
    finally:
        signal.alarm(0)
    return Outcome(command, damage, code, "left out: " in said, problem_of(code, said, answer))


def ended(words: list[str]) -> tuple[int, str, str]:
    """Exit code, standard error and standard output of a command; 70 and a traceback of a defect.

    Raises:
        BusyError: it takes too long.
    """
    from lstmprof.cli import run

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            return run(words), err.getvalue(), out.getvalue()
        except BusyError:
            raise
        except Exception:
            return 70, traceback.format_exc(), out.getvalue()


def problem_of(code: int, said: str, answer: str) -> str:
    """What is wrong with an end of this exit code, standard error and standard output."""
    if code not in (0, 1):
        return f"it exits {code}: {said[-300:]}"
    if "Traceback" in said or "a bug in lstmprof" in said:
        return f"a defect: {said[-600:]}"
    if code and not said:
        return f"it exits {code} without a word"
    if "left out: " in said and not answer:
        return f"it says nothing of the good run: {said[-300:]!r}"
    if not all(line.isprintable() for line in said.splitlines()):
        return f"a control character: {said[-300:]!r}"
    return ""


def main() -> int:
    """Every command on every damage; 1 where a promise was broken."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=10 * len(DAMAGES), help="damaged runs")
    parser.add_argument("--minutes", type=float, default=math.inf, help="no run is begun after")
    parser.add_argument(
        "--seed", type=int, default=0, help="the first; a run has a seed of its own"
    )
    options = parser.parse_args()
    signal.signal(signal.SIGALRM, hung)
    ends: Counter[tuple[str, int, bool]] = Counter()
    broken, until = 0, time.monotonic() + 60 * options.minutes
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["LSTMPROF_CACHE"] = os.fspath(Path(scratch) / "cache")
        seeds = range(options.seed, options.seed + options.runs)
        in_time = itertools.takewhile(lambda seed: time.monotonic() < until, seeds)
        for outcome in outcomes(in_time, Path(scratch)):
            ends[outcome.command, outcome.code, outcome.is_left_out] += 1
            if outcome.problem:
                broken += 1
                print(
                    f"FAILED {outcome.command}, {outcome.damage!a}: {outcome.problem}", flush=True
                )
    print(table(ends))
    count = sum(ends.values())
    print(f"{count // len(COMMANDS)} damaged runs, {count} commands, {broken} broke a promise")
    return 1 if broken else 0


def table(ends: Counter[tuple[str, int, bool]]) -> str:
    """How each command ended, as a table of Markdown."""
    heads = ("command", "took all", "left runs out and went on", "exit status 1 of these")
    lines = [heads, ("---", *["---:"] * (len(heads) - 1))]
    for command in COMMANDS:
        own = {key[1:]: count for key, count in ends.items() if key[0] == command}
        left_out = sum(count for (_, is_left_out), count in own.items() if is_left_out)
        failed = sum(count for (code, _), count in own.items() if code)
        lines.append((command, str(sum(own.values()) - left_out), str(left_out), str(failed)))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    sys.exit(main())
